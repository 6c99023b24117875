#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Compares this build with another commit's, in the plugin's main uses. Over TCP, with both builds in turn: the latency of a
# lone 8-byte message, 8 bytes and 64 KiB over 16 comms of one thread, 1 MiB from pinned memory, and the ring without sums.
# Over RDMA (softverbs): instructions and doorbells per message, which do not depend on the host. Prints a line for each
# with a verdict: better, same, worse, or too noisy. Exits with status 1 if one is worse.
# usage: tests/bench/gate.sh BASE [--build DIR] [--rounds N] [--counts]
# BASE: a commit, which is built in a temporary directory, or a build tree. --counts: only instructions and doorbells.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
usage() { sed -n '/^# usage/,/^[^#]/s/^# //p' "$0" >&2; exit 2; }
build=$src/build rounds=9 counts='' base=''
while (($#)); do
    case $1 in
    --build) build=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --counts) counts=1; shift ;;
    -*) usage ;;
    *) [[ -z $base ]] || usage; base=$1; shift ;;
    esac
done
[[ -n $base ]] || usage
[[ -x $build/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }

tmp=$(mktemp -d)
cleanup() {
    git -C "$src" worktree remove --force "$tmp/base" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
if [[ ! -d $base ]]; then
    git -C "$src" worktree add --quiet --detach "$tmp/base" "$base" ||
        { echo "$base is neither a commit nor a build tree" >&2; exit 2; }
    echo "building $base ..." >&2
    "$tmp/base/tests/build-tree.sh" "$tmp/base/build"
    base=$tmp/base/build
fi
[[ -e $base/.libs/libnccl-net-pvrdma.so ]] || { echo "$base is not a build tree: no .libs/libnccl-net-pvrdma.so" >&2; exit 2; }

# Prints lines "WHAT;BASE;THIS", where less is better, from two files with lines "WHAT;VALUE".
join_counts() { awk -F';' 'NR == FNR { base[$1] = $2; next } $1 in base { print $1 ";" base[$1] ";" $2 }' "$1" "$2"; }
count() {
    local dir=$1 out=$2
    "$src/tests/bench/instructions.sh" --build "$dir" --modes "record imm" >"$tmp/instructions" || { cat "$tmp/instructions" >&2; exit 2; }
    awk 'NR > 1 { printf "instructions %s %s B depth %s;%s\n", $1, $2, $3, $7 }' "$tmp/instructions" >"$out"
    make -C "$dir" -s tests/softverbs/libsoftverbs.la >&2
    "$src/tests/bench/rdma.sh" --device softverbs --build "$dir" >"$tmp/doorbells"
    awk '{ for (i = 2; i <= NF; i++) if ($i == "doorbells") print "doorbells per message " $1 ";" $(i - 1) }' "$tmp/doorbells" >>"$out"
}
count "$base" "$tmp/base.counts"
count "$build" "$tmp/this.counts"
touch "$tmp/tcp.csv"
[[ -n $counts ]] || "$src/tests/bench/tcp.sh" --build "$build" --rounds "$rounds" --plugin base="$base/.libs/libnccl-net-pvrdma.so" \
    --comms 16 --only latency:8 --only comms:8,64K --only bandwidth:1M --only nosums2 --csv "$tmp/tcp.csv" >&2

# Instructions are equal in every run. Doorbells depend a little on the timing of the two processes.
join_counts "$tmp/base.counts" "$tmp/this.counts" >"$tmp/counts"
awk -F'[;,]' -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/gate.awk" "$tmp/counts" "$tmp/tcp.csv"
