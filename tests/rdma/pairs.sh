#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Traffic between pairs of ranks over RDMA on softverbs, in each mode, with every byte checked: uneven all-to-alls, a
# mixture of experts, PXN's grouped receives, and pipelines. There are as many comms as NCCL makes. The log names a
# rank that dies.
# run-all limit: 300
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma \
    PVN_SOFTVERBS_DIR=$tmp/fabric PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys

# pairs MODE pvn-perf arguments...: sets rc
pairs() {
    rm -rf "$tmp/fabric" "$tmp/sys"
    mkdir "$tmp/fabric" "$tmp/sys"
    NCCL_PVRDMA_RDMA_MODE=$1 timeout 120 "$build/pvn-perf" ring --plugin "$build/.libs/libnccl-net-pvrdma.so" --check --verbose \
        --iters 2 --warmup 0 "${@:2}" >"$tmp/out" 2>&1 </dev/null
    rc=$?
    echo "exit status $rc" >>"$tmp/out"
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/out"; }

by_rdma() {
    [ $rc = 0 ] && grep -q 'all data verified' "$tmp/out" && grep -q ' rdma ' "$tmp/out" && ! grep -q ' tcp ' "$tmp/out"
}
for mode in record imm send; do
    pairs $mode --ranks 4 --collective alltoallv --sizes 0,7,1000003
    verdict "alltoallv of 4 ranks, $mode mode" by_rdma
    pairs $mode --ranks 8 --collective alltoall --group 4 --sizes 1000003
    verdict "alltoall of 2 nodes of 4 ranks, $mode mode" by_rdma
    pairs $mode --ranks 3 --collective pipeline --sizes 300007
    verdict "pipeline of 3 ranks, $mode mode" by_rdma
done
pairs record --ranks 4 --preset mixtral-8x7b --layers 1 --tokens 60
verdict "a mixture of experts" by_rdma

# 5 ranks with one channel per pair have 4 comms to send and 4 to receive. Each logs its figures when it is closed.
comms() { by_rdma && [ "$(grep -c 'closed after sending' "$tmp/out")" = 20 ]; }
pairs record --ranks 5 --collective alltoall --sizes 100003
verdict "a comm for each pair of ranks" comms
# 8 ranks form nodes of 4. Each rank has one peer of its number, and one channel for it, because 8 ranks share 2
# channels.
grouped() { by_rdma && [ "$(grep -c 'closed after sending' "$tmp/out")" = 8 ]; }
pairs record --ranks 8 --collective alltoall --group 4 --sizes 100003
verdict "a comm for each pair of nodes and number" grouped
# 3 stages in a row have 4 neighbours to send to, over 2 channels each.
chain() { by_rdma && [ "$(grep -c 'closed after sending' "$tmp/out")" = 8 ]; }
pairs record --ranks 3 --collective pipeline --sizes 100003
verdict "comms between neighbours alone" chain
