/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat for people. */
#include "topo/tool/stat/stat_job.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/stats/stat_via.h"

/* "0.3 s", "12 min", "3 h 07 min"; "-" for never. */
static const char *span(double s, char *buf, size_t len)
{
    if (s < 0)
        snprintf(buf, len, "-");
    else if (s < 99.95)
        snprintf(buf, len, "%.1f s", s);
    else if (s < 7200)
        snprintf(buf, len, "%.0f min", s / 60);
    else if (s < 172800)
        snprintf(buf, len, "%.0f h", s / 3600);
    else
        snprintf(buf, len, "%.0f d", s / 86400);
    return buf;
}

static const char *amount(uint64_t bytes, char *buf, size_t len)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 9999.5 && u < 6) {
        v /= 1024;
        u++;
    }
    snprintf(buf, len, "%.*f %s", u > 0 && v < 99.95 ? 1 : 0, v, units[u]);
    return buf;
}

/* Notes a file of another host in a shared directory: only its own host has the clock of its time
 * stamps. */
static void say_clocks(const struct tool *t, const struct pvn_stats *f)
{
    char text[400], age[32];
    bool ahead = f->ahead_ns > PVN_NS_PER_S / 10;
    if (f->life != PVN_STATS_ELSEWHERE)
        return;
    snprintf(
        text, sizeof(text),
        "%s%s%sits ages are by the calendar clocks of two hosts, which may differ: pvn-topo stat on "
        "%.64s, or --hosts, has the true ones",
        ahead ? "that host's clock is ahead of this one's, by " : "",
        ahead ? span((double)f->ahead_ns / 1e9, age, sizeof(age)) : "", ahead ? " or more; " : "",
        f->head.id.host);
    fputs("    ", t->out);
    tool_wrap(t, 4, 4, text);
}

static void process(const struct tool *t, const struct pvn_stats *f)
{
    const struct pvn_stat_head *h = &f->head;
    const char *state = stat_process_state(f);
    char age[32];
    bool dead = f->life == PVN_STATS_DEAD;
    fprintf(t->out, "%s", t->bold);
    if (h->rank[0])
        fprintf(t->out, "rank %s, ", h->rank);
    fprintf(t->out, "%s pid %llu on %s: %s%s%s%s%s", h->command, (unsigned long long)h->id.pid,
            h->id.host, t->off, dead ? t->red : "", stat_life_name(f), state[0] ? ", " : "", state);
    fprintf(t->out, "%s; began %s ago, ", dead ? t->off : "",
            span(stat_age(f, h->mono_ns), age, sizeof(age)));
    fprintf(t->out, "plugin %s, interface v%u\n", h->plugin, h->abi);
    say_clocks(t, f);
    if (!dead && stat_in_other_net(f))
        fprintf(t->out,
                "    it is in another network namespace: the counters of its interfaces are "
                "not shown\n");
    if (dead && h->open)
        fprintf(t->out,
                "    it ended without closing its comms: killed, crashed, or by exit%s; last "
                "numbers %s ago\n",
                h->abi < 11 ? " (NCCL has no finalize before v11)" : "",
                span(stat_age(f, h->touched_ns), age, sizeof(age)));
    if (f->state == 'T' || f->state == 't')
        fprintf(t->out, "    it is stopped, by a signal or a debugger: its peers wait for it\n");
    else if (!dead && h->open && stat_age(f, h->touched_ns) > STAT_STALLED_S)
        fprintf(t->out,
                "    NCCL has not called the plugin for %s: the process computes, idles, or hangs\n"
                "    elsewhere\n",
                span(stat_age(f, h->touched_ns), age, sizeof(age)));
    if (h->untracked)
        fprintf(t->out, "    %u comms have no row: there were more than %u, or no room for them\n",
                h->untracked, h->id.max_rows);
}

/* True if the job has a key; the table then has one more column. */
static bool has_key(const struct pvn_stats *f)
{
    for (int i = 0; i < f->nrows; i++)
        if (f->row[i].sealed != PVN_STAT_SEALED_NONE)
            return true;
    return false;
}

static void row(const struct tool *t, const struct pvn_stats *f, const struct pvn_stat_row *r,
                bool key)
{
    char bytes[32], moved[32], called[32], via[24], peer[240];
    const char *state = r->ended_ns && r->phase != PVN_STAT_FAILED ? "closed" : r->state;
    enum stat_trouble trouble = stat_trouble(f, r);
    pvn_via_text(pvn_via_of_lanes(r->lanes), via, sizeof(via));
    fprintf(t->out, "%5llu %-6s %-8s ", (unsigned long long)r->id,
            !stat_is_comm(r) ? "listen"
            : r->sender      ? "send"
                             : "recv",
            via);
    if (key)
        fprintf(t->out, "%-8s ", stat_is_comm(r) ? stat_sealed_name(r) : "-");
    fprintf(t->out, "%-11s %s%-8s%s", r->device, trouble != STAT_FINE ? t->red : "", state,
            trouble != STAT_FINE ? t->off : "");
    fprintf(t->out, "%12llu %11s %5llu %8s %9s  %s%s\n", (unsigned long long)r->n.msgs,
            amount(r->n.bytes, bytes, sizeof(bytes)), (unsigned long long)r->n.open,
            span(stat_age(f, r->n.moved_ns), moved, sizeof(moved)),
            span(stat_age(f, r->n.look_ns), called, sizeof(called)),
            stat_peer(r, peer, sizeof(peer)), r->seq ? " (read while it was being written)" : "");
}

static void wrapped(const struct tool *t, const char *what, const char *text)
{
    enum { INDENT = 6 };
    fprintf(t->out, "%*s%s", INDENT, "", what);
    tool_wrap(t, INDENT + (int)strlen(what), INDENT + 2, text);
}

/* True if two reasons differ only in numbers: ports, messages, seconds. */
static bool alike(const char *a, const char *b)
{
    while (*a && *b) {
        bool digits = isdigit((unsigned char)*a) != 0;
        if (digits != (isdigit((unsigned char)*b) != 0))
            return false;
        if (!digits && *a++ != *b++)
            return false;
        a += digits ? strspn(a, "0123456789") : 0;
        b += digits ? strspn(b, "0123456789") : 0;
    }
    return *a == *b;
}

static bool same_reason(const struct pvn_stats *f, const struct pvn_stat_row *a,
                        const struct pvn_stat_row *b)
{
    return stat_trouble(f, a) == stat_trouble(f, b) && !a->ended_ns == !b->ended_ns &&
           alike(a->text, b->text);
}

/* Writes " (also comms 4, 6 and 8)"; false if an earlier comm had this reason. */
static bool name_others(const struct pvn_stats *f, const struct pvn_stat_row *r, char *out,
                        size_t cap)
{
    enum { SHOWN = 6 };
    int n = 0;
    out[0] = '\0';
    for (const struct pvn_stat_row *o = f->row; o < f->row + f->nrows; o++) {
        size_t at = strlen(out);
        if (o == r || !same_reason(f, r, o))
            continue;
        if (o < r)
            return false;
        if (n++ < SHOWN)
            snprintf(out + at, cap - at, "%s %llu", n == 1 ? " (also comm" : ",",
                     (unsigned long long)o->id);
    }
    if (n > 0)
        snprintf(out + strlen(out), cap - strlen(out), n > SHOWN ? " and %d more)" : ")",
                 n - SHOWN);
    return true;
}

/* Prints the reason of a comm's state, if there is one, once for all comms with the same reason. */
static void reason(const struct tool *t, const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    char text[1400], a[32], peer[240], others[128];
    uint64_t since;
    if (!r->text[0] || !name_others(f, r, others, sizeof(others)))
        return;
    switch (stat_trouble(f, r)) {
    case STAT_STALLED:
        stat_peer(r, peer, sizeof(peer)); /* "" until the peer has connected */
        snprintf(text, sizeof(text), "for %s%s: %s%s%s", span(stat_stalled(f, r), a, sizeof(a)),
                 others, r->text, peer[0] ? "; peer " : "", peer);
        wrapped(t, "STALLED ", text);
        break;
    case STAT_FAILED:
        snprintf(text, sizeof(text), "%s ago%s: %s", span(stat_age(f, r->state_ns), a, sizeof(a)),
                 others, r->text);
        wrapped(t, "FAILED ", text);
        break;
    case STAT_LOST:
    case STAT_FINE:
        since = r->n.stuck_ns ? r->n.stuck_ns : r->state_ns;
        if (r->ended_ns)
            break;
        snprintf(text, sizeof(text), "for %s%s: %s", span(stat_age(f, since), a, sizeof(a)), others,
                 r->text);
        wrapped(t, "", text);
        break;
    }
}

static void details(const struct tool *t, const struct pvn_stat_row *r)
{
    char text[200];
    if (r->lanes[0])
        wrapped(t, "", r->lanes);
    if (r->n.known & PVN_STAT_KNOWS_RETRANSMITS) {
        snprintf(text, sizeof(text), "%llu TCP segments sent again",
                 (unsigned long long)r->n.retransmits);
        wrapped(t, "", text);
    }
}

/* Prints the comm's current lanes and their changes. */
static void lane_changes(const struct tool *t, const struct pvn_stats *f,
                         const struct pvn_stat_row *r)
{
    char text[1000], a[32];
    if (r->n.failovers + r->n.failbacks == 0)
        return;
    snprintf(text, sizeof(text),
             "%llu failover%s, %llu return%s to better lanes, %llu message%s sent again; last "
             "change %s ago; now %s",
             (unsigned long long)r->n.failovers, r->n.failovers == 1 ? "" : "s",
             (unsigned long long)r->n.failbacks, r->n.failbacks == 1 ? "" : "s",
             (unsigned long long)r->n.replayed, r->n.replayed == 1 ? "" : "s",
             span(stat_age(f, r->n.changed_ns), a, sizeof(a)), r->lanes);
    wrapped(t, "", text);
}

static void rows(const struct tool *t, const struct pvn_stats *f, int *count)
{
    bool headed = false, key = has_key(f);
    for (int i = 0; i < f->nrows; i++) {
        const struct pvn_stat_row *r = &f->row[i];
        enum stat_trouble trouble = stat_trouble(f, r);
        count[trouble]++;
        if (trouble == STAT_FINE && !t->all && (r->ended_ns || strcmp(r->state, "LISTEN") == 0))
            continue;
        if (!headed)
            fprintf(t->out, "%s%5s %-6s %-8s %-*s%-11s %-8s%12s %11s %5s %8s %9s  %s%s\n", t->dim,
                    "comm", "dir", "via", key ? 9 : 0, key ? "sealed" : "", "device", "state",
                    "messages", "bytes", "open", "moved", "last call", "peer", t->off);
        headed = true;
        row(t, f, r, key);
        reason(t, f, r);
        lane_changes(t, f, r);
        if (t->all)
            details(t, r);
    }
}

/* The list is shown in this order: waiting or failed, running, dead. */
static int urgency(const struct pvn_stats *f)
{
    bool trouble = false;
    for (int i = 0; i < f->nrows; i++)
        trouble |= stat_trouble(f, &f->row[i]) != STAT_FINE;
    return f->life == PVN_STATS_DEAD ? 2 : trouble ? 0 : 1;
}

static int by_urgency(const void *a, const void *b)
{
    const struct pvn_stats *const *x = a, *const *y = b;
    int c = urgency(*x) - urgency(*y);
    return c ? c : *x < *y ? -1 : *x > *y; /* qsort is not stable */
}

/* The age of the current job: since the first of the living processes began or, if none lives, the
 * one that wrote last. Processes that ended before belong to earlier jobs. */
static double job_age(const struct stat_list *list)
{
    double oldest = -1, last = -1, last_began = 0;
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        double began = stat_age(f, f->head.mono_ns), wrote = stat_age(f, f->head.touched_ns);
        if (f->life != PVN_STATS_DEAD) {
            oldest = began > oldest ? began : oldest;
        } else if (last < 0 || wrote < last) {
            last = wrote;
            last_began = began;
        }
    }
    return oldest >= 0 ? oldest : last_began;
}

/* Prints the processes of earlier jobs in one line. */
static void folded(const struct tool *t, int n, double last)
{
    char age[32];
    if (n > 0)
        fprintf(
            t->out,
            "\n%d process%s of earlier jobs left %s when %s ended, the last %s ago: --all shows "
            "%s, --clean removes\n",
            n, n == 1 ? "" : "es", n == 1 ? "its file" : "files", n == 1 ? "it" : "they",
            span(last, age, sizeof(age)), n == 1 ? "it" : "them");
}

void stat_print(const struct tool *t, const struct stat_list *list)
{
    const struct pvn_stats **order = calloc((size_t)list->n + 1, sizeof(*order));
    int count[STAT_LOST + 1] = {0}, shown = 0, earlier = 0;
    double age = job_age(list), last = -1;
    stat_print_job(t, list);
    stat_print_hosts(t, list);
    for (int i = 0; order && i < list->n; i++)
        order[i] = &list->file[i];
    if (order)
        qsort(order, (size_t)list->n, sizeof(*order), by_urgency);
    for (int i = 0; order && i < list->n; i++) {
        const struct pvn_stats *f = order[i];
        double wrote = stat_age(f, f->head.touched_ns);
        if (!t->all && f->life == PVN_STATS_DEAD && wrote > age) {
            earlier++;
            last = last < 0 || wrote < last ? wrote : last;
            continue;
        }
        if (shown++ > 0)
            fputc('\n', t->out);
        process(t, f);
        rows(t, f, count);
    }
    folded(t, earlier, last);
    free(order);
    if (count[STAT_STALLED] + count[STAT_FAILED] + count[STAT_LOST])
        fprintf(t->out, "\n%d stalled, %d failed, %d left by dead processes\n", count[STAT_STALLED],
                count[STAT_FAILED], count[STAT_LOST]);
}
