#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of sealing beside WireGuard, in a virtual machine (tests/vm) whose kernel has it. Two network namespaces and a
# veth pair carry the plugin without a key (plain), with ENCRYPT=control (control), with sealed data (sealed), and without a key
# over WireGuard on the same pair (wg), interleaved. The machine's one processor executes an instruction per nanosecond of its
# clock. So the figures are instructions of both ends and of the kernel together, which other work on the host does not change.
# They are not time: a vector instruction counts as any other. The processor has AES-NI and AVX2, and no AVX-512 nor VAES.
# --side adds one with a key and these settings of the plugin; --mtu sets that of the pair; --device tls is a newer kernel, whose TLS
# can renew keys.
# usage: tests/bench/seal_guest.sh [--rounds N] [--mtu N] [--device rxe|tls] [--side NAME:KEY=VALUE,...]... [--quick] [--build DIR]
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build device=rxe rounds=3 mtu=1500 iterations=200 count=40 quick='' more=()
while (($#)); do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --mtu) mtu=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --side) more+=("$2"); shift 2 ;;
    --quick) quick=1 rounds=1 iterations=40; shift ;;
    --build) build=$2; shift 2 ;;
    *) sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2 ;;
    esac
done
skip() { echo "skip bench-seal: $*"; exit 77; }
PVN_BUILDDIR=$(cd "$build" && pwd) || exit 2
[[ -x $PVN_BUILDDIR/pvn-perf ]] || { echo "no $build/pvn-perf: build first, or give --build DIR" >&2; exit 2; }
grep -q 'define HAVE_OPENSSL 1' "$build/config.h" || skip "this build has no OpenSSL (configure --without-openssl)"
sides=(plain control:NCCL_PVRDMA_ENCRYPT=control sealed)
if command -v wg >/dev/null; then
    sides+=(wg)
else
    echo "skip WireGuard: wg is not installed (package wireguard-tools)"
fi
sides+=(${more[@]+"${more[@]}"})
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$src/tests/vm/lib.sh"
# shellcheck disable=SC2034
VM_COUNTED=1 VM_MODS=tls,wireguard VM_LIMIT=$((900 + 120 * rounds))
vm_start "$device" 77
job=$(vm_job seal TRANSPORT=tcp ROUNDS="$rounds" ITERATIONS="$iterations" N="$count" MTU="$mtu" COUNTS="${quick:-calls}" SIDES="${sides[*]}")
status=0
vm_alone "$job" || status=$?
if ((status != 0)) || grep -q '^not ok' "$job/results"; then
    cat "$job/details" "$job/out" 2>/dev/null | tail -n 60
    echo "the measurements did not end well (guest status $status); see $job" >&2
    exit 1
fi
echo "one guest, MTU $mtu, $rounds rounds: medians, and in brackets divided by plain's. Instructions of both ends and the kernel, by an interpreter"
awk -v sides="${sides[*]}" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/seal_guest.awk" "$job/rows"
