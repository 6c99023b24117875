#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Two processes with a key: the bytes on the wire between them, and the errors of both ends if their keys differ. The
# script runs in namespaces of its own and records their loopback. It prints TAP-like lines for tests/run-all.
# usage: key.sh   (in the build directory, or with PVN_BUILDDIR)
# run-all once
set -u
build=${PVN_BUILDDIR:-$PWD}
grep -q 'define HAVE_OPENSSL 1' "$build/config.h" || { echo "skip a key between processes: this build has no OpenSSL"; exit 0; }
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] && unshare -n -u true 2>/dev/null || { echo "skip a key between processes: needs root and namespaces"; exit 0; }
    exec unshare -n -u "$0" inside
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
host=pvn-host-that-nobody-knows
hostname "$host" && ip link set lo up || exit 2
perf=$build/pvn-perf
export NCCL_SOCKET_IFNAME=lo NCCL_PVRDMA_TRANSPORT=tcp NCCL_PVRDMA_STATS_DIR=none NCCL_DEBUG=WARN
result() {
    if [ "$1" = 0 ]; then
        echo "ok $2"
    else
        echo "not ok $2"
        sed 's/^/    /' "$work/log" "$work/served" 2>/dev/null | tail -n 30
    fi
}

cat >"$work/record.py" <<'PY'
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("lo", 0))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
s.settimeout(0.2)
out = open(sys.argv[1], "wb")
print("ready", flush=True)
over = False
while True:
    try:
        out.write(s.recv(1 << 17))
    except TimeoutError:
        if over:
            break
        # The recording ends when the shell closes its end of this pipe.
        import select
        if select.select([sys.stdin], [], [], 0)[0] and not sys.stdin.read(1):
            over = True
PY
# recorded FILE COMMAND...: runs COMMAND, records the wire to FILE meanwhile, and returns COMMAND's status
recorded() {
    local file=$1 rc
    shift
    rm -f "$work/stop" "$work/ready"
    mkfifo "$work/stop"
    python3 "$work/record.py" "$file" <"$work/stop" >"$work/ready" &
    local pid=$!
    exec 9>"$work/stop"
    until grep -q ready "$work/ready" 2>/dev/null; do
        kill -0 "$pid" 2>/dev/null || return 99
        sleep 0.02
    done
    "$@" 9>&- >"$work/log" 2>&1
    rc=$?
    exec 9>&-
    wait "$pid" || rc=99
    return $rc
}
# These bytes are in HELLO and OFFER only: the host's name, and a lane's encoded kind and device.
names_on() { grep -qaF "$host" "$1"; }
offer_on() { LC_ALL=C grep -qaP '\x03tcp\x02lo' "$1"; }
transfer() { "$perf" p2p --sizes 8,64K,1M --iters 40 --check --verbose "$@"; }

recorded "$work/plain" transfer
result $? "without a key data pass"
names_on "$work/plain" && offer_on "$work/plain"
result $? "without a key the peers' names and offers are on the wire"

for name in right other; do
    "$perf" --make-key "$work/$name" || exit 2
done
# pieces_in FILE: prints how many of 40 pieces of the plain recording are in FILE, too. pvn-perf sends the same bytes
# each time.
pieces_in() {
    python3 - "$work/plain" "$1" <<'PY'
import sys
plain, other = (open(name, "rb").read() for name in sys.argv[1:])
at = range(len(plain) // 3, len(plain) - 32, len(plain) // 180)
pieces = [p for p in (plain[i:i + 32] for i in at) if len(set(p)) > 16][:40]
print(sum(p in other for p in pieces) if len(pieces) == 40 else -1)
PY
}
export NCCL_PVRDMA_KEY_FILE=$work/right NCCL_DEBUG=INFO
NCCL_PVRDMA_ENCRYPT=control recorded "$work/sealed" transfer
result $? "with ENCRYPT=control data pass"
grep -q 'control connections are sealed, data are not' "$work/log" && [ "$(grep -c 'control connection sealed, ' "$work/log")" -ge 2 ] &&
    ! grep -q 'sealed (TLS_' "$work/log"
result $? "the log says that the control connection is sealed, and that data are not"
! names_on "$work/sealed" && ! offer_on "$work/sealed"
result $? "with ENCRYPT=control neither the peers' names nor their offers are on the wire"
found=$(pieces_in "$work/sealed")
[ "$found" -gt 20 ]
result $? "with ENCRYPT=control data are on the wire as they are: $found of 40 pieces"
recorded "$work/sealed" transfer
result $? "with a key data pass"
grep -q 'control connections are sealed, and so are data over TCP' "$work/log" &&
    [ "$(grep -c 'control connection sealed, .* sealed (TLS_' "$work/log")" -ge 2 ]
result $? "the log says that the control connection and data over TCP are sealed"
found=$(pieces_in "$work/sealed")
[ "$found" = 0 ]
result $? "with a key data are not on the wire as they are: $found of 40 pieces"
export NCCL_DEBUG=WARN
[ "$(stat -c %s "$work/sealed")" -gt 10000000 ] && ! names_on "$work/sealed" && ! offer_on "$work/sealed"
result $? "with a key neither the peers' names nor their offers are on the wire"
! grep -qaF "$(cat "$work/right")" "$work/sealed"
result $? "the key is not on the wire"
recorded "$work/sealed" transfer --env NCCL_PVRDMA_TCP_STREAMS=4
result $? "with a key several streams of a lane find their connection"
NCCL_PVRDMA_ENCRYPT=control recorded "$work/sealed" transfer --env NCCL_PVRDMA_TCP_STREAMS=2
result $? "with ENCRYPT=control several streams of a lane find their connection"
recorded "$work/sealed" transfer --env NCCL_PVRDMA_TCP_THREADS=2
result $? "with a key worker threads seal"
recorded "$work/sealed" transfer --channels 16 --bidirectional
result $? "with a key 16 comms in both directions come up"

# meet KEY-OF-SERVER KEY-OF-CLIENT KEY-OF-THEIR-MEETING [ENCRYPT-OF-SERVER]: '' means no key. The first two keys are
# for the plugin alone. Returns the client's status, with the logs in served and log.
meet() {
    local pid rc i
    NCCL_PVRDMA_KEY_FILE=$3 NCCL_PVRDMA_ENCRYPT=${4:-auto} timeout -k 5 60 "$perf" serve 127.0.0.1:29500 \
        --env NCCL_PVRDMA_KEY_FILE="$1" --verbose --max-time 20 >"$work/served" 2>&1 &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        ss -Hltn 'sport = 29500' | grep -q . && break
        sleep 0.05
    done
    NCCL_PVRDMA_KEY_FILE=$3 timeout -k 5 60 "$perf" p2p 127.0.0.1:29500 --env NCCL_PVRDMA_KEY_FILE="$2" --sizes 8 --iters 10 \
        --verbose >"$work/log" 2>&1
    rc=$?
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    return $rc
}
# Only the two commands themselves exchange their options and hosts in this form.
options_on() { grep -qaF '"options"' "$1" && grep -qaF '"sizes"' "$1"; }
recorded "$work/plain" meet "" "" "" && options_on "$work/plain" && names_on "$work/plain"
result $? "without a key two commands meet, and what they say is on the wire"
recorded "$work/sealed" meet "$work/right" "$work/right" "$work/right"
result $? "two commands with the same key meet"
[ -s "$work/sealed" ] && ! options_on "$work/sealed" && ! names_on "$work/sealed"
result $? "with a key nothing that the two commands say is on the wire"
meet "$work/right" "$work/right" "$work/right" control && [ "$(cat "$work/log" "$work/served" | grep -c 'sealed (TLS_')" -ge 2 ] &&
    grep -q 'control connections are sealed, data are not' "$work/served"
result $? "where one end has ENCRYPT=control data are sealed"
meet "$work/right" "$work/other" ""
[ $? -gt 0 ] && cat "$work/log" "$work/served" | grep -q 'the listener refuses this end: it has another key' &&
    cat "$work/log" "$work/served" | grep -q 'was refused: it has another key'
result $? "another key is refused at both ends, with the reason"
meet "$work/right" "" ""
[ $? -gt 0 ] && grep -q "the peer's listener has a key .*, and this process has none" "$work/log" &&
    grep -q "this process has a key .*, and the peer's listener has none" "$work/served"
result $? "a client without a key is refused at both ends, with the reason"
meet "" "$work/right" ""
[ $? -gt 0 ] && grep -q "this process has a key .*, and the peer's listener has none" "$work/log" &&
    grep -q "the peer's listener has a key .*, and this process has none" "$work/served"
result $? "a server without a key is refused at both ends, with the reason"

# seen_as SEALED ENCRYPT: true if pvn-topo stat reports each connection of two running processes as SEALED
seen_as() {
    local pid said=0 i
    mkdir -p "$work/stats"
    NCCL_PVRDMA_STATS_DIR=$work/stats NCCL_PVRDMA_ENCRYPT=$2 "$perf" p2p --sizes 8 --latency --time 600 >"$work/log" 2>&1 &
    pid=$!
    for ((i = 0; i < 1200; i++)); do
        NCCL_PVRDMA_STATS_DIR=$work/stats "$build/topo/pvn-topo" --json stat >"$work/served" 2>&1
        said=$(grep -c "\"sealed\": \"$1\"" "$work/served")
        [ "$said" -ge 4 ] && break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    [ "$said" -ge 4 ] && [ "$(grep -c '"sealed": "' "$work/served")" = "$said" ]
}
seen_as control control && seen_as data auto && seen_as data all
result $? "the statistics say of each connection what is sealed"

transfer --abi 4 >"$work/log" 2>&1
[ $? -gt 0 ] && grep -q 'needs version 5 of NCCL.s interface' "$work/log"
result $? "version 4 of NCCL's interface is refused with a key"
chmod 644 "$work/right"
transfer >"$work/log" 2>&1
[ $? -gt 0 ] && grep -q 'others than its owner may use .* (mode 0644): .*`chmod 600` it' "$work/log"
result $? "a key that others may read ends the start, with the remedy"
