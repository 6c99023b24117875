#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# A router between two hosts has a smaller MTU on its next link and does not report it. Connections come up, and no
# large packet arrives. The job ends with that reason, and not with "its machine stopped", because the machine
# answers. Then the router drops everything. The script prints TAP-like lines for tests/run-all.
# usage: large_packets.sh   (in the build directory, or with PVN_BUILDDIR)
set -u
build=${PVN_BUILDDIR:-$PWD}
a=pvnlpa$$ b=pvnlpb$$ r=pvnlpr$$
log=$(mktemp)

gone() {
    local n
    for n in "$a" "$b" "$r"; do
        ip netns del "$n" 2>/dev/null
    done
    rm -f "$log"
}
trap gone EXIT

# host NAMESPACE NUMBER: joins a host to the router by a link of its own
host() {
    local i
    ip link add v0 netns "$1" type veth peer name "r$2" netns "$r" &&
        ip -n "$1" addr add "10.9.$2.1/24" dev v0 && ip -n "$r" addr add "10.9.$2.254/24" dev "r$2" &&
        ip -n "$1" link set lo up && ip -n "$1" link set v0 mtu 9000 up && ip -n "$r" link set "r$2" mtu 9000 up &&
        ip -n "$1" route add default via "10.9.$2.254" || return 1
    for ((i = 0; i < 200; i++)); do
        ip -n "$1" -br link show v0 | grep -q ' UP ' && return
        sleep 0.05
    done
    return 1
}
setup() {
    host "$a" 1 && host "$b" 2 && ip netns exec "$r" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' &&
        ip -n "$r" link set r2 mtu 1400 && ip -n "$r" rule add ipproto icmp blackhole pref 5
}

export NCCL_SOCKET_IFNAME=v0 NCCL_PVRDMA_TCP_USER_TIMEOUT=3s NCCL_PVRDMA_FAILOVER=0 NCCL_DEBUG=WARN
# transfer SIZE COMMAND: starts a transfer, runs COMMAND two seconds after both ranks are connected, and returns the
# transfer's status
transfer() {
    local pid i
    timeout -k 5 90 "$build/pvn-perf" p2p --netns "$a,$b" --bandwidth --sizes "$1" --time 40 --timeout 45 --verbose >"$log" 2>&1 &
    pid=$!
    for ((i = 0; i < 300; i++)); do
        [ "$(grep -c 'receives from' "$log")" -lt 2 ] || break
        sleep 0.1
    done
    sleep 2
    $2
    wait "$pid"
}
verdict() {
    local name=$1 rc=$2
    shift 2
    if ((rc != 0 && rc < 124)) && "$@"; then
        echo "ok $name"
    else
        echo "not ok $name: status $rc"
        sed 's/^/# /' "$log" | tail -n 20 | cut -c1-900
    fi
}
large_are_lost() {
    grep -q "likely: the peer's machine answers on the control connection" "$log" && grep -q 'tcp_mtu_probing' "$log" &&
        ! grep -q 'its machine stopped' "$log"
}
all_are_lost() {
    grep -q 'its machine stopped' "$log" && ! grep -q 'machine answers' "$log"
}
lose_all() { ip -n "$r" link set r2 down; }
# The second host's own link takes no large packets. The kernel ends the connection by itself, long before an ASK
# goes out on the control connection.
own_link() {
    ip -n "$a" link add w0 type veth peer name w0 netns "$b" && ip -n "$a" link set w0 mtu 9000 gso_max_segs 1 up &&
        ip -n "$b" link set w0 mtu 1500 up && ip -n "$a" addr add 10.9.3.1/24 dev w0 &&
        ip -n "$b" addr add 10.9.3.2/24 dev w0 && ip -n "$b" route replace 10.9.3.0/24 dev w0 advmss 8960
}
kernel_gave_up() { grep -q 'Connection timed out (errno 110)' "$log" && large_are_lost; }

if ! command -v ip >/dev/null; then
    echo "skip large packets: the ip command is not installed (iproute2)"
elif ! ip netns add "$a" 2>/dev/null || ! ip netns add "$b" || ! ip netns add "$r"; then
    echo "skip large packets: no network namespaces (run as root)"
elif ! ip netns exec "$a" true 2>/dev/null; then
    echo "skip large packets: no commands in network namespaces here (in a chroot whose / is no mount point, for example)"
elif [ ! -x "$build/pvn-perf" ]; then
    echo "skip large packets: pvn-perf is not built in $build"
elif ! setup; then
    echo "not ok large packets: no namespaces with running links"
else
    transfer 1M true
    verdict "only large packets are lost" $? large_are_lost
    transfer 1000 lose_all
    verdict "all packets are lost" $? all_are_lost
    if own_link; then
        export NCCL_SOCKET_IFNAME=w0 NCCL_PVRDMA_TCP_USER_TIMEOUT=60s
        transfer 1M true
        verdict "the kernel has given up" $? kernel_gave_up
    else
        echo "not ok large packets: no second link"
    fi
fi
