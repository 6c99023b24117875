#!/usr/bin/env bash
# Instructions that the plugin executes per message (isend, irecv and every test of both ends), by
# callgrind: both ends in one process on softverbs as a PVRDMA device, depth 8. Only the plugin's own
# object counts, not softverbs nor the C library, and only while messages move.
# usage: tests/bench/instructions.sh [--build DIR]
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build
[[ ${1:-} == --build ]] && build=$2
command -v valgrind >/dev/null && command -v callgrind_annotate >/dev/null ||
    { echo "SKIP: there is no valgrind (package valgrind)"; exit 77; }
[[ -x $build/tests/bench/messages ]] || { echo "no $build/tests/bench/messages: make tests/bench/messages there" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/sys"
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so
export PVN_SOFTVERBS_PROFILE=pvrdma PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys

# of COUNT messages of BYTES
instructions() {
    "$build/libtool" --mode=execute valgrind -q --tool=callgrind --toggle-collect=move_messages --callgrind-out-file="$tmp/out" \
        "$build/tests/bench/messages" "$build/.libs/libnccl-net-pvrdma.so" "$1" "$2" >&2 || exit 1
    callgrind_annotate --threshold=100 --auto=no --show-percs=no "$tmp/out" |
        awk '/libnccl-net-pvrdma/ {gsub(",", "", $1); n += $1} END {printf "%d\n", n}'
}

count=500
printf '%-6s %10s  %s\n' mode bytes "instructions per message"
for mode in record imm send; do
    export NCCL_PVRDMA_RDMA_MODE=$mode
    for bytes in 8 524288; do
        sum=$(instructions $count $bytes) || exit 1
        printf '%-6s %10d  %d\n' $mode $bytes $((sum / count))
    done
done
