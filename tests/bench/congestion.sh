# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the benchmarks over TCP: the congestion control of their network namespaces. The machine's default is not
# the same everywhere, and ratios under cubic and bbr differ.
congestion_allow=/proc/sys/net/ipv4/tcp_allowed_congestion_control
congestion_allowed= # the machine's own list, once it was changed

# congestion_set NAME NAMESPACE...: status 1, with the reason on stderr, where this kernel does not have it.
congestion_set() {
    local key=net.ipv4.tcp_congestion_control name=$1 space
    shift
    for space; do
        ip netns exec "$space" sysctl -q -w "$key=$name" 2>/dev/null && continue
        # A namespace may only take what the machine allows to everybody: allow it for the time of the run.
        [[ -n $congestion_allowed ]] || congestion_allowed=$(<"$congestion_allow")
        if ! echo "$congestion_allowed $name" >"$congestion_allow" 2>/dev/null ||
            ! ip netns exec "$space" sysctl -q -w "$key=$name"; then
            echo "congestion control $name: this kernel has $(sysctl -n net.ipv4.tcp_available_congestion_control)" >&2
            return 1
        fi
    done
}

# congestion_of NAMESPACE
congestion_of() { ip netns exec "$1" sysctl -n net.ipv4.tcp_congestion_control; }

# Takes back what the machine was made to allow.
congestion_restore() { [[ -z $congestion_allowed ]] || echo "$congestion_allowed" >"$congestion_allow"; }
