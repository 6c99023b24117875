#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests verbs and the plugin on the kernel's Soft-RoCE (rdma_rxe) in small virtual machines.
# run-all limit: 1800
# run-all alone
# It is a script test (tests/run-all) and runs in the build directory. The guests run the jobs in jobs/ and leave their
# files in vm-work/rxe-*.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2034
VM_MTU=4200 # for a RoCE MTU of 4096

veth() {
    local job status=0
    job=$(vm_job veth)
    vm_alone "$job" || status=$?
    vm_results "one guest, veth" "$job" 29 "$status"
}

hub() {
    local job status=0 i args=()
    job=$(vm_job hub)
    for i in 0 1; do
        args+=(-netdev "hubport,id=n$i,hubid=0"
            -device "virtio-net-pci,netdev=n$i,id=nic$i,mac=52:54:00:00:00:0$((i + 1)),romfile=")
    done
    vm_boot a "$job" "${args[@]}" || status=$?
    vm_results "one guest, pulled cable" "$job" 2 "$status"
}

pair() {
    local a b
    a=$(vm_job pair-a) b=$(vm_job pair-b)
    VM_RAILS=2 vm_pair "$a" "$b"
    vm_results "two guests" "$a" 4 "$vm_status_a"
    vm_results "two guests" "$b" 4 "$vm_status_b"
}

vm_start rxe
veth
hub
pair
vm_rdma_tests 1
vm_plugin_tests tcp
vm_plugin_tests rdma
exit "$vm_failed"
