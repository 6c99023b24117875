#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests verbs and the plugin on Linux's vmw_pvrdma driver and its libibverbs provider, with QEMU's emulated PVRDMA device.
# run-all limit: 1800
# run-all alone
# It is a script test (tests/run-all) and runs in the build directory. The guests run the jobs in jobs/ and leave their
# files in vm-work/pvrdma-*.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

one() { # one JOB TITLE RESULTS: one guest with one device
    local job status=0
    job=$(vm_job "$1")
    VM_SMP=2 vm_alone "$job" || status=$?
    vm_results "$2" "$job" "$3" "$status"
}

pair() { # pair JOB TITLE RESULTS_A RESULTS_B [STATUS_B]
    local a b
    a=$(vm_job "$1-a") b=$(vm_job "$1-b")
    vm_pair "$a" "$b"
    vm_results "$2" "$a" "$3" "$vm_status_a"
    [[ -z ${4:-} ]] || vm_results "$2" "$b" "$4" "$vm_status_b"
}

vm_start pvrdma
VM_SWITCH=1 one topo "below a switch" 4
pair kill "peer killed" 2
vm_rdma_tests 2 device
vm_part_results "one guest" "$vm_parts_job/device" 32 "$vm_status"
vm_plugin_tests rdma pair
vm_pair_results "two guests" pair 4 4
exit "$vm_failed"
