#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The whole plugin runs between two network namespaces, whose connection is lost while data flow. Without failover
# both ranks must end soon, with an error that names the peer, the interface and the parameter. With
# NCCL_PVRDMA_FAILOVER=1 they must go on when the path is back, with every byte right. With two connections and no
# setting they go on over the other one, and later return. The script prints TAP-like lines for tests/run-all.
# usage: link_loss.sh   (in the build directory, or with PVN_BUILDDIR)
# run-all once
set -u
build=${PVN_BUILDDIR:-$PWD}
a=pvnll$$a b=pvnll$$b c=pvnll$$c
log=$(mktemp)

gone() {
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns del "$c" 2>/dev/null
    rm -f "$log"
}
trap gone EXIT

# joined K: gives both ends an interface vK, 10.9.K.1 and 10.9.K.2
joined() {
    local n i
    ip link add "v$1" netns "$a" type veth peer name "v$1" netns "$b" || return 1
    for n in "$a" "$b"; do
        ip -n "$n" link set "v$1" up
    done
    ip -n "$a" addr add "10.9.$1.1/24" dev "v$1" && ip -n "$b" addr add "10.9.$1.2/24" dev "v$1" || return 1
    for n in "$a" "$b"; do
        # The kernel reports a new link after some delay. Until then it counts as unplugged.
        for ((i = 0; i < 200; i++)); do
            ip -n "$n" -br link show "v$1" | grep -q ' UP ' && continue 2
            sleep 0.05
        done
        return 1
    done
}

# setup: makes a new pair of namespaces, joined by so many interfaces
interfaces=1
setup() {
    local k
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns add "$a" && ip netns add "$b" || return 1
    ip -n "$a" link set lo up && ip -n "$b" link set lo up || return 1
    for ((k = 0; k < interfaces; k++)); do
        joined $k || return 1
    done
}

sent() { ip netns exec "$a" cat /sys/class/net/v0/statistics/tx_bytes; }

export NCCL_SOCKET_IFNAME='' NCCL_PVRDMA_TCP_USER_TIMEOUT=2s NCCL_PVRDMA_KEEPALIVE_IDLE=1s NCCL_DEBUG=WARN
export NCCL_PVRDMA_KEEPALIVE_INTVL=1s NCCL_PVRDMA_KEEPALIVE_CNT=2

# transfer NAME ARGUMENTS...: starts a transfer, and sets pid when data flow
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

# lose NAME WANT COMMAND...: starts a long transfer, runs COMMAND once data flow, and expects the transfer to fail
# with a message that matches WANT
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

# survive NAME FAULT REPAIR: expects a transfer to go on when the path is back, and all its data to arrive
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
# lines N PATTERN: waits until the log has N lines with PATTERN, for 40 s at most
lines() {
    local i
    for ((i = 0; i < 400; i++)); do
        [ "$(grep -Ec "$2" "$log")" -lt "$1" ] || return 0
        sleep 0.1
    done
    return 1
}

# go_round NAME FAULT REPAIR [PATTERN]: loses the used one of two interfaces. Both ends go on over the other one, and
# return when the first is back. The log has PATTERN. No parameter is set, because two interfaces are enough. The
# transfer has no end, and is interrupted.
go_round() {
    local name=$1 pid why=''
    unset NCCL_PVRDMA_FAILOVER
    interfaces=2
    transfer "$name" --iters 1000000 --warmup 0 --check --verbose --timeout 80 || return
    $2 || why="the fault itself failed: $2"
    lines 2 'connected again after .*: tcp on v1' || why="${why:-it did not go over to the other interface}"
    $3 || why="the repair failed: $3"
    lines 2 'returned after .*: tcp on v0' || why="${why:-it did not return}"
    kill -INT "$pid"
    wait "$pid"
    interfaces=1
    [ -z "${4-}" ] || lines 1 "$4" || why="${why:-the log does not have: $4}"
    if [ -z "$why" ] && grep -q INTERRUPTED "$log" && ! grep -Eq 'FAILED|wrong:|gave up' "$log"; then
        echo "ok $name"
        return
    fi
    echo "not ok $name: ${why:-the data or the end}"
    sed 's/^/# /' "$log" | tail -n 20 | cut -c1-400
}
near_down() { ip -n "$a" link set v0 down; }
near_up() { ip -n "$a" link set v0 up; }
interface_down() { ip -n "$b" link set v0 down; }
interface_up() { ip -n "$b" link set v0 up; }
address_gone() { ip -n "$b" addr del 10.9.0.2/24 dev v0; }
# The receiver's first address now belongs to another machine, which refuses connections as a firewall may.
address_moved() {
    ip netns add "$c" && ip -n "$b" link set v0 netns "$c" && ip -n "$c" link set v0 up &&
        ip -n "$c" addr add 10.9.0.2/24 dev v0
}
address_returned() {
    ip -n "$c" link set v0 netns "$b" && ip -n "$b" link set v0 up && ip -n "$b" addr add 10.9.0.2/24 dev v0
}
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
    # Without a link both ends can only wait. In the other cases one end may learn first that the other has ended.
    reason='the comm had worked for .*; local .* v0 10\.9\.0\.[12]:[0-9]+; peer .*10\.9\.0\.[12]:.*; try: '
    lose "interface down in mid-message" "$reason.*NCCL_PVRDMA_TCP_USER_TIMEOUT" interface_down
    lose "peer's address withdrawn" "$reason" address_gone
    lose "route withdrawn" "$reason" route_gone
    survive "interface down for 4 s, with failover" interface_down interface_up
    survive "peer's address withdrawn for 4 s, with failover" address_gone address_back
    survive "route withdrawn for 4 s, with failover" route_gone route_back
    go_round "receiver's interface down, another one is there" interface_down interface_up
    go_round "sender's interface down, another one is there" near_down near_up
    go_round "receiver's address withdrawn, another one is there" address_gone address_back
    go_round "receiver's address moved to a machine that refuses" address_moved address_returned 'the connection is refused; other paths'
fi
