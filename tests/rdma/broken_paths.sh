#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# A path breaks while a comm is up. Each cell combines the end that sleeps meanwhile, how the path breaks, the other
# path that is left, and what the comm does at that moment. The job goes on, or ends with the reason if no path is
# left. It never hangs, and never fails over again and again. A cell's name is ASLEEP_PATH_NET_STATE:
#   ASLEEP  none, connector, acceptor: this end makes no call for longer than FAILOVER_TIMEOUT
#   PATH    sound; dead; back: dead, and sound again after 3 s; large: loses large packets without a report; one: loses packets
#           from the acceptor; syn: passes handshakes and nothing larger; rejects: refuses new connections and resets existing ones
#   NET     one, two: links for TCP, of which the first breaks; rdma: the control network breaks, the adapters work all the time
#   STATE   idle, busy, closing
# A router in a namespace of its own joins the two hosts of each cell. The test command runs some of the cells. All
# 189 take a few minutes: PVN_BUILDDIR=build PVN_SRCDIR=. PVN_CELLS=all tests/rdma/broken_paths.sh (or
# PVN_CELLS='NAME ...').
# run-all limit: 150
# run-all once
set -u
build=$(realpath "$PVN_BUILDDIR")
tmp=$(mktemp -d)
plugin=$build/.libs/libnccl-net-pvrdma.so
at_once=8
quick='none_dead_two_busy acceptor_dead_two_busy connector_dead_two_idle none_rejects_two_busy acceptor_rejects_two_idle none_syn_two_busy
    none_one_two_idle none_large_two_busy acceptor_large_one_busy none_one_rdma_busy acceptor_back_one_busy connector_back_one_idle none_dead_one_busy none_dead_two_closing none_dead_rdma_busy
    acceptor_back_rdma_idle connector_sound_one_closing'
gone() {
    local n
    for n in $(ip netns list | awk -v p="^pvnbp$$[abr]" '$1 ~ p { print $1 }'); do
        ip netns del "$n" 2>/dev/null
    done
    rm -rf "$tmp"
}
trap gone EXIT
# TCP reports a lost path after 2 s.
export NCCL_PVRDMA_FAILOVER_TIMEOUT=8s NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=v NCCL_PVRDMA_TCP_USER_TIMEOUT=1s NCCL_PVRDMA_KEEPALIVE_IDLE=1s
export NCCL_PVRDMA_KEEPALIVE_INTVL=1s NCCL_PVRDMA_KEEPALIVE_CNT=1 NCCL_PVRDMA_HELLO_TIMEOUT=2s NCCL_PVRDMA_OFFER_TIMEOUT=2s
export NCCL_PVRDMA_STALL_ABORT=20s NCCL_PVRDMA_FAILOVER=1

# host NAMESPACE ROUTER LINK SIDE: joins a host to the router: its interface is vLINK with 10.9.(2 LINK + SIDE).1,
# the router's is r0LINK or r1LINK.
host() {
    local net=$((2 * $3 + $4)) far=$((2 * $3 + 1 - $4))
    ip link add "v$3" netns "$1" mtu 9000 type veth peer name "r$4$3" netns "$2" mtu 9000 &&
        ip -n "$1" addr add "10.9.$net.1/24" dev "v$3" && ip -n "$2" addr add "10.9.$net.254/24" dev "r$4$3" &&
        ip -n "$1" link set lo up && ip -n "$1" link set "v$3" up && ip -n "$2" link set "r$4$3" up &&
        ip -n "$1" route add "10.9.$far.0/24" via "10.9.$net.254"
}
joined() {
    local a=$1 b=$2 r=$3 k _
    ip netns add "$a" && ip netns add "$b" && ip netns add "$r" || return 1
    for ((k = 0; k < $4; k++)); do
        host "$a" "$r" "$k" 0 && host "$b" "$r" "$k" 1 || return 1
    done
    ip -n "$r" link set lo up && ip netns exec "$r" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' || return 1
    for _ in $(seq 200); do
        [ "$(ip -n "$r" -br link show | grep -c '^r.* UP ')" = $((2 * $4)) ] && return 0
        sleep 0.05
    done
    return 1
}
# small_only ROUTER MTU: makes link 0 drop larger packets without a report
small_only() {
    ip -n "$1" rule add ipproto icmp blackhole pref 5 && ip -n "$1" link set r00 mtu "$2" && ip -n "$1" link set r10 mtu "$2"
}
break_path() {
    case $2 in
    sound) ;;
    dead | back) ip -n "$1" rule add dev r00 blackhole pref 5 && ip -n "$1" rule add dev r10 blackhole pref 5 ;;
    one) ip -n "$1" rule add dev r10 blackhole pref 5 ;;
    large) small_only "$1" 1400 ;;
    # 68 is the smallest MTU that IPv4 allows. TCP handshakes and acknowledgements pass.
    syn) small_only "$1" 68 ;;
    # The router answers in place of the hosts.
    rejects)
        ip -n "$1" route add local 10.9.0.0/23 dev lo table 9 && ip -n "$1" rule add dev r00 lookup 9 pref 5 &&
            ip -n "$1" rule add dev r10 lookup 9 pref 5
        ;;
    esac
}
until_there() {
    local _
    for _ in $(seq 400); do
        [ ! -e "$1" ] || return 0
        sleep 0.1
    done
    return 1
}

cell() {
    local name=$1 number=$2 dir=$tmp/$1 who path net state links=1 a=pvnbp$$a$2 b=pvnbp$$b$2 r=pvnbp$$r$2 s='' rx=''
    IFS=_ read -r who path net state <<<"$name"
    mkdir -p "$dir/fabric" "$dir/sys"
    [ "$net" != two ] || links=2
    [ "$who" != connector ] || s=nap
    [ "$who" != acceptor ] || rx=nap
    joined "$a" "$b" "$r" "$links" || { echo "no namespaces with running links" >"$dir/sender"; return; }
    export PVN_SLEEPER=$state
    if [ "$net" = rdma ]; then
        export NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=roce
        export PVN_SOFTVERBS_DIR=$dir/fabric PVN_SOFTVERBS_SYSFS=$dir/sys NCCL_PVRDMA_SYSFS_ROOT=$dir/sys
    fi
    # shellcheck disable=SC2086
    ip netns exec "$a" timeout -k 5 60 "$build/tests/support/sleeper" "$plugin" send "$dir" $s >"$dir/sender" 2>&1 &
    local sender=$!
    # shellcheck disable=SC2086
    ip netns exec "$b" timeout -k 5 60 "$build/tests/support/sleeper" "$plugin" recv "$dir" $rx >"$dir/receiver" 2>&1 &
    local receiver=$!
    until_there "$dir/sent" && until_there "$dir/received"
    break_path "$r" "$path" || echo "not broken" >>"$dir/sender"
    touch "$dir/broken"
    sleep 3
    [ "$path" != back ] || ip -n "$r" rule flush
    [ "$path" != back ] || for k in local:0 main:32766; do ip -n "$r" rule add lookup "${k%:*}" pref "${k#*:}" 2>/dev/null; done
    [ "$who" = none ] || sleep 8
    touch "$dir/wake"
    wait "$sender"
    echo "status $?" >>"$dir/sender"
    wait "$receiver"
    echo "status $?" >>"$dir/receiver"
    for n in "$a" "$b" "$r"; do
        ip netns del "$n"
    done
}
finished() { grep -q '^finished' "$1"; }
# True if the job finished, or failed with a reason. An end by the time limit of the program or of the script is
# neither.
ended() { finished "$1" || { grep -q '^FAILED: ' "$1" && grep -q 'PVRDMA' "$1"; }; }
losses() {
    awk '/more in .* like: failover: .*(TCP stream|RDMA lane|control connection)/ { sub(/.*PVRDMA : /, ""); n += $1; next }
        /connection is made again/ { n++ } END { print n + 0 }' "$1"
}
is_right() {
    local dir=$tmp/$1 who path net state f
    IFS=_ read -r who path net state <<<"$1"
    for f in "$dir/sender" "$dir/receiver"; do
        ended "$f" || return 1
        ! grep -Eq 'is wrong|no namespaces|not broken|were lost 12 times' "$f" || return 1
        # The log folds like lines into one for some seconds. More than 12 in half a minute are a storm.
        [ "$(losses "$f")" -le 12 ] || return 1
    done
    # A path is left.
    case $path:$net:$state:$who in
    sound:* | back:* | *:two:* | *:rdma:busy:none | *:rdma:idle:none) finished "$dir/sender" && finished "$dir/receiver" ;;
    esac
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/$1/sender" "$tmp/$1/receiver"; }
if ! ip netns add "pvnbp$$a0" 2>/dev/null || ! ip netns exec "pvnbp$$a0" true 2>/dev/null; then
    echo "skip broken paths: no network namespaces (they take root and iproute2)"
    exit
fi
ip netns del "pvnbp$$a0"
cells=${PVN_CELLS:-$quick}
if [ "$cells" = all ]; then
    cells=$(echo {none,connector,acceptor}_{sound,dead,back,large,one,syn,rejects}_{one,two,rdma}_{idle,busy,closing})
fi
number=0
for name in $cells; do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do
        wait -n
    done
    number=$((number + 1))
    cell "$name" "$number" &
done
wait
for name in $cells; do
    verdict "$name" is_right "$name"
done
