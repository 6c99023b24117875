#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Two paths lead between two hosts. On the first path a router's next link gets a smaller MTU, and the router does
# not report it. Small packets pass, so connections come up, and large ones are lost. The comm goes on over the other
# path, and does not return to the first one while that loses packets. The script prints TAP-like lines for
# tests/run-all.
# usage: lossy_path.sh   (in the build directory, or with PVN_BUILDDIR)
set -u
build=${PVN_BUILDDIR:-$PWD}
srcdir=${PVN_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
a=pvnpma$$ b=pvnpmb$$ r=pvnpmr$$
log=$(mktemp)

gone() {
    local n
    for n in "$a" "$b" "$r"; do
        ip netns del "$n" 2>/dev/null
    done
    rm -f "$log"
}
trap gone EXIT

is_up() {
    local i
    for ((i = 0; i < 200; i++)); do
        ip -n "$1" -br link show "$2" | grep -q ' UP ' && return
        sleep 0.05
    done
    return 1
}
# host NAMESPACE NUMBER: makes a host whose v0 leads to the router. Its v1 leads to the other host.
host() {
    ip link add v0 netns "$1" type veth peer name "r$2" netns "$r" &&
        ip -n "$1" addr add "10.9.$2.1/24" dev v0 && ip -n "$r" addr add "10.9.$2.254/24" dev "r$2" &&
        ip -n "$1" link set lo up && ip -n "$1" link set v0 up && ip -n "$r" link set "r$2" up &&
        ip -n "$1" route add "10.9.$((3 - $2)).0/24" via "10.9.$2.254" && is_up "$1" v0
}
setup() {
    local n
    for n in "$a" "$b" "$r"; do
        ip netns del "$n" 2>/dev/null
        ip netns add "$n" || return 1
    done
    ip link add v1 netns "$a" type veth peer name v1 netns "$b" &&
        ip -n "$a" addr add 10.9.9.1/24 dev v1 && ip -n "$b" addr add 10.9.9.2/24 dev v1 &&
        ip -n "$a" link set v1 up && ip -n "$b" link set v1 up && is_up "$a" v1 && is_up "$b" v1 &&
        host "$a" 1 && host "$b" 2 && ip netns exec "$r" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' &&
        ip -n "$r" rule add ipproto icmp blackhole pref 5
}
sent() { ip netns exec "$a" cat "/sys/class/net/$1/statistics/tx_bytes"; }

unset NCCL_PVRDMA_FAILOVER
export NCCL_PVRDMA_VERIFY_TIMEOUT=1s NCCL_SOCKET_IFNAME='' NCCL_PVRDMA_TCP_USER_TIMEOUT=2s NCCL_DEBUG=WARN
# lines N PATTERN: waits until the log has N lines with PATTERN, for 40 s at most
lines() {
    local i
    for ((i = 0; i < 400; i++)); do
        [ "$(grep -Ec "$2" "$log")" -lt "$1" ] || return 0
        sleep 0.1
    done
    return 1
}
# flows INTERFACE: waits until data flow over INTERFACE
flows() {
    local i before
    before=$(sent "$1")
    for ((i = 0; i < 600; i++)); do
        (($(sent "$1") < before + 20000000)) || return 0
        sleep 0.05
    done
    return 1
}
# around NAME STEP...: takes the steps during a transfer, which has no end and is interrupted
around() {
    local name=$1 pid why=''
    shift
    setup || { echo "not ok $name: no namespaces with running links"; return; }
    timeout -k 5 120 "$build/pvn-perf" p2p --netns "$a,$b" --sizes 1M --bandwidth --iters 1000000 --warmup 0 --check --verbose \
        --timeout 110 >"$log" 2>&1 &
    pid=$!
    flows v0 || why='no data flowed before the fault'
    while [ $# -gt 0 ]; do
        $1 || why="${why:-$1}"
        shift
    done
    kill -INT "$pid"
    wait "$pid"
    if [ -z "$why" ] && grep -q INTERRUPTED "$log" && ! grep -v "failback:" "$log" | grep -Eq "FAILED|wrong:|gave up"; then
        echo "ok $name"
        return
    fi
    echo "not ok $name: ${why:-the data or the end}"
    sed 's/^/# /' "$log" | tail -n 30 | cut -c1-400
}
mtu_1400() { ip -n "$r" link set r2 mtu 1400; }
# A SYN, of 60 bytes, passes this MTU. A HELLO is larger.
mtu_68() { ip -n "$r" link set r2 mtu 68; }
resets() {
    # shellcheck disable=SC2046
    ip netns exec "$a" python3 "$srcdir/tests/support/reset_tcp.py" 10.9.1.1-1 $(ip netns pids "$a") >>"$log"
}
path_down() { ip -n "$r" link set r2 down; }
path_up() { ip -n "$r" link set r2 mtu "$1" up && ip -n "$r" route replace 10.9.2.0/24 dev r2; }
comes_back_lossy() { path_up 1400; }
# True once both ends have given up two attempts to return.
is_not_returned_to() { lines 4 'failback: .*no better lanes yet' && never_on_v0; }
comes_back_sound() { path_up 1500; }
is_returned_to() { lines 2 'returned after .*: tcp on v0' && flows v0; }
goes_on_over_v1() { lines 2 'connected again after .*: tcp on v1' && flows v1; }
# True if path v0 was lost once at most. Both ends report each loss.
lost_v0_once() { [ "$(grep -Ec 'connected again after .*: tcp on v0' "$log")" -le 2 ]; }
never_on_v0() { [ "$(grep -Ec '(connected again|returned) after .*: tcp on v0' "$log")" = 0 ]; }
said_why() { grep -q 'large packets are lost on the path' "$log"; }

if ! command -v ip >/dev/null; then
    echo "skip lossy path: the ip command is not installed (iproute2)"
elif ! ip netns add "$a" 2>/dev/null; then
    echo "skip lossy path: no network namespaces (run as root)"
elif ! ip netns exec "$a" true 2>/dev/null; then
    echo "skip lossy path: no commands in network namespaces here (in a chroot whose / is no mount point, for example)"
elif [ ! -x "$build/pvn-perf" ]; then
    echo "skip lossy path: pvn-perf is not built in $build"
else
    around "large packets are lost, and another path carries them" mtu_1400 goes_on_over_v1 lost_v0_once said_why
    around "no return to a path that loses large packets" path_down goes_on_over_v1 comes_back_lossy is_not_returned_to \
        comes_back_sound is_returned_to
    # The loss itself is known at once. The plugin also finds that the path is dead long before TCP_USER_TIMEOUT.
    export NCCL_PVRDMA_TCP_USER_TIMEOUT=60s NCCL_PVRDMA_HELLO_TIMEOUT=60s
    if command -v python3 >/dev/null; then
        around "a path that accepts connections and nothing more" mtu_68 resets goes_on_over_v1 never_on_v0
    else
        echo "skip a path that accepts connections and nothing more: there is no python3"
    fi
fi
