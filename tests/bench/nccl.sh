#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# A real NCCL over this plugin beside its own transport, without a GPU (tests/nccl): over TCP, or, with --over roce
# or pvrdma, beside its net_ib on software verbs, in the mode that the plugin chooses by itself. Two processes run in
# network namespaces joined by a veth pair. The figures are times of a send/recv of 8 B, and of all-reduce and
# send/recv from 16 KiB on.
# Each round runs both plugins in turn. Of each the best iteration of a run counts, then the median of the rounds. An
# iteration is 20 operations (5 of 64 MiB) that wait on their stream until all are queued, as nccl-tests launches 20
# in a row. A lone one of 8 B takes 1.6 to 1.9 times as long, because it includes NCCL's launch and finds all caches
# cold after the check of the one before. Host memory is in small pages that cannot be moved, as NCCL's from the
# driver.
# The GPU is a double made of threads that copy. So ratios mean something, and only on a machine with nothing else to
# do. Each process has half of the processors to itself, as two hosts would, because the time changes whenever the
# scheduler puts threads of both ends on one processor. A run in which the hypervisor moved the processors
# (core_distance.c) is left out. Needs root; leaves nothing behind.
# --csv adds its rows to a file, and makes the table of all rows there, so that a long measurement can be made in
# pieces. --bare adds a third plugin that does the least (bare_net.c, over RDMA bare_verbs.c; it needs an NCCL with
# net API v12, 2.30 or newer), which shows the part of the time that is the network's and NCCL's. --cc sets the
# congestion control; without it the machine's default applies. With --over pvrdma, PVN_SOFTVERBS_SET='set
# doorbell_ns N' makes doorbells cost time; see tests/softverbs/README.md. --init measures only the time of
# ncclCommInitRankConfig, which makes two connections for each channel.
# usage: tests/bench/nccl.sh --nccl-src DIR --nccl-build DIR [--build DIR] [--rounds N] [--channels "1 4"] [--cc NAME] [--csv FILE]
#            [--over tcp|roce|pvrdma] [--bare | --init]
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
nccl_src='' nccl_build='' build=$src/build rounds=7 channels="1 4" csv='' cc='' bare='' init='' over=tcp
while (($#)); do
    [[ $1 != --bare ]] || { bare=bare; shift; continue; }
    [[ $1 != --init ]] || { init=1; shift; continue; }
    (($# >= 2)) || break
    case $1 in
    --nccl-src) nccl_src=$2 ;;
    --nccl-build) nccl_build=$2 ;;
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --channels) channels=$2 ;;
    --cc) cc=$2 ;;
    --over) over=$2 ;;
    --csv) csv=$2 ;;
    *) break ;;
    esac
    shift 2
done
(($# == 0)) || { echo "$1: no such option, or its value is missing" >&2; sed -n '/^# usage/,/^[^#]/s/^# //p' "$0" >&2; exit 2; }
case $over in
tcp | roce | pvrdma) ;;
*) echo "--over $over: tcp, roce or pvrdma" >&2; exit 2 ;;
esac
least=bare_net least_name="bare TCP"
[[ $over == tcp ]] || least=bare_verbs least_name="bare verbs"
# shellcheck source=tests/nccl/double.sh
. "$src/tests/nccl/double.sh"
((EUID == 0)) || { echo "skip bench-nccl: network namespaces need root"; exit 77; }
why=$(double_check) || { echo "skip bench-nccl: $why"; exit 77; }
build=$(cd "$build" && pwd) nccl_src=$(cd "$nccl_src" && pwd) nccl_build=$(cd "$nccl_build" && pwd)
# shellcheck source=tests/bench/congestion.sh
. "$src/tests/bench/congestion.sh"
tmp=$(mktemp -d) a=pvnNA$$ b=pvnNB$$
cleanup() {
    congestion_restore
    ip netns del "$a" 2>/dev/null
    ip netns del "$b" 2>/dev/null
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
double_compile >"$tmp/compile.log" 2>&1 || { cat "$tmp/compile.log" >&2; exit 1; }
double_environment
make -C "$build" -s tests/bench/core_distance || exit 1
# The processors of each end, for taskset.
mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (i = $1; i <= $NF; i++) print i }')
half=$((${#cpus[@]} / 2))
((half)) || { echo "skip bench-nccl: two processes need two processors"; exit 77; }
ends=("$(IFS=,; echo "${cpus[*]:0:half}")" "$(IFS=,; echo "${cpus[*]:half:half}")")
distance() { taskset -c "${cpus[0]},${cpus[half]}" "$build/tests/bench/core_distance"; }
if [[ $bare ]]; then
    [[ -r $nccl_src/src/plugin/net/net_v12.cc ]] || { echo "--bare: $nccl_src has no net API v12, as NCCL 2.30.7 has" >&2; exit 2; }
    make -C "$build" -s "tests/bench/$least.la" || exit 1
fi
mkdir "$tmp/stats" "$tmp/verbs" "$tmp/fabric" "$tmp/sys0" "$tmp/sys1"
if [[ $over != tcp ]]; then
    make -C "$build" -s tests/softverbs/libsoftverbs.la || exit 1
    soft=$build/tests/softverbs/.libs/libsoftverbs.so
    # NCCL takes libibverbs.so where it is installed.
    for name in libibverbs.so libibverbs.so.1; do ln -s "$soft" "$tmp/verbs/$name"; done
fi
ip netns add "$a" && ip netns add "$b" &&
    ip link add en0 netns "$a" type veth peer name en0 netns "$b" || exit 1
for end in "$a 1" "$b 2"; do
    read -r space host <<<"$end"
    ip -n "$space" addr add "198.18.0.$host/24" dev en0
    ip -n "$space" link set en0 up
    ip -n "$space" link set lo up
done
[[ -z $cc ]] || congestion_set "$cc" "$a" "$b" || exit 2
# NCCL takes no interface that is not running yet.
for _ in $(seq 100); do
    [[ $(ip -n "$a" -br link; ip -n "$b" -br link) == *DOWN* ]] || break
    sleep 0.1
done

# rank PLUGIN CHANNELS NAMESPACE RANK arguments of nccldrive: one end of a run
rank() {
    local plugin=$1 net=$1
    case $1 in
    bare) plugin=$build/tests/bench/.libs/$least.so net=$least_name ;;
    none) [[ $over == tcp ]] && net=Socket || net=IB ;;
    esac
    # NCCL_NET makes NCCL end where it would otherwise take another network.
    local env=("${double_env[@]}" "NCCL_NET_PLUGIN=$plugin" "NCCL_NET=$net" "NCCL_MIN_NCHANNELS=$2" "NCCL_MAX_NCHANNELS=$2"
        CUDART_DOUBLE_PINNED=1)
    if [[ $over == tcp ]]; then
        env+=(NCCL_PVRDMA_TRANSPORT=tcp)
    else
        env+=(NCCL_PVRDMA_TRANSPORT=rdma PVN_SOFTVERBS_DIR="$tmp/fabric" PVN_SOFTVERBS_PROFILE="$over" NCCL_PVRDMA_VERBS_LIB="$soft"
            PVN_SOFTVERBS_SYSFS="$tmp/sys$4" NCCL_PVRDMA_SYSFS_ROOT="$tmp/sys$4"
            # See peer_rdma.sh.
            MALLOC_TRIM_THRESHOLD_=$((1 << 30)) MALLOC_MMAP_THRESHOLD_=$((1 << 30)))
        # NCCL takes the first RoCE v2 address by itself where it can read /sys, which is this machine's.
        [[ $1 == pvrdma ]] || env+=(NCCL_IB_GID_INDEX="$([[ $over == pvrdma ]] && echo 1 || echo 3)" "LD_LIBRARY_PATH=$tmp/verbs:$tmp:$nccl_build/lib")
    fi
    ip netns exec "$3" env "${env[@]}" NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=en0 NCCL_PVRDMA_STATS_DIR="$tmp/stats" \
        taskset -c "${ends[$4]}" timeout -k 5 120 "$tmp/nccldrive" -n 2 --id "$tmp/id" --rank "$4" "${@:5}" </dev/null
}
# run PLUGIN CHANNELS ROUND arguments of nccldrive
run() {
    local plugin=$1 count=$2 round=$3 other before after
    shift 3
    before=$(distance)
    rm -f "$tmp"/id.*
    rank "$plugin" "$count" "$b" 1 "$@" >"$tmp/one" 2>&1 &
    other=$!
    rank "$plugin" "$count" "$a" 0 "$@" >"$tmp/zero" 2>&1 || { cat "$tmp/zero" "$tmp/one" >&2; exit 1; }
    wait $other || { cat "$tmp/one" >&2; exit 1; }
    after=$(distance)
    awk -v p="$plugin" -v c="$count" -v r="$round" -v d="$before,$after" \
        -v init="$init" '$2 == "ok" && !init { print p "," c "," r "," $3 "," $7 "," $9 "," d }
            $2 == "made" && init { print p "," c "," r ",init,0," $6 "," d }' "$tmp/zero" >>"$tmp/csv"
}
for round in $(seq "$rounds"); do
    for count in $channels; do
        all="pvrdma none $bare"
        ((round % 2)) || all="$bare none pvrdma"
        for plugin in $all; do
            if [[ $init ]]; then
                run "$plugin" "$count" "$round" --warmup 0 --iters 1 --sizes 8 allreduce
                continue
            fi
            run "$plugin" "$count" "$round" --warmup 2 --iters 50 --queued 20 --sizes 8 sendrecv
            for test in sendrecv allreduce; do
                run "$plugin" "$count" "$round" --warmup 1 --iters 10 --queued 20 --sizes 16K,64K,256K "$test"
                run "$plugin" "$count" "$round" --warmup 1 --iters 3 --queued 20 --sizes 1M,4M,16M "$test"
                run "$plugin" "$count" "$round" --warmup 1 --iters 2 --queued 5 --sizes 64M "$test"
            done
        done
    done
done
csv=${csv:-$tmp/all.csv}
cat "$tmp/csv" >>"$csv"
echo "NCCL $(awk '$2 ~ /^NCCL_(MAJOR|MINOR|PATCH)$/ { printf "%s%s", dot, $3; dot = "." }' "$nccl_build/include/nccl.h"), $([[ $over == tcp ]] && echo "veth pair, $(congestion_of "$a")" || echo "software verbs, profile $over"), $(nproc) CPUs, Linux $(uname -r); every byte checked"
awk -F, -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/nccl.awk" "$csv"
