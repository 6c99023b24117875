# shellcheck shell=bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The part `failover` of tests/nccl/run, which sources this file. Lanes break in mid-collective and are replaced. The
# results are right, and NCCL reports nothing.

# outlived NAME LANES: true if drive's verdict is good, ends of comms went on over LANES, and no warning is NCCL's
# own. The plugin's log names LANES, which shows that the fault fired.
outlived() {
    local log=$logs/$1.log n
    n=$(grep -acE "failover: .* connected again after [0-9.]+ s: $2" "$log")
    if ((n < 2)); then
        failed=1
        echo "not ok $1-outlived: $n ends of comms went on over $2, log $log"
    elif grep -a 'NCCL WARN' "$log" | grep -avq 'NET/PVRDMA'; then
        failed=1
        echo "not ok $1-outlived: NCCL noticed, log $log"
        grep -a 'NCCL WARN' "$log" | grep -av 'NET/PVRDMA' | cut -c1-300 | head -3 | sed 's/^/    /'
    else
        echo "ok $1-outlived ($n ends of comms went on over $2)"
    fi
}
outliving=(--iters 40 --warmup 0 --sizes 4,64K,1M allreduce sendrecv)

# breaks NETWORK NAME RANKS LANES RULE: runs over software verbs with a fault script
breaks() {
    local name=$1-failover-$2-$3
    network "$1" || return
    echo "$5" >"$tmp/rules"
    limit=100 drive "$name" NCCL_PVRDMA_FAILOVER=1 NCCL_PVRDMA_TRANSPORT=auto PVN_SOFTVERBS_FAULTS="$tmp/rules" -- \
        -n "$3" "${outliving[@]}"
    outlived "$name" "$4"
}

# interfaces NAME: makes a network namespace with two interfaces for the plugin. NCCL's own connections use lo and
# are not broken.
interfaces() {
    local i
    space=pvn-nccl-$$-$1
    ip netns add "$space" 2>"$tmp/why" || { echo "skip $1: no network namespace: $(cat "$tmp/why")"; return 1; }
    spaces+=("$space")
    ip -n "$space" link add en0 type veth peer name en1
    ip -n "$space" addr add 10.77.0.1/24 dev en0
    ip -n "$space" addr add 10.77.1.1/24 dev en1
    for i in lo en0 en1; do ip -n "$space" link set "$i" up; done
    for i in $(seq 100); do
        [[ $(ip -n "$space" -br link) == *DOWN* ]] || break
        sleep 0.1
    done
}

# loses NAME RANKS: withdraws the address of one of two interfaces. No parameter enables failover.
loses() {
    local name=$1 space job
    interfaces "$name" || return
    (
        until grep -aqs '^\[0\] ok ' "$logs/$name.log"; do sleep 0.1; done
        ip -n "$space" addr del 10.77.0.1/24 dev en0
    ) &
    job=$!
    run_in=(ip netns exec "$space")
    rm -f "$logs/$name.log"
    limit=100 drive "$name" NCCL_PVRDMA_SOCKET_IFNAME=en0,en1 NCCL_PVRDMA_TCP_USER_TIMEOUT=2s -- -n "$2" --iters 100 \
        --warmup 0 --sizes 4,64K,1M,4M allreduce
    run_in=()
    kill $job 2>/dev/null
    wait $job 2>/dev/null
    outlived "$name" 'tcp on en1'
}

# resets NAME RANKS: resets TCP connections again and again
resets() {
    local name=$1 space job
    interfaces "$name" || return
    # The loss of a connection before the ring is up ends the job. So the resets begin after that.
    # shellcheck disable=SC2046
    (
        until grep -aqs '^\[0\] ok ' "$logs/$name.log"; do sleep 0.1; done
        while sleep 0.3; do python3 "$src/tests/support/reset_tcp.py" 10.77.0.1 $(pgrep -f "^$tmp/nccldrive"); done
    ) >"$logs/$name-resets.log" 2>&1 &
    job=$!
    run_in=(ip netns exec "$space")
    rm -f "$logs/$name.log"
    limit=100 drive "$name" NCCL_PVRDMA_FAILOVER=1 NCCL_PVRDMA_SOCKET_IFNAME=en0 -- -n "$2" --iters 100 \
        --warmup 0 --sizes 4,64K,1M,4M allreduce
    run_in=()
    kill $job
    wait $job 2>/dev/null
    outlived "$name" tcp
}

part_failover() {
    local n
    for n in 2 4; do
        case $1 in
        tcp)
            resets "tcp-failover-resets-$n" $n
            loses "tcp-failover-address-$n" $n
            ;;
        *)
            breaks "$1" queue-pairs $n rdma "rule break status status=RETRY_EXC_ERR nth=300 every=700 count=4"
            breaks "$1" device $n tcp "rule dies do nth=300 : fatal *"
            breaks "$1" port $n "$([[ $1 == two-ports ]] && echo 'rdma|tcp' || echo tcp)" "rule down do nth=300 : port * 1 down"
            ;;
        esac
        [[ -z $quick ]] || return
    done
}
