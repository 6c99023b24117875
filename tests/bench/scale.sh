#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# All-reduce of a model's gradients on 1 to N virtual machines (tests/vm), the plugin by TCP beside the
# plugin by RDMA, in one run and verified: pvn-perf's scale table. No KVM, and all guests on one host:
# the figures compare transports, they say nothing about a network.
# usage: tests/bench/scale.sh [--device rxe|pvrdma] [--guests N] [--models "resnet50 bert-large"]
#                             [--iterations N] [--alone] [--transports "rdma tcp"] [--build DIR]
# --alone: N guests only, not 1 to N, and --transports leaves one out: parts of a long table.
# Needs the right to make a network namespace, in which everything happens.
set -u
if [[ -z ${PVN_SCALE_NETNS:-} ]]; then
    share=(--net)
    (($(id -u) == 0)) || share+=(--map-root-user)
    PVN_SCALE_NETNS=1 exec unshare "${share[@]}" "$0" "$@"
fi
usage() { sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2; }

src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build device=rxe guests=4 models="resnet50 bert-large" iterations=2
mode=scale transports="rdma tcp"
while (($#)); do
    case $1 in
    --device) device=$2; shift 2 ;;
    --guests) guests=$2; shift 2 ;;
    --models) models=$2; shift 2 ;;
    --iterations) iterations=$2; shift 2 ;;
    --alone) mode=ring; shift ;;
    --transports) transports=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) usage ;;
    esac
done
((guests >= 2 && guests <= 9)) || { echo "--guests $guests: 2 to 9 are possible" >&2; exit 2; }
PVN_BUILDDIR=$(cd "$build" && pwd) || exit 2
[[ -x $PVN_BUILDDIR/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }

# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$src/tests/vm/lib.sh"
# A rank holds the largest bucket, 127 MB of BERT-Large, and its sums.
# shellcheck disable=SC2034
VM_LIMIT=5400 VM_MTU=4200 VM_MEM=1536
vm_start "$device" 77

# One bridge joins the guests. QEMU's own hub will not do: it takes what a guest sends at once and
# queues it, so that RDMA's timeouts run out.
ip link set lo up
ip link add br0 mtu 4200 type bridge
ip link set br0 up

status=0 pids=() first=
for ((n = 1; n <= guests; n++)); do
    job=$(vm_job "scale-$n" RANK=$((n - 1)) WORLD="$guests" MODELS="$models" \
        ITERATIONS="$iterations" MODE=$mode TRANSPORTS="$transports" SCALE_LIMIT=5000)
    install -m 755 "$src/tests/vm/jobs/scale" "$job/run"
    [[ $n != 1 ]] || first=$job
    ip tuntap add dev "tap$n" mode tap
    ip link set "tap$n" mtu 4200 txqueuelen 10000 master br0 up
    vm_args=(-netdev "tap,id=n0,ifname=tap$n,script=no,downscript=no")
    "${device}_args" "g$n" 0 n0 "52:54:00:00:00:0$n"
    VM_IP=10.77.0.$n/24 vm_boot "g$n" "$job" "${vm_args[@]}" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || status=$?
done
if ((status != 0)) || ! grep -q '^ok' "$first/results"; then
    tail -n 60 "$first"/{console,out,details} 2>/dev/null
    echo "the measurements did not end well (guest status $status); see $first" >&2
    exit 1
fi
sed -n '/^=== /d; p' "$first/out"
