#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests that the plugin's shared object contains no function that only pvn-topo needs, that is, none of the objects that
# are compiled for libpvntopotool alone. Prints TAP-like lines for tests/run-all.
# usage: shared_object.sh [SHARED-OBJECT]   (in the build directory, or with PVN_BUILDDIR)
set -u
build=${PVN_BUILDDIR:-$PWD}
so=${1:-$build/.libs/libnccl-net-pvrdma.so}
name=shared_object.without_tools

command -v nm >/dev/null || { echo "skip $name: there is no nm"; exit 0; }
functions() { nm "$@" 2>/dev/null | awk 'NF == 3 && $2 ~ /^[Tt]$/ { print $3 }' | sort -u; }

carried=$(functions "$so" | grep '^pvn_')
tools=$(functions "$build"/topo/*/.libs/libpvntopotool_la-*.o | grep '^pvn_')
# If either list were empty (a stripped object) the comparison would pass without a test.
for f in pvn_topo_placement_make pvn_topo_load_dir; do
    grep -qx "$f" <<<"$carried" || { echo "not ok $name: $so shows no $f; is it stripped?"; exit 1; }
done
for f in fs_open_tar tar_write gather load_esxcli redact hints_parse merge_host edit_begin run_checks guest_remedies \
    nccl_lint gdr_judge; do
    grep -qx "pvn_topo_$f" <<<"$tools" || { echo "not ok $name: libpvntopotool has no pvn_topo_$f"; exit 1; }
done
both=$(comm -12 <(echo "$carried") <(echo "$tools"))
if [ -n "$both" ]; then
    echo "$both" | sed 's/^/# carried: /'
    echo "not ok $name"
    exit 1
fi
echo "ok $name"
