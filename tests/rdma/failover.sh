#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Comms lose their lanes in mid-transfer and survive (NCCL_PVRDMA_FAILOVER=1). A ring all-reduce between two
# processes checks every element. RDMA runs on softverbs, whose faults are scripted. TCP runs in a network namespace,
# where another process resets the connections.
# run-all limit: 500
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plugin=$build/.libs/libnccl-net-pvrdma.so
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_FAILOVER=1

# ring NAME pvn-perf arguments...: runs both ranks with their output in $tmp/NAME
ring() {
    local name=$1
    shift
    timeout 100 "$build/pvn-perf" ring --ranks 2 --check --verbose --plugin "$plugin" "$@" >"$tmp/$name" 2>&1 </dev/null
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/$1"; }

# failovers NAME: counts how often an end has gone on with new lanes
failovers() { grep -c 'connected again after' "$tmp/$1"; }
verified() { grep -q 'all data verified' "$tmp/$1"; }
# survived NAME LANES: true if at least both ends of one comm failed over, and went on over LANES at last
survived() { verified "$1" && [ "$(failovers "$1")" -ge 2 ] && grep -q "connected again after [0-9.]* s: $2" "$tmp/$1"; }
ended() { ! verified "$1" && [ "$(failovers "$1")" = 0 ] && grep -q "$2" "$tmp/$1"; }
refused() { ! verified "$1" && grep -q "$2" "$tmp/$1"; }
at_once() { verified "$1" && [ "$(failovers "$1")" = 0 ]; }

# rdma NAME MODE RULE pvn-perf arguments...
rdma() {
    local name=$1 mode=$2
    mkdir -p "$tmp/fabric" "$tmp/sys"
    rm -rf "$tmp"/fabric/* "$tmp"/sys/*
    echo "$3" >"$tmp/rules"
    shift 3
    NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma \
        PVN_SOFTVERBS_DIR=$tmp/fabric PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys \
        PVN_SOFTVERBS_FAULTS=$tmp/rules NCCL_PVRDMA_RDMA_MODE=$mode ring "$name" "$@"
}

# Faults fire at the 300th request instead of after a time, because a busy machine may not get there in half a
# second.
for mode in record imm send; do
    name=rdma_${mode}_queue_pairs_break_and_are_replaced
    rdma $name $mode "rule break status status=RETRY_EXC_ERR nth=300 every=500 count=4" --sizes 8,64K,1M --iters 100
    verdict $name survived $name rdma
    name=rdma_${mode}_device_dies_and_tcp_goes_on
    rdma $name $mode "rule dies do nth=300 : fatal *" --sizes 1M --iters 100
    verdict $name survived $name tcp
    # The kernel has destroyed the adapter's queue pairs. Later calls on them return an error.
    name=rdma_${mode}_device_is_removed_and_tcp_goes_on
    rdma $name $mode "rule removed do nth=300 : fatal * gone" --sizes 1M --iters 100
    verdict $name survived $name tcp
    name=rdma_${mode}_port_goes_down_and_tcp_goes_on
    rdma $name $mode "rule down do nth=300 : port * 1 down" --sizes 1M --iters 100
    verdict $name survived $name tcp
    # The adapter's memory regions go first, which looks like a wrong request to the other end.
    name=rdma_${mode}_device_loses_its_memory_first_and_tcp_goes_on
    rdma $name $mode "rule removed do min_len=9000 nth=100 : fatal * gone 300" --sizes 1M --iters 100
    verdict $name survived $name tcp
    # A wrong request fails on every lane. Here and below, min_len makes the rule hit a message's bytes. If it hit
    # the last acknowledgement, the sender would notice only by a request of its own, after 35 s.
    name=rdma_${mode}_access_error_that_stays_ends_the_comm
    rdma $name $mode "rule wrong status status=REM_ACCESS_ERR min_len=9000 nth=100 count=0" --sizes 1M --iters 100 --timeout 20
    verdict $name refused $name 'the request itself is wrong: .* (remote access error)'
done
name=rdma_that_cannot_be_fenced_ends_the_comm
rdma $name record "rule break status status=RETRY_EXC_ERR min_len=9000 nth=100
rule stays fail call=destroy_qp errno=EBUSY nth=1 count=0" --sizes 1M --iters 100 --timeout 20
verdict $name ended $name 'cannot be fenced'
name=rdma_without_failover_ends_the_comm
NCCL_PVRDMA_FAILOVER=0 rdma $name record "rule break status status=RETRY_EXC_ERR min_len=9000 nth=100" --sizes 1M --iters 100 --timeout 20
verdict $name ended $name 'transport retry counter exceeded'
# Handshakes pass each time, and large packets never do. So TCP is the next kind of lane on the same path. 8: the
# ring has two directions with two comms each, and each comm has two ends.
to_tcp() { survived "$1" tcp && grep -q 'large packets are lost on the path' "$tmp/$1" && [ "$(grep -c 'connected again after [0-9.]* s: rdma' "$tmp/$1")" -le 8 ]; }
name=rdma_that_loses_large_packets_and_tcp_goes_on
rdma $name record "rule large status status=RETRY_EXC_ERR min_len=2000 nth=1 every=1 count=0" --sizes 1000,1M --iters 100
verdict $name to_tcp $name
# The device has room for the new lanes, but none for the registered memory. So TCP takes over. How many
# registrations the lanes and the rings need varies, so the loop looks for the first nth at which the plugin reports
# this. min_len makes the fault hit a message: if it hit a request that verifies the new lanes, they would never
# register any memory.
refused() { survived "$1" tcp && grep -q 'the new lanes do not take the memory that is registered' "$tmp/$1"; }
name=rdma_whose_new_lanes_refuse_the_memory_and_tcp_goes_on
for nth in 11 10 12 {13..20} {5..9}; do
    rdma $name record "rule break status status=RETRY_EXC_ERR min_len=9000 nth=100
rule full fail call=reg_mr errno=ENOMEM nth=$nth every=1 count=0" --sizes 64K --iters 300 --timeout 20
    ! grep -q 'the new lanes do not take' "$tmp/$name" || break
done
verdict $name refused $name
# The log does not blame large packets if a device dies under the first message.
not_the_network() { survived "$1" tcp && ! grep -q 'large packets are lost on the path' "$tmp/$1"; }
name=rdma_device_that_dies_at_once_is_called_that
rdma $name record "rule dies do nth=1 min_len=65536 : fatal *" --sizes 1M --iters 100
verdict $name not_the_network $name
# Both ends have handed over their sends, whose completions nobody polls for.
name=rdma_send_mode_without_failover_ends_the_comm
NCCL_PVRDMA_FAILOVER=0 rdma $name send "rule break status status=RETRY_EXC_ERR nth=300" --sizes 1M --iters 100 --timeout 20
verdict $name ended $name 'transport retry counter exceeded'
name=rdma_without_a_fault
rdma $name record "" --sizes 1M --time 0.2
verdict $name at_once $name

# resets PORT: resets every connection of the two processes in this namespace, except the one by which pvn-perf's
# ranks talk
resets() {
    local i pids=()
    for i in /proc/[0-9]*; do [ "$i/ns/net" -ef /proc/self/ns/net ] && pids+=("${i#/proc/}"); done
    python3 "$PVN_SRCDIR/tests/support/reset_tcp.py" "127.0.0.1-$1" "${pids[@]}"
}
tcp() {
    local port=29517 i
    ip link set lo up
    for i in 0 1; do
        RANK=$i WORLD_SIZE=2 LOCAL_RANK=$i LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 150 \
            "$build/pvn-perf" ring --check --verbose --plugin "$plugin" --size 1M --warmup 0 --iters 2000 >>"$tmp/$1" 2>&1 </dev/null &
    done
    # The loop waits until the comms are up, because the loss of a connection before that ends the job.
    for i in $(seq 300); do
        [ "$(grep -c 'receives from' "$tmp/$1")" -ge 4 ] && break
        sleep 0.1
    done
    for _ in 1 2 3 4; do
        sleep 0.5
        resets $port
    done >"$tmp/resets"
    wait
}
# The peer's process is killed while the connections are reset. The pvn-perf that watches it is stopped, so that only
# the plugin can notice.
killed() {
    local port=29518 i victim watcher ranks=
    ip link set lo up
    for i in 0 1; do
        RANK=$i WORLD_SIZE=2 LOCAL_RANK=$i LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 \
            "$build/pvn-perf" ring --verbose --plugin "$plugin" --size 4M --warmup 0 --iters 1000000 >>"$tmp/$1$i" 2>&1 </dev/null &
        ranks="$ranks $!"
    done
    for _ in $(seq 300); do
        grep -q 'receives from' "$tmp/$1"0 2>/dev/null && grep -q 'receives from' "$tmp/$1"1 2>/dev/null && break
        sleep 0.1
    done
    sleep 0.5
    victim=$(sed -n "s/.*receives from .* pid \([0-9]*\) at.*/\1/p" "$tmp/$1"0 | head -n 1)
    watcher=$(awk '/^PPid:/ {print $2}' "/proc/$victim/status")
    kill -STOP "$watcher"
    kill -STOP "$victim"
    resets $port >/dev/null
    sleep 0.2
    kill -KILL "$victim"
    # shellcheck disable=SC2086
    set -- "$1" $ranks
    wait "$2"
    kill -KILL "$watcher"
    cat "$tmp/$1"0 >"$tmp/$1"
}
# True if the comm ended before FAILOVER_TIMEOUT, because the plugin found out what became of the peer's process.
gone() { ! grep -q 'FAILOVER_TIMEOUT' "$tmp/$1" && grep -q "warns: .*peer's process \(does not listen any more\|has ended or was killed\)" "$tmp/$1"; }
name=tcp_connections_are_reset_and_made_again
export -f resets tcp killed
export build plugin tmp
if [ "$(id -u)" != 0 ] || ! unshare -n true 2>/dev/null; then
    echo "skip $name: needs root, for a network namespace"
elif ! command -v python3 >/dev/null; then
    echo "skip $name: there is no python3"
else
    unshare -n bash -c "tcp $name"
    verdict $name survived $name tcp
    cut -c1-100 "$tmp/resets" | sed 's/^/  /'
    name=tcp_a_peer_that_is_killed_during_a_failover_ends_the_comm
    unshare -n bash -c "killed $name"
    verdict $name gone $name
fi
