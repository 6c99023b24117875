#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Does the simulation's checker notice each missing rule? Rules keep each message exactly-once. This script removes them
# from a copy of the engine (or of the simulated network), one at a time. The simulation has to fail within $seeds
# seeds. If a mutation survives, the checker is blind to it. A pattern that changes nothing any more is a failure, too.
# tests/fail/mutations.sh covers the rules outside the engine.
# run-all limit: 600
set -u
seeds=${PVN_SIM_SEEDS:-10000}
build=$PVN_BUILDDIR src=$PVN_SRCDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# built NAME FILE: builds the simulation with $tmp/NAME.c (or .cc) in place of FILE. If FILE is a header, the engine's
# inline calls are compiled with $tmp/NAME.h.
built() {
    local source=$tmp/$1.${2##*.} first=
    if [[ $2 == *.h ]]; then
        first=$tmp/$1.first
        mkdir -p "$first/engine"
        cp "$source" "$first/engine/${2##*/}"
        source=$src/tests/support/engine_calls.c
    fi
    make -s --no-print-directory -C "$build" sim-mutant MUTANT="$tmp/$1" MUTANT_SOURCE="$source" MUTANT_FIRST="$first" >"$tmp/$1.log" 2>&1
}

# shellcheck source=tests/support/mutant.sh
. "$src/tests/support/mutant.sh"
# mutate NAME FILE SED-SCRIPT
mutate() {
    local name=$1 why
    mutant "$@" || return 0
    PVN_SIM_SEEDS=$seeds timeout 200 "$tmp/$name" >"$tmp/$name.out" 2>&1
    case $? in
    0) echo "not ok mutation $name: survived $seeds seeds: the checker does not see it" ;;
    124) echo "not ok mutation $name: still running after 200 s" ;;
    *)
        why=$(sed -n '/Which is: /!d;s/.*Which is: //p;q' "$tmp/$name.out")
        why="$(grep -om1 'seed [0-9]*' "$tmp/$name.out") ${why:-crashed}"
        echo "ok mutation $name ($why)"
        ;;
    esac
    rm -f "$tmp/$name"
}

e=plugin/engine
# The control: an unmodified copy passes.
cp "$src/$e/engine_tx.c" "$tmp/none.c"
if [ -n "${PVN_MUTATION_PATTERNS:-}" ]; then
    : # nothing is built
elif built none $e/engine_tx.c && PVN_SIM_SEEDS=1000 "$tmp/none" >"$tmp/none.out" 2>&1; then
    echo "ok mutation none: a mere copy passes"
else
    echo "not ok mutation none: a mere copy of the engine fails"
    tail -n 5 "$tmp/none.log" "$tmp/none.out" | sed 's/^/  /'
fi

# Rules that make a failover safe.
mutate no-fence tests/sim/world.cc '/^void World::fence/,/^}/s/l->fenced = true;|(l->pending|stream)\.clear\(\);/;/'
mutate no-drain-before-report $e/engine_failover.c '/^int pvn_engine_drain/,/^}/s/n = l->ops->drain\(l, ev, POLL_BATCH\);/n = 0;/'
mutate sent-is-not-delivered $e/engine_error.c 's/delivered &= .*;/;/'
mutate lane-reports-before-delivery tests/sim/world.cc 's/if \(!w->k\.delivered\)/if (true)/'
mutate no-epoch-compare $e/engine_failover.c 's/return r->epoch \+ 1 == e->epoch;/return false;/
s/\(r->epoch != e->epoch \|\| (r->by_slot != e->needs_cts)\)/(\1)/'
mutate no-slot-compare-in-the-report $e/engine_failover.c 's/r->open\[i\]\.slot == slot\)/true)/'
mutate no-number-compare-in-the-report $e/engine_failover.c 's/return i < 2 \* PVN_MAX_SENDS &&.*/return true;/'
mutate unsent-messages-count-as-sent $e/engine_failover.c 's/!nothing && !waits && has/!nothing \&\& has/'
mutate no-rewind-of-acknowledged-chunks $e/engine_failover.c '/^static void rewind_message/,/^}/s/m->ndone = 0;|chunk_clear\(.*\);/;/'
mutate parts-are-not-forgotten $e/engine_failover.c '/^static void forget_parts/,/^}/s/ent->matched = ent->total_known = false;/;/'
mutate matched-parts-are-not-forgotten $e/engine_match.c '/^void eng_match_rewind/,/^}/s/(chunk_clear|forget_placed)\((placed_of|&ent->).*\);/;/'
mutate taken-buffers-are-forgotten $e/engine_failover.c 's/tx->taken\[i\] = r->open\[i\]\.done;/;/'
mutate known-messages-are-not-skipped $e/engine_match.c 's/while \(m->kind == MAP_DONE && m->msg == mt->next\)/while (0)/'
mutate any-number-acknowledges-all $e/engine_failover.c 's/ \|\| received != tx->next//'
mutate new-messages-overtake $e/engine_calls.h 's/waits \? 0 : //'
mutate only-the-oldest-takes-a-slot $e/engine_tx.c '/^__attribute__.*int post_others/,/^}/s/m = find_for_slot\(e\)/m = NULL/'
mutate waiting-messages-hold-up-new-ones $e/engine_tx.c '/^bool eng_is_behind/,/^}/s/ && m->w\.f\.tag == tag//'
mutate the-newest-with-a-tag-takes-the-slot $e/engine_tx.c '/^static struct send_msg \*find_for_slot/,/^}/s/&tx->msg\[k % MSG_RING\]/\&tx->msg[(tx->next - 1 - (k - tx->unposted)) % MSG_RING]/'
mutate what-was-assigned-ahead-is-not-finished $e/engine_tx.c 's/m->unassigned \? 0 : post_rest\(e, m\)/0/'
mutate flushes-are-not-ended $e/engine_flush.c '/^void pvn_engine_flushed/,/^}/s/flush_done\(e, j\);/;/'
mutate closed-without-a-fence tests/sim/world.cc '/^void World::close/,/^}/s/fence\(.*\);/;/'
# Rules for messages that complete when a lane has taken them.
mutate what-is-kept-is-not-copied $e/engine_keep.c '/^void eng_keep\(/,/^}/s/m->w\.src = copy;/;/'
mutate a-tested-send-gives-up-its-copy $e/engine_calls.h 's/req->state = req->after;/req->state = REQ_FREE;/'
mutate what-is-kept-is-not-sent-again $e/engine_failover.c '/^static struct send_msg \*open_message/,/^}/s/ \|\| eng_is_kept\(m\)//'
mutate what-is-kept-is-always-sent-again $e/engine_failover.c 's/&& has\(r, k, m\)/\&\& !eng_is_kept(m) \&\& has(r, k, m)/'
mutate a-kept-message-is-kept-for-ever $e/engine_tx.c '/^__attribute__.* sent_any/,/^}/s/eng_unkeep\(e, m\);/;/'
mutate one-taken-chunk-is-all $e/engine_keep.c 's/ && size <= e->chunk &&$/ \&\&/;s/ \|\| m->next != 1//'
mutate kept-messages-share-a-place $e/engine_keep.c 's/k->free\[--k->nfree\]/k->free[0]/;s/k->free\[k->nfree\+\+\] = .*;/;/'
mutate taken-of-any-message $e/engine_keep.c 's/ \|\| m->w\.cookie != id//'
# Rules that keep a message exactly-once, also without a failover.
mutate flushed-by-one-lane $e/engine_flush.c 's/if \(--j->waiting == 0\)/if (true)/'
mutate flush-refused-is-forgotten $e/engine_flush.c '/^static int post/,/^}/s/if \(rc == -EAGAIN\)/if (false)/'
mutate no-generation-compare-of-sends $e/engine_tx.c 's/m->req\.state != REQ_OPEN \|\| m->w\.cookie != id/m->req.state != REQ_OPEN/'
mutate no-slot-compare-of-arrivals $e/engine_recv.c 's/!g \|\| pvn_id\(g->slot\) != ev->id/!g/'
mutate no-number-compare-of-arrivals $e/engine_match.c '/^int eng_match_arrived/,/^}/s/ \|\|$//
/^int eng_match_arrived/,/^}/s/pvn_id\(m->msg\) != ev->id\)/)/'
mutate no-bitmap-of-sent-chunks $e/engine_tx.c 's/chunk_test\(done, chunk\)/false/'
mutate no-bitmap-of-arrived-chunks $e/engine_recv.c 's/chunk_test\(&ent->seen, ev->chunk\)/false/'
mutate no-bitmap-of-placed-chunks $e/engine_match.c 's/chunk_test\(&placed->chunks, f->chunk\)/false/'
mutate no-bitmap-of-matched-chunks $e/engine_match.c 's/chunk_test\(seen, ev->chunk\)/false/'
mutate no-guard-of-done-buffers $e/engine_recv.c '/^static int one_of_many/,/^}/s/if \(ent->done\)/if (false)/'
mutate slots-announced-again-are-taken-again tests/sim/world.cc 's/p\.slot == l->next_slot/true/'
mutate a-taken-buffer-is-taken-again $e/engine_tx.h 's/ && !\(taken >> i & 1\)//'
mutate no-bitmap-of-chunks-placed-by-slot $e/engine_place.c 's/chunk_test\(&p->chunks, f->chunk\)/false/'
mutate what-was-placed-is-not-forgotten $e/engine_place.c 's/memset\(rx->placed.*/;/'
# Work that is due must not wait until a lane's watched words change. tests/support/engine_calls.c checks that.
mutate watched-while-a-slot-waits $e/engine_recv.h 's/pvn_lane_watch_empty\(e->watch\);/;/'
mutate watched-while-a-chunk-waits $e/engine_tx.c 's/pvn_lane_watch_empty\(e->watch\);/;/'
mutate watched-while-a-flush-waits $e/engine_flush.c 's/pvn_lane_watch_empty\(e->watch\);/;/'
mutate watched-while-a-kick-waits $e/engine.c '/^static inline int kick/,/^}/s/pvn_lane_watch_empty\(e->watch\);/;/'
