#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# More faults in mid-transfer that a comm survives (NCCL_PVRDMA_FAILOVER=1), in each RDMA mode. A ring all-reduce
# between two processes on softverbs checks every element. The logged reason shows that the fault fired.
# run-all limit: 300
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plugin=$build/.libs/libnccl-net-pvrdma.so
# The plugin gives a request without an answer up after 7.1 s, see rdma_overdue.c.
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_FAILOVER=1 NCCL_IB_TIMEOUT=14
export NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma

# ring NAME MODE RULES: runs both ranks in a fabric of their own, with their output in $tmp/NAME/out
ring() {
    local dir=$tmp/$1
    mkdir -p "$dir/fabric" "$dir/sys"
    echo "$3" >"$dir/rules"
    PVN_SOFTVERBS_DIR=$dir/fabric PVN_SOFTVERBS_SYSFS=$dir/sys NCCL_PVRDMA_SYSFS_ROOT=$dir/sys \
        PVN_SOFTVERBS_FAULTS=$dir/rules NCCL_PVRDMA_RDMA_MODE=$2 timeout 90 "$build/pvn-perf" ring --ranks 2 --check \
        --verbose --plugin "$plugin" --sizes 64K,1M --iters 150 --timeout 60 >"$dir/out" 2>&1 </dev/null
}

# survived NAME REASON: true if every element is right, both ends of a comm went on, and REASON was logged. They go
# on over TCP if the other end's fault hit the new lanes while these were verified.
survived() {
    local out=$tmp/$1/out
    grep -q 'all data verified' "$out" && [ "$(grep -c 'connected again after' "$out")" -ge 2 ] &&
        grep -q "failover: $2" "$out"
}
ended() { ! grep -q 'all data verified' "$tmp/$1/out" && grep -q "$2" "$tmp/$1/out"; }

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/$1/out"; }

# each FAULT REASON RULES: runs the three modes at the same time
each() {
    local fault=$1 reason=$2 rules=$3 mode
    for mode in record imm send; do
        ring "rdma_${mode}_$fault" "$mode" "$rules" &
    done
    wait
    for mode in record imm send; do
        verdict "rdma_${mode}_$fault" survived "rdma_${mode}_$fault" "$reason"
    done
}

# Both ends post sends. So either the end without an answer or the end without a completion may give up first.
each silence_without_completion ".*\(neither success nor an error\|transport retry counter exceeded\)" "rule silent die mode=2 nth=300"
breaks="rule break status status=RETRY_EXC_ERR nth=300 every=500 count=4"
# The peer has executed these requests. The sender does not know it when its queue pair breaks.
each acknowledgements_lost_and_breaks ".*transport retry counter exceeded" "rule unacknowledged drop_ack nth=295 count=3
$breaks"
# The new lanes use another address.
each gid_renumbered_and_breaks ".*transport retry counter exceeded" "rule renumber do nth=250 : gid * 1 1 fd00::77
$breaks"
# nth is 150, because one call posts several requests at a time if the host is slow.
each posting_fails ".*posting to the send queue" "rule post fail call=post_send errno=ENOMEM nth=150"
# The rules name many queue pairs, because the numbers of those that will exist are not known.
each completion_queues_overrun ".*of which the device reports an error" \
    "$(for n in $(seq 0 20); do echo "rule overrun$n do nth=300 : qp #$n overrun"; done)"
# Only the limit ends a wait whose reason is unknown. The peer may have an outstanding request to the silent queue
# pair. Its retries, 34 s with this timeout, must not end before the limit.
name=rdma_stall_ends_by_the_limit
NCCL_IB_TIMEOUT=20 NCCL_PVRDMA_STALL_ABORT=2s ring $name record "rule silent die mode=2 nth=300"
verdict $name ended $name 'limit of NCCL_PVRDMA_STALL_ABORT'
