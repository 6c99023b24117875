#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# How often a failover succeeds, and how long it takes. A ring all-reduce between two processes checks every element,
# on softverbs as a PVRDMA adapter, and on TCP in a network namespace of its own (root), whose connections are reset.
# Each run has at least one fault. "fired" counts the runs in which a comm was connected again. "survived" counts
# those of them with right sums to the end. A time runs from the moment when an end notices the loss until it goes on
# with other lanes. "port returns": the port comes back after 2 s, and the time runs from then until the last end
# uses RDMA again.
# usage: tests/bench/failover.sh [--build DIR] [--rounds N] [--kinds "queue-pair port device reset return"] [--modes "record imm send"]
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build
rounds=9
kinds="queue-pair port device reset return"
modes="record imm send"
while [[ $# -ge 2 ]]; do
    case $1 in
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --kinds) kinds=$2 ;;
    --modes) modes=$2 ;;
    *) break ;;
    esac
    shift 2
done
[[ $# -eq 0 ]] || { sed -n '/^# usage/s/^# //p' "$0" >&2; exit 2; }
[[ -e $build/Makefile ]] || { echo "$build is not a build tree: run tests/build-tree.sh $build first, or give --build DIR" >&2; exit 2; }
build=$(cd "$build" && pwd)
make -C "$build" -s -j"${PVN_JOBS:-$(nproc)}" libnccl-net-pvrdma.la pvn-perf tests/softverbs/libsoftverbs.la >&2 ||
    { echo "what is measured cannot be built in $build" >&2; exit 2; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
plugin=$build/.libs/libnccl-net-pvrdma.so
softverbs=$build/tests/softverbs/.libs/libsoftverbs.so
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_FAILOVER=1 NCCL_PVRDMA_STATS_DIR=$tmp/stats

# new_fabric RULE: makes a fabric without processes, with this rule
new_fabric() {
    rm -rf "$tmp/fabric" "$tmp/sys"
    mkdir -p "$tmp/fabric" "$tmp/sys"
    echo "$1" >"$tmp/rules"
}
verbs=(NCCL_PVRDMA_VERBS_LIB="$softverbs" PVN_SOFTVERBS_PROFILE=pvrdma PVN_SOFTVERBS_DIR="$tmp/fabric"
    PVN_SOFTVERBS_SYSFS="$tmp/sys" NCCL_PVRDMA_SYSFS_ROOT="$tmp/sys" PVN_SOFTVERBS_FAULTS="$tmp/rules")
ring=("$build/pvn-perf" ring --check --verbose --plugin "$plugin" --sizes 1M --warmup 0)

# rule MODE RULE: makes one run
rule() {
    new_fabric "$2"
    env "${verbs[@]}" NCCL_PVRDMA_RDMA_MODE="$1" timeout 100 "${ring[@]}" --ranks 2 --iters 200 >"$tmp/log" 2>&1 </dev/null
}

# until_said TIMES PATTERN: waits until the log has TIMES lines with PATTERN, for 60 s at most
until_said() {
    local _
    for _ in $(seq 3000); do
        [[ $(grep -c "$2" "$tmp/log") -lt $1 ]] || return 0
        sleep 0.02
    done
    return 1
}

reset() {
    local i pids=() pid
    : >"$tmp/log"
    ip link set lo up
    for i in 0 1; do
        RANK=$i WORLD_SIZE=2 LOCAL_RANK=$i LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29519 \
            timeout 100 "${ring[@]}" --iters 1000 >>"$tmp/log" 2>&1 </dev/null &
    done
    until_said 4 'receives from'
    sleep 0.2
    for pid in /proc/[0-9]*; do
        [[ $pid/ns/net -ef /proc/self/ns/net ]] && pids+=("${pid#/proc/}")
    done
    python3 "$src/tests/support/reset_tcp.py" 127.0.0.1-29519 "${pids[@]}" >/dev/null
    wait
}

command_fabric() { env "${verbs[@]}" python3 "$src/tests/rdma/softverbs_command.py" "$@"; }
# Adds the seconds between the port's return and the last end's to $tmp/returns.
port_returns() {
    local pid began
    new_fabric "set stay 1" # also while nobody has the adapter open
    env "${verbs[@]}" NCCL_PVRDMA_RDMA_MODE="$1" timeout 100 "${ring[@]}" --ranks 2 --iters 1000000 >"$tmp/log" 2>&1 </dev/null &
    pid=$!
    until_said 4 'receives from'
    command_fabric "port * 1 down"
    until_said 8 'connected again after'
    sleep 2
    command_fabric "port * 1 up"
    began=$EPOCHREALTIME
    until_said 8 'failback: .*returned after' && echo "$(bc <<<"$EPOCHREALTIME - $began")" >>"$tmp/returns"
    kill -INT "$pid"
    wait "$pid"
}

# row KIND MODE RUNS: prints a row from $tmp/times, $tmp/fired and $tmp/survived
row() {
    local times
    times=$(sort -n "$tmp/times" | awk '{ t[NR] = $1 * 1000 } END { if (NR) printf "%10.0f %10.0f", t[int((NR + 1) / 2)], t[NR]; else printf "%10s %10s", "-", "-" }')
    printf '%-14s %-7s %5d %6d %9d %10d %s\n' "$1" "$2" "$3" "$(wc -l <"$tmp/fired")" "$(wc -l <"$tmp/survived")" \
        "$(wc -l <"$tmp/times")" "$times"
}
begin() { for i in times fired survived returns; do : >"$tmp/$i"; done; }
# count: evaluates the log after a run
count() {
    sed -n 's/.*connected again after \([0-9.]*\) s:.*/\1/p' "$tmp/log" >>"$tmp/times"
    grep -q 'connected again after' "$tmp/log" && echo >>"$tmp/fired"
    grep -Eq 'all data verified|INTERRUPTED' "$tmp/log" && ! grep -Eq 'FAILED|wrong data' "$tmp/log" && echo >>"$tmp/survived"
}

printf '%-14s %-7s %5s %6s %9s %10s %10s %10s\n' fault mode runs fired survived failovers "median ms" "max ms"
for kind in $kinds; do
    case $kind in
    queue-pair) faults="rule break status status=RETRY_EXC_ERR nth=300 every=500 count=4" ;;
    port) faults="rule down do nth=300 : port * 1 down" ;;
    device) faults="rule dies do nth=300 : fatal *" ;;
    reset)
        if [[ $(id -u) != 0 ]] || ! unshare -n true 2>/dev/null || ! command -v python3 >/dev/null; then
            echo "reset: needs root, for a network namespace, and python3"
            continue
        fi
        export -f reset until_said
        export src tmp build plugin
        begin
        for ((n = 0; n < rounds; n++)); do
            unshare -n bash -c "$(declare -p ring); reset"
            count
        done
        row reset tcp "$rounds"
        continue
        ;;
    return)
        for mode in $modes; do
            begin
            for ((n = 0; n < rounds; n++)); do
                port_returns "$mode"
                count
            done
            mv "$tmp/returns" "$tmp/times"
            row "port returns" "$mode" "$rounds"
        done
        continue
        ;;
    *)
        echo "$kind is not a kind of fault" >&2
        exit 2
        ;;
    esac
    for mode in $modes; do
        begin
        for ((n = 0; n < rounds; n++)); do
            rule "$mode" "$faults"
            count
        done
        row "$kind" "$mode" "$rounds"
    done
done
