#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Do the tests of failover and of malformed peers notice each missing rule? tests/sim/mutations.sh covers the rules
# inside the engine. This script removes the others from a copy of the plugin, one at a time; the named test has to
# fail.
# run-all limit: 600
set -u
build=$PVN_BUILDDIR src=$PVN_SRCDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# shellcheck source=tests/support/mutant.sh
. "$src/tests/support/mutant.sh"

# built NAME FILE: builds the plugin, or the cache's unit test, with $tmp/NAME.c in place of FILE
built() {
    local rule=plugin-mutant
    [[ $2 != */memcache.c ]] || rule=memcache-mutant
    make -s --no-print-directory -C "$build" $rule MUTANT="$tmp/$1" MUTANT_SOURCE="$tmp/$1.c" >"$tmp/$1.log" 2>&1
}

# run NAME TEST: runs PROGRAM:FILTER with that plugin until the first failure; for the cache's unit test, $tmp/NAME is
# the program
run() {
    ulimit -c 0
    local program=$build/${2%%:*}
    [[ $2 != */test_memcache:* ]] || program=$tmp/$1
    PVN_TEST_PLUGIN=$tmp/$1 timeout -k 5 100 "$program" --gtest_color=no --gtest_break_on_failure --gtest_filter="${2#*:}" >"$tmp/$1.out" 2>&1 </dev/null
}

# mutate NAME TEST FILE SED-SCRIPT: the runs are concurrent, because the tests mostly wait
mutate() {
    mutant "$1" "$3" "$4" || return 0
    {
        run "$1" "$2"
        echo $? >"$tmp/$1.status"
    } 2>/dev/null & # the shell reports the signal by which a test ends
    running+=("$1=$2")
}
running=()

peer=tests/fail/test_failover_peer listener=tests/fail/test_listener handshake=tests/fail/test_handshake cache=tests/unit/test_memcache
comm=plugin/comm connect=plugin/connect
# The control: an unmodified copy passes.
cp "$src/$comm/comm_failover.c" "$tmp/none.c"
if [ -n "${PVN_MUTATION_PATTERNS:-}" ]; then
    : # nothing is built
elif built none $comm/comm_failover.c && run none $peer:FailoverSending.AProperPeer && grep -q 'OK ' "$tmp/none.out"; then
    echo "ok mutation none: a mere copy passes"
else
    echo "not ok mutation none: a mere copy of the plugin fails"
    tail -n 5 "$tmp/none.log" "$tmp/none.out" | sed 's/^/  /'
fi

# A peer that is alive is waited for.
mutate clock-runs-while-the-peer-is-there $peer:FailoverControl.OfAConnectorThatNobodyCalls $comm/comm_failover.c \
    's/pvn_link_sees_peer\(.*\) \|\| step/step/'
mutate clock-runs-while-its-machine-answers $peer:FailoverControl.OfAnAcceptorThatIsStopped $connect/link_keep.c \
    's/acknowledged \|\| k->conn->state/k->conn->state/'
mutate clock-never-runs $peer:FailoverReceiving.APeerThatDoesNotComeBack $comm/comm_failover.c 's/pvn_link_sees_peer\(.*\) \|\| step/true || step/'
mutate set-up-counts-while-the-peer-is-away $handshake:Absent.APauseBetweenTwoCallsIsWaitedFor $connect/handshake.c \
    's/^    if \(is_absent\(c, now\)\)$/    if (false)/'
# Lanes are made for the features of the handle, so those of the HELLO have to be the same.
mutate handle-with-other-features "$handshake:MalformedPeer.WrongAnswers*" $connect/handshake_steps.c \
    's/^    if \(c->nlanes > 0 && /    if (false \&\& /'
# A dial that fails ends with the system's error.
mutate dial-ends-with-the-limits-error 'tests/fail/test_dial:*NoRoute' $connect/handshake.c 's/^    if \(c->err.code\) \{$/    if (false) {/'
# The plugin keeps a control connection that the peer made again.
mutate control-connection-is-not-adopted $peer:FailoverControl.ThatEndsInOrderForTheAcceptor $connect/link_keep.c \
    's/next = take_ready\(l\)/next = NULL/'
mutate control-connection-is-used-unconfirmed $peer:FailoverControl.IsNotUsedBeforeItIsConfirmed $connect/listener_resumed.c \
    's/ && pvn_conn_is_confirmed\(c\)//'
mutate control-connection-of-other-lanes $peer:FailoverControl.OfAnEarlierConnection $connect/listener_resumed.c \
    's/c->theirs.resumes == nonce && pvn/pvn/'
mutate peer-hears-nothing-on-the-new-one $peer:FailoverControl.OfAConnectorThatNobodyCalls $comm/comm_failover.c \
    '/^static int watch_peer/,/^}/s/tell_again\(.*\);/;/'
mutate switch-is-not-repeated $peer:FailoverSwitch.IsLostWithTheControlConnection $comm/comm_failover.c 's/!switches \|\| c->link.sender/!switches/'
mutate clean-end-is-the-end-of-the-process $peer:FailoverControl.ThatEndsInOrderForTheConnector $comm/comm_failover.c \
    's/hung_up && !pvn_conn_keeps\(c->link.conn\)/hung_up/'
mutate limit-of-a-clean-end-begins-later-than-now $peer:FailoverControl.ThatEndsInOrderWhileTheNextOneIsSetUp $comm/comm_failover.c \
    's/began_ns = pvn_not_counted_ns\(.*\);/began_ns += step;/'
mutate clean-end-is-remembered $peer:FailoverControl.ThatEndedInOrderBeforeAnEarlierFailover $connect/link_failover.c \
    's/pvn_err_clear\(&l->ctrl_err\);/;/'
mutate control-connection-of-the-lost-answer $peer:FailoverControl.OfAConnectionWhoseLossNobodyHasSeen $comm/comm_failover.c \
    's/pvn_link_keep_expect\(.*\);/;/'
# The loss of a connection that was to take over ends no comm.
mutate goodbye-on-a-connection-given-up $peer:FailoverReceiving.AConnectionThatItGivesUpHasNoGoodbye $connect/link_failover.c \
    's/f->next->replaced = true;/;/'
mutate error-on-a-connection-that-is-not-ready $peer:FailoverReceiving.AConnectionThatIsNotReadyInTimeHasNoError $connect/conn.c \
    's/c->state == PVN_CONN_READY/false/'
# A refusal on one path does not end the failover.
mutate one-refusal-is-the-end $peer:FailoverSending.OneOfTwoAddressesRefuses $connect/link_failover.c \
    's/pvn_paths_are_all\(.*, f->refused\)/true/'
mutate refusals-are-the-end-of-a-living-peer $peer:FailoverSending.EveryAddressRefusesForATime $connect/link_failover.c \
    's/return l->conn->ctrl\.eof && /return /'
mutate lossy-path-is-not-remembered $peer:FailoverSending.APathThatDeliversNothingIsRemembered $connect/path_memory.c 's/\*lost \|= useless;/;/'
mutate remembered-path-is-taken $peer:FailoverSending.APathThatDeliversNothingIsRemembered $connect/paths.c \
    's/ && pvn_path_memory_allows\(.*\);/;/'
mutate every-loss-is-remembered $peer:FailoverSending.APathThatHasDeliveredIsDialledFirst $connect/path_memory.c 's/\*lost \|= useless;/*lost = true;/'
mutate losses-do-not-pause $peer:FailoverSending.LossesOneAfterTheOtherTakeLonger $comm/comm_failover.c \
    's/pvn_now_ns\(\) \+ pause_ns\(.*\)/pvn_now_ns()/'
# The peer loses a lane before it has heard of a switch.
mutate lane-down-in-a-switch-is-ignored $peer:FailoverSwitch.ThePeerHasLostALaneBefore $comm/comm_failover.c 's/if \(rc == 2 && /if (false \&\& /'
mutate goodbye-on-the-better-connection $peer:FailoverSwitch.ThePeerHasLostALaneBefore $connect/link_failover.c 's/f->next->replaced = true;/;/'
mutate goodbye-in-a-switch-is-the-paths-fault $peer:FailoverSwitch.ThePeerHasGivenUpTheBetterConnection $comm/comm_failover.c \
    's/better && f->switches && c->link.sender/false/'
mutate goodbye-on-the-better-connection-ends-the-comm $peer:FailoverSwitch.AReceiversPeerGivesUpTheBetterConnection $comm/comm_failover.c \
    's/goodbye && !better/goodbye/'
mutate receiver-hides-why-a-connection-failed $peer:FailoverReceiving.WhyTheNewConnectionFailsIsInTheStatistics $connect/listener_resumed.c \
    's/\*why = m->conn->err;/;/'
mutate slow-caller-has-no-limits $peer:FailoverReceiving.ALimitOfAReceiverThatIsCalledRarely $comm/comm_attend.c 's/c->attend_shift\+\+;/;/'
# Connections that the peer has left behind.
mutate idle-time-counts-as-a-stall tests/rdma/test_plugin_rdma:PluginRdma.AReceiveAfterAnIdleTimeIsNotStalled $comm/comm_watch.c \
    's/^        c->stall.moved_ns = now;/        ;/'
mutate any-failed-set-up-closes-the-listener $listener:Listener.GoesOnAfterASetUpThatHasFailedEarly $connect/listener.c 's/rc && peer_may_be_up/rc/'
mutate listener-of-a-failed-set-up-stays-open $listener:Listener.IsClosedAfterASetUpThatHasFailed $connect/listener.c \
    's/^        refuse_from_now_on\(l\);/        ;/'
mutate older-member-is-not-closed $listener:Listener.AConnectionLeftBehindReplacesNothing $connect/listener_members.c 's/close_older\(l, id, conn\);/;/'
mutate closed-members-are-kept $listener:Listener.ConnectionsForUnknownCommsThatAreClosedAgainAreNotKept $connect/listener_resumed.c \
    's/return !is_alive\(c\) \|\| now/return now/'
mutate unclaimed-members-are-kept $listener:Listener.ConnectionsForUnknownCommsThatStayOpenAreClosedInTime $connect/listener_resumed.c \
    's/ \|\| now - m->expected_ns >= .*;/;/'
mutate closed-member-replaces-the-lanes $peer:FailoverReceiving.AConnectionInPlaceThatIsClosedAgain $connect/listener_resumed.c \
    's/replaced \|= is_alive\(m->conn\);/replaced = true;/
s/return !is_alive\(c\) \|\| now/return now/'
# A receiver that has everything and closes.
mutate goodbye-without-the-number $peer:FailoverReceiving.ItsGoodbyeSaysWhatItHas $connect/wire.c \
    '/^int pvn_goodbye_encode/,/^}/s/received, 8/0, 8/'
mutate goodbye-number-is-ignored $peer:FailoverSending.AGoodbyeOfAPeerThatHasEverything $comm/comm_failover.c \
    's/^    if \(c->link.sender && said->has_received\)/    if (false)/'
mutate goodbye-number-is-ignored-on-the-new-one $peer:FailoverSending.AGoodbyeOnTheNewConnection $comm/comm_failover.c \
    's/^    if \(c->link.sender && said->has_received\)/    if (false)/'
mutate closed-comm-answers-nobody $peer:FailoverReceiving.APeerThatConnectsAgainAfterTheClose $connect/listener_resumed.c \
    '/^void pvn_listener_dismiss/,/^}/s/pvn_conn_goodbye\(c\);/;/'
mutate goodbye-in-the-exchange-is-another-frame $peer:FailoverReceiving.ThePeerClosesTheNewConnection $connect/conn_frame.c \
    '/^int pvn_conn_expect/,/^}/s/conn_take_goodbye\(.*\);/;/'
mutate goodbye-without-the-number-on-the-new-one $peer:FailoverReceiving.IsClosedWithANewConnection $connect/link_failover.c 's/next->received = received;/;/'
mutate end-of-a-failover-without-a-reason $peer:FailoverReceiving.ItsErrorOnTheNewConnection $connect/link_failover.c 's/pvn_conn_fail\(next, why\);/;/'
# Secrets, memory, clocks.
mutate session-is-compared-as-it-comes $listener:Unauthenticated.APartOfTheSessionIsNoAnswer $connect/wire.c \
    's/^    if \(len < pvn_preamble_bytes\(in, len\)\)$/for (size_t i = P_SESSION; i < len \&\& i < P_NONCE; i++) if (in[i] != (uint8_t)(session >> 8 * (i - P_SESSION))) return pvn_err_set(err, -EPROTO, "not ours");\n&/'
mutate guesses-are-not-slowed $listener:Unauthenticated.APartOfTheSessionIsNoAnswer $connect/listener_undecided.c 's/#define REFUSED_NS .*/#define REFUSED_NS 0/'
mutate listener-takes-the-time-too-early $listener:Unauthenticated.OneThatComesInDuringAnotherCallHasItsTime $connect/listener.c \
    '/^int pvn_listener_accept/,/^}/s/^    now = pvn_now_ns\(\);$/    ;/
/^int pvn_listener_accept/,/^}/s/^    pthread_mutex_lock.*/    now = pvn_now_ns();\n&/'
mutate region-is-not-retired $cache:Memcache.ARegionWhosePagesMayBeOthersIsNotOffered plugin/memory/memcache.c 's/^        retire\(c, n\);/        ;/'
mutate region-is-retired-too-early $cache:Memcache.ARegionIsOfferedWhileAnyoneHasAllOfIt plugin/memory/memcache.c 's/n->whole == 0 && n->tree/n->tree/'
mutate answering-thread-waits-by-the-wall-clock $listener:Clock.AWallClockThatIsSetBackStopsNoAnswer plugin/base/thread.c \
    's/CLOCK_MONOTONIC/CLOCK_REALTIME/'

wait
for entry in "${running[@]}"; do
    name=${entry%%=*} test=${entry#*=}
    status=$(cat "$tmp/$name.status")
    # A test that was starved beside the others may have missed the fault, or its own end: run it again alone.
    for ((again = 0; again < 2 && (status == 0 || status == 124); again++)); do
        { run "$name" "$test"; } 2>/dev/null
        status=$?
    done
    if [ "$status" = 0 ]; then
        echo "not ok mutation $name: survived: ${test#*:} does not see it"
    elif [ "$status" != 124 ] && grep -q ': Failure$' "$tmp/$name.out"; then
        echo "ok mutation $name (${test#*:})"
    else
        echo "not ok mutation $name: status $status of ${test#*:}"
        tail -n 20 "$tmp/$name.out" | sed 's/^/  /'
    fi
done
