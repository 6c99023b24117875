#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# A real NCCL meets faults over this plugin, and over its own transports: net_ib on software verbs (roce, pvrdma), or
# its sockets (tcp). joined: NCCL joins two RoCE adapters into one, for which net_ib has its port failover and
# recovery on, and only the first adapter has the fault. Two ranks in network namespaces of their own, joined by two
# cables, alternate all-reduce and send/recv of 64 KiB and 1 MiB. A pause follows each, as a training step computes.
# Every byte is checked, without a GPU (tests/nccl). A fault comes while the job runs, and counts only if it is known
# to have happened. NCCL's bootstrap, which both sides use, has the cable en0, too.
# A run gives the verdict (right: all results, to the end; error: a rank ended, after so many seconds; hung: no rank
# ended, and no result came within the limit), the longest time without a result, and the last warning that a user
# sees, which only the CSV file has. The table counts the verdicts of the rounds, and has medians of the times.
# usage: tests/bench/peer_faults.sh --nccl-src DIR --nccl-build DIR [--build DIR] [--rounds N] [--over "roce pvrdma joined tcp"]
#            [--faults "NAME.."] [--sides "ours nccl"] [--pause-ms N] [--logs DIR] [--csv FILE]
# --pause-ms: the pause after each test (50). Longer ones leave more of the processors to others.
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
nccl_src='' nccl_build='' build=$src/build rounds=5 over="roce pvrdma joined tcp" faults='' sides="ours nccl" pause_ms=50 logs='' csv=''
while (($# >= 2)); do
    case $1 in
    --nccl-src) nccl_src=$2 ;;
    --nccl-build) nccl_build=$2 ;;
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --over) over=$2 ;;
    --faults) faults=$2 ;;
    --sides) sides=$2 ;;
    --pause-ms) pause_ms=$2 ;;
    --logs) logs=$2 ;;
    --csv) csv=$2 ;;
    *) break ;;
    esac
    shift 2
done
(($# == 0)) || { echo "$1: no such option, or its value is missing" >&2; sed -n '/^# usage/,/^[^#]/s/^# //p' "$0" >&2; exit 2; }
# shellcheck source=tests/nccl/double.sh
. "$src/tests/nccl/double.sh"
((EUID == 0)) || { echo "skip peer-faults: network namespaces need root"; exit 77; }
why=$(double_check) || { echo "skip peer-faults: $why"; exit 77; }
build=$(cd "$build" && pwd) nccl_src=$(cd "$nccl_src" && pwd) nccl_build=$(cd "$nccl_build" && pwd)
soft=$build/tests/softverbs/.libs/libsoftverbs.so
[[ -r $soft ]] || { echo "skip peer-faults: $soft is not built (make check-build)"; exit 77; }
tmp=$(mktemp -d) a=pvnFA$$ b=pvnFB$$
cleanup() {
    [[ -z ${ranks[*]:-} ]] || kill -KILL "${ranks[@]}" 2>/dev/null
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
double_compile >"$tmp/compile.log" 2>&1 || { cat "$tmp/compile.log" >&2; exit 1; }
double_environment
mkdir "$tmp/verbs"
# NCCL takes libibverbs.so where it is installed.
for name in libibverbs.so libibverbs.so.1; do ln -s "$soft" "$tmp/verbs/$name"; done
python3 "$src/tests/nccl/mktopo.py" 1 mlx5_0,mlx5_1 >"$tmp/joined.xml" || exit 1
[[ -z $logs ]] || mkdir -p "$logs"
csv=${csv:-$tmp/all.csv}

# The seconds of the fault, in which a stopped rank, or a network that is down, gives no results
lasts() {
    case $1 in
    *-7s) echo 7 ;; *-10s) echo 10 ;; *-20s) echo 20 ;; *-30s) echo 30 ;; *-90s) echo 90 ;; *) echo 0 ;;
    esac
}
# The seconds of the fault in which a job that survives it gives results: none if a rank is paused or packets are
# dropped
goes_on() { case $1 in peer-paused-* | drops-*) echo 0 ;; *) lasts "$1" ;; esac; }
hangs_after=90 # seconds behind the fault
rdma_faults="none queue-pairs port port-7s device device-7s silence gid cq peer-paused-10s peer-paused-90s control-reset control-away-30s"
joined_faults="none queue-pair cq port port-7s device device-7s"
tcp_faults="none reset interface address peer-paused-90s drops-20s"

cables() {
    local n i
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    ip netns add "$a" && ip netns add "$b" || exit 1
    for i in 0 1; do
        ip link add "en$i" netns "$a" type veth peer name "en$i" netns "$b" || exit 1
        for n in "$a 1" "$b 2"; do
            read -r space host <<<"$n"
            ip -n "$space" addr add "10.77.$i.$host/24" dev "en$i"
            ip -n "$space" link set "en$i" up
            ip -n "$space" link set lo up
        done
    done
    # NCCL takes no interface that is not running yet.
    for i in $(seq 100); do
        [[ $(ip -n "$a" -br link; ip -n "$b" -br link) == *DOWN* ]] || break
        sleep 0.1
    done
}

# rank SIDE NETWORK NAMESPACE RANK TEST..: runs one end of a job, and puts the time before each line
rank() {
    local side=$1 network=$2 space=$3 rank=$4 env=("${double_env[@]}" NCCL_DEBUG=INFO "NCCL_DEBUG_SUBSYS=INIT,NET")
    shift 4
    mkdir -p "$tmp/sys$rank"
    if [[ $network == tcp ]]; then
        env+=("NCCL_SOCKET_IFNAME=en0,en1" NCCL_PVRDMA_TRANSPORT=tcp)
        [[ $side == ours ]] || env+=(NCCL_NET=Socket)
    else
        env+=(NCCL_SOCKET_IFNAME=en0 PVN_SOFTVERBS_DIR="$tmp/fabric" PVN_SOFTVERBS_PROFILE="${network/joined/roce}" PVN_SOFTVERBS_SET="set stay 1"
            PVN_SOFTVERBS_SYSFS="$tmp/sys$rank" NCCL_PVRDMA_SYSFS_ROOT="$tmp/sys$rank" NCCL_PVRDMA_VERBS_LIB="$soft")
        # NCCL takes the first RoCE v2 address by itself where it can read /sys, which is this machine's.
        # An adapter that completes no request is given up after four times its own timeouts and 5 s: 141 s by
        # default, 7 s here.
        [[ $fault != silence ]] || env+=(NCCL_IB_TIMEOUT=14)
        [[ $side == ours ]] || env+=(NCCL_NET=IB NCCL_IB_GID_INDEX="$gid" "LD_LIBRARY_PATH=$tmp/verbs:$tmp:$nccl_build/lib")
    fi
    if [[ $network == joined ]]; then
        # Joined devices must be in NCCL's PCI tree, which gets them from a file here.
        env+=(PVN_SOFTVERBS_DEVICES=2 NCCL_TOPO_FILE="$tmp/joined.xml" NCCL_NET_FORCE_MERGE="mlx5_0,mlx5_1" NCCL_PVRDMA_VDEVICE=1)
        [[ $side == ours ]] || env+=(NCCL_IB_RESILIENCY_PORT_FAILOVER=1 NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS=5
            NCCL_IB_RESILIENCY_PORT_RECOVERY=1)
    fi
    [[ $side == ours ]] && env+=(NCCL_NET_PLUGIN=pvrdma NCCL_PVRDMA_STATS_DIR="$tmp/stats") || env+=(NCCL_NET_PLUGIN=none)
    exec ip netns exec "$space" env "${env[@]}" "$tmp/nccldrive" -n 2 --id "$tmp/id" --rank "$rank" --iters 3 --warmup 0 --sizes 64K,1M \
        --pause-ms $pause_ms "$@"
}
stamp() { while IFS= read -r l; do echo "$EPOCHREALTIME $l"; done; }
results() { grep -ac ' \[0\] ok ' "$tmp/log0"; }
alive() { kill -0 "${ranks[$1]}" 2>/dev/null; }
# Waits until rank 0 has so many more results, for 60 s at most.
until_results() {
    local n=$(($(results) + $1))
    for _ in $(seq 600); do
        (($(results) < n)) || return 0
        { alive 0 && alive 1; } || return 1
        sleep 0.1
    done
    return 1
}
command_fabric() { PVN_SOFTVERBS_DIR=$tmp/fabric NCCL_PVRDMA_VERBS_LIB=$soft python3 "$src/tests/rdma/softverbs_command.py" "$@"; }
# Waits until the rule has acted, or a rank has ended.
rule() {
    command_fabric "$1" >/dev/null || return 1
    until_results 20
    ! { alive 0 && alive 1; } || command_fabric rules | grep -Eq 'fired=[1-9]'
}

# Frames of the first network go to a hardware address that nobody has. So each end loses all packets of the other,
# without a report.
lead_astray() {
    ip -n "$a" neigh replace 10.77.0.2 lladdr 02:00:00:00:00:aa dev en0 nud permanent &&
        ip -n "$b" neigh replace 10.77.0.1 lladdr 02:00:00:00:00:bb dev en0 nud permanent
}
# inject FAULT: true if the fault happened
inject() {
    local s
    s=$(lasts "$1")
    case $1 in
    none) ;;
    queue-pairs) rule "rule break status status=RETRY_EXC_ERR nth=1 every=40 count=4" ;;
    queue-pair) rule "rule break status status=RETRY_EXC_ERR nth=1 count=1 dev=mlx5_0" ;;
    silence) rule "rule mute die mode=2 nth=1" ;;
    port) command_fabric "port * 1 down" ;;
    port-*) command_fabric "port * 1 down" && sleep "$s" && command_fabric "port * 1 up" ;;
    device) command_fabric "fatal *" ;;
    device-*) command_fabric "fatal * gone" && sleep "$s" && command_fabric "renew *" ;;
    gid) command_fabric "gid * 1 $gid ::ffff:10.200.0.$((RANDOM % 200 + 1)) v2" ;;
    cq) command_fabric "qp #2 overrun" ;;
    peer-paused-*) kill -STOP "${ranks[1]}" && sleep "$s" && kill -CONT "${ranks[1]}" ;;
    control-reset | reset) [[ $(python3 "$src/tests/support/reset_tcp.py" 10.77.0.1 "${ranks[@]}") != 0 ]] ;;
    control-away-*) ip -n "$b" link set en0 down && sleep "$s" && ip -n "$b" link set en0 up ;;
    interface) ip -n "$b" link set en0 down ;;
    address) ip -n "$a" addr del 10.77.0.1/24 dev en0 ;;
    drops-*) lead_astray && sleep "$s" && ip -n "$a" neigh del 10.77.0.2 dev en0 && ip -n "$b" neigh del 10.77.0.1 dev en0 ;;
    *) echo "$1: no such fault" >&2; exit 2 ;;
    esac
}

# judge: needs the time of the fault in $fault_at. The job has ended or is killed.
judge() {
    local verdict=$1 gap ended=- r
    [[ $verdict != right ]] || { grep -aq '\] FAIL' "$tmp/log0" "$tmp/log1" && verdict=error; }
    ((statuses == 0)) || [[ $verdict == hung ]] || verdict=error
    [[ $verdict != error ]] || ended=$(bc <<<"scale=1; ($ended_at - $fault_at) / 1")
    gap=$(awk -v end="$ended_at" '/ \[0\] ok / { if (last && $1 - last > most) most = $1 - last; last = $1 }
        END { if (last && end - last > most) most = end - last; printf "%.1f", most }' "$tmp/log0")
    said=$(grep -ahE ' WARN |\] FAIL' "$tmp/log0" "$tmp/log1" | sort -n | tail -n 1 | sed 's/^[0-9.]* //' | tr ',' ';' | cut -c1-260)
    echo "$network,$fault,$side,$round,$verdict,$ended,$gap,$said" | tee -a "$csv"
    [[ -n $logs ]] || return 0
    for r in 0 1; do cp "$tmp/log$r" "$logs/$network-$fault-$side-$round-rank$r"; done
}

# run: runs one job of $side over $network with $fault
run() {
    local tests=() i deadline seen now reached=1 verdict=right
    for i in $(seq $(((15 + $(goes_on "$fault")) * 500 / pause_ms))); do tests+=(allreduce sendrecv); done
    cables
    rm -rf "$tmp"/id.* "$tmp/fabric" "$tmp"/sys? "$tmp/stats"
    mkdir "$tmp/fabric"
    ranks=()
    : >"$tmp/log0"
    for i in 0 1; do
        rank "$side" "$network" "$([[ $i == 0 ]] && echo "$a" || echo "$b")" "$i" "${tests[@]}" > >(stamp >"$tmp/log$i") 2>&1 </dev/null &
        ranks[i]=$!
    done
    if ! until_results 20; then
        echo "$network $fault $side: the job did not begin:" >&2
        tail -n 5 "$tmp/log0" "$tmp/log1" >&2
        kill -KILL "${ranks[@]}" 2>/dev/null
        wait 2>/dev/null
        return
    fi
    fault_at=$EPOCHREALTIME
    inject "$fault" >"$tmp/injected" 2>&1 || reached=0
    deadline=$((EPOCHSECONDS + hangs_after))
    seen=$(results)
    while alive 0 && alive 1; do
        now=$(results)
        # A job that goes on does not hang, however slow a busy machine makes it.
        ((now == seen)) || deadline=$((EPOCHSECONDS + hangs_after))
        seen=$now
        ((EPOCHSECONDS < deadline)) || { verdict=hung; break; }
        sleep 0.1
    done
    ended_at=$EPOCHREALTIME
    # If the job is right, the other rank ends by itself.
    for ((i = 0; i < 100; i++)); do
        alive 0 || alive 1 || break
        [[ $verdict == right ]] || break
        sleep 0.1
    done
    kill -CONT "${ranks[@]}" 2>/dev/null
    kill -KILL "${ranks[@]}" 2>/dev/null
    statuses=0
    for i in 0 1; do wait "${ranks[i]}" 2>/dev/null || statuses=1; done
    ranks=()
    sleep 0.2 # the readers of the output end
    if ((reached)); then judge "$verdict"; else echo "$network $fault $side: the fault did not happen: $(tail -n 1 "$tmp/injected")" >&2; fi
}

declare -A gid_of=([roce]=3 [pvrdma]=1 [joined]=3 [tcp]=0)
for round in $(seq "$rounds"); do
    for network in $over; do
        gid=${gid_of[$network]:-3}
        case $network in
        tcp) all=${faults:-$tcp_faults} ;;
        joined) all=${faults:-$joined_faults} ;;
        *) all=${faults:-$rdma_faults} ;;
        esac
        for fault in $all; do
            order=$sides
            ((round % 2)) || order=$(tr ' ' '\n' <<<"$sides" | tac | tr '\n' ' ')
            for side in $order; do run; done
        done
    done
done
echo "NCCL $(awk '$2 ~ /^NCCL_(MAJOR|MINOR|PATCH)$/ { printf "%s%s", dot, $3; dot = "." }' "$nccl_build/include/nccl.h"), $(nproc) CPUs, Linux $(uname -r); every byte checked"
awk -F, -f "$src/tests/bench/median.awk" -f "$src/tests/bench/peer_faults.awk" "$csv"
