#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests the source archive: it is complete, and its bytes do not depend on who makes it or when.
# Tests the benchmarks' scripts without measuring: they refuse a tree in which they would measure something else than
# they report, and their tables leave out rounds that cannot be compared.
# run-all limit: 600
set -u
build=$PVN_BUILDDIR
src=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
name=pvn-dist-$$
trap 'chmod -R u+w "$build/$name" 2>/dev/null; rm -rf "$tmp" "$build/$name"' EXIT

# verdict NAME STATUS: prints ok, or not ok and the step's output
verdict() {
    if [ "$2" = 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        sed 's/^/  /' "$tmp/out"
    fi
}

# archive FILE UMASK VARIABLE...
archive() {
    local file=$1 mask=$2
    shift 2
    # The fastest compression: it is as reproducible as the best.
    (umask "$mask" && cd "$build" && env XZ_OPT=-0 "$@" make -s dist-xz distdir="$name") >"$tmp/out" 2>&1 &&
        mv "$build/$name.tar.xz" "$file"
}

archive "$tmp/one" 022 SOURCE_DATE_EPOCH=1700000000 TZ=UTC && sleep 1.1 &&
    archive "$tmp/two" 077 SOURCE_DATE_EPOCH=1700000000 TZ=Asia/Tokyo LC_ALL=C.UTF-8
verdict "make dist" $?
one=$(sha256sum <"$tmp/one") two=$(sha256sum <"$tmp/two")
echo "$one, $two" >"$tmp/out"
same() { [ -s "$tmp/one" ] && [ "$one" = "$two" ]; }
same
verdict "two archives have the same SHA-256" $?
tar -tvf "$tmp/one" --full-time --utc 2>"$tmp/out" | awk '{print $2, $4, $5}' | sort -u >"$tmp/when"
cp "$tmp/when" "$tmp/out"
[ "$(cat "$tmp/when")" = "0/0 2023-11-14 22:13:20" ]
verdict "its files have the time of SOURCE_DATE_EPOCH and no owner" $?

if [ -e "$src/.git" ] && git -C "$src" ls-files >"$tmp/tracked" 2>/dev/null; then
    tar -tf "$tmp/one" | sed "s|^$name/||" | sort -u >"$tmp/packed"
    # The archive leaves out the files that serve the repository alone.
    grep -vE '(^|/)\.gitignore$|^\.ci/' "$tmp/tracked" | sort | comm -23 - "$tmp/packed" >"$tmp/out"
    [ ! -s "$tmp/out" ]
    verdict "the archive has every file of the repository" $?
else
    echo "skip the archive's completeness: this is not a git checkout"
fi

# A folder without softverbs and without a Makefile that could build it.
mkdir -p "$tmp/empty/.libs"
printf '#!/bin/sh\nexit 0\n' >"$tmp/empty/pvn-perf"
chmod +x "$tmp/empty/pvn-perf"
"$src/tests/bench/rdma.sh" --device softverbs --build "$tmp/empty" >"$tmp/out" 2>&1
[ $? = 2 ] && grep -q 'softverbs cannot be built in' "$tmp/out"
verdict "rdma.sh does not measure TCP where softverbs cannot be built" $?
if command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null; then
    "$src/tests/bench/instructions.sh" --build "$tmp/empty" >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q 'is not a build tree' "$tmp/out"
    verdict "instructions.sh names what is not a build tree" $?
else
    echo "skip instructions.sh: there is no valgrind (package valgrind)"
fi

# The table of tcp.sh has only the rounds at the most frequent distance between the cores. It leaves out rounds during
# which the distance changed.
printf '%s\n' 1,25,26 2,160,165 3,27,25 4,25,160 5,158,163 6,26,25 >"$tmp/distance.csv"
row() { printf '%s,30,30,pvrdma,11,0,latency,,2,1,1,1,8,100,%s,pinned\n' "$1" "$2"; }
for m in 1 3 6; do row "$m" 5; done >"$tmp/p2p.csv"
for m in 2 4 5; do row "$m" 20; done >>"$tmp/p2p.csv"
awk -F, -v own=pvrdma -v order=pvrdma -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/tcp.awk" "$tmp/distance.csv" \
    "$tmp/p2p.csv" >"$tmp/out"
grep -qF '| latency 8 B, us | 5.00 (5.00..5.00) |' "$tmp/out" && grep -q 'processor to processor: 2[567] ns; .* 3 of 6' "$tmp/out"
verdict "tcp.sh keeps the measurements of the commonest distance" $?

printf '%s\n' pvrdma,1,1,sendrecv,8,30,25,26 none,1,1,sendrecv,8,60,26,26 pvrdma,1,2,sendrecv,8,40,27,25 none,1,2,sendrecv,8,90,25,160 \
    bare,1,1,sendrecv,8,50,25,25 none,4,1,sendrecv,8,70,26,25 >"$tmp/nccl.csv"
awk -F, -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/nccl.awk" "$tmp/nccl.csv" >"$tmp/out"
grep -qE '^sendrecv +1 +8 +35\.0 \(30\.\.40\) +60\.0 \(60\.\.60\) +1\.71 +50\.0 \(50\.\.50\) +1\.20$' "$tmp/out" &&
    grep -qE '^sendrecv +4 +8 -$' "$tmp/out" && grep -q 'processor to processor: 2[567] ns; .* 1 of 6' "$tmp/out"
verdict "nccl.sh's table is of those runs, too, and has no ratio where one side is missing" $?
