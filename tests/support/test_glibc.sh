#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 900
# The shared object, built for glibc 2.28 (RHEL 8; Ubuntu 20.04 has 2.31), needs nothing newer. zig's C compiler builds
# for any version of glibc: a function that is newer does not link. It is a package of PyPI: pip install ziglang.
# ZIG names the command otherwise, e.g. "python3 -m ziglang".
set -u
name="built for glibc 2.28, the plugin needs nothing newer"
skip() {
    echo "skip $name: $1"
    exit 0
}
if [ -z "${ZIG:-}" ]; then
    if command -v zig >/dev/null; then
        ZIG=zig
    elif python3 -c 'import ziglang' 2>/dev/null; then
        ZIG="python3 -m ziglang"
    else
        skip "there is no zig (pip install ziglang)"
    fi
fi
command -v objdump >/dev/null || skip "there is no objdump (binutils)"
[ "$(uname -m)" = x86_64 ] || skip "it is written for x86_64"
[ ! -f "$PVN_SRCDIR/config.status" ] || skip "the source tree itself is configured"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS
# Not all of /usr/include, whose libc headers are those of this machine.
mkdir "$work/include" "$work/b"
ln -s /usr/include/infiniband /usr/include/rdma /usr/include/libnl3 "$work/include/"
printf '#!/bin/sh\nexec %s cc -target x86_64-linux-gnu.2.28 "$@"\n' "$ZIG" >"$work/cc"
chmod +x "$work/cc"
cd "$work/b" || exit 1
if ! "$PVN_SRCDIR/configure" -q --disable-tools CC="$work/cc" CFLAGS=-O1 CPPFLAGS="-I$work/include" \
    NL_CFLAGS="-I$work/include/libnl3" NL_LIBS=" " >log 2>&1 ||
    ! make -s -j"${PVN_JOBS:-$(nproc)}" libnccl-net-pvrdma.la >>log 2>&1; then
    grep -E 'error|undefined' log | head -n 20
    tail -n 5 log
    echo "not ok $name: it does not build"
    exit 1
fi
newer=$(objdump -T .libs/libnccl-net-pvrdma.so | grep -oE 'GLIBC_2\.(29|[3-9][0-9]).*' | sort -u)
if [ -n "$newer" ] || ! objdump -T .libs/libnccl-net-pvrdma.so | grep -q 'GLIBC_2\.'; then
    echo "$newer"
    echo "not ok $name"
    exit 1
fi
echo "ok $name"
