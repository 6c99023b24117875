#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests that softverbs behaves like the devices that it emulates. Runs the verbs test programs on tests/softverbs, without
# a virtual machine, and compares their results with those on real drivers (run-soft-roce.sh, run-pvrdma.sh). It is a
# script test (tests/run-all) and runs in the build directory.
set -u
build=${PVN_BUILDDIR:-$PWD}
here=$(cd "$(dirname "$0")" && pwd)
library=$build/tests/softverbs/.libs/libsoftverbs.so
verbs=$build/tests/vm/verbs
failed=0

if [[ ! -e $library ]]; then
    echo "skip softverbs: $library has not been built"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$library" "$work/libibverbs.so.1"
export LD_LIBRARY_PATH=$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PVN_SOFTVERBS_DEVICES=2
unset PVN_SOFTVERBS_DIR PVN_SOFTVERBS_CONFIG PVN_SOFTVERBS_FAULTS PVN_SOFTVERBS_SET

check() { # check NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name"
        tail -n 30 "$work/out"
        failed=1
    fi
}

run() { # run PROGRAM ARGUMENT...
    timeout 120 "$verbs/$1" "${@:2}"
}

# The comparison leaves out the lines that softverbs-differs lists, on both sides.
probe() { # probe PROFILE DEVICE DEVICE GID
    local profile=$1
    shift
    awk -F '|' -v p="$profile" '$1 == p {print $2 ":"}' "$here/verbs/softverbs-differs" >"$work/known"
    run verbsprobe "$@" >"$work/probed" || return 1
    diff <(grep -vFf "$work/known" "$here/verbs/verbsprobe.$profile") \
        <(grep -vFf "$work/known" "$work/probed")
}

profile() {
    export PVN_SOFTVERBS_PROFILE=$1
}

profile pvrdma
check "pvtest, profile pvrdma" run pvtest vmw_pvrdma0 1
check "write, profile pvrdma" run rcfault -a vmw_pvrdma0 -b vmw_pvrdma1 -g 1
check "as the vmw_pvrdma driver on QEMU" probe pvrdma vmw_pvrdma0 vmw_pvrdma0 1
profile rxe
check "pvtest, profile rxe" run pvtest -s rxe0 0
check "write, profile rxe" run rcfault -g 0
check "as Soft-RoCE" probe rxe rxe0 rxe1 0
profile roce
check "pvtest, profile roce" run pvtest mlx5_0 3
exit "$failed"
