#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run and bundle themselves: every part skips with its reason where there is no GPU, and with doubles of the
# CUDA driver and of NCCL the parts in C run, need the plugin to be loaded, and end in a table. The parts in Python run on
# the CPU where PyTorch is installed (PVN_PYTHON names its interpreter).
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
check bundle "$work/files" lib/libnccl-net-pvrdma.so bin/nccl_check bin/staging gpu/run gpu/ddp.py VERSION
"$PVN_SRCDIR/tests/gpu/bundle" "$PVN_BUILDDIR" "$work/bundle" >"$work/out" 2>&1
check bundle_overwrites_nothing "$work/out" 'is already there'

run=$work/bundle/gpu/run
timeout 120 "$run" --cuda /no-such/libcuda.so.1 --nccl /no-such/libnccl.so.2 --python /no-such/python --mps no \
    --parts abcdefgij "$work/skipped" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check everything_skips_with_a_reason "$work/out" '^status 77' '^a .*SKIP.*libcuda' '^b .*SKIP.*libcuda' '^c .*SKIP' \
    '^d .*SKIP' '^e .*SKIP' '^f .*SKIP.*libcuda' '^g .*SKIP.*libcuda' '^i .*SKIP.*libcuda'

timeout 20 "$run" --parts xyz "$work/bad" >"$work/out" 2>&1
check wrong_part "$work/out" 'not made of the letters a to j'
timeout 20 "$run" --parts a "$work/skipped" >"$work/out" 2>&1
check log_folder_must_be_empty "$work/out" 'is not empty'

export FAKECUDA_APP=1 PVN_GPU_CHECK_SIZES=8,1000004 PVN_GPU_BENCH_SIZES=8,1m PVN_GPU_THREAD_SIZES=1m
timeout 300 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no --parts abfgij --rounds 2 \
    "$work/doubles" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check c_parts_with_doubles "$work/out" '^status 0' '^a .*PASS.*interface v' \
    '^b .*PASS.*tcp/2: 40 tcp/4: 40 softverbs/2: 40 softverbs/4: 40 dmabuf/2: 40 GDRDMA dmabuf/4: 40 GDRDMA peermem/2: 40 GDRDMA' \
    '^f .*PASS.*errors after' '^g .*PASS.*smallest ratio' '^ +1048576 \|' \
    '^i .*PASS.*hostalloc 4 kB' '^STAGING hostalloc mapping=.* plugin_gb_s=[0-9]' '^STAGING shm mapping=rw-s' '^STAGING cumem mapping' \
    '^j .*(PASS.*plugin .* GB/s with [0-8] threads, sockets|SKIP.*no NCCL_PVRDMA_TCP_THREADS)'

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

FAKECUDA_FAIL=cuMemGetHandleForAddressRange:1:801 timeout 300 "$run" --cuda "$libs/libcuda.so.1" \
    --nccl "$libs/libfakenccl.so" --mps no --parts b "$work/staged" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check staged_gpu_memory_is_no_pass "$work/out" '^status 1' '^b .*FAIL.*dmabuf: GPU memory was only staged'

# A driver without one kind of staging memory is no failure; one method of GPU memory that fails says nothing of the other.
FAKECUDA_FAIL=cuMemCreate:0:801 timeout 100 "$run" --cuda "$libs/libcuda.so.1" --nccl "$libs/libfakenccl.so" --mps no \
    --parts i "$work/kinds" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check absent_kind_of_staging_memory "$work/out" '^status 0' '^i .*PASS' '^STAGING cumem absent: cuMemCreate: CUDA error 801' \
    '^STAGING hostalloc mapping'
ls "$work/staged" >"$work/out"
check both_methods_are_tried "$work/out" '^b.peermem.2.nccl'

# Part h, with an nvidia-smi that reports the machine of the topology tests, one cell of it differently, and the tool's
# own output for that machine.
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

# A byte that does not reach the GPU's memory (the second copy of softverbs; the first is its trial).
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

if ! "$python" -c 'import torch' >/dev/null 2>&1; then
    echo "skip torch_parts_on_the_cpu: $python has no PyTorch"
    exit 0
fi
timeout 400 "$run" --cpu --python "$python" --parts cde "$work/cpu" >"$work/out" 2>&1
echo "status $?" >>"$work/out"
check torch_parts_on_the_cpu "$work/out" '^status 0' '^c .*PASS.*tiny-resnet.*bit-equal.*tiny-bert.*bit-equal' '^d .*PASS' \
    '^e .*PASS'
