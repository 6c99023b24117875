#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Connections follow the routes of the hosts, and both ends name the interface that carries them. First, device k of
# one host and device k of the other are in different networks, with strict reverse-path filters. Then two interfaces
# are in one network, with policy rules for the source address. Last, an interface has two networks, and the one that
# both hosts share is dialled.
# run-all limit: 150
# run-all once
set -u
build=$PVN_BUILDDIR
a=pvnro$$a b=pvnro$$b m=pvnro$$m
log=$(mktemp)
gone() {
    local n
    for n in "$a" "$b" "$m"; do ip netns del "$n" 2>/dev/null; done
    rm -f "$log"
}
trap gone EXIT
export NCCL_SOCKET_IFNAME='' NCCL_DEBUG=INFO

# joined NS1 IF1 NS2 IF2
joined() {
    local n i
    ip link add "$2" netns "$1" type veth peer name "$4" netns "$3" || return 1
    ip -n "$1" link set "$2" up && ip -n "$3" link set "$4" up || return 1
    for n in "$1 $2" "$3 $4"; do
        for ((i = 0; i < 200; i++)); do
            # shellcheck disable=SC2086
            set -- $n "$@"
            ip -n "$1" -br link show "$2" | grep -q ' UP ' && { shift 2; continue 2; }
            shift 2
            sleep 0.05
        done
        return 1
    done
}
hosts() {
    local n
    gone
    log=$(mktemp)
    for n in "$@"; do
        ip netns add "$n" && ip -n "$n" link set lo up || return 1
        # A link-local address that is still checked for duplicates sends no solicitation, so the
        # neighbour would pass for unreachable, and another route would be taken.
        ip netns exec "$n" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/dad_transmits' || return 1
    done
}
sent() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_bytes"; }
verified() { # NAME OPTIONS...
    local name=$1
    shift
    if timeout 30 "$build/pvn-perf" p2p --netns "$a,$b" --sizes 1M --iters 10 --check --timeout 10 "$@" >"$log" 2>&1; then
        return 0
    fi
    echo "not ok $name"
    sed 's/^/  /' "$log" | tail -n 20
    return 1
}
# named NAME PATTERN...: expects each pattern in the log
named() {
    local name=$1 p
    shift
    for p in "$@"; do
        if ! grep -q "$p" "$log"; then
            echo "not ok $name: no line '$p'"
            { ip -n "$a" route; ip -n "$a" -6 route; ip -n "$a" -6 neigh; grep ': tcp on' "$log"; } | sed 's/^/# /'
            return
        fi
    done
    echo "ok $name: the lane is named after the interface that carries it"
}
if ! hosts "$a" "$b" || ! joined "$a" e0 "$b" e1 || ! joined "$a" e1 "$b" e0; then
    echo "skip routes: no network namespaces"
    exit 0
fi

# In A, e0 is in 10.9.0.0/24 and e1 in 10.1.0.0/24. In B they are swapped.
ip -n "$a" addr add 10.9.0.1/24 dev e0
ip -n "$b" addr add 10.9.0.2/24 dev e1
ip -n "$a" addr add 10.1.0.1/24 dev e1
ip -n "$b" addr add 10.1.0.2/24 dev e0
for n in "$a" "$b"; do
    ip netns exec "$n" sh -c 'for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >"$f"; done'
done
if verified "interfaces in another order" --env NCCL_PVRDMA_CONNECT_TIMEOUT=4s --verbose; then
    if (($(sent "$a" e1) > 5000000 && $(sent "$a" e0) < 1000000)); then
        echo "ok interfaces in another order, with strict reverse-path filters"
    else
        echo "not ok the route leads over e1, which sent $(sent "$a" e1) bytes, e0 $(sent "$a" e0)"
    fi
    named "interfaces in another order" 'sends to .*: tcp on e1 (device e0), ' 'receives from .*: tcp on e0, '
fi

# A reaches B's first interface by the second interfaces of both hosts. B's answers take the first ones.
if hosts "$a" "$b" && joined "$a" e0 "$b" e0 && joined "$a" e1 "$b" e1; then
    for v in 4 6; do
        net='10.%s.0.%s/24' len=32
        [ $v = 6 ] && net='fd0%s::%s/64' len=128
        # shellcheck disable=SC2059
        at() { printf "$net" "$1" "$2"; }
        for i in 0 1; do
            ip -n "$a" addr add "$(at $((i + 1)) 1)" dev "e$i" $([ $v = 6 ] && echo nodad)
            ip -n "$b" addr add "$(at $((i + 1)) 2)" dev "e$i" $([ $v = 6 ] && echo nodad)
        done
        far=$(at 1 2) via=$(at 2 2)
        ip -n "$a" route add "${far%/*}/$len" via "${via%/*}" dev e1
        if verified "IPv$v, by another interface" --env "NCCL_SOCKET_FAMILY=AF_INET${v#4}" --verbose; then
            named "IPv$v, by another interface" 'sends to .*: tcp on e1 (device e0), ' \
                'receives from .*: tcp on e1 (device e0), '
        fi
    done
fi

# Both interfaces are in one network, and each address leaves by its own interface.
if hosts "$a" "$b" "$m" && ip -n "$m" link add bridge type bridge && ip -n "$m" link set bridge up; then
    q=0
    for n in "$a" "$b"; do
        q=$((q + 1))
        for i in 0 1; do
            joined "$n" "e$i" "$m" "p$q$i" && ip -n "$m" link set "p$q$i" master bridge
            ip -n "$n" addr add "10.7.0.$((q * 10 + i))/24" dev "e$i"
            ip -n "$n" route add 10.7.0.0/24 dev "e$i" src "10.7.0.$((q * 10 + i))" table "10$i"
            ip -n "$n" rule add from "10.7.0.$((q * 10 + i))" table "10$i"
        done
        ip netns exec "$n" sh -c 'echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; echo 2 >/proc/sys/net/ipv4/conf/all/arp_announce'
    done
    if verified "policy rules" --dev 1 --verbose; then
        if grep -q 'leave by' "$log"; then
            echo "not ok policy rules: $(grep -m 1 'leave by' "$log")"
        elif (($(sent "$a" e1) > 5000000 && $(sent "$a" e0) < 1000000)); then
            echo "ok policy rules for the source address are followed, and nothing else is said"
        else
            echo "not ok policy rules: e1 sent $(sent "$a" e1) bytes, e0 $(sent "$a" e0)"
        fi
    fi
fi

# two_networks A'S-PUBLIC A'S-PRIVATE B'S-PUBLIC-OR-NONE B'S-PRIVATE: gives one interface of each host a public and a
# private network
two_networks() {
    hosts "$a" "$b" && joined "$a" e0 "$b" e0 && ip -n "$a" addr add "$1" dev e0 nodad 2>/dev/null || return 1
    [ -z "$3" ] || ip -n "$b" addr add "$3" dev e0 nodad 2>/dev/null || return 1
    ip -n "$a" addr add "$2" dev e0 nodad 2>/dev/null && ip -n "$b" addr add "$4" dev e0 nodad 2>/dev/null
}
# between NAME A'S B'S: expects the data from A to B, and from B to A, to go between these two addresses
between() {
    local n
    for n in "$a,$b" "$b,$a"; do
        verified "$1" --env NCCL_PVRDMA_CONNECT_TIMEOUT=10s --verbose --netns "$n" || return
        if ! grep -qF " at $([ "$n" = "$a,$b" ] && echo "$3" || echo "$2")" "$log"; then
            echo "not ok $1: $(grep -m 1 'sends to' "$log")"
            return
        fi
    done
    echo "ok $1"
}
two_networks 203.0.113.1/24 10.0.0.1/24 '' 10.0.0.2/24 && between "one host is in the private network alone" 10.0.0.1: 10.0.0.2:
two_networks 203.0.113.1/24 10.0.0.1/24 198.51.100.2/24 10.0.0.2/24 &&
    between "the network that both ends share is dialled" 10.0.0.1: 10.0.0.2:
if two_networks 203.0.113.1/24 10.0.0.1/24 198.51.100.2/24 10.0.0.2/24; then
    ip -n "$a" route add 198.51.100.0/24 dev e0
    ip -n "$b" route add 203.0.113.0/24 dev e0
    ip -n "$a" route add unreachable 10.0.0.2
    ip -n "$b" route add unreachable 10.0.0.1
    between "a private network of the same numbers leads nowhere" 203.0.113.1: 198.51.100.2:
fi
# The kernel lists the address that was added last first.
two_networks fd00::1/64 2001:db8:1::1/64 '' fd00::2/64 && between "IPv6, one host is in the private network alone" '[fd00::1]' '[fd00::2]'
two_networks fd00::1/64 2001:db8:1::1/64 2001:db8:2::2/64 fd00::2/64 && between "IPv6, the network that both ends share is dialled" '[fd00::1]' '[fd00::2]'
