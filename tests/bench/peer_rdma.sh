#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# This plugin beside NCCL's own IB transport on the same software verbs: latency, message rate, bandwidth and
# processor time per GB over 1 to 64 comms; per message, the instructions of each plugin's own object and the
# device's counts; time, processor time and memory of comms that are set up at once. The plugins take turns in every
# round, after a check of the data. Tables have medians (min..max); "ib" is NCCL's. A doorbell, which on PVRDMA is
# an exit to the hypervisor, costs nothing here unless PVN_SOFTVERBS_SET='set doorbell_ns N' is set. Callers take
# the processor from their own device unless 'set real_time 1' is set (as root): tests/softverbs/README.md.
# --ib PATH: a net plugin whose ncclNetPlugin_v8 to _v12 is NCCL's net_ib, for example made of a build's libnccl_static.a.
# usage: tests/bench/peer_rdma.sh --ib PATH [--profiles "pvrdma roce"] [--modes "record imm"] [--rounds N] [--comms LIST]
#            [--at-once LIST] [--counts | --set-up | --times | --shares] [--bare] [--build DIR]
# --counts: what is counted per message, alone. --set-up: the comms that are set up at once, alone; --at-once says how many.
# --times: latency, rate, bandwidth and processor time alone. --shares: how much of the processors' time in these is spent in
# each one's own object, alone; the rest is the device's work, which software verbs have the processors do, and pvn-perf's.
# --bare: a third plugin that does the least (bare_verbs.c), which shows what the device and pvn-perf leave to any plugin.
set -eu
usage() { sed -n '4,/^[^#]/s/^# //p' "$0" >&2; exit 2; }
src=$(cd "$(dirname "$0")/../.." && pwd)
build=$src/build ib='' profiles="pvrdma roce" modes="record imm" rounds=5 comms=16,64 at_once=1,64,512 counts='' set_up='' times='' shares='' bare=''
while (($#)); do
    case $1 in
    --counts) counts=1; shift; continue ;;
    --set-up) set_up=1; shift; continue ;;
    --times) times=1; shift; continue ;;
    --shares) shares=1; shift; continue ;;
    --bare) bare=bare; shift; continue ;;
    --ib | --profiles | --modes | --rounds | --comms | --at-once | --build) (($# > 1)) || usage ;;
    *) usage ;;
    esac
    name=${1#--}
    declare "${name//-/_}=$2"
    shift 2
done
[[ -n $ib ]] || { echo "skip peer-rdma: no plugin with NCCL's IB transport was named (--ib)"; exit 77; }
[[ -r $ib ]] || { echo "skip peer-rdma: $ib cannot be read"; exit 77; }
[[ -e $build/Makefile ]] || { echo "$build is not a build tree: run tests/build-tree.sh $build first, or give --build DIR" >&2; exit 2; }
make -C "$build" -s -j"${PVN_JOBS:-$(nproc)}" libnccl-net-pvrdma.la pvn-perf tests/softverbs/libsoftverbs.la tests/bench/core_distance tests/bench/messages tests/bench/many_comms\
    ${bare:+tests/bench/bare_verbs.la} >&2
build=$(cd "$build" && pwd) ib=$(realpath "$ib")
own=$build/.libs/libnccl-net-pvrdma.so
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/verbs" "$tmp/sys" "$tmp/fabric"
# NCCL takes libibverbs.so where it is installed.
for name in libibverbs.so libibverbs.so.1; do ln -s "$build/tests/softverbs/.libs/libsoftverbs.so" "$tmp/verbs/$name"; done
export LD_LIBRARY_PATH=$tmp/verbs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_TRANSPORT=rdma
export NCCL_PVRDMA_VERBS_LIB=$tmp/verbs/libibverbs.so.1 NCCL_PVRDMA_SYSFS_ROOT=$tmp/sys PVN_SOFTVERBS_SYSFS=$tmp/sys PVN_SOFTVERBS_DIR=$tmp/fabric
export NCCL_PVRDMA_STATS_DIR=$tmp/stats
# Software verbs take each packet from malloc. malloc returns the memory of many packets to the kernel and takes it
# again, page by page, if nothing else is behind it on the heap. That would depend on a plugin's allocations.
export MALLOC_TRIM_THRESHOLD_=$((1 << 30)) MALLOC_MMAP_THRESHOLD_=$((1 << 30))

# Prints the index of the IPv4 address of RoCE v2. NCCL finds it by itself only if /sys is the device's.
gid_index() { case $1 in pvrdma) echo 1 ;; *) echo 3 ;; esac; }

object_of() { case $1 in ib) echo "$ib" ;; bare) echo "$build/tests/bench/.libs/bare_verbs.so" ;; *) echo "$own" ;; esac; }
# of MODE COMMAND...: runs COMMAND with the plugin's mode set, unless MODE is ib or bare
of() { case $1 in ib | bare) "${@:2}" ;; *) NCCL_PVRDMA_RDMA_MODE=$1 "${@:2}" ;; esac; }
tool() { "$build/libtool" --mode=execute "$@"; }

# device_counts: doorbells, requests of either kind and completions per message at both ends, counted by the device.
# Both ends are called in turn after the device has done its work, so hardly any poll is empty.
device_counts() {
    local bytes depth mode
    printf '%-8s %8s %6s' profile bytes depth
    for mode in $modes ib $bare; do printf ' %22s' "$mode"; done
    echo '  doorbells, requests, completions'
    for bytes in 8 4096 524288 4194304; do
        for depth in 1 8; do
            printf '%-8s %8s %6s' "$1" "$bytes" "$depth"
            for mode in $modes ib $bare; do
                printf ' %22s' "$(on_device "$mode" "$bytes" "$depth")"
            done
            echo
        done
    done
}
on_device() {
    local n=400
    rm -f "$tmp/outcomes"
    PVN_SOFTVERBS_DIR='' of "$1" tool "$build/tests/bench/messages" "$(object_of "$1")" $n "$2" "$3" "$tmp/outcomes" |
        awk -v n=$n 'NR == 2 { for (i = 1; i <= NF; i++) { split($i, v, "="); c[v[1]] = v[2] / n }
            printf "%.2f, %.2f, %.2f\n", c["doorbells"], c["send_wr"] + c["recv_wr"], c["cqe"] }'
}

# Doorbells of both ends per message from one process to another, with one in flight and receives posted ahead. They
# include empty polls, which a wait for a working device causes. The difference of two runs is taken, so that set-up
# does not count.
doorbells_in_flight() {
    local bytes mode few many
    for bytes in 8 64K; do
        printf '%-8s %8s %6s' "$1" "$bytes" 1
        for mode in $modes ib $bare; do
            few=$(doorbells_of "$mode" "$bytes" 1000)
            many=$(doorbells_of "$mode" "$bytes" 5000)
            printf ' %22s' "$(awk -v d=$((many - few)) 'BEGIN { printf "%.2f", d / 8000 }')"
        done
        echo '  doorbells between two processes'
    done
}
doorbells_of() {
    rm -f "$tmp/totals"
    PVN_SOFTVERBS_TOTALS=$tmp/totals of "$1" "$build/pvn-perf" p2p --ranks 2 --memory pinned --quiet --plugin "x=$(object_of "$1")" --latency \
        --sizes "$2" --warmup 0 --iters "$3" >"$tmp/said" 2>&1 || { cat "$tmp/said" >&2; exit 3; }
    awk -F '[= ]' '{ sum += $2 } END { print sum }' "$tmp/totals"
}

# Sets up comms between two processes at once, without sending.
comms_at_once() {
    local n r mode sides calls
    read -r -a sides <<<"$modes ib $bare"
    rm -f "$tmp/many"
    for ((r = 1; r <= rounds; r++)); do
        for n in ${at_once//,/ }; do
            for mode in "${sides[@]}"; do
                echo "$n $mode $(many "$mode" "$n")" >>"$tmp/many"
            done
        done
        read -r -a sides <<<"${sides[*]:1} ${sides[0]}"
    done
    echo "profile $1, comms set up at once, medians of $rounds: s, processor s of both processes, KiB resident per comm at the sender and at the receiver"
    awk -v sides="$modes ib $bare" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/at_once.awk" "$tmp/many"
    command perf stat -e raw_syscalls:sys_enter true >/dev/null 2>&1 ||
        { echo "skip system calls: 'perf stat -e raw_syscalls:sys_enter' does not work here"; return; }
    n=${at_once##*,}
    ((n > 1)) || return 0
    for mode in $modes ib $bare; do
        calls=$(($(calls_of "$mode" "$n") - $(calls_of "$mode" 1)))
        echo "$mode: $((calls / (n - 1))) system calls per comm, set up and closed, both ends, of $n"
    done
}
many() {
    # The limits are as large as the comms need, whatever the device is.
    PVN_SOFTVERBS_SET='set max_qp 8192;set max_cq 8192;set max_mr 16384' of "$1" tool "${under[@]}" "$build/tests/bench/many_comms" "$(object_of "$1")" "$2"
}
under=()
calls_of() {
    local under=(perf stat -e raw_syscalls:sys_enter -x "," -o "$tmp/perf")
    many "$1" "$2" >/dev/null
    awk -F, '/raw_syscalls/ { printf "%.0f\n", $1 }' "$tmp/perf"
}

# Instructions of one object at both ends per message, and per test of a receive for which nothing has come
instructions() {
    local bytes depth mode message test tests=''
    printf '%-8s %8s %6s' profile bytes depth
    for mode in $modes ib $bare; do printf ' %9s' "$mode"; done
    echo
    for bytes in 8 4096 524288; do
        for depth in 1 8; do
            printf '%-8s %8s %6s' "$1" "$bytes" "$depth"
            for mode in $modes ib $bare; do
                read -r message test < <(counted "$mode" "$bytes" "$depth")
                printf ' %9s' "$message"
                ((bytes != 8 || depth != 1)) || tests+=$(printf ' %9s' "$test")
            done
            echo
        done
    done
    printf '%-8s %15s%s\n' "$1" "empty test" "$tests"
}
phases="post_send post_receive test_oldest post_send_to_no_end test_to_no_end send_in_vain test_of_receive test_of_send"
counted() {
    local n=500 object
    object=$(basename "$(object_of "$1")" .so)
    callgrind "$1" $n "$2" "$3" || { echo failed; return; }
    awk -v object="$object" -v phases="$phases" -f "$src/tests/bench/instructions.awk" "$tmp/out" |
        awk -v n=$n '{ for (i = 1; i <= 3; i++) sum += $i; printf "%.0f %.0f\n", sum / n, $7 / n }'
}
# callgrind MODE COUNT BYTES DEPTH: runs with its output in $tmp/out
callgrind() {
    local run=("$build/tests/bench/messages" "$(object_of "$1")" "${@:2}" "$tmp/outcomes")
    rm -f "$tmp/outcomes"
    # The run is alone on a fabric of its own. A run without valgrind first finds out which calls give a request.
    PVN_SOFTVERBS_DIR='' of "$1" tool "${run[@]}" >/dev/null &&
        PVN_SOFTVERBS_DIR='' of "$1" tool valgrind -q --tool=callgrind --separate-callers=16 --callgrind-out-file="$tmp/out" "${run[@]}" >/dev/null
}

# Instructions of the whole process per message, with those of the device and of the C library. They determine the
# processor time.
with_device() {
    local bytes depth mode few many
    printf '%-8s %8s %6s' profile bytes depth
    for mode in $modes ib $bare; do printf ' %9s' "$mode"; done
    echo "  with the device's"
    for bytes in 65536 1048576; do
        for depth in 1 8; do
            printf '%-8s %8s %6s' "$1" "$bytes" "$depth"
            for mode in $modes ib $bare; do
                few=$(executed "$mode" 200 "$bytes" "$depth")
                many=$(executed "$mode" 600 "$bytes" "$depth")
                printf ' %9s' $(((many - few) / 400))
            done
            echo
        done
    done
}
executed() {
    callgrind "$@" || { echo "callgrind failed" >&2; exit 3; }
    awk '$1 == "totals:" { print $2 }' "$tmp/out"
}

# Samples of the processors within each plugin's own object, in % of all samples of the run
shares_of() {
    local mode what object r
    command perf record -q -e cpu-clock -o "$tmp/perf.data" true >/dev/null 2>&1 ||
        { echo "skip shares: 'perf record -e cpu-clock' does not work here"; return; }
    printf '%-8s %-24s' profile "% of samples"
    for mode in $modes ib $bare; do printf ' %20s' "$mode"; done
    echo
    for what in "--sizes 8" "--sizes 4K" "--sizes 64K" "--sizes 4M" "--comms 16 --sizes 64K"; do
        rm -f "$tmp"/share.*
        for ((r = 1; r <= rounds; r++)); do
            for mode in $modes ib $bare; do
                object=$(object_of "$mode")
                # shellcheck disable=SC2086
                of "$mode" command perf record -q -F 2000 -e cpu-clock -o "$tmp/perf.data" "$build/pvn-perf" p2p --ranks 2 --memory pinned \
                    --quiet --plugin "x=$object" --bandwidth $what --time 0.5 >"$tmp/said" 2>&1 || { cat "$tmp/said" >&2; exit 3; }
                command perf report -i "$tmp/perf.data" --no-children --sort dso --stdio 2>/dev/null |
                    awk -v object="$(basename "$object")" '$2 == object { s = $1 } END { print s + 0 }' >>"$tmp/share.$mode"
            done
        done
        printf '%-8s %-24s' "$1" "$what"
        for mode in $modes ib $bare; do
            printf ' %20s' "$(sort -n "$tmp/share.$mode" | awk '{ v[NR] = $1 } END { printf "%.2f (%.2f..%.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }')"
        done
        echo
    done
}

measurement=0
# perf FILE arguments of pvn-perf: runs all plugins in turn
perf() {
    local out=$1 before after
    shift
    before=$("$build/tests/bench/core_distance")
    "$build/pvn-perf" p2p --ranks 2 --memory pinned --quiet "${plugins[@]}" "${settings[@]}" "$@" --csv "$tmp/one.csv" >"$tmp/said" 2>&1 || { cat "$tmp/said" >&2; exit 3; }
    after=$("$build/tests/bench/core_distance")
    measurement=$((measurement + 1))
    echo "$measurement,$before,$after" >>"$tmp/distance.csv"
    tail -n +2 "$tmp/one.csv" | grep -E ',(latency|bandwidth),' | grep -v ,histogram, | sed "s/^/$measurement,$before,$after,/" >>"$out"
}

for profile in $profiles; do
    NCCL_IB_GID_INDEX=$(gid_index "$profile")
    export PVN_SOFTVERBS_PROFILE=$profile NCCL_IB_GID_INDEX
    [[ -z $set_up ]] || { comms_at_once "$profile"; continue; }
    [[ -z $shares ]] || { shares_of "$profile"; continue; }
    if [[ -z $times ]]; then
        device_counts "$profile"
        doorbells_in_flight "$profile"
        if command -v valgrind >/dev/null; then instructions "$profile"; with_device "$profile"; else echo "instructions are not counted: there is no valgrind"; fi
        [[ -z $counts ]] || continue
        comms_at_once "$profile"
    fi
    for mode in $modes; do
        plugins=(--plugin "pvrdma=$own" --plugin "ib=$ib")
        [[ -z $bare ]] || plugins+=(--plugin "bare=$(object_of bare)")
        settings=(--env "pvrdma:NCCL_PVRDMA_RDMA_MODE=$mode")
        rm -f "$tmp"/*.csv
        perf /dev/null --check --bandwidth --sizes 8,4K,64K,1M --time 0.01
        rm -f "$tmp/distance.csv"
        measurement=0
        for ((r = 1; r <= rounds; r++)); do
            plugins=("${plugins[@]:2}" "${plugins[@]:0:2}")
            # Each size has processes of its own: the packets of small messages fragment the heap of software verbs,
            # which costs 4 MiB up to a quarter of their bandwidth.
            for size in 8 4K 64K 1M; do perf "$tmp/p2p.csv" --latency --sizes $size --time 0.4; done
            for size in 8 4K 64K 1M 4M; do perf "$tmp/p2p.csv" --bandwidth --sizes $size --time 0.4; done
            for n in ${comms//,/ }; do
                for size in 8 64K; do perf "$tmp/p2p.csv" --bandwidth --comms "$n" --sizes $size --time 0.4; done
            done
        done
        echo "profile $profile, $mode mode, $rounds rounds, $(nproc) CPUs, Linux $(uname -r)"
        awk -F, -v own=pvrdma -v order="pvrdma ib $bare" -f "$src/tests/bench/distance.awk" -f "$src/tests/bench/median.awk" -f "$src/tests/bench/tcp.awk" \
            "$tmp/distance.csv" "$tmp/p2p.csv"
    done
done
