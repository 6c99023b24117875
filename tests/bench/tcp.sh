#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Measures net plugins over TCP between two network namespaces joined by a veth pair, with iperf3 over the same
# pair as the yardstick: p2p latency and bandwidth, 8-byte message rate, ring all-reduce with 2 and 4 ranks, CPU
# per GB. Everything is interleaved and repeated; the tables show medians (min..max) and ratios to iperf3's
# best, and this build's plugin against the best other one. Needs root; leaves nothing behind.
# usage: tests/bench/tcp.sh [--plugin NAME=PATH]... [--env [NAME:]KEY=VALUE]... [--cc NAME] [--mtu N]
#                           [--rounds N] [--quick] [--rt] [--bare] [--failover] [--only KIND[:SIZES]]... [--comms LIST]
#                           [--threads LIST] [--build DIR] [--csv FILE]
# --rt is for a machine that others use as well: real-time priority in short bursts, with pauses for the
# others. A plugin whose own threads spin would starve itself; a burst is ended after 30 s.
# --only leaves out iperf3 and all but the KINDs named: latency, bandwidth, comms, ring2, ring4, nosums2, nosums4.
# For one change against the build before it: --plugin before=PATH --only latency:512,4K
# comms: message rate and bandwidth with several comms on a thread, as NCCL's proxy has (--comms, default 1,2,16,64,256).
# nosums: the ring whose slots nobody adds up, since with NCCL that is the GPU's work.
# Messages lie in pinned memory, as NCCL's buffers do.
# --threads 1,2,4: this build's plugin again with so many worker threads each, as w1, w2, w4 (pvrdma itself: none), and the
# plugin that is called sock with as many of NCCL's socket threads, as s1, s2, s4. For machines of many cores, with
# --only bandwidth:1M,8M --only nosums2; eight plugins in all.
# The time from processor to processor is taken before and after each measurement. One during which it changed, or whose
# distance is not the usual one of this run, is left out of the medians and counted below the table.
# --failover: this build's plugin again as "failover", as on a host with several interfaces, where failover is on by default.
# --bare adds tests/bench/bare_net.c, which does the least that a plugin must, as "bare": not one of the others,
# but what both are divided by in two more columns. A target below what bare reaches asks TCP for more than
# sending and receiving once. Two processes that only call send and recv are measured, too. With --env bare:PVN_BARE_ACKNOWLEDGES=1
# its large sends are done when they are acknowledged, as with failover.
set -eu
usage() { sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2; }

src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build rounds=5 seconds=0.4 iperf_seconds=2 pause=0 rt=() cc="" mtu=1500 keep_csv=
plugins=() envs=() only=() bare='' failover='' comms=1,2,16,64,256 threads=()
while (($#)); do
    case $1 in
    --plugin) plugins+=("$2"); shift 2 ;;
    --env) envs+=(--env "$2"); shift 2 ;;
    --cc) cc=$2; shift 2 ;;
    --mtu) mtu=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --quick) rounds=1 seconds=0.1 iperf_seconds=1; shift ;;
    --rt) rt=(chrt -f 2 timeout -k 1 30 chrt -f 1) seconds=0.15 iperf_seconds=1 pause=2; shift ;;
    --bare) bare=1; shift ;;
    --failover) failover=1; shift ;;
    --only) only+=("$2"); shift 2 ;;
    --comms) comms=$2; shift 2 ;;
    --threads) IFS=, read -ra threads <<<"$2"; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --csv) keep_csv=$2; shift 2 ;;
    *) usage ;;
    esac
done

skip() { echo "skip bench-tcp: $*"; exit 77; }
((EUID == 0)) || skip "network namespaces need root"
for tool in ip iperf3 awk chrt; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
perf=$build/pvn-perf
[[ -x $perf ]] || { echo "no $perf: build first, or give --build DIR" >&2; exit 2; }
helpers=(tests/bench/core_distance)
[[ $bare ]] && helpers+=(tests/bench/bare_net.la tests/bench/tcp_alone)
make -C "$build" -s "${helpers[@]}" >&2 ||
    { echo "the parts of the benchmark cannot be built in $build: run tests/build-tree.sh $build first" >&2; exit 2; }
distance=$build/tests/bench/core_distance
own=$build/.libs/libnccl-net-pvrdma.so
plugins=("pvrdma=$own" ${plugins[@]+"${plugins[@]}"})
if [[ $failover ]]; then
    plugins+=("failover=$own")
    envs+=(--env failover:NCCL_PVRDMA_FAILOVER=1)
fi
((${#threads[@]} == 0)) || envs+=(--env pvrdma:NCCL_PVRDMA_TCP_THREADS=0)
for n in ${threads[@]+"${threads[@]}"}; do
    plugins+=("w$n=$own")
    envs+=(--env "w$n:NCCL_PVRDMA_TCP_THREADS=$n")
    for p in "${plugins[@]}"; do
        [[ $p == sock=* ]] || continue
        plugins+=("s$n=${p#sock=}")
        envs+=(--env "s$n:NCCL_SOCKET_NTHREADS=$n" --env "s$n:NCCL_NSOCKS_PERTHREAD=1")
    done
done
if [[ $bare ]]; then
    bare=$build/tests/bench/.libs/bare_net.so
    plugins+=("bare=$bare")
    alone=$build/tests/bench/tcp_alone
fi
order=${plugins[*]%%=*}

a=pvnA$$ b=pvnB$$
# shellcheck source=tests/bench/congestion.sh
. "$src/tests/bench/congestion.sh"
tmp=$(mktemp -d)
server=
cleanup() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    congestion_restore
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ip netns add "$a"
ip netns add "$b"
# Some plugins ignore interfaces called veth*.
ip link add bench0 netns "$a" mtu "$mtu" type veth peer name bench0 netns "$b" mtu "$mtu"
ip -n "$a" addr add 198.18.0.1/30 dev bench0
ip -n "$b" addr add 198.18.0.2/30 dev bench0
for n in "$a" "$b"; do
    ip -n "$n" link set lo up
    ip -n "$n" link set bench0 up
done
[[ -z $cc ]] || congestion_set "$cc" "$a" "$b" || exit 2
# The kernel needs a moment to report a link as up. Plugins ignore a link that is not.
for n in "$a" "$b"; do
    for _ in {1..100}; do
        ip -n "$n" -o link show bench0 | grep -q 'state UP' && break
        sleep 0.05
    done
done
cc=$(congestion_of "$a")

# Prints one line "round,streams,MB/s,cpu s/GB".
iperf_round() {
    local streams=$1 round=$2
    ${rt[@]+"${rt[@]}"} ip netns exec "$b" iperf3 -s -1 -p 5201 >/dev/null 2>&1 &
    server=$!
    for _ in {1..100}; do
        ip netns exec "$b" ss -Hltn 'sport = :5201' | grep -q . && break
        sleep 0.05
    done
    ${rt[@]+"${rt[@]}"} ip netns exec "$a" iperf3 -J -c 198.18.0.2 -p 5201 -t "$iperf_seconds" -P "$streams" >"$tmp/iperf.json"
    wait "$server" || true
    server=
    awk -v r="$round" -v s="$streams" '
        /"sum_received"/ { in_sum = 1 }
        in_sum && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); mb = $2 / 8e6; in_sum = 0 }
        /"host_total"/ { gsub(/[^0-9.e+]/, "", $2); cpu += $2 }
        /"remote_total"/ { gsub(/[^0-9.e+]/, "", $2); cpu += $2 }
        END { if (mb > 0) printf "%d,%d,%.1f,%.4f\n", r, s, mb, cpu / 100 / (mb / 1000) }' \
        "$tmp/iperf.json" >>"$tmp/iperf.csv"
}

# Runs p2p and ring of all plugins in turn. Prints the CSV lines without their header, each with the number of the
# measurement.
measurement=0
perf_round() {
    local out=$1 p args=() before after
    shift
    before=$("$distance")
    for p in "${plugins[@]}"; do args+=(--plugin "$p"); done
    args+=(${envs[@]+"${envs[@]}"})
    ${rt[@]+"${rt[@]}"} "$perf" "$@" "${args[@]}" --memory pinned --netns "$a,$b" --quiet \
        --csv "$tmp/one.csv" 2>"$tmp/err" ||
        { cat "$tmp/err" >&2; echo "pvn-perf $* failed" >&2; exit 3; }
    measurement=$((measurement + 1))
    after=$("$distance")
    echo "$measurement,$before,$after" >>"$tmp/distance.csv"
    tail -n +2 "$tmp/one.csv" | grep -v ,histogram, | sed "s/^/$measurement,$before,$after,/" >>"$out"
    sleep "$pause"
}

# Prints the processors that other work uses over a second. With other work figures are off by factors.
busy() {
    local u1 n1 s1 i1 u2 n2 s2 i2
    read -r _ u1 n1 s1 i1 _ </proc/stat
    sleep 1
    read -r _ u2 n2 s2 i2 _ </proc/stat
    awk -v b=$((u2 - u1 + n2 - n1 + s2 - s1)) -v i=$((i2 - i1)) -v n="$(nproc)" 'BEGIN { printf "%.2f", n * b / (b + i) }'
}
company=$(busy)

# Makes one round of a KIND[:SIZES], see --only.
kind_round() {
    local kind=${1%%:*} sizes=
    [[ $1 != *:* ]] || sizes=${1#*:}
    case $kind in
    latency)
        if [[ $bare ]]; then
            ${rt[@]+"${rt[@]}"} "$alone" "$a" "$b" 198.18.0.1 8 512 4096 65536 524288 1048576 >>"$tmp/alone.csv"
        fi
        perf_round "$tmp/p2p.csv" p2p --ranks 2 --latency --sizes "${sizes:-8,512,4K,64K,512K,1M}" --time "$seconds"
        ;;
    bandwidth)
        perf_round "$tmp/p2p.csv" p2p --ranks 2 --bandwidth --sizes "${sizes:-8,64K,256K,512K,1M,4M}" --time "$seconds"
        ;;
    comms)
        for count in ${comms//,/ }; do
            perf_round "$tmp/p2p.csv" p2p --ranks 2 --bandwidth --comms "$count" --sizes "${sizes:-8,4K,64K}" --time "$seconds"
        done
        ;;
    ring2 | ring4 | nosums2 | nosums4)
        sums=
        [[ $kind == ring* ]] || sums=--no-sums
        perf_round "$tmp/ring.csv" ring --ranks "${kind#"${kind%?}"}" ${sums:+"$sums"} --sizes "${sizes:-32M}" \
            --time "$seconds"
        ;;
    *) echo "--only $1: no such measurement" >&2; exit 2 ;;
    esac
}

# Each plugin must carry data correctly before anything is timed.
echo "verifying ..." >&2
perf_round /dev/null p2p --ranks 2 --check --bandwidth --sizes 8,4K,64K,1M,4M --time 0.01
perf_round /dev/null ring --ranks 4 --check --sizes 4M --time 0.01

touch "$tmp/alone.csv" "$tmp/iperf.csv" "$tmp/p2p.csv" "$tmp/ring.csv"
for ((r = 1; r <= rounds; r++)); do
    echo "round $r of $rounds ..." >&2
    # The first plugin finds the processors idle and is up to 4 % slower. So each round begins with another one.
    plugins=("${plugins[@]:1}" "${plugins[0]}")
    for k in ${only[@]+"${only[@]}"}; do kind_round "$k"; done
    ((${#only[@]} == 0)) || continue
    for s in 1 2 4; do iperf_round "$s" "$r"; done
    for k in latency bandwidth comms ring2 ring4 nosums2 nosums4; do kind_round "$k"; done
done
company="$company before, $(busy) after"
echo "veth pair, MTU $mtu, $cc, $rounds rounds, $(nproc) CPUs, Linux $(uname -r); data verified with every plugin"
echo "CPUs in use by other processes: $company (above 0.2 the figures below are not to be trusted)"
awk -F, -v own=pvrdma -v order="$order" -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/tcp.awk" "$tmp/distance.csv" "$tmp/alone.csv" \
    "$tmp/iperf.csv" "$tmp/p2p.csv" "$tmp/ring.csv"
if [[ -n $keep_csv ]]; then
    sed "1s/^/measurement,before_ns,after_ns,/;q" "$tmp/one.csv" >"$keep_csv"
    cat "$tmp/p2p.csv" "$tmp/ring.csv" >>"$keep_csv"
fi
