#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Bounds on the cost of an idle TCP comm per pass over 256 of them, as NCCL's proxy makes it: the instructions of a
# test() with everything that it calls, counted by callgrind, and how often the comm checks its control connection.
# The bounds on instructions are a seventh above the count of gcc 12.2's code. So another compiler stays within them,
# and an addition to the code does not.
# run-all limit: 300
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
skip() { echo "skip idle instructions: $1"; exit 0; }
command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null || skip "there is no valgrind (package valgrind)"
grep -q '^CFLAGS = -g -O2$' "$build/Makefile" || skip "the bounds are those of a build with CFLAGS='-g -O2'"
# Statistics are off. They are written at intervals of time, so a slower processor would write them more often per
# test.
export NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_STATS_DIR=none

# count SECONDS: prints, of the rank that tests its receives for so long, the number of tests and their instructions,
# and the number of checks of the control connection and their instructions
count() {
    local out=$tmp/$1
    mkdir "$out"
    if ! "$build/libtool" --mode=execute valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file="$out/rank.%p" \
        "$build/pvn-perf" p2p --plugin "$build/.libs/libnccl-net-pvrdma.so" --ranks 2 --channels 256 --idle "$1" >"$out/log" 2>&1; then
        sed 's/^/  /' "$out/log" >&2
        return 1
    fi
    for rank in "$out"/rank.*; do
        # A line is "instructions (share)  >   file:function (Nx)", where N is the number of calls.
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
# Two runs are compared, because the work before all comms are idle is the same in both. A busy machine needs a
# longer run for as many tests, and does work that depends on time more often per test. Checks of the control
# connection, a tenth of everything then, are counted apart. Of the rest, the longer run with the fewest instructions
# per test counts.
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

# bounded NAME NUMBER LEAST MOST
bounded() {
    local verdict="not ok"
    (($2 >= $3 && $2 <= $4)) && verdict=ok
    echo "$verdict $1: $2, at least $3 and at most $4"
}
bounded "instructions per idle comm and pass over 256 TCP comms, times 10, but for looks at the control connection" "$least" 100 "$most"
bounded "instructions of a look at the control connection" "$look" 50 470
bounded "tests of an idle comm per look at its control connection" "$calls" 60 576
