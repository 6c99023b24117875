#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# A comm survives the loss of a path while one of its ranks cannot react for longer than
# NCCL_PVRDMA_FAILOVER_TIMEOUT: either the thread of that rank sleeps, or its whole process is stopped. The comm goes
# on when the rank is back. Two network namespaces act as hosts. They are joined by two links for TCP, or by one link
# with softverbs beside it, whose adapters work all the time.
# run-all limit: 120
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
plugin=$build/.libs/libnccl-net-pvrdma.so
names='tcp_acceptor tcp_connector tcp_stopped rdma_acceptor rdma_connector'
declare -A space=([tcp_acceptor]=1 [tcp_connector]=2 [tcp_stopped]=3 [rdma_acceptor]=4 [rdma_connector]=5)

gone() {
    local n
    for n in "${space[@]}"; do
        ip netns del "pvnas$$a$n" 2>/dev/null
        ip netns del "pvnas$$b$n" 2>/dev/null
    done
    rm -rf "$tmp"
}
trap gone EXIT
# TCP reports a lost path after 2 s.
export NCCL_PVRDMA_FAILOVER_TIMEOUT=6s NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME='' NCCL_PVRDMA_TCP_USER_TIMEOUT=1s NCCL_PVRDMA_KEEPALIVE_IDLE=1s
export NCCL_PVRDMA_KEEPALIVE_INTVL=1s NCCL_PVRDMA_KEEPALIVE_CNT=1 NCCL_PVRDMA_OFFER_TIMEOUT=1s

# joined A B K: creates namespaces A and B and joins them by K links: v0 with 10.9.0.1 and 10.9.0.2, and so on
joined() {
    local a=$1 b=$2 k n _
    ip netns add "$a" && ip netns add "$b" || return 1
    for ((k = 0; k < $3; k++)); do
        ip link add "v$k" netns "$a" type veth peer name "v$k" netns "$b" || return 1
        for n in "$a" "$b"; do
            ip -n "$n" link set lo up && ip -n "$n" link set "v$k" up || return 1
        done
        ip -n "$a" addr add "10.9.$k.1/24" dev "v$k" && ip -n "$b" addr add "10.9.$k.2/24" dev "v$k" || return 1
    done
    for _ in $(seq 200); do
        [ "$(ip -n "$a" -br link show | grep -c '^v.* UP ')$(ip -n "$b" -br link show | grep -c '^v.* UP ')" = "$3$3" ] && return 0
        sleep 0.05
    done
    return 1
}

# until_said FILE PATTERN: waits until FILE has PATTERN, for 40 s at most
until_said() {
    local _
    for _ in $(seq 400); do
        grep -q "$2" "$1" && return 0
        sleep 0.1
    done
    echo "missing: $2" >>"$1"
    return 1
}
until_there() {
    local _
    for _ in $(seq 400); do
        [ ! -e "$1" ] || return 0
        sleep 0.1
    done
    return 1
}

# asleep NAME LINKS: NAME says which end sleeps.
asleep() {
    local dir=$tmp/$1 a=pvnas$$a${space[$1]} b=pvnas$$b${space[$1]} s=nap r='' awake=$tmp/$1/receiver sender receiver
    mkdir -p "$dir/fabric" "$dir/sys"
    [[ $1 = *connector ]] || { s='' r=nap awake=$dir/sender; }
    joined "$a" "$b" "$2" || { echo "no namespaces with running links" >"$dir/sender"; return; }
    if [[ $1 = rdma* ]]; then
        export NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=roce
        export PVN_SOFTVERBS_DIR=$dir/fabric PVN_SOFTVERBS_SYSFS=$dir/sys NCCL_PVRDMA_SYSFS_ROOT=$dir/sys
    fi
    ip netns exec "$a" "$build/tests/support/sleeper" "$plugin" send "$dir" $s >"$dir/sender" 2>&1 &
    sender=$!
    ip netns exec "$b" "$build/tests/support/sleeper" "$plugin" recv "$dir" $r >"$dir/receiver" 2>&1 &
    receiver=$!
    until_there "$dir/sent" && until_there "$dir/received"
    [[ $1 != *stopped ]] || kill -STOP "$receiver"
    ip -n "$b" link set v0 down
    if [[ $1 = tcp* ]]; then
        until_said "$awake" 'failover: .*the connection is made again'
    else
        until_said "$awake" 'the control connection is lost'
        ip -n "$b" link set v0 up
        until_said "$awake" 'the control connection is there again'
    fi
    sleep 8
    [[ $1 != *stopped ]] || kill -CONT "$receiver"
    touch "$dir/wake"
    wait "$sender" "$receiver"
}
# True if both ranks have finished, and no lane of an adapter was given up.
went_on() {
    local dir=$tmp/$1
    grep -q '^finished' "$dir/sender" && grep -q '^finished' "$dir/receiver" || return 1
    ! grep -Eq 'missing:|FAILED' "$dir/sender" "$dir/receiver" || return 1
    if [[ $1 = rdma* ]]; then
        ! grep -q failover "$dir/sender" "$dir/receiver"
    else
        grep -q 'connected again after' "$dir/sender"
    fi
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/$1/sender" "$tmp/$1/receiver"; }
if ! ip netns add "pvnas$$a1" 2>/dev/null || ! ip netns exec "pvnas$$a1" true 2>/dev/null; then
    echo "skip asleep: no network namespaces (they take root and iproute2)"
    exit
fi
ip netns del "pvnas$$a1"
for name in $names; do
    links=2
    [[ $name != rdma* ]] || links=1
    asleep "$name" "$links" &
done
wait
for name in $names; do
    verdict "$name" went_on "$name"
done
