#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one tree out of the source, anew only when the flags changed; prints nothing but errors.
# usage: build-tree.sh DIR [configure options...] [-- make targets...]
set -eu
src=$(cd "$(dirname "$0")/.." && pwd)
dir=$1
shift
flags=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    flags+=("$1")
    shift
done
[ $# -gt 0 ] && shift
jobs=${PVN_JOBS:-$(nproc)}
# ccache, where it is in use, keeps what was compiled with a precompiled header only when allowed to.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
mkdir -p "$dir"
log=$dir/build.log
: >"$log"
fail() {
    grep -E 'error|Error|\*\*\*' "$log" | head -n 30 >&2 || true
    tail -n 15 "$log" >&2
    echo "build: $1 failed; the whole log is $log" >&2
    exit 1
}
if [ ! -x "$src/configure" ] || [ "$src/configure.ac" -nt "$src/configure" ]; then
    (cd "$src" && autoreconf -fi) >>"$log" 2>&1 || fail autoreconf
fi
if [ ! -f "$dir/Makefile" ] || [ "$(cat "$dir/flags" 2>/dev/null)" != "${flags[*]-}" ]; then
    (cd "$dir" && "$src/configure" -q ${flags[@]+"${flags[@]}"}) >>"$log" 2>&1 || fail configure
    echo "${flags[*]-}" >"$dir/flags"
fi
make -C "$dir" -s -j"$jobs" "$@" >>"$log" 2>&1 || fail make
