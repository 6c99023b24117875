#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# An all-to-all of 8 ranks over RDMA on softverbs moves the same bytes over more and more comms. Prints throughput, processor
# time and memory as comms grow, medians with (min..max), and a chart in text. All ranks share this machine, so the figures
# compare numbers of comms and say nothing about a network. The memory includes softverbs' own for the device.
# usage: tests/bench/alltoall.sh [--rounds N] [--ranks N] [--per-peer "1 2 4 8 16"] [--size BYTES] [--iters N] [--build DIR]
set -u
usage() { sed -n '/^# usage/,/^[^#]/s/^# //p' "$0" >&2; exit 2; }

src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build rounds=3 ranks=8 steps="1 2 4 8 16" size=8M iters=3
while (($#)); do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --per-peer) steps=$2; shift 2 ;;
    --size) size=$2; shift 2 ;;
    --iters) iters=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) usage ;;
    esac
done
build=$(cd "$build" && pwd) || exit 2
[[ -x $build/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
channels=1
for n in $steps; do ((n <= channels)) || channels=$n; done

# one PER-PEER: prints bus bandwidth, seconds of processor time per GB, KiB per comm, and doorbells per message
one() {
    rm -rf "$tmp/fabric" "$tmp/sys"
    mkdir "$tmp/fabric" "$tmp/sys"
    env NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_TRANSPORT=rdma NCCL_PVRDMA_VERBS_LIB="$build/tests/softverbs/.libs/libsoftverbs.so" \
        PVN_SOFTVERBS_PROFILE=pvrdma PVN_SOFTVERBS_DIR="$tmp/fabric" PVN_SOFTVERBS_SYSFS="$tmp/sys" NCCL_PVRDMA_SYSFS_ROOT="$tmp/sys" \
        timeout 200 "$build/pvn-perf" ring --ranks "$ranks" --collective alltoall --channels "$channels" --per-peer "$1" \
        --slot 16K --sizes "$size" --warmup 1 --iters "$iters" --json - --plugin "$build/.libs/libnccl-net-pvrdma.so" \
        >"$tmp/json" 2>"$tmp/err" </dev/null || { cat "$tmp/err" >&2; return 1; }
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
r, d = j["results"][0], j["doorbells"][0]
print(r["busbw_MBps"], r["cpu_s_per_GB"], r["rss_KiB_per_comm"], d["per_message"])' "$tmp/json"
}

for ((i = 0; i < rounds; i++)); do
    for n in $steps; do
        line=$(one "$n") || exit 1
        echo "$((2 * n * (ranks - 1))) $line" >>"$tmp/all"
    done
done
awk '
function median(v, n,    i, k, t) {
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && v[k] < v[k - 1]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
    low = v[1]; high = v[n]
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
{
    if (!count[$1]++) order[++points] = $1
    for (i = 2; i <= 5; i++) value[$1, i, count[$1]] = $i
}
function of(c, i,    k, v) {
    for (k = 1; k <= count[c]; k++) v[k] = value[c, i, k]
    return median(v, count[c])
}
END {
    printf "%-18s %-26s %-22s %-18s %s\n", "comms per process", "busbw MB/s", "cpu s/GB", "KiB per comm", "doorbells per message"
    for (p = 1; p <= points; p++) {
        c = order[p]
        bw[p] = of(c, 2); a = sprintf("%.1f (%.1f..%.1f)", bw[p], low, high)
        cpu[p] = of(c, 3); b = sprintf("%.3f (%.3f..%.3f)", cpu[p], low, high)
        most = bw[p] > most ? bw[p] : most
        printf "%-18d %-26s %-22s %-18.0f %.2f\n", c, a, b, of(c, 4), of(c, 5)
    }
    print "\nbusbw"
    for (p = 1; p <= points; p++) {
        bar = ""
        for (k = 0; k < 50 * bw[p] / most; k++) bar = bar "#"
        printf "%6d %s\n", order[p], bar
    }
}' "$tmp/all"
