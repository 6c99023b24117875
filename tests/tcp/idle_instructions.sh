#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Bounds on what an idle TCP comm costs per pass over 256 of them, as NCCL's proxy makes it: the instructions of a test() with
# all that it calls, counted by callgrind, and how often it looks at the control connection. The bounds on instructions are a
# seventh above what gcc 12.2 makes of it, so that another compiler keeps them and an addition does not.
# run-all limit: 300
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
skip() { echo "skip idle instructions: $1"; exit 0; }
command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null || skip "there is no valgrind (package valgrind)"
grep -q '^CFLAGS = -g -O2$' "$build/Makefile" || skip "the bounds are those of a build with CFLAGS='-g -O2'"
# Statistics are written by the clock, so the more often per test the slower the processor seems.
export NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_STATS_DIR=none

# count SECONDS: of the rank that tests its receives for so long: tests, their instructions, looks at the control connection
count() {
    local out=$tmp/$1
    mkdir "$out"
    if ! "$build/libtool" --mode=execute valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file="$out/rank.%p" \
        "$build/pvn-perf" p2p --plugin "$build/.libs/libnccl-net-pvrdma.so" --ranks 2 --channels 256 --idle "$1" >"$out/log" 2>&1; then
        sed 's/^/  /' "$out/log" >&2
        return 1
    fi
    for rank in "$out"/rank.*; do
        # Lines are "instructions (share)  >   file:function (Nx)", N calls.
        callgrind_annotate --tree=calling --inclusive=yes --auto=no --threshold=100 "$rank" | tr -d , | awk '
            / > .*:(test_v4|comm_attend) \([0-9]+x\)/ {
                match($0, /\([0-9]+x\)/)
                name = /:test_v4 / ? "test" : "look"
                calls[name] += substr($0, RSTART + 1, RLENGTH - 3)
                instructions[name] += $1
            }
            END { print calls["test"] + 0, instructions["test"] + 0, calls["look"] + 0, instructions["look"] + 0 }'
    done | sort -n | tail -n 1
}
# Two runs: what comes before all comms are idle is the same in both. A busy machine needs a longer one for as many tests, and what
# is done by the clock happens more often per test there: looks, which are a tenth of all then, are counted apart, and of the
# rest the longer run counts of which a test takes the least.
shorter=$(count 1) || { echo "not ok idle instructions are counted"; exit 1; }
read -r tests1 instructions1 looks1 in_looks1 <<<"$shorter"
least=1000000 calls=0 look=0 most=440
for seconds in 4 12 30; do
    longer=$(count "$seconds") || { echo "not ok idle instructions are counted"; exit 1; }
    read -r tests2 instructions2 looks2 in_looks2 <<<"$longer"
    tests=$((tests2 - tests1)) looks=$((looks2 - looks1)) in_looks=$((in_looks2 - in_looks1))
    instructions=$((instructions2 - instructions1 - in_looks))
    ((tests >= tests1)) || continue
    per_test=$((10 * instructions / tests))
    ((per_test >= least)) || {
        least=$per_test
        calls=$((looks > 0 ? tests / looks : 0)) look=$((looks > 0 ? in_looks / looks : 0))
    }
    ((least > most)) || break
done
((least < 1000000)) || { echo "not ok a longer run makes more tests: $tests2 in $seconds s after $tests1"; exit 1; }

# bounded WHAT NUMBER LEAST MOST
bounded() {
    local verdict="not ok"
    (($2 >= $3 && $2 <= $4)) && verdict=ok
    echo "$verdict $1: $2, at least $3 and at most $4"
}
bounded "instructions per idle comm and pass over 256 TCP comms, times 10, but for looks at the control connection" "$least" 100 "$most"
bounded "instructions of a look at the control connection" "$look" 50 470
bounded "tests of an idle comm per look at its control connection" "$calls" 60 576
