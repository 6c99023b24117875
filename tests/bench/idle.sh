#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The cost of comms while nothing moves on them: time per test() call as their number grows, memory per comm, and
# (with perf) system calls per test() call without the waiting loop's sched_yield. It needs no root. The two ranks
# talk over the interface that the plugin chooses.
# usage: tests/bench/idle.sh [--plugin NAME=PATH]... [--env [NAME:]KEY=VALUE]... [--comms LIST] [--build DIR]
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build comms=1,10,100,1000
args=()
while (($#)); do
    case $1 in
    --plugin | --env) args+=("$1" "$2"); shift 2 ;;
    --comms) comms=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
perf=$build/pvn-perf
[[ -x $perf ]] || { echo "no $perf: build first, or give --build DIR" >&2; exit 2; }
# The plugin under test comes first, unless only others were named.
[[ " ${args[*]-} " == *" --plugin "* ]] || args+=(--plugin "pvrdma=$build/.libs/libnccl-net-pvrdma.so")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# plugin,channels,us per test(),tests,KiB per comm
measure() {
    "$perf" p2p --ranks 2 --idle "$1" --channels "$2" "${args[@]}" --quiet --csv - |
        awk -F, 'NR > 1 { printf "%s,%d,%.4f,%.0f,%.1f\n", $1, $7, $12, $11 * $7, $19 }'
}

echo "plugin, idle comms per direction, us per test(), KiB of memory per comm"
for n in ${comms//,/ }; do
    measure 1 "$n" | awk -F, '{ printf "%-12s %6d %10.4f %10.1f\n", $1, $2, $3, $5 }'
done

# perf counts without slowing the run. strace slows a rank so much that it would do its periodic work in every call.
perf stat -e raw_syscalls:sys_enter true >/dev/null 2>&1 ||
    { echo "skip system calls: 'perf stat -e raw_syscalls:sys_enter' does not work here"; exit 0; }
# calls: prints all system calls of a run, its test() calls and its passes (each has one sched_yield). Two runs of
# different length are compared, because the calls of set-up and tear-down are equal in both.
calls() {
    perf stat -e raw_syscalls:sys_enter -x, -o "$tmp/perf" "$perf" p2p --ranks 2 --idle "$1" --channels 10 \
        "${one[@]}" --quiet --csv "$tmp/csv" 2>/dev/null
    awk -F, '/raw_syscalls/ { printf "%.0f\n", $1 }' "$tmp/perf"
    awk -F, 'NR > 1 { printf "%.0f\n%.0f\n", $11 * $7, $11 }' "$tmp/csv"
}
echo "system calls per test() call of an idle comm, 10 comms:"
for ((i = 0; i < ${#args[@]}; i += 2)); do
    [[ ${args[i]} == --plugin ]] || continue
    one=(--plugin "${args[i + 1]}")
    for ((k = 0; k < ${#args[@]}; k += 2)); do
        [[ ${args[k]} == --env ]] && [[ ${args[k + 1]} != *:* || ${args[k + 1]} == "${args[i + 1]%%=*}:"* ]] &&
            one+=(--env "${args[k + 1]}")
    done
    read -r -d '' c1 t1 p1 < <(calls 1) || true
    read -r -d '' c2 t2 p2 < <(calls 3) || true
    awk -v n="${args[i + 1]%%=*}" -v c=$((c2 - p2 - c1 + p1)) -v t=$((t2 - t1)) \
        'BEGIN { printf "%-12s %.4f (%d calls, %d tests)\n", n, c / t, c, t }'
done
