#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Measures the cost of a key. This build's plugin runs without one (pvrdma), with one and ENCRYPT=control (control),
# and with sealed data, by the comm's thread (sealed) and by worker threads (k1, k2, k4): latency, bandwidth and
# processor time by tcp.sh, interleaved; 1, 64 and 512 comms set up at once, beside handshakes of OpenSSL alone
# (tls_floor.c). The floor is AES-128-GCM of one processor by `openssl speed`, a stream of OpenSSL alone in turn with
# the plugin's, and one of s_server and s_client. WireGuard, if the kernel has it, carries the plugin without a key.
# --parts: only these of traffic, set-up, floor and wireguard. --instructions: of the set-up also instructions, by callgrind.
# --guest: seal_guest.sh instead, with the options behind it.
# usage: tests/bench/seal.sh [--parts LIST] [--workers 1,2,4] [--rounds N] [--quick] [--instructions] [--build DIR] [OPTION of tcp.sh]...
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
[[ ${1:-} != --guest ]] || exec "$src/tests/bench/seal_guest.sh" "${@:2}"
build=$src/build rounds=5 workers=1,2,4 options=() seconds=2 parts=traffic,set-up,floor,wireguard instructions=
while (($#)); do
    case $1 in
    --parts) parts=$2; shift 2 ;;
    --workers) workers=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --instructions) instructions=1; shift ;;
    --quick) rounds=1 seconds=1 options+=(--quick); shift ;;
    --help) sed -n '4,/^[^#]/s/^# //p' "$0"; exit 0 ;;
    *) options+=("$1"); shift ;;
    esac
done
skip() { echo "skip bench-seal: $*"; exit 77; }
((EUID == 0)) || skip "network namespaces need root"
command -v openssl >/dev/null || skip "openssl is not installed"
grep -q 'define HAVE_OPENSSL 1' "$build/config.h" || skip "this build has no OpenSSL (configure --without-openssl)"
own=$build/.libs/libnccl-net-pvrdma.so
tmp=$(mktemp -d)
a=pvnW$$ b=pvnX$$ server=
cleanup() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
"$build/pvn-perf" --make-key "$tmp/key" >/dev/null
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# with NAME KEY=VALUE...: adds a plugin of that name for tcp.sh
sides=()
with() {
    local name=$1 setting
    shift
    sides+=(--plugin "$name=$own")
    for setting in "NCCL_PVRDMA_KEY_FILE=$tmp/key" "$@"; do sides+=(--env "$name:$setting"); done
}

traffic() {
    local n
    with control NCCL_PVRDMA_ENCRYPT=control
    with sealed
    for n in ${workers//,/ }; do with "k$n" "NCCL_PVRDMA_TCP_THREADS=$n"; done
    "$src/tests/bench/tcp.sh" --build "$build" --rounds "$rounds" "${sides[@]}" ${options[@]+"${options[@]}"} \
        --only latency:8,4K,64K --only bandwidth:64K,1M,8M
}

# Prints the environment of comms over TCP on lo, with the key or without.
of_kind() {
    echo NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_TRANSPORT=tcp NCCL_PVRDMA_STATS_DIR=none
    case $1 in
    pvrdma) echo NCCL_PVRDMA_KEY_FILE= ;;
    control) echo "NCCL_PVRDMA_KEY_FILE=$tmp/key" NCCL_PVRDMA_ENCRYPT=control ;;
    sealed) echo "NCCL_PVRDMA_KEY_FILE=$tmp/key" ;;
    esac
}

# The kinds take turns, so that other work on the machine affects all alike.
set_up() {
    local round count name
    make -C "$build" -s tests/bench/many_comms tests/bench/tls_floor >&2
    for ((round = 0; round < rounds; round++)); do
        for count in 1 64 512; do
            for name in pvrdma control sealed; do
                # shellcheck disable=SC2046
                env $(of_kind "$name") "$build/tests/bench/many_comms" "$own" "$count" | sed "s/^/$name $count /" >>"$tmp/comms"
            done
        done
        for count in 1 64; do
            "$build/tests/bench/tls_floor" 1024 "$count" | sed "s/^/alone $count /" >>"$tmp/comms"
        done
    done
    echo "comms set up at once, over TCP on lo: seconds, and processor seconds of both processes; medians of $rounds"
    for count in 1 64 512; do
        for name in pvrdma control sealed; do
            printf '%5d comms  %-8s %8.4f s  %8.4f cpu s\n' "$count" "$name" "$(comms_of "$name" "$count" 3)" "$(comms_of "$name" "$count" 4)"
        done
    done
    awk -v plain="$(comms_of pvrdma 64 4)" -v control="$(comms_of control 64 4)" -v sealed="$(comms_of sealed 64 4)" 'BEGIN {
        printf "processor us of a handshake, both ends, of 64 comms: control connection %.0f, stream %.0f; ", (control - plain) / 64 * 1e6,
            (sealed - control) / 64 * 1e6 }'
    printf 'OpenSSL alone, without a connection: %.0f one at a time (%.0f per second), %.0f of 64 at once\n' \
        "$(comms_of alone 1 4)" "$(comms_of alone 1 3)" "$(comms_of alone 64 4)"
    [[ -z $instructions ]] || set_up_instructions
}

comms_of() { awk -v n="$1" -v c="$2" -v field="$3" '$1 == n && $2 == c { print $field }' "$tmp/comms" | median; }

# instructions_of COMMAND...: appends each of two counts to COMMAND, and prints millions per one of the difference.
# All its processes count, in user space.
instructions_of() {
    local n total=()
    for n in 16 48; do
        rm -f "$tmp"/callgrind.*
        "$build/libtool" --mode=execute valgrind -q --tool=callgrind --callgrind-out-file="$tmp/callgrind.%p" "$@" "$n" >/dev/null
        total+=("$(cat "$tmp"/callgrind.* | awk '$1 == "totals:" { n += $2 } END { printf "%.0f", n }')")
    done
    awk -v d=$((total[1] - total[0])) 'BEGIN { printf "%.2f", d / 32 / 1e6 }'
}

set_up_instructions() {
    local name
    command -v valgrind >/dev/null || { echo "skip instructions: there is no valgrind (package valgrind)"; return; }
    echo "million instructions in user space, both ends (callgrind, whose processor has no instructions for SHA):"
    for name in pvrdma control sealed; do
        # shellcheck disable=SC2046
        echo "  a comm, $name: $(export $(of_kind "$name"); instructions_of "$build/tests/bench/many_comms" "$own")"
    done
    echo "  a handshake of OpenSSL alone: $(instructions_of "$build/tests/bench/tls_floor")"
}

# streams: measures a sender and a receiver of bulk over lo, two processes of a thread each, with OpenSSL alone and
# with the plugin
streams() {
    local name
    for ((round = 0; round < rounds; round++)); do
        "$build/tests/bench/tls_floor" stream >>"$tmp/alone"
        for name in pvrdma sealed; do
            # shellcheck disable=SC2046
            env $(of_kind "$name") "$build/pvn-perf" p2p --ranks 2 --plugin "$own" --bandwidth --sizes 1M --time "$seconds" --quiet --csv - 2>/dev/null |
                awk -F, '$4 == "bandwidth" { print $16 / 1000, $18 }' >>"$tmp/$name"
        done
    done
    awk -v alone="$(median_of alone 1)" -v ours="$(median_of sealed 1)" -v plain="$(median_of pvrdma 1)" -v rounds="$rounds" \
        -v cpu="$(median_of alone 2) $(median_of sealed 2) $(median_of pvrdma 2)" 'BEGIN {
        split(cpu, c, " ")
        printf "a stream over lo, medians of %d in turn: OpenSSL alone %.2f GB/s, %.2f processor s/GB; the plugin, messages of 1 MiB, sealed %.2f GB/s, %.2f s/GB, plain %.2f GB/s, %.2f s/GB; sealed to OpenSSL alone %.2f\n",
            rounds, alone, c[1], ours, c[2], plain, c[3], ours / alone }'
}

median_of() { awk -v field="$2" '{ print $field }' "$tmp/$1" | median; }

# floor: measures the least that sealing costs on this machine
floor() {
    local secret tls
    make -C "$build" -s tests/bench/tls_floor >&2
    echo "records of OpenSSL alone, both ends, over memory: $("$build/tests/bench/tls_floor" records) processor s/GB"
    streams
    openssl speed -seconds "$seconds" -bytes 16384 -evp aes-128-gcm 2>/dev/null |
        awk '/^AES-128-GCM/ { sub(/k$/, "", $2); printf "AES-128-GCM of one processor, blocks of 16 KiB: %.0f MB/s (openssl speed)\n", $2 / 1000 }'
    secret=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
    tls=(-tls1_3 -ciphersuites TLS_AES_128_GCM_SHA256 -psk "$secret" -quiet)
    # s_server ends with its input.
    openssl s_server "${tls[@]}" -nocert -naccept 1 -accept 127.0.0.1:29777 < <(sleep $((seconds + 10))) 2>/dev/null >"$tmp/got" &
    server=$!
    for _ in {1..100}; do
        ss -Hltn 'sport = :29777' | grep -q . && break
        sleep 0.05
    done
    timeout "$seconds" openssl s_client "${tls[@]}" -connect 127.0.0.1:29777 </dev/zero >"$tmp/said" 2>&1 || true
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
    awk -v bytes="$(stat -c %s "$tmp/got")" -v s="$seconds" \
        'BEGIN { printf "s_client to s_server over lo, into a file: %.0f MB/s\n", bytes / 1e6 / s }'
}

wireguard() {
    local n
    ip netns add "$a"
    ip netns add "$b"
    if ! ip -n "$a" link add wg0 type wireguard 2>/dev/null || ! command -v wg >/dev/null; then
        echo "skip WireGuard: the kernel has none, or wg (wireguard-tools) is not installed; --guest has one"
        return
    fi
    ip link add bench0 netns "$a" type veth peer name bench0 netns "$b"
    ip -n "$b" link add wg0 type wireguard
    for n in "$a" "$b"; do
        wg genkey >"$tmp/$n.key"
        ip -n "$n" link set lo up
        ip -n "$n" link set bench0 up
    done
    join "$a" 1 2 "$b"
    join "$b" 2 1 "$a"
    echo "over WireGuard (wg) and over the same pair without it, sealed by the plugin"
    NCCL_PVRDMA_TRANSPORT=tcp NCCL_PVRDMA_STATS_DIR=none "$build/pvn-perf" p2p --ranks 2 --netns "$a,$b" --sizes 8,64K,1M --time 0.5 --repeat "$rounds" \
        --plugin "wg=$own" --env wg:NCCL_SOCKET_IFNAME=wg0 --plugin "sealed=$own" --env sealed:NCCL_SOCKET_IFNAME=bench0 \
        --env "sealed:NCCL_PVRDMA_KEY_FILE=$tmp/key" --env sealed:NCCL_PVRDMA_ENCRYPT=all
}

join() {
    local n=$1 end=$2 peer=$3 other=$4
    ip -n "$n" addr add "198.18.4.$end/30" dev bench0
    ip -n "$n" addr add "198.18.8.$end/30" dev wg0
    ip netns exec "$n" wg set wg0 listen-port 51820 private-key "$tmp/$n.key" \
        peer "$(wg pubkey <"$tmp/$other.key")" endpoint "198.18.4.$peer:51820" allowed-ips 198.18.8.0/30
    ip -n "$n" link set wg0 up
}

for part in ${parts//,/ }; do
    case $part in
    traffic) traffic ;;
    set-up) set_up ;;
    floor) floor ;;
    wireguard) wireguard ;;
    *) echo "no part $part: traffic, set-up, floor, wireguard" >&2; exit 2 ;;
    esac
    echo
done
