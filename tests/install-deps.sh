#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian or Ubuntu packages that building (and with --tests, testing) needs and that are missing.
# Uses sudo only if a package is missing and the caller is not root. Prints its actions.
# usage: install-deps.sh [--tests]
set -eu
build=(gcc g++ make autoconf automake libtool pkg-config libibverbs-dev libnl-3-dev libnl-route-3-dev libssl-dev
       libpci-dev libexpat1-dev libjansson-dev)
# iproute2 and procps are for network namespaces and limits. The VM tests fetch their kernels with apt themselves.
tests=(build-essential libgtest-dev binutils bzip2 file iproute2 procps python3 python3-venv python3-jsonschema graphviz
       hwloc libhwloc-dev ibverbs-providers ibverbs-utils perftest rdma-core
       qemu-system-x86 busybox-static cpio kmod xz-utils zstd
       debootstrap clang-format shellcheck codespell man-db mandoc debhelper lintian rpm valgrind)

want=("${build[@]}")
[ "${1:-}" = --tests ] && want+=("${tests[@]}")

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "install-deps: this is not Debian or Ubuntu; make sure that you have the equivalents of:" >&2
    echo "  ${want[*]}" >&2
    exit 0
fi
missing=()
for p in "${want[@]}"; do
    s=$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null || true)
    [ "$s" = "install ok installed" ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install-deps: missing packages and neither root nor sudo. As root, run:" >&2
        echo "  apt-get update && apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "install-deps: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 </dev/null || {
        tail -n 20 "$log" >&2
        echo "install-deps: '$*' failed" >&2
        exit 1
    }
}
run apt-get update
run apt-get install -y --no-install-recommends "${missing[@]}"
