# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# For the scripts that test packages; to be sourced. Each writes what a step prints to $tmp/out.
# shellcheck shell=bash

# verdict NAME STATUS: prints ok, or not ok and what was printed
verdict() {
    if [ "$2" = 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        tail -n 40 "${tmp:?}/out" | sed 's/^/  /'
    fi
}
