# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Defines verdict for the scripts that test packages, which source it. Each script writes a step's output to $tmp/out.
# shellcheck shell=bash

# verdict NAME STATUS: prints ok, or not ok and the end of the step's output
verdict() {
    if [ "$2" = 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        tail -n 40 "${tmp:?}/out" | sed 's/^/  /'
    fi
}
