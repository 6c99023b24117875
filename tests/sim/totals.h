/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// How often the seeds of a simulation met each kind of event.
#ifndef PVN_TESTS_SIM_TOTALS_H
#define PVN_TESTS_SIM_TOTALS_H

#include <cstdint>
#include <cstdio>
#include <utility>

namespace sim
{

struct Totals {
    uint64_t sends = 0, receives = 0, chunks = 0, repeats = 0, stales = 0, dups = 0, refusals = 0,
             deaths = 0, unexpected = 0, dropped_stale = 0, dropped_dup = 0, slots = 0, runs = 0,
             watches = 0, failovers = 0, replayed = 0, switches = 0, lost_answers = 0,
             acknowledged = 0, flushes = 0, closes = 0, sleeps = 0, lost_chunks = 0, overtakes = 0,
             farther = 0, kept = 0, kept_again = 0, helped = 0;

    void operator+=(const Totals &o)
    {
        sends += o.sends, receives += o.receives, chunks += o.chunks, repeats += o.repeats;
        stales += o.stales, dups += o.dups, refusals += o.refusals, deaths += o.deaths;
        unexpected += o.unexpected, dropped_stale += o.dropped_stale, dropped_dup += o.dropped_dup;
        slots += o.slots, runs += o.runs, watches += o.watches;
        failovers += o.failovers, replayed += o.replayed, switches += o.switches;
        lost_answers += o.lost_answers, acknowledged += o.acknowledged;
        flushes += o.flushes, closes += o.closes, sleeps += o.sleeps;
        lost_chunks += o.lost_chunks, overtakes += o.overtakes, farther += o.farther;
        kept += o.kept, kept_again += o.kept_again, helped += o.helped;
    }
};

inline void report(uint64_t seeds, const Totals &t)
{
    const std::pair<const char *, uint64_t> rows[] = {
        {"seeds", seeds},
        {"sends completed", t.sends},
        {"grouped receives completed", t.receives},
        {"chunks", t.chunks},
        {"unexpected messages", t.unexpected},
        {"slots that a sender took", t.slots},
        {"messages completed by another one's event", t.runs},
        {"empty polls that stood for the next ones", t.watches},
        {"injected: repeated events", t.repeats},
        {"injected: stale events", t.stales},
        {"injected: repeated chunks", t.dups},
        {"injected: refused posts", t.refusals},
        {"injected: dead lanes", t.deaths},
        {"failovers", t.failovers},
        {"failovers to another kind of lane", t.switches},
        {"answers lost in a failover", t.lost_answers},
        {"sends completed by the number of messages received", t.acknowledged},
        {"messages sent again", t.replayed},
        {"sends completed when a lane had taken them", t.kept},
        {"of them, sent again from the copy", t.kept_again},
        {"steps taken for a sender whose caller need not call", t.helped},
        {"flushes taken by lanes", t.flushes},
        {"ends closed in the middle", t.closes},
        {"sends that the number of a receiver which closed has ended", t.farther},
        {"times that ends were away", t.sleeps},
        {"ranks that sent before one that waited", t.overtakes},
        {"injected: packets that a path lost", t.lost_chunks},
        {"dropped by the engine as stale", t.dropped_stale},
        {"dropped by the engine as duplicate", t.dropped_dup}};
    for (const auto &r : rows)
        printf("%12llu %s\n", static_cast<unsigned long long>(r.second), r.first);
}

} // namespace sim

#endif
