#!/bin/sh
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Runs pvn-topo check on a node now and again: the findings are the container's log, and FOLDER/ready is there as long as none
# of them is a FAIL, for a readiness probe.
# usage: check.sh [FOLDER]     PVN_CHECK_INTERVAL: seconds from one check to the next (default: 3600)
set -u
bin=$(cd "$(dirname "$0")/../../.." && pwd)/bin
ready=${1:-/run}/ready
interval=${PVN_CHECK_INTERVAL:-3600}
case $interval in
'' | *[!0-9]* | 0)
    echo "check.sh: PVN_CHECK_INTERVAL=$interval: it takes a number of seconds, 1 or more" >&2
    exit 2
    ;;
esac
report=$(mktemp)
trap 'rm -f "$report" "$ready"' EXIT
trap 'exit 0' TERM INT
while :; do
    date -u +'== %Y-%m-%dT%H:%M:%SZ'
    "$bin/pvn-topo" check >"$report"
    rc=$?
    cat "$report"
    if [ $rc -gt 1 ] || grep -q '^FAIL' "$report"; then
        rm -f "$ready"
    else
        : >"$ready"
    fi
    # A signal ends wait, not sleep.
    sleep "$interval" &
    wait $!
done
