#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests data over TCP that the kernel seals, in guests whose kernel can renew the keys of a connection, and in one whose
# kernel cannot.
# run-all limit: 1800
# run-all alone
# It is a script test (tests/run-all) and runs in the build directory.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
grep -q 'define HAVE_OPENSSL 1' "$PVN_BUILDDIR/config.h" || { echo "skip TLS by the kernel: this build has no OpenSSL"; exit 0; }

one_guest() { # one_guest TITLE JOB RESULTS
    local job status=0
    job=$(vm_job "$2")
    VM_SMP=2 VM_MEM=1024 VM_LIMIT=900 vm_alone "$job" || status=$?
    vm_results "$1" "$job" "$3" "$status"
}

vm_start tls
if [[ -e $PVN_BUILDDIR/tests/unit/test_seal_kernel && -e $PVN_BUILDDIR/tests/tcp/test_lane_chaos ]]; then
    one_guest "one guest" streams 9
    vm_plugin_pair tcp perf-faults
    vm_pair_results "tcp, sealed by the kernel" perf-faults 5 1
else
    skip "TLS by the kernel" "its tests have not been built (no GoogleTest)"
fi
exit "$vm_failed"
