# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the benchmarks over TCP: sets the congestion control of their network namespaces. Machines have
# different defaults, and ratios under cubic and bbr differ.
congestion_allow=/proc/sys/net/ipv4/tcp_allowed_congestion_control
congestion_allowed= # the machine's own list, once it was changed

# congestion_set NAME NAMESPACE...: returns 1, with the reason on stderr, if this kernel does not have it
congestion_set() {
    local key=net.ipv4.tcp_congestion_control name=$1 space
    shift
    for space; do
        ip netns exec "$space" sysctl -q -w "$key=$name" 2>/dev/null && continue
        # A namespace may only use algorithms that the machine allows to everybody. So this one is allowed during the
        # run.
        [[ -n $congestion_allowed ]] || congestion_allowed=$(<"$congestion_allow")
        if ! echo "$congestion_allowed $name" >"$congestion_allow" 2>/dev/null ||
            ! ip netns exec "$space" sysctl -q -w "$key=$name"; then
            echo "congestion control $name: this kernel has $(sysctl -n net.ipv4.tcp_available_congestion_control)" >&2
            return 1
        fi
    done
}

# congestion_of NAMESPACE: prints the congestion control
congestion_of() { ip netns exec "$1" sysctl -n net.ipv4.tcp_congestion_control; }

# Restores the machine's list of allowed algorithms.
congestion_restore() { [[ -z $congestion_allowed ]] || echo "$congestion_allowed" >"$congestion_allow"; }
