#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Measures the plugin on real kernel verbs in virtual machines (tests/vm), with perftest's
# ib_write_bw and ib_write_lat in the same boot as the yardstick, everything interleaved and
# repeated: bandwidth at 1 MiB, latency at 8 B and 4 KiB. Prints medians (min..max) and ratios. No
# KVM: the figures compare programs, they say nothing about a network.
# --bare (rxe, one guest) adds tests/bench/bare_verbs.c, which does the least that a plugin can do for short
# messages: what NCCL's interface, pvn-perf and the device leave to be won.
# --ib PATH (one guest): a net plugin that is NCCL's own IB transport, as for peer_rdma.sh, is measured beside ours, with more sizes and
# over several comms, too; what it needs is found by LD_LIBRARY_PATH.
# --counts (rxe, one guest) prints instead how many packets a lone message of 8 bytes costs with perftest, with that plugin
# and in each mode of ours: other work on the host does not change them.
# --device softverbs needs no virtual machine and counts doorbells: pvn-perf ring at depth 8 on a device
# that behaves as PVRDMA does, each mode, everything counted on both sides.
# usage: tests/bench/rdma.sh [--device rxe|pvrdma|softverbs] [--guests 1|2] [--transport rdma|tcp]
#                            [--rounds N] [--bare | --counts | --ib PATH] [--build DIR]
set -u
usage() { sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2; }

src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build device=rxe guests=1 transport=rdma rounds=5 iterations=200 bare='' counts='' ib=''
while (($#)); do
    case $1 in
    --device) device=$2; shift 2 ;;
    --guests) guests=$2; shift 2 ;;
    --transport) transport=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --bare) bare=1; shift ;;
    --counts) bare=1 counts=1; shift ;;
    --ib) ib=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) usage ;;
    esac
done
[[ -z $bare ]] || { [[ $device == rxe ]] && ((guests == 1)); } || usage
[[ -z $ib ]] || { [[ -z $bare && $device != softverbs ]] && ((guests == 1)); } || usage
[[ -z $ib || -r $ib ]] || { echo "skip bench-rdma: $ib cannot be read (--ib)"; exit 77; }
PVN_BUILDDIR=$(cd "$build" && pwd) || exit 2
[[ -x $PVN_BUILDDIR/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }

# Runs one ring in two processes, and prints its cost in doorbells.
softverbs_ring() {
    local mode=$1 dir n pids=()
    dir=$(mktemp -d)
    mkdir "$dir/fabric" "$dir/sys0" "$dir/sys1"
    local port=$((20000 + RANDOM % 10000))
    for n in 0 1; do
        env RANK=$n WORLD_SIZE=2 LOCAL_RANK=$n LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_TRANSPORT=rdma NCCL_PVRDMA_RDMA_MODE="$mode" \
            NCCL_PVRDMA_VERBS_LIB="$PVN_BUILDDIR/tests/softverbs/.libs/libsoftverbs.so" \
            NCCL_PVRDMA_SYSFS_ROOT="$dir/sys$n" PVN_SOFTVERBS_SYSFS="$dir/sys$n" \
            PVN_SOFTVERBS_DIR="$dir/fabric" PVN_SOFTVERBS_PROFILE=pvrdma \
            timeout 120 "$PVN_BUILDDIR/pvn-perf" ring --check --sizes 16M --slot 64K --steps 8 --time 1 \
            --plugin "$PVN_BUILDDIR/.libs/libnccl-net-pvrdma.so" >"$dir/out$n" 2>&1 </dev/null &
        pids+=($!)
    done
    wait "${pids[@]}"
    sed -n 's/^pvrdma: 2 ranks: \(.* doorbells per message\)/\1/p' "$dir/out0" | grep . || sed 's/^/  /' "$dir/out0" >&2
    rm -rf "$dir"
}

softverbs_doorbells() {
    local line
    for mode in record imm send; do
        line=$(softverbs_ring "$mode")
        [[ -n $line ]] || { echo "no figures in $mode mode" >&2; exit 1; }
        printf '%-8s %s\n' "$mode" "$line"
    done
    exit 0
}
if [[ $device == softverbs ]]; then
    # Without softverbs the plugin would carry the traffic over TCP.
    softverbs=$PVN_BUILDDIR/tests/softverbs/.libs/libsoftverbs.so
    make -C "$PVN_BUILDDIR" -s tests/softverbs/libsoftverbs.la >&2 ||
        { echo "softverbs cannot be built in $build: run tests/build-tree.sh $build first" >&2; exit 2; }
    softverbs_doorbells
fi

# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$src/tests/vm/lib.sh"
# shellcheck disable=SC2034
VM_LIMIT=$((60 + (${#ib} ? 240 : 120) * rounds)) VM_MTU=4200
vm_start "$device" 77
settings=(TRANSPORT="$transport" ROUNDS="$rounds" ITERATIONS="$iterations")
[[ -z $ib ]] || settings+=(IB=./ib.so LIBRARIES="${LD_LIBRARY_PATH:-}")
if [[ $bare ]]; then
    bare=$PVN_BUILDDIR/tests/bench/.libs/bare_verbs.so
    make -C "$PVN_BUILDDIR" -s tests/bench/bare_verbs.la >&2 ||
        { echo "bare_verbs cannot be built in $build: run tests/build-tree.sh $build first" >&2; exit 2; }
    settings+=(BARE="$bare")
fi
status=0
if [[ $counts ]]; then
    a=$(vm_job counts N=200 "${settings[@]}")
    VM_SMP=2 VM_V4SELF='' vm_alone "$a" || status=$?
elif ((guests == 1)); then
    a=$(vm_job bench "${settings[@]}")
    [[ -z $ib ]] || cp "$ib" "$a/ib.so"
    VM_SMP=2 VM_V4SELF='' vm_alone "$a" || status=$?
else
    a=$(vm_job bench-a RANK=0 "${settings[@]}") b=$(vm_job bench-b RANK=1 "${settings[@]}")
    vm_pair "$a" "$b" || status=$?
fi
if ((status != 0)) || grep -q '^not ok' "$a/results"; then
    cat "$a/details" "$a/out" 2>/dev/null | tail -n 60
    echo "the measurements did not end well (guest status $status); see $a" >&2
    exit 1
fi

if [[ $counts ]]; then
    awk '{ printf "%-8s %.2f packets per message\n", $1, $2 }' "$a/rows"
    exit 0
fi
echo "$device, $guests guest(s), plugin by $transport, $rounds rounds: median (min..max)"
printf '%-10s %8s %5s  %28s  %28s  %s\n' "" bytes comms perftest plugin "plugin / perftest${bare:+; bare, bare / perftest}${ib:+; net_ib, plugin / net_ib}"
sort -k2,2 -k4,4n -k3,3n -k1,1 -k5,5n "$a/rows" | awk '
    {key = $2 " " $3 " " $4; if (!(key in seen)) {seen[key] = 1; order[++keys] = key}
     v[$1, key, ++n[$1, key]] = $5}
    function text(tool, key, m) {
        m = n[tool, key]
        if (!m) return "-"
        med[tool] = m % 2 ? v[tool, key, (m + 1) / 2] : (v[tool, key, m / 2] + v[tool, key, m / 2 + 1]) / 2
        return sprintf("%.1f (%.1f..%.1f)", med[tool], v[tool, key, 1], v[tool, key, m])
    }
    END {
        for (i = 1; i <= keys; i++) {
            split(order[i], k, " ")
            delete med
            p = text("perftest", order[i]); q = text("plugin", order[i])
            b = text("bare", order[i]); t = text("ib", order[i])
            printf "%-10s %8d %5d  %28s  %28s  %s %s%s%s\n", k[1], k[2], k[3], p, q,
                med["perftest"] ? sprintf("%.2f", med["plugin"] / med["perftest"]) : "-",
                k[1] == "latency" ? "(us)" : k[1] == "rate" ? "(1000/s)" : "(MB/s)",
                b == "-" ? "" : sprintf("; %s, %.2f", b, med["bare"] / med["perftest"]),
                t == "-" ? "" : sprintf("; %s, %.2f", t, med["plugin"] / med["ib"])
        }
    }'
