#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Prints the line coverage of a tree that was built with --enable-coverage, after its tests have run: a line per
# directory, and the sum. The tests' own sources do not count.
# usage: coverage.sh BUILDDIR
set -eu
src=$(cd "$(dirname "$0")/.." && pwd)
cd "$1"
find . -name '*.gcno' -not -path './tests/*' -print0 | xargs -0 -r gcov -n -r -s "$src" 2>/dev/null |
    awk -F"'" -v src="$src/" '
        /^File/ { f = $2; sub(src, "", f); next }
        /^Lines executed/ && f ~ /\.c$/ && f !~ /^tests/ && f !~ /^\// {
            split($0, a, /[:% ]+/)
            dir = f; sub(/\/[^\/]*$/, "", dir)
            if (!(f in seen) || a[3] > pct[f]) { pct[f] = a[3]; n[f] = a[5]; d[f] = dir; seen[f] = 1 }
            f = ""
        }
        END {
            for (f in seen) {
                lines[d[f]] += n[f]; hit[d[f]] += n[f] * pct[f] / 100
                all += n[f]; sum += n[f] * pct[f] / 100
            }
            for (k in lines) printf "coverage %-16s %5.1f %% of %5d lines\n", k, 100 * hit[k] / lines[k], lines[k] | "sort"
            close("sort")
            if (all) printf "coverage %-16s %5.1f %% of %5d lines\n", "all", 100 * sum / all, all
        }'
