#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Comms that a failover has moved to TCP return to RDMA by themselves, or stay on TCP unharmed. A ring all-reduce
# between two processes on softverbs checks every element, while commands to softverbs change the port or the
# adapter.
# run-all limit: 300
# run-all once
set -u
build=$PVN_BUILDDIR
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plugin=$build/.libs/libnccl-net-pvrdma.so
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_FAILOVER=1 NCCL_PVRDMA_STATS_DIR=$tmp/stats

if ! command -v python3 >/dev/null; then
    echo "skip failback: there is no python3"
    exit 0
fi

# ring NAME MODE RULES FUNCTION: starts a ring and calls FUNCTION when both ranks are connected. Then it interrupts
# the ranks, which end in order.
ring() {
    local mode=$2 pid
    log=$tmp/$1
    mkdir -p "$tmp/fabric" "$tmp/sys"
    rm -rf "$tmp"/fabric/* "$tmp"/sys/*
    # The plugin closes an adapter that no connection uses. "stay" lets commands still reach it.
    printf 'set stay 1\n%s\n' "$3" >"$tmp/rules"
    export NCCL_PVRDMA_VERBS_LIB=$build/tests/softverbs/.libs/libsoftverbs.so PVN_SOFTVERBS_PROFILE=pvrdma \
        PVN_SOFTVERBS_DIR=$tmp/fabric PVN_SOFTVERBS_SYSFS=$tmp/sys NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys
    PVN_SOFTVERBS_FAULTS=$tmp/rules NCCL_PVRDMA_RDMA_MODE=$mode timeout 100 \
        "$build/pvn-perf" ring --ranks 2 --check --verbose --plugin "$plugin" --sizes 1M --warmup 0 --iters 1000000 \
        >"$log" 2>&1 </dev/null &
    pid=$!
    until_said 4 'receives from'
    "$4"
    kill -INT "$pid"
    wait "$pid"
}
# If softverbs is built with AddressSanitizer, its library is loaded first, since Python is not.
asan=$(ldd "$build/tests/softverbs/.libs/libsoftverbs.so" | awk '/libasan/ { print $3 }')
command() {
    LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 python3 "$here/softverbs_command.py" "$@" 2>>"$log"
}
# until_said COUNT PATTERN: waits until the log has COUNT lines with PATTERN, for 60 s at most
until_said() {
    local _
    for _ in $(seq 600); do
        [ "$(grep -c "$2" "$log")" -lt "$1" ] || return 0
        sleep 0.1
    done
}
# until_fired RULE: waits until RULE has fired in one of the processes, for 60 s at most
until_fired() {
    local _
    for _ in $(seq 600); do
        ! command rules | grep -q "^$1 .*fired=[1-9]" || return 0
        sleep 0.1
    done
}
on_tcp='failover: .*connected again after [0-9.]* s: tcp' on_rdma='failback: .*returned after [0-9.]* s on worse lanes: rdma'
# All 8 ends of the ring's comms fail over to TCP, and later return.
down_and_up() {
    command "port * 1 down"
    until_said 8 "$on_tcp"
    command "port * 1 up"
    until_said 8 "$on_rdma"
}
down_up_and_statistics() {
    down_and_up
    sleep 1
    "$build/topo/pvn-topo" --json stat >"${log}_statistics"
    "$build/topo/pvn-topo" stat >"${log}_statistics.text"
    "$build/topo/pvn-topo" --prom stat >"${log}_statistics.prom"
}

# shellcheck source=tests/support/verdict.sh
. "$PVN_SRCDIR/tests/support/verdict.sh"
outputs() { echo "$tmp/$1"; }
# True if the run was verified up to its interruption. Wrong data in any run ends the ring.
verified() { grep -q INTERRUPTED "$tmp/$1" && ! grep -Eq 'FAILED|wrong' "$tmp/$1"; }
# lost NAME: counts how often an end failed over to TCP; back NAME: how often one returned to RDMA
lost() { grep -c "$on_tcp" "$tmp/$1"; }
back() { grep -c "$on_rdma" "$tmp/$1"; }
# ends_on NAME LANES: true if each of the 8 ends of comms was on LANES when it was closed
ends_on() { [ "$(grep -c "closed after .*: $2 on" "$tmp/$1")" = 8 ]; }

# True if the statistics have one row for each comm, which counts one failover and one return, and no comm has
# failed.
one_row_each() {
    python3 - "$tmp/$1" <<'PY'
import json, sys
with open(sys.argv[1]) as f:
    processes = json.load(f)["processes"]
rows = [c for p in processes for c in p["comms"] if c["kind"] != "listener"]
assert len(processes) == 2 and len(rows) == 8, rows
assert not any(p["failed"] for p in processes), processes
for c in rows:
    assert (c["failovers"], c["failbacks"]) == (1, 1), c
    assert c["lanes"].startswith("rdma") and c["messages"] > 0 and c["doorbells"] is not None, c
    assert c["lanes_changed_s_ago"] < c["born_s_ago"], c
PY
}
counted() {
    one_row_each "$1" && grep -q '1 failover, 1 return to better lanes' "$tmp/$1.text" &&
        grep -q '^nccl_pvrdma_failbacks_total{.* [1-9]' "$tmp/$1.prom"
}
came_back() { verified "$1" && [ "$(lost "$1")" = 8 ] && [ "$(back "$1")" = 8 ] && ends_on "$1" rdma; }
for mode in record imm; do
    name=failback_port_goes_down_and_up_${mode}_mode
    ring $name $mode "" down_up_and_statistics
    verdict $name came_back $name
    verdict ${name}_statistics counted ${name}_statistics
done

# The adapter is gone, with all its contexts. The rule brings it back after the plugin has looked for it once. Then
# the plugin opens it again.
gone_and_there_again() {
    command "fatal *"
    until_said 8 "$on_tcp"
    until_said 8 "$on_rdma"
}
opened_again() { came_back "$1" && grep -q 'cannot be opened again' "$tmp/$1" && [ "$(grep -c 'has been opened again' "$tmp/$1")" = 2 ]; }
for mode in record imm; do
    name=failback_to_an_adapter_that_was_gone_${mode}_mode
    ring $name $mode "rule back do call=open_device nth=3 : renew *" gone_and_there_again
    verdict $name opened_again $name
done

flap() {
    down_and_up
    sleep 11 # like lines are folded into one for 10 s
    command "port * 1 down"
    until_said 16 "$on_tcp"
    command "port * 1 up"
    until_said 16 "$on_rdma"
}
flapped() { verified "$1" && [ "$(back "$1")" -ge 16 ] && ends_on "$1" rdma && grep -q 'failback: .*the lanes were lost again' "$tmp/$1"; }
name=failback_from_a_port_that_flaps
ring $name record "" flap
verdict $name flapped $name

# Each process first creates its comms' queue pairs. So later queue pairs, which the rule refuses, belong to attempts
# to return.
not_at_first() { came_back "$1" && grep -q 'failback: .*no better lanes yet: .*Cannot allocate memory' "$tmp/$1"; }
name=failback_fails_at_first_and_the_old_lanes_go_on
ring $name record "rule none fail call=create_qp errno=ENOMEM nth=8 every=1 count=2" down_and_up
verdict $name not_at_first $name

# Prints how many ends of comms are on RDMA lanes now, by their statistics. The log cannot say so, because an end
# that returned and failed over again has logged the return twice.
on_rdma_now() {
    "$build/topo/pvn-topo" --json stat 2>>"$log" | python3 -c 'import json, sys
comms = [c for p in json.load(sys.stdin)["processes"] for c in p["comms"] if c["kind"] != "listener"]
print(sum(c["lanes"].startswith("rdma") for c in comms))'
}
# The rule takes the port down while the comms return to RDMA.
fall_again() {
    local _
    command "port * 1 down"
    until_said 8 "$on_tcp"
    command "port * 1 up"
    until_fired again
    # The loop repeats because the rule fires once in each process, perhaps in different attempts.
    for _ in $(seq 60); do
        command "port * 1 up"
        sleep 1
        [ "$(on_rdma_now)" != 8 ] || break
    done
}
fell_again() { verified "$1" && [ "$(lost "$1")" -ge 8 ] && [ "$(back "$1")" -ge 8 ] && ends_on "$1" rdma; }
name=failback_loses_its_port_while_it_comes_back
ring $name record "rule again do call=create_qp nth=9 : port * 1 down" fall_again
verdict $name fell_again $name
