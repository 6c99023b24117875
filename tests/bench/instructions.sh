#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Counts the instructions that the plugin executes per message, by callgrind. Both ends run in one process on
# softverbs as a PVRDMA device, with one message at a time and eight in flight. Only the plugin's own object counts,
# without softverbs and the C library, and only while messages move. "all" is every call of both ends. "useful" is
# one isend and one irecv that gave a request, and the two tests that found it done. A run before the counted one
# shows which calls these are. The last columns are the cost of a call that gets nothing done, one of many in a row.
# The two-sided mode is counted without failover, with which its calls depend on the time at which the receiver's
# credits come.
# --ports N: a comm over N joined adapters; --qps N: over N queue pairs of each; --profile roce: on an adapter
# whose completion queue is cheap to poll.
# usage: tests/bench/instructions.sh [--build DIR] [--modes "record imm send"] [--bytes "8 4096"] [--ports N] [--qps N] [--profile NAME]
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build
modes="record imm send" sizes="8 4096 524288"
profile=pvrdma
while [[ $# -ge 2 ]]; do
    case $1 in
    --build) build=$2 ;;
    --modes) modes=$2 ;;
    --bytes) sizes=$2 ;;
    --ports) export PVN_SOFTVERBS_DEVICES=$2 NCCL_PVRDMA_VDEVICE=1 ;;
    --qps) export NCCL_PVRDMA_QPS=$2 ;;
    --profile) profile=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
if ! command -v valgrind >/dev/null || ! command -v callgrind_annotate >/dev/null; then
    echo "SKIP: there is no valgrind (package valgrind)"
    exit 77
fi
[[ -e $build/Makefile ]] || { echo "$build is not a build tree: run tests/build-tree.sh $build first, or give --build DIR" >&2; exit 2; }
make -C "$build" -s -j"${PVN_JOBS:-$(nproc)}" libnccl-net-pvrdma.la tests/softverbs/libsoftverbs.la tests/bench/messages >&2 ||
    { echo "what is measured cannot be built in $build" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/sys"
export NCCL_PVRDMA_TRANSPORT=rdma NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so
export PVN_SOFTVERBS_PROFILE=$profile PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys

# A comm's first 256 messages initialise its rings, which costs 56 instructions each.
count=2000
phases="post_send post_receive test_oldest post_send_to_no_end test_to_no_end send_in_vain test_of_receive test_of_send"

# instructions BYTES DEPTH: prints the sum of each phase, then the counts that messages prints
instructions() {
    local calls run=("$build/tests/bench/messages" "$build/.libs/libnccl-net-pvrdma.so" "$count" "$1" "$2" "$tmp/outcomes")
    rm -f "$tmp/outcomes"
    "$build/libtool" --mode=execute "${run[@]}" >/dev/null || exit 1
    calls=$("$build/libtool" --mode=execute valgrind -q --tool=callgrind --separate-callers=16 --callgrind-out-file="$tmp/out" \
        "${run[@]}") || exit 1
    echo "$(awk -v object=libnccl-net-pvrdma -v phases="$phases" -f "$src/tests/bench/instructions.awk" "$tmp/out") $calls"
}

format='%-6s %7s %5s %7s %7s %7s %7s %7s %9s %9s %9s\n'
printf "$format" mode bytes depth isend irecv test all useful "no isend" "no recv" "no send"
for mode in $modes; do
    export NCCL_PVRDMA_RDMA_MODE=$mode
    [[ $mode != send ]] || export NCCL_PVRDMA_FAILOVER=0
    for bytes in $sizes; do
        for depth in 1 8; do
            read -r isend irecv test nsend ntest vsend vrecv vtest sends receives tests < <(instructions $bytes $depth)
            [[ -n ${tests:-} ]] || exit 1
            useful=$((isend + irecv + test)) isend=$((isend + nsend)) test=$((test + ntest))
            all=$((isend + irecv + test))
            printf "$format" $mode $bytes $depth $((isend / count)) $((irecv / count)) $((test / count)) $((all / count)) \
                $((useful / count)) \
                $((vsend / (sends ? sends : 1))) $((vrecv / (receives ? receives : 1))) $((vtest / (tests ? tests : 1)))
        done
    done
done
