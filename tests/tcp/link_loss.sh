#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The whole plugin between two network namespaces whose connection is lost while data flows: both ranks must end,
# soon and with a sentence that names peer, interface and knob; with NCCL_PVRDMA_FAILOVER=1 they must go on when
# the path is back, with every byte right. Prints TAP-like lines for tests/run-all.
# usage: link_loss.sh   (in the build directory, or with PVN_BUILDDIR)
set -u
build=${PVN_BUILDDIR:-$PWD}
a=pvnll$$a b=pvnll$$b
log=$(mktemp)

gone() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -f "$log"
}
trap gone EXIT

# A fresh pair of namespaces, joined by v0 at both ends.
setup() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns add "$a" && ip netns add "$b" || return 1
    ip link add v0 netns "$a" type veth peer name v0 netns "$b" || return 1
    for n in "$a" "$b"; do
        ip -n "$n" link set lo up
        ip -n "$n" link set v0 up
    done
    ip -n "$a" addr add 10.9.0.1/24 dev v0 && ip -n "$b" addr add 10.9.0.2/24 dev v0 || return 1
    for n in "$a" "$b"; do
        # The kernel reports a new link with some delay; until then it counts as unplugged.
        for ((i = 0; i < 200; i++)); do
            ip -n "$n" -br link show v0 | grep -q ' UP ' && continue 2
            sleep 0.05
        done
        return 1
    done
}

sent() { ip netns exec "$a" cat /sys/class/net/v0/statistics/tx_bytes; }

export NCCL_SOCKET_IFNAME='' NCCL_PVRDMA_TCP_USER_TIMEOUT=2s NCCL_PVRDMA_KEEPALIVE_IDLE=1s NCCL_DEBUG=WARN
export NCCL_PVRDMA_KEEPALIVE_INTVL=1s NCCL_PVRDMA_KEEPALIVE_CNT=2

# transfer NAME ARGUMENTS...: begins one; leaves its pid when data flow.
transfer() {
    local name=$1 i
    shift
    setup || { echo "not ok $name: no namespaces with a running link"; return 1; }
    timeout -k 5 90 "$build/pvn-perf" p2p --netns "$a,$b" --sizes 4M --bandwidth "$@" >"$log" 2>&1 &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        (($(sent) < 20000000)) || return 0
        sleep 0.05
    done
    echo "not ok $name: no data flowed before the fault"
    kill "$pid"
    return 1
}

# lose NAME WANT COMMAND...: runs a long transfer, COMMAND once data flows, and expects the transfer to fail with
# a message that matches WANT.
lose() {
    local name=$1 want=$2 rc=0 pid
    shift 2
    transfer "$name" --time 40 --timeout 45 || return
    "$@" || echo "not ok $name: the fault itself failed: $*"
    wait "$pid" || rc=$?
    if ((rc == 0 || rc >= 124)); then
        echo "not ok $name: pvn-perf ended with status $rc"
    elif ! grep -q 'ncclRemoteError' "$log"; then
        echo "not ok $name: no ncclRemoteError"
    elif ! grep -E 'pvrdma warns|NET/PVRDMA' "$log" | grep -Eq "$want"; then
        echo "not ok $name: the reason is missing"
    else
        echo "ok $name"
        return
    fi
    sed 's/^/# /' "$log" | tail -n 20
}

# survive NAME FAULT REPAIR: a transfer goes on when the path is back, and all of it arrives.
survive() {
    local name=$1 rc=0 pid before
    export NCCL_PVRDMA_FAILOVER=1
    transfer "$name" --iters 2000 --check --timeout 80 || return
    $2 || echo "not ok $name: the fault itself failed: $2"
    sleep 4
    before=$(sent)
    $3 || echo "not ok $name: the repair failed: $3"
    wait "$pid" || rc=$?
    export NCCL_PVRDMA_FAILOVER=0
    if ((rc == 0 && before < 8000000000)) && grep -q 'all data verified' "$log" &&
        [ "$(grep -c 'connected again after' "$log")" -ge 2 ]; then
        echo "ok $name"
        return
    fi
    echo "not ok $name: status $rc, $before bytes before the repair"
    sed 's/^/# /' "$log" | tail -n 20 | cut -c1-400
}
interface_down() { ip -n "$b" link set v0 down; }
interface_up() { ip -n "$b" link set v0 up; }
address_gone() { ip -n "$b" addr del 10.9.0.2/24 dev v0; }
address_back() { ip -n "$b" addr add 10.9.0.2/24 dev v0; }
route_gone() { ip -n "$a" route del 10.9.0.0/24; }
route_back() { ip -n "$a" route add 10.9.0.0/24 dev v0 src 10.9.0.1; }

if ! command -v ip >/dev/null; then
    echo "skip link loss: the ip command is not installed (iproute2)"
elif ! ip netns add "$a" 2>/dev/null; then
    echo "skip link loss: no network namespaces (run as root)"
elif ! ip netns exec "$a" true 2>/dev/null; then
    echo "skip link loss: no commands in network namespaces here (in a chroot whose / is no mount point, for example)"
elif [ ! -x "$build/pvn-perf" ]; then
    echo "skip link loss: pvn-perf is not built in $build"
else
    # Without a link both ends can only wait; in the other cases one may hear of the other's end first.
    reason='the comm had worked for .*; local .* v0 10\.9\.0\.[12]:[0-9]+; peer .*10\.9\.0\.[12]:.*; try: '
    lose "interface down in mid-message" "$reason.*NCCL_PVRDMA_TCP_USER_TIMEOUT" interface_down
    lose "peer's address withdrawn" "$reason" address_gone
    lose "route withdrawn" "$reason" route_gone
    survive "interface down for 4 s, with failover" interface_down interface_up
    survive "peer's address withdrawn for 4 s, with failover" address_gone address_back
    survive "route withdrawn for 4 s, with failover" route_gone route_back
fi
