#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The whole plugin over RDMA on softverbs, two processes, driven by pvn-perf with every byte checked.
# run-all limit: 500
# run-all once
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plugin=$build/.libs/libnccl-net-pvrdma.so
mkdir "$tmp/fabric" "$tmp/sys0" "$tmp/sys1" "$tmp/sys"
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so
export PVN_SOFTVERBS_DIR=$tmp/fabric

# rank NUMBER VARIABLE=VALUE... -- pvn-perf arguments: runs one rank with an environment of its own
rank() {
    local n=$1 vars=()
    shift
    while [ "$1" != -- ]; do
        vars+=("$1")
        shift
    done
    shift
    env RANK="$n" WORLD_SIZE=2 LOCAL_RANK="$n" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
        PVN_SOFTVERBS_SYSFS="$tmp/sys$n" NCCL_PVRDMA_SYSFS_ROOT="$tmp/sys$n" PVN_SOFTVERBS_PROFILE="$profile" \
        ${vars[@]+"${vars[@]}"} timeout 120 "$build/pvn-perf" "$@" --verbose --plugin "$plugin" >"$tmp/out$n" 2>&1 </dev/null
}

# pair NAME PROFILE "rank 0's variables" "rank 1's variables" pvn-perf arguments...: sets rc0 and rc1
pair() {
    profile=$2
    local v0=$3 v1=$4
    shift 4
    port=$((20000 + RANDOM % 10000))
    rm -rf "$tmp"/fabric/* "$tmp"/sys0/* "$tmp"/sys1/*
    # shellcheck disable=SC2086
    rank 0 $v0 -- "$@" &
    local pid=$!
    # shellcheck disable=SC2086
    rank 1 $v1 -- "$@"
    rc1=$?
    wait $pid
    rc0=$?
    echo "exit status $rc0" >>"$tmp/out0"
    echo "exit status $rc1" >>"$tmp/out1"
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/out0" "$tmp/out1"; }

by_rdma() {
    [ $rc0 = 0 ] && [ $rc1 = 0 ] && grep -q 'all data verified' "$tmp/out0" &&
        grep -q 'rdma on .* queue pair' "$tmp/out0" "$tmp/out1"
}
by_tcp() {
    [ $rc0 = 0 ] && [ $rc1 = 0 ] && grep -q 'all data verified' "$tmp/out0" &&
        ! grep -q 'rdma on .* queue pair\|doorbells per' "$tmp/out0" "$tmp/out1"
}
warned() {
    by_tcp && grep -q 'no usable rdma device.*only TCP is left' "$tmp/out0" "$tmp/out1" &&
        grep -q 'TCP is used' "$tmp/out0" "$tmp/out1"
}
refused() {
    [ $rc0 != 0 ] && [ $rc1 != 0 ] && grep -q "$pattern" "$tmp/out0" "$tmp/out1"
}

info="NCCL_DEBUG=INFO"
p2p="p2p --check --sizes 0,8,4096,300000 --time 0.1"
pair record pvrdma $info $info $p2p
verdict "plugin by RDMA, record mode, pvrdma" by_rdma
# pvn-perf adds up the statistics of both ranks; each comm logs its own figures when it is closed.
doorbells_add_up() {
    local sum
    sum=$(cat "$tmp/out0" "$tmp/out1" | sed -n 's/.*closed after \([a-z]*\) \([0-9]*\) .*doorbells: \([0-9]*\) send, \([0-9]*\) receive, \([0-9]*\) empty polls: .*/\1 \2 \3 \4 \5/p' |
        awk '$1 == "sending" {m += $2} {s += $3; r += $4; e += $5}
            END {if (m) printf "%.2f doorbells per message (%.2f post_send, %.2f post_recv, %.2f empty polls) over all %d",
                     (s + r + e) / m, s / m, r / m, e / m, m}')
    [ -n "$sum" ] && grep -qxF "pvrdma: 2 ranks: $sum" "$tmp/out0"
}
verdict "doorbells per message" doorbells_add_up
pair ring pvrdma $info $info ring --check --size 4M
verdict "ring all-reduce by RDMA, pvrdma" by_rdma
pair imm roce "$info NCCL_PVRDMA_RDMA_MODE=imm" "$info NCCL_PVRDMA_RDMA_MODE=imm" $p2p --group 4
verdict "imm mode, grouped receives, roce" by_rdma
pair qps rxe "$info NCCL_PVRDMA_QPS=4" "$info NCCL_PVRDMA_QPS=3" $p2p
verdict "different numbers of queue pairs, rxe" by_rdma
pair ib ib $info $info $p2p
verdict "InfiniBand profile" by_rdma
# True if both ends have come up in this mode.
mode_is() {
    by_rdma && grep -q "rdma on .*, $mode mode" "$tmp/out0" && grep -q "rdma on .*, $mode mode" "$tmp/out1"
}
mode=imm
pair cheap roce $info $info $p2p
verdict "a device whose queue is cheap to poll takes imm mode by itself" mode_is
pair modes pvrdma "$info NCCL_PVRDMA_RDMA_MODE=imm" $info $p2p
verdict "a mode requested on one side is used by both" mode_is
# A host with a GPU faces a virtual machine. Only the direction that may write into GPU memory needs imm mode.
into_gpu_only() {
    local to to_gpu
    to=$(grep -h 'vmw_pvrdma0: receives' "$tmp/out0")
    to_gpu=$(grep -h 'mlx5_0: receives' "$tmp/out1")
    by_rdma && grep -q 'gpu memory: by dma-buf' "$tmp/out1" && [[ $to == *record* && $to_gpu == *imm* ]] &&
        [[ $to != *imm* && $to_gpu != *record* ]]
}
cuda=$build/tests/support/.libs/libcuda.so.1
pair gpu pvrdma $info "$info PVN_SOFTVERBS_PROFILE=roce FAKECUDA_APP=1 NCCL_PVRDMA_CUDA_LIB=$cuda" ring --check --size 4M
verdict "a device whose queue is expensive to poll receives by records from a host with GPUs" into_gpu_only
# softverbs plays an adapter that reorders writes wherever relaxed ordering allows it: tests/softverbs/sv_relaxed.c.
echo "set relaxed_ordering 2" >"$tmp/relaxed"
relaxed="PVN_SOFTVERBS_CONFIG=$tmp/relaxed PVN_SOFTVERBS_TOTALS=$tmp/totals"
held() { awk '{ for (i = 1; i <= NF; i++) if (sub(/^relaxed=/, "", $i)) sum += $i } END { print sum + 0 }' "$tmp/totals"; }
may_relax() { mode_is && grep -q 'mlx5_0: relaxed ordering: on in imm mode' "$tmp/out1"; }
is_relaxed() { may_relax && [ "$(held)" -gt 0 ]; }
is_strict() { may_relax && [ "$(held)" -eq 0 ]; }
mode=imm
pair relaxed roce "$info $relaxed" "$info $relaxed" ring --check --size 4M
verdict "imm mode bears relaxed ordering, roce" is_relaxed
rm -f "$tmp/totals"
mode=record
pair strict pvrdma $info "$info PVN_SOFTVERBS_PROFILE=roce $relaxed" ring --check --size 4M
verdict "record mode with the same adapter has no relaxed ordering" is_strict
no_modes() { by_tcp && grep -q 'mode, and neither can do the other' "$tmp/out0" "$tmp/out1"; }
pair nomode pvrdma "$info NCCL_PVRDMA_RDMA_MODE=imm" "$info NCCL_PVRDMA_RDMA_MODE=record" $p2p
verdict "modes that exclude each other fall back to TCP" no_modes

mode=send
send=NCCL_PVRDMA_RDMA_MODE=send
pair send pvrdma "$info $send NCCL_PVRDMA_QPS=3" "$info $send" $p2p --group 4
verdict "two-sided mode, grouped receives, pvrdma" mode_is
pair sendring roce "$info $send" "$info $send" ring --check --size 4M
verdict "ring all-reduce in two-sided mode, roce" mode_is
probed() { mode_is && grep -q 'SEND works and RDMA WRITE does not' "$tmp/out0"; }
for how in 1 2 3; do
    export PVN_SOFTVERBS_SET="set no_write $how;set rd_atom 0;set atomics 0"
    pair probe pvrdma $info $info $p2p
    verdict "RDMA WRITE broken by fault $how is detected and the two-sided mode taken" probed
done
unset PVN_SOFTVERBS_SET
echo "set no_write 3" >"$tmp/no_write"
pair oneside pvrdma "$info PVN_SOFTVERBS_CONFIG=$tmp/no_write" $info $p2p
verdict "one side without RDMA WRITE" probed
# Rank 1 is killed in the middle of a ring, and only the plugin may tell rank 0. So the pvn-perf that watches rank 1
# is stopped and reports nothing, and the ring runs without checks and barriers.
killed() {
    profile=pvrdma
    port=$((20000 + RANDOM % 10000))
    rm -rf "$tmp"/fabric/* "$tmp"/sys0/* "$tmp"/sys1/* "$tmp"/out*
    local pids vars watcher
    echo "set timeout_cap_ms 50" >"$tmp/cap"
    vars="$info NCCL_PVRDMA_RDMA_MODE=$1 PVN_SOFTVERBS_CONFIG=$tmp/cap"
    # shellcheck disable=SC2086
    rank 0 $vars -- ring --size 4M --warmup 0 --iters 1000000 &
    pids=$!
    # shellcheck disable=SC2086
    rank 1 $vars -- ring --size 4M --warmup 0 --iters 1000000 &
    pids="$pids $!"
    for _ in $(seq 300); do
        grep -qs 'receives from' "$tmp/out0" && grep -qs 'receives from' "$tmp/out1" && break
        sleep 0.1
    done
    victim=$(sed -n "s/.*receives from .* pid \([0-9]*\) at.*/\1/p" "$tmp/out0" | head -n 1)
    # The loop waits until the ring has begun. Before that, rank 0 waits for rank 1 in pvn-perf and not in the
    # plugin.
    for _ in $(seq 300); do
        "$build/topo/pvn-topo" --json stat "$victim" 2>/dev/null | grep -q '"messages": [1-9]' && break
        sleep 0.1
    done
    watcher=$(awk '/^PPid:/ {print $2}' "/proc/$victim/status")
    kill -STOP "$watcher"
    kill -KILL "$victim"
    rc1=killed
    # shellcheck disable=SC2086
    set -- $pids
    wait "$1"
    rc0=$?
    kill -CONT "$watcher"
    wait "$2"
}
# The plugin reports, in one message, who died, on which queue pairs, and after how long.
reported() {
    local gid='GID [0-9a-f:.]+'
    [ -n "$victim" ] && [ $rc0 != 0 ] && [ $rc0 != 124 ] &&
        grep -Eq "warns: .*the comm had (worked for|been up for) .*local .* QPN 0x[0-9a-f]+ $gid; peer .* pid $victim at .* QPN 0x[0-9a-f]+ $gid" "$tmp/out0"
}
for mode in record imm send; do
    killed $mode
    verdict "a killed peer, $mode mode" reported
done

pair fallback pvrdma $info "$info NCCL_PVRDMA_TRANSPORT=tcp" $p2p
verdict "a peer without RDMA: TCP with one warning" warned
pair version roce "$info NCCL_PVRDMA_ROCE_VERSION=1" "$info NCCL_PVRDMA_ROCE_VERSION=2" $p2p
versions() { by_tcp && grep -q 'warns: .*different RoCE versions' "$tmp/out0" "$tmp/out1"; }
verdict "RoCE v1 against v2 falls back to TCP and says so" versions
pattern='NCCL_PVRDMA_STRICT'
pair strict pvrdma "$info NCCL_PVRDMA_STRICT=1" "$info NCCL_PVRDMA_TRANSPORT=tcp" $p2p --timeout 20
verdict "strict: a peer without RDMA is an error" refused
pattern='vmw_pvrdma0'
pair hca pvrdma "$info NCCL_IB_HCA=mlx9 NCCL_PVRDMA_TRANSPORT=rdma" "$info NCCL_IB_HCA=mlx9 NCCL_PVRDMA_TRANSPORT=rdma" $p2p --timeout 20
verdict "NCCL_IB_HCA that names nothing says what exists" refused
pair fallen pvrdma "$info NCCL_IB_GID_INDEX=3" $info $p2p
no_port() { by_tcp && grep -q 'warns: .*settings leave no RDMA port, .*: vmw_pvrdma0:1 (no GID fits NCCL_IB_GID_INDEX=3' "$tmp/out0"; }
verdict "a setting that leaves no RDMA port: TCP with a warning that names it" no_port
pair site pvrdma "$info NCCL_IB_HCA=mlx9,vmw_pvrdma0" $info $p2p
rest_is_used() { by_rdma && grep -q 'warns: .*NCCL_IB_HCA=mlx9,vmw_pvrdma0: no RDMA device is called "mlx9"; there are: vmw_pvrdma0' "$tmp/out0"; }
verdict "NCCL_IB_HCA with a name that is absent here uses the others" rest_is_used
