# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# For scripts that run pvn-perf and judge its output; to be sourced. The script defines outputs NAME, which prints the
# names of the files that test NAME has written.
# shellcheck shell=bash

# verdict NAME COMMAND...: prints the test's result by the command's status; after a failure, its output files follow.
verdict() {
    local name=$1 file
    shift
    if "$@"; then
        echo "ok $name"
        return
    fi
    echo "not ok $name"
    for file in $(outputs "$name"); do
        echo "  ${file##*/}:"
        cut -c1-600 "$file" | sed 's/^/    /'
    done
}
