# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# For the scripts that run pvn-perf and judge by what it printed; to be sourced. The script defines outputs NAME, which
# prints the files that the test of that name has written.
# shellcheck shell=bash

# verdict NAME COMMAND...: the test's line of the report, by the command's status; what was written follows a failure.
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
