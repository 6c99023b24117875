#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The plugin's share of a slow link beside one stream of another program (iperf3) with the same congestion
# control: two network namespaces, a veth pair with a token bucket of 1 Gbit/s. Prints, for each setting of TCP_STREAMS
# in turn, both rates and the plugin's part of a fair half: 1.00 is fair. Needs root; leaves nothing behind.
# usage: tests/bench/share.sh [--cc NAME] [--rate RATE] [--streams LIST] [--rounds N] [--seconds N] [--build DIR]
set -eu
usage() { sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2; }

src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build cc=bbr rate=1gbit streams=auto,2 rounds=3 seconds=8
while (($#)); do
    case $1 in
    --cc) cc=$2 ;;
    --rate) rate=$2 ;;
    --streams) streams=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done
skip() { echo "skip bench-share: $*"; exit 77; }
((EUID == 0)) || skip "network namespaces need root"
for tool in ip tc iperf3 awk; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[[ -x $build/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }

# shellcheck source=tests/bench/congestion.sh
. "$src/tests/bench/congestion.sh"
a=pvnA$$ b=pvnB$$ tmp=$(mktemp -d)
cleanup() {
    congestion_restore
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
ip netns add "$a"
ip netns add "$b"
ip link add bench0 netns "$a" type veth peer name bench0 netns "$b"
ip -n "$a" addr add 198.18.0.1/30 dev bench0
ip -n "$b" addr add 198.18.0.2/30 dev bench0
for n in "$a" "$b"; do
    ip -n "$n" link set lo up
    ip -n "$n" link set bench0 up
done
congestion_set "$cc" "$a" "$b" || skip "this kernel does not have $cc"
ip netns exec "$a" tc qdisc add dev bench0 root tbf rate "$rate" burst 256k latency 20ms
for _ in {1..100}; do
    ip -n "$b" -o link show bench0 | grep -q 'state UP' && break
    sleep 0.05
done

# The other program's stream lasts longer at both ends, so that the plugin always competes.
one() {
    local ours other
    ip netns exec "$b" iperf3 -s -1 -p 5201 >/dev/null 2>&1 &
    for _ in {1..100}; do
        ip netns exec "$b" ss -Hltn 'sport = :5201' | grep -q . && break
        sleep 0.05
    done
    ip netns exec "$a" iperf3 -J -c 198.18.0.2 -p 5201 -O 2 -t $((seconds + 1)) >"$tmp/iperf.json" &
    local iperf=$!
    sleep 0.5
    ours=$("$build/pvn-perf" p2p --bandwidth --ranks 2 --netns "$a,$b" --sizes 1M --time "$seconds" --quiet --csv - \
        --env "NCCL_PVRDMA_TCP_STREAMS=$1" 2>/dev/null |
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "algbw_MBps") c = i } NR == 2 { print $c }')
    wait "$iperf"
    other=$(awk '/"sum_received"/ { in_sum = 1 } in_sum && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); print $2 / 8e6; exit }' "$tmp/iperf.json")
    awk -v s="$1" -v o="$ours" -v i="$other" 'BEGIN {
        printf "streams %-4s  plugin %6.1f MB/s  iperf3 %6.1f MB/s  of a fair half %.2f\n", s, o, i, 2 * o / (o + i) }'
}
IFS=, read -ra settings <<<"$streams"
for ((round = 0; round < rounds; round++)); do
    for s in "${settings[@]}"; do one "$s"; done
done
