#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests nccl_check's own logic with doubles of the GPU and of NCCL. It accepts right results. It notices wrong, stale
# and overrun ones, a hang, a dead rank and a missing library.
set -u
check=$PVN_BUILDDIR/tests/gpu/nccl_check
libs=$PVN_BUILDDIR/tests/support/.libs
export FAKECUDA_APP=1
FAKENCCL_DIR=$(mktemp -d)
export FAKENCCL_DIR
trap 'rm -rf "$FAKENCCL_DIR"' EXIT
# The sanitizers' leak check would count memory of a rank that was killed or failed.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

run() { timeout 60 "$check" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" "$@" 2>&1; }

# expect NAME STATUS PATTERN ARGS...: expects this exit status, and a line with PATTERN in the output
expect() {
    local name=$1 status=$2 pattern=$3 out rc
    shift 3
    out=$(run "$@")
    rc=$?
    if ((rc != status)); then
        echo "not ok $name: status $rc instead of $status"
    elif ! grep -qE -- "$pattern" <<<"$out"; then
        echo "not ok $name: no line matches $pattern"
    else
        echo "ok $name"
        return
    fi
    awk '{ print "    " $0 }' <<<"$out"
}

small=8,100,1k,32k,1000004
expect two_ranks 0 'RESULT check ranks=2 passed=100 failed=0' --sizes $small
expect four_ranks 0 'RESULT check ranks=4 passed=100 failed=0' --ranks 4 --sizes $small --iters 1
expect three_ranks_odd_sizes 0 'RESULT check ranks=3 passed=40 failed=0' --ranks 3 --sizes 10,4242
expect one_collective 0 'RESULT check ranks=2 passed=4 failed=0' --coll allgather --sizes 4k
for fault in flip stale; do
    for coll in allreduce allgather reducescatter broadcast sendrecv alltoall; do
        FAKENCCL_FAULT=$fault:2 expect "${fault}_$coll" 1 "rank 1: $coll .*wrong value" --coll $coll --sizes 32k
    done
done
FAKENCCL_FAULT=overrun:1 expect overrun 1 'bytes past the end' --coll allreduce --sizes 4k
FAKECUDA_FAIL=cuStreamQuery:0:600 expect hang 1 'did not end within 2 s' --op-timeout 2 --sizes 8
FAKECUDA_FAIL=cuMemcpyHtoD_v2:1:719 expect copy_fails 1 'filling the buffers: CUDA error 719' --sizes 8
expect bench 0 '^BW plugin allreduce 65536 usec=.* busbw=.* cpu_s_per_gb=' --mode bench --sizes 64k --label plugin
expect killed_rank 0 '^SURVIVOR rank=0 error_after=' --mode kill --ranks 3 --sizes 64k
FAKECUDA_FAIL=cuMemcpyHtoD_v2:1:719 expect kill_needs_a_kill 1 'RESULT kill' --mode kill --sizes 64k
expect no_nccl 77 'no-such-lib' --nccl /no-such-lib
expect bad_option 2 'sizes.*9x' --sizes 9x
left=$(find "$FAKENCCL_DIR" -type f | wc -l)
if ((left == 0)); then echo "ok nothing_left"; else echo "not ok nothing_left: $left files"; fi
