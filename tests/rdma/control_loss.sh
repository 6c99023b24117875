#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# An outage of the network that carries the control connections, while the adapters' network works: the comms go on
# over RDMA. Two network namespaces are joined by a link for TCP, with softverbs beside it. They run a ring
# all-reduce that checks every element.
# run-all limit: 200
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
a=pvncl$$a b=pvncl$$b
plugin=$build/.libs/libnccl-net-pvrdma.so
gone() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$tmp"
}
trap gone EXIT
# The plugin gives the control connection up 2 s after a frame that is not acknowledged, or after 3 s of silence.
export NCCL_SOCKET_IFNAME=v0 NCCL_PVRDMA_FAILOVER=1 NCCL_PVRDMA_TCP_USER_TIMEOUT=2s NCCL_PVRDMA_KEEPALIVE_IDLE=1s
export NCCL_PVRDMA_KEEPALIVE_INTVL=1s NCCL_PVRDMA_KEEPALIVE_CNT=2 NCCL_PVRDMA_STATS_DIR=$tmp/stats
export NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma
export PVN_SOFTVERBS_DIR=$tmp/fabric PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys
# Requests to a process that has ended are retransmitted for this long.
export PVN_SOFTVERBS_SET="set timeout_cap_ms 200"

joined() {
    local n _
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns add "$a" && ip netns add "$b" && ip link add v0 netns "$a" type veth peer name v0 netns "$b" || return 1
    for n in "$a" "$b"; do
        ip -n "$n" link set lo up && ip -n "$n" link set v0 up || return 1
    done
    ip -n "$a" addr add 10.9.0.1/24 dev v0 && ip -n "$b" addr add 10.9.0.2/24 dev v0 || return 1
    for _ in $(seq 200); do
        ip -n "$a" -br link show v0 | grep -q ' UP ' && ip -n "$b" -br link show v0 | grep -q ' UP ' && return 0
        sleep 0.05
    done
    return 1
}
cut_off() { ip -n "$b" link set v0 down; }
join_again() { ip -n "$b" link set v0 up; }

# ring NAME FUNCTION: starts a ring and calls FUNCTION when both ranks are connected. If the variable check is empty,
# the ring has no barriers, so that a rank always waits in the plugin.
ring() {
    local pid
    log=$tmp/$1
    joined || { echo "no namespaces with a running link" >"$log"; return; }
    rm -rf "$tmp/fabric" "$tmp/sys" "$tmp/stats"
    mkdir -p "$tmp/fabric" "$tmp/sys"
    timeout 100 "$build/pvn-perf" ring --netns "$a,$b" ${check---check} --verbose --plugin "$plugin" --sizes 1M --warmup 0 --iters 1000000 \
        >>"$log" 2>&1 </dev/null &
    pid=$!
    until_said 4 'receives from'
    "$2"
    kill -INT "$pid" 2>/dev/null
    wait "$pid"
}
# until_said COUNT PATTERN: waits until the log has COUNT lines with PATTERN, for 40 s at most
until_said() {
    local _
    for _ in $(seq 400); do
        [ "$(grep -c "$2" "$log")" -lt "$1" ] || return 0
        sleep 0.1
    done
    echo "missing: $1 times $2" >>"$log"
}
# Prints the number of messages that both processes have sent so far.
messages() { "$build/topo/pvn-topo" --json stat | python3 -c 'import json, sys
print(sum(c["messages"] for p in json.load(sys.stdin)["processes"] for c in p["comms"] if c["kind"] == "send"))'; }

away='the control connection is lost' again='the control connection is there again after'
# Every end notices the outage, and the data goes on. When the network is back, each comm gets a new control
# connection, and no lane is given up.
outage() {
    local before
    cut_off
    until_said 8 "$away"
    before=$(messages)
    sleep 2
    echo "messages during the outage: $before then $(messages), failovers $(grep -c 'failover: ' "$log")" >>"$log"
    join_again
    until_said 8 "$again"
    echo "failovers in the end $(grep -c 'failover: ' "$log")" >>"$log"
}
verified() { grep -q INTERRUPTED "$log" && ! grep -Eq 'FAILED|wrong|missing:' "$log"; }
went_on() {
    verified && awk '/^messages during the outage:/ { exit !($7 + 0 > $5 + 0 && $9 == 0) }' "$log" &&
        [ "$(grep -c 'messages during the outage' "$log")" = 1 ] && grep -q 'failovers in the end 0' "$log"
}

# In the outage the adapter's port goes down and up. The comms then have neither path until the network is back.
command() { LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 python3 "$PVN_SRCDIR/tests/rdma/softverbs_command.py" "$@" 2>>"$log"; }
# If softverbs is built with AddressSanitizer, its library is loaded first, since Python is not.
asan=$(ldd "$build/tests/softverbs/.libs/libsoftverbs.so" | awk '/libasan/ { print $3 }')
outage_and_lost_lanes() {
    cut_off
    until_said 8 "$away"
    command "port * 1 down"
    until_said 8 'failover: .*the connection is made again'
    command "port * 1 up"
    join_again
    until_said 8 'connected again after'
}

# A peer that stops in the outage looks like one that is cut off. So the comm ends by its time limit.
outage_and_stopped_peer() {
    local victim
    cut_off
    until_said 8 "$away"
    victim=$(pgrep -P "$(pgrep -P "$pid" pvn-perf)" | tail -n 1)
    kill -STOP "$victim"
    until_said 1 'pvrdma warns: .*NCCL_PVRDMA_FAILOVER_TIMEOUT'
    kill -KILL "$victim"
}
ended() { ! grep -q 'missing:' "$log" && grep -q 'no new connection within 3 s (NCCL_PVRDMA_FAILOVER_TIMEOUT)' "$log"; }

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$log"; }
if ! type python3 >/dev/null 2>&1; then
    echo "skip control loss: there is no python3"
elif ! ip netns add "$a" 2>/dev/null || ! ip netns exec "$a" true 2>/dev/null; then
    echo "skip control loss: no network namespaces (they take root and iproute2)"
else
    for mode in record imm; do
        export NCCL_PVRDMA_RDMA_MODE=$mode
        ring "${mode}_mode_goes_on_without_control_connections" outage
        verdict "${mode}_mode_goes_on_without_control_connections" went_on
    done
    ring lanes_are_lost_in_an_outage_of_the_control_connections outage_and_lost_lanes
    verdict lanes_are_lost_in_an_outage_of_the_control_connections verified
    check='' NCCL_PVRDMA_FAILOVER_TIMEOUT=3s ring peer_stops_in_an_outage_of_the_control_connections outage_and_stopped_peer
    verdict peer_stops_in_an_outage_of_the_control_connections ended
fi
