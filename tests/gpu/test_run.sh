#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests tests/gpu/run and bundle themselves. Without a GPU every part skips with its reason. With doubles of the CUDA
# driver and of NCCL the parts in C run, need the plugin to be loaded, and end in a table. The parts in Python run on
# the CPU if PyTorch is installed (PVN_PYTHON names its interpreter).
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libs=$PVN_BUILDDIR/tests/support/.libs
python=${PVN_PYTHON:-python3}
export FAKENCCL_DIR=$work
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

check() { # check NAME FILE PATTERN...: every pattern has a line in the file
    local name=$1 file=$2 p
    shift 2
    for p in "$@"; do
        if ! grep -qE -- "$p" "$file"; then
            echo "not ok $name: no line matches $p"
            awk '{ print "    " $0 }' "$file"
            return
        fi
    done
    echo "ok $name"
}

if ! "$PVN_SRCDIR/tests/gpu/bundle" "$PVN_BUILDDIR" "$work/bundle" >"$work/out" 2>&1; then
    echo "not ok bundle"
    cat "$work/out"
    exit 1
fi
(cd "$work/bundle" && find . -type f) >"$work/files"
check bundle "$work/files" lib/libnccl-net-pvrdma.so bin/nccl_check bin/staging bin/lost_lane gpu/run gpu/ddp.py VERSION
"$PVN_SRCDIR/tests/gpu/bundle" "$PVN_BUILDDIR" "$work/bundle" >"$work/out" 2>&1
check bundle_overwrites_nothing "$work/out" 'is already there'

run=$work/bundle/gpu/run
timeout 120 "$run" --cuda /no-such/libcuda.so.1 --nccl /no-such/libnccl.so.2 --python /no-such/python --mps no \
    --parts abcdefgijklm "$work/skipped" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check everything_skips_with_a_reason "$work/out" '^status 77' '^a .*SKIP.*libcuda' '^b .*SKIP.*libcuda' '^c .*SKIP' \
    '^d .*SKIP' '^e .*SKIP' '^f .*SKIP.*libcuda' '^g .*SKIP.*libcuda' '^i .*SKIP.*libcuda' '^k .*SKIP.*libcuda' \
    '^m .*SKIP.*libcuda'

timeout 20 "$run" --parts xyz "$work/bad" >"$work/out" 2>&1
check wrong_part "$work/out" 'not made of the letters a to m'
timeout 20 "$run" --parts a "$work/skipped" >"$work/out" 2>&1
check log_folder_must_be_empty "$work/out" 'is not empty'

export FAKECUDA_APP=1 PVN_GPU_CHECK_SIZES=8,1000004 PVN_GPU_BENCH_SIZES=8,1m PVN_GPU_THREAD_SIZES=1m PVN_GPU_PERF_SIZES=8,64K
timeout 300 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no --parts abfgijkl --rounds 2 \
    "$work/doubles" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check c_parts_with_doubles "$work/out" '^status 0' '^a .*PASS.*NCCL 2[.]28[.]9 uses pvrdma, interface v12' \
    '^b .*PASS.*tcp/2: 40 tcp/4: 40 softverbs/2: 40 softverbs/4: 40 dmabuf/2: 40 GDRDMA dmabuf/4: 40 GDRDMA peermem/2: 40 GDRDMA' \
    '^f .*PASS.*errors after' '^g .*PASS.*sockets time / plugin time' '^ +1048576 \|' \
    '^l .*PASS.*late: exact after [0-9.]+ s away; lost: exact after a failover.*; lost-dmabuf: exact after a failover' \
    '^i .*PASS.*hostalloc 4 kB (no )?huge, collapse .*shm 4 kB no huge' '^STAGING hostalloc mapping=.* plugin_gb_s=[0-9]' '^STAGING shm mapping=rw-s' '^STAGING cumem mapping' \
    '^j .*PASS.*plugin .* GB/s with [0-8] threads, sockets' \
    '^k .*PASS.*dmabuf-ring no-sums .* memory gpu.*peermem-ring no-sums .* memory gpu' \
    '^PERF staged bandwidth 65536 .*memory pinned, wrong 0' '^PERF pinned bandwidth .*memory pinned, wrong 0' '^PERF peermem bandwidth .*memory gpu, wrong 0'

# lane NAME PATTERN ENV...: expects lost_lane, in part m, to fail with this line if something is wrong. (rehearsal.sh
# runs part m.)
lane() {
    local name=$1 pattern=$2
    shift 2
    mkdir "$work/$name"
    env NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB="$work/bundle/lib/libsoftverbs.so" PVN_SOFTVERBS_DIR="$work/$name" \
        PVN_SOFTVERBS_PROFILE=cuda PVN_SOFTVERBS_CUDA_LIB="$libs/libcuda.so.1" NCCL_PVRDMA_CUDA_LIB="$libs/libcuda.so.1" \
        PVN_SOFTVERBS_SET="set relaxed_ordering 2" NCCL_PVRDMA_RDMA_MODE=imm NCCL_PVRDMA_FLUSH=read "$@" timeout 60 \
        "$work/bundle/bin/lost_lane" --label lane --cuda "$libs/libcuda.so.1" --plugin "$work/bundle/lib/libnccl-net-pvrdma.so" \
        >"$work/out" 2>&1
    echo "status $?" >>"$work/out"
    check "$name" "$work/out" '^status 1' "$pattern"
}
# The fifth export belongs to the first failover. The twentieth copy into GPU memory is of a message after it.
lane a_failover_that_leaves_rdma_is_no_pass "^lane, .*: awake: .*did not take GPU memory: cuMemGetHandleForAddressRange" \
    FAKECUDA_FAIL=cuMemGetHandleForAddressRange:5:801
lane a_lost_byte_behind_a_failover_is_noticed '^lane, receiver: awake: byte [0-9]+ of buffer' FAKECUDA_FAIL=cuMemcpyHtoDAsync_v2:20:719
lane a_missing_flush_is_noticed '^lane, receiver: awake: byte [0-9]+ of buffer' NCCL_PVRDMA_FLUSH=none
lane without_gpu_memory_it_shows_nothing '^lane, .*only staged' NCCL_PVRDMA_GPU_MEM=off

grep -rh 'gpu memory' "$work/doubles" | sort -u >"$work/out"
check gpu_memory_by_both_methods "$work/out" 'dma-buf, proved on GPU .*flush: RDMA READ' \
    'peer memory, proved on GPU .*flush: cuFlushGPUDirectRDMAWrites'

timeout 20 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --python /no-such/python --mps no \
    --seconds 0 --parts fabg "$work/notime" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check no_time_left_is_a_skip "$work/out" '^status 77' '^a .*SKIP.*no time left' '^b .*SKIP.*no time left' \
    '^g .*SKIP.*no time left' '^f .*SKIP.*no time left'
grep -E '^[abfg] .*SKIP' "$work/notime/summary.txt" | cut -c1 | paste -sd, - >"$work/order"
check killed_rank_comes_last "$work/order" '^a,b,g,f$'

chmod a-x "$work"/bundle/bin/* "$run"
timeout 120 bash "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no --parts a "$work/bits" \
    >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check lost_execute_bits_are_repaired "$work/out" '^status 0' '^a .*PASS'
tar -tzf "$work/bits/logs.tar.gz" >"$work/out"
check logs_are_one_archive "$work/out" 'summary.txt' 'a.log' 'machine.txt'

# The tables of parts g and j are made from figures that a script prints in nccl_check's place. The script hangs the
# N-th time for the label that HANGS names, so that the time runs out in the middle.
cp -R "$work/bundle" "$work/canned"
cat >"$work/canned/bin/nccl_check" <<'CHECK'
#!/bin/bash
while (($#)); do [[ $1 != --label ]] || label=$2; shift; done
echo "$label" >>"$CALLS"
[[ ${HANGS:-} != "$label:$(grep -cx "$label" "$CALLS")" ]] || exec sleep 60
case $label in
plugin* | workers) {
    echo "NCCL INFO Using network pvrdma"
    [[ $label == plugin-${IDLE:-} ]] || echo "tcp on lo, copied by ${label#plugin-} threads of this process"
} >"${NCCL_DEBUG_FILE//%p/$$}" ;;
esac
while read -r who size usec bw cpu; do
    [[ $who != "$label" ]] || echo "BW $who allreduce $size usec=$usec algbw=$bw busbw=$bw cpu_s_per_gb=$cpu calls=9"
done <<'FIGURES'
plugin 8 10.0 0.001 9.0
plugin 1048576 100.0 10.0 0.4
plugin 4194304 400.0 11.0 0.5
workers 8 12.0 0.001 9.0
workers 1048576 104.0 9.6 0.6
workers 4194304 350.0 12.0 0.7
sockets 8 20.0 0.001 9.0
sockets 1048576 150.0 7.0 0.6
sockets 4194304 560.0 7.5 0.7
tuned 8 15.0 0.001 9.0
tuned 1048576 130.0 8.0 0.8
tuned 4194304 600.0 7.1 0.9
plugin-0 1048576 0 3.0 0.4
plugin-1 1048576 0 4.0 0.4
plugin-2 1048576 0 9.5 0.4
plugin-4 1048576 0 5.0 0.4
plugin-8 1048576 0 5.0 0.4
plugin-0 16777216 0 3.0 0.4
plugin-1 16777216 0 4.0 0.4
plugin-2 16777216 0 6.0 0.5
plugin-4 16777216 0 9.0 0.6
plugin-8 16777216 0 8.0 0.7
sockets-1 16777216 0 2.0 0.4
sockets-2 16777216 0 6.0 0.4
sockets-4 16777216 0 5.0 0.4
sockets-8 16777216 0 5.5 0.4
FIGURES
CHECK
# canned PARTS SECONDS ENV...: runs these parts. $work/out has the table and the status.
canned() {
    local parts=$1 seconds=$2
    shift 2
    rm -rf "$work/canned-log" "$work/calls"
    env CALLS="$work/calls" "$@" timeout 100 bash "$work/canned/gpu/run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" \
        --mps no --seconds "$seconds" --parts "$parts" "$work/canned-log" >"$work/out" 2>&1
    echo "status $?" >>"$work/out"
}
# cut_off WHAT PARTS ENV...: does the same with a program that never ends and is cut off when the time is up. The
# time is tripled, once or twice, if a busy machine has not reached that program (WHAT is in its summary).
cut_off() {
    local what=$1 parts=$2 seconds
    shift 2
    for seconds in 4 12 36; do
        canned "$parts" $seconds "$@"
        grep -q "$what" "$work/out" && return
    done
}
canned gj 100
check tables_of_known_figures "$work/out" '^status 0' \
    '^g .*PASS.*defaults 1[.]40, best settings 1[.]30 .*smallest size 2[.]00 ' \
    '^ +8 \| +0[.]001 .*\| +2[.]00 +1[.]50 \|' \
    '^ +4194304 \| +11[.]000 +7[.]500 +12[.]000 +7[.]100 \| +1[.]40 +1[.]60 \| +0[.]500 +0[.]700 +0[.]700 +0[.]900$' \
    '^j .*PASS.*plugin 9[.]00 GB/s with 4 threads, sockets 6[.]00 with 2, ratio 1[.]50' '^ +16777216 plugin +8 threads +8[.]000 +0[.]700$'
cut_off 'in round 2 of 3' g HANGS=tuned:2
check complete_rounds_are_in_the_table "$work/out" '^status 77' \
    '^g .*SKIP.*ended in round 2 of 3: no time left of the [0-9]+ s.*best settings 1[.]30 ' '^ +1048576 \|'
canned g 4 HANGS=tuned:1
check no_complete_round "$work/out" '^status 77' '^g .*SKIP.*no time left of the 4 s'
cut_off 'sockets 2[.]00' j HANGS=sockets-2:1
check workers_as_far_as_measured "$work/out" '^status 77' \
    '^j .*SKIP.*not all was measured: no time left .*plugin 6[.]00 GB/s with 2 threads, sockets 2[.]00 with 1, ratio 3[.]00'
cut_off 'plugin 4[.]00' j HANGS=sockets-1:1
check no_sockets_measured "$work/out" '^status 77' '^j .*SKIP.*plugin 4[.]00 GB/s with 1 threads$'
canned j 100 IDLE=4
check workers_that_do_not_work "$work/out" '^status 1' '^j .*FAIL.*does not say that 4 threads copied'
sed -i 's/TCP_THREADS/TCP_THREADX/g' "$work/canned/lib/libnccl-net-pvrdma.so"
canned j 100
check a_plugin_without_workers "$work/out" '^status 77' '^j .*SKIP.*this plugin has no NCCL_PVRDMA_TCP_THREADS'

# A stop in the middle leaves the summary, and the archive of the parts that were done.
rm -rf "$work/canned-log" "$work/calls" "$work/canned/lib" && cp -R "$work/bundle/lib" "$work/canned/"
TMPDIR=$work CALLS=$work/calls HANGS=plugin-0:1 bash "$work/canned/gpu/run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no \
    --seconds 100 --parts gj "$work/canned-log" >"$work/out" 2>&1 &
stopped=$!
for ((i = 0; i < 900; i++)); do
    grep -q '^j .*did not end' "$work/canned-log/summary.txt" 2>/dev/null && grep -q plugin-0 "$work/calls" && break
    sleep 0.1
done
kill -9 "$stopped"
wait "$stopped" 2>/dev/null
cat "$work/canned-log/summary.txt" >"$work/out"
tar -xzOf "$work/canned-log/logs.tar.gz" ./g.table ./summary.txt >>"$work/out"
check stopped_in_the_middle "$work/out" '^g .*PASS.*1[.]30' '^j .*did not end; it began at' '^NOTE sockets time'

FAKECUDA_FAIL=cuMemGetHandleForAddressRange:1:801 timeout 300 "$run" --cuda "$libs/libcuda.so.1" \
    --nccl "$libs/libfakenccl.so" --mps no --parts b "$work/staged" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check staged_gpu_memory_is_no_pass "$work/out" '^status 1' '^b .*FAIL.*dmabuf: GPU memory was only staged'

# A driver that lacks one kind of staging memory causes no failure. A failed method for GPU memory says nothing about
# the other.
FAKECUDA_FAIL=cuMemCreate:0:801 timeout 100 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no \
    --parts i "$work/kinds" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check absent_kind_of_staging_memory "$work/out" '^status 0' '^i .*PASS' '^STAGING cumem absent: cuMemCreate: CUDA error 801' \
    '^STAGING hostalloc mapping'
ls "$work/staged" >"$work/out"
check both_methods_are_tried "$work/out" '^b.peermem.2.nccl'

# Part h runs with an nvidia-smi that reports the machine of the topology tests with one cell changed, and with the
# tool's own output for that machine.
mkdir -p "$work/fakebin" "$work/real"
golden=$PVN_SRCDIR/tests/topo/golden
{
    sed -n '/^nvidia-smi/,/^$/p' "$golden/server-matrix.txt" | sed '1d; /^NIC/d; s/^GPU0      X  PXB/GPU0      X  PIX/; s/ \+/\t/g'
    printf 'NIC Legend:\n\n'
    sed -n 's/^\(NIC[0-9]\) .* \(mlx5_[0-9]\),.*/  \1: \2/p' "$golden/server-matrix.txt"
} >"$work/smi.txt"
cat >"$work/fakebin/nvidia-smi" <<SMI
#!/bin/sh
case "\$*" in
"topo -m") cat "$work/smi.txt" ;;
*pci.bus_id*) echo 00000000:15:00.0 ;;
esac
SMI
mv "$work/bundle/bin/pvn-topo" "$work/real/"
cat >"$work/bundle/bin/pvn-topo" <<TOPO
#!/bin/sh
case "\$1" in
matrix | dump) cat "$golden/server-\$1.txt" ;;
*) exec "$work/real/pvn-topo" --root "$PVN_SRCDIR/tests/topo/data/two-switches.xml" "\$@" ;;
esac
TOPO
chmod +x "$work/fakebin/nvidia-smi" "$work/bundle/bin/pvn-topo"
FAKENCCL_TOPO=$PVN_SRCDIR/tests/topo/data/two-switches.xml PATH=$work/fakebin:$PATH timeout 120 "$run" \
    --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no --parts h "$work/topo" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
cat "$work/topo/h.compared.txt" >>"$work/out"
check topology_is_compared "$work/out" '^status 0' '^h .*PASS.*120 distances compared, 1 differ; NCCL.s dump against ours: 0 diff' \
    '^GPU0-GPU1: nvidia-smi PIX, pvn-topo PXB'
mv "$work/real/pvn-topo" "$work/bundle/bin/"

# One byte does not reach the GPU's memory (the second copy of softverbs; the first one is its trial).
FAKECUDA_FAIL=cuMemcpyHtoDAsync_v2:2:719 timeout 300 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" \
    --mps no --parts b "$work/lost" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check lost_copy_is_noticed "$work/out" '^status 1' '^b .*FAIL.*dmabuf, 2 ranks'

: >"$work/bundle/lib/libnccl-net-pvrdma.so" # a file that cannot be loaded
timeout 120 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no --parts abfg "$work/other" \
    >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check another_network_is_noticed "$work/out" '^status 1' '^a .*FAIL.*does not say that it uses the plugin' '^b .*FAIL' \
    '^f .*FAIL' '^g .*FAIL'

# judge(expected losses, sharded losses): prints the complaints of part d, which needs no PyTorch for that.
judge() {
    PYTHONPATH=$PVN_SRCDIR/tests/gpu PYTHONDONTWRITEBYTECODE=1 python3 - "$@" <<'JUDGE'
import argparse, math, sys
import fsdp
nan = math.nan
expected, losses = (eval(a) for a in sys.argv[1:])
said = {"losses": losses, "expected": expected, "how": "by hand", "parameters": 1, "seconds": 1.0}
args = argparse.Namespace(model="m", ranks=1, tolerance=1e-3)
print("complaints:", fsdp.judge(args, [said])[0])
JUDGE
}
judge '[4.0, 3.9, 3.0, 2.9]' '[4.0, 3.9, 3.0, 2.9]' >"$work/out" 2>&1
check fsdp_that_learns "$work/out" '^complaints: \[\]$'
judge '[4.0, 3.9, 8.0, 7.9]' '[4.0, 3.9, 8.0, 7.9]' >"$work/out" 2>&1
check fsdp_whose_loss_goes_up "$work/out" 'has not gone down: 4.0000 to 7.9000'
judge '[4.0, nan, nan]' '[4.0, nan, nan]' >"$work/out" 2>&1
check fsdp_whose_losses_are_no_numbers "$work/out" 'a loss is not a number'
judge '[4.0, 3.0, 2.0]' '[4.0, 3.0, 2.1]' >"$work/out" 2>&1
check fsdp_that_differs "$work/out" 'differ from the unsharded run'

if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skip torch_parts_on_the_cpu: $python has no PyTorch"
    exit 0
fi
timeout 400 "$run" --cpu --python "$python" --parts cde "$work/cpu" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check torch_parts_on_the_cpu "$work/out" '^status 0' '^c .*PASS.*tiny-resnet.*bit-equal.*tiny-bert.*bit-equal' '^d .*PASS' \
    '^e .*PASS'
