#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Failovers, returns, and renewed control connections of a job with a key. The cells are those of broken_paths.sh,
# and have its names. To run all by hand: NCCL_PVRDMA_KEY_FILE=FILE PVN_CELLS=all tests/rdma/broken_paths.sh
# run-all limit: 150
# run-all once
set -u
grep -q 'define HAVE_OPENSSL 1' "$PVN_BUILDDIR/config.h" || { echo "skip failovers with a key: this build has no OpenSSL"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$PVN_BUILDDIR/pvn-perf" --make-key "$work/key" || exit 2
here=$(dirname "$0")
export NCCL_PVRDMA_KEY_FILE=$work/none NCCL_PVRDMA_SEAL_TIMEOUT=2s
if PVN_CELLS=none_dead_two_busy "$here/broken_paths.sh" | grep -q '^ok'; then
    echo "not ok the cells use the key: one passes without the file"
    exit 1
fi
export NCCL_PVRDMA_KEY_FILE=$work/key
export PVN_CELLS='none_dead_two_busy acceptor_dead_two_busy none_rejects_two_busy none_dead_rdma_busy acceptor_back_rdma_idle connector_back_one_idle'
"$here/broken_paths.sh" | sed 's/^\(ok\|not ok\) /&with a key: /'
