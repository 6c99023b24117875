#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Bounds on the instructions that the plugin executes per message over RDMA: over one lane, two ports, and four queue
# pairs. callgrind counts them on softverbs as a PVRDMA device (tests/bench/instructions.sh). The bounds are 2 to 4
# per cent above the count of gcc 12.2's code, and 6 per cent where the clock chooses between queue pairs. For
# comparison, NCCL 2.30.7's own transport takes 1,086 at depth 8, 1,202 at depth 1, and 95 for a test, counted
# likewise. tests/bench/NOTES.md has the cost of each part.
# run-all limit: 400
set -u
src=$PVN_SRCDIR build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
skip() { echo "skip instructions: $1"; exit 0; }
command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null || skip "there is no valgrind (package valgrind)"
grep -q '^CFLAGS = -g -O2$' "$build/Makefile" || skip "the bounds are those of a build with CFLAGS='-g -O2'"

# count NAME OPTIONS...: runs the count with OPTIONS, with its output in $tmp/NAME
count() {
    local name=$1
    shift
    "$src/tests/bench/instructions.sh" --build "$build" --bytes "8 4096" "$@" >"$tmp/$name" 2>&1 && return
    echo "not ok instructions are counted, $*"
    sed 's/^/  /' "$tmp/$name"
    exit 1
}
# bounded WHAT NAME MODE BYTES DEPTH MOST: WHAT is useful, the instructions of a message, or vain, those of a test
# that found nothing
bounded() {
    local column=8 what="a message"
    [[ $1 == useful ]] || column=10 what="a test of a receive for which nothing has come"
    shift
    local n
    n=$(awk -v m="$2" -v b="$3" -v d="$4" -v c="$column" '$1 == m && $2 == b && $3 == d { print $c }' "$tmp/$1")
    if [[ -n $n ]] && ((n > 0 && n <= $5)); then
        echo "ok $1, $2 mode, $3 B at depth $4: $what takes $n instructions, at most $5"
    else
        echo "not ok $1, $2 mode, $3 B at depth $4: $what takes ${n:-no} instructions, at most $5"
        sed 's/^/  /' "$tmp/$1"
    fi
}
count one-lane --modes "record imm"
for mode in record imm; do
    bounded useful one-lane $mode 8 1 1502
    bounded useful one-lane $mode 8 8 885
    bounded vain one-lane $mode 8 8 73
done
bounded useful one-lane record 4096 1 1520
bounded useful one-lane record 4096 8 975
bounded useful one-lane imm 4096 1 1800
bounded useful one-lane imm 4096 8 1060
count four-queue-pairs --modes record --qps 4
count two-ports --modes record --ports 2
for lanes in four-queue-pairs two-ports; do
    bounded useful $lanes record 8 1 1720
    bounded useful $lanes record 8 8 925
done
bounded useful four-queue-pairs record 4096 1 2240
bounded useful four-queue-pairs record 4096 8 1370
bounded useful two-ports record 4096 1 2030
bounded useful two-ports record 4096 8 1095
