#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one tree out of the source. Prints nothing but errors. The tree is configured again if the flags
# changed, or the packages that configure looks for, because configure would not notice packages installed later. It is
# compiled again if the compiler's flags changed.
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
# ccache, if it is used, caches compilations with a precompiled header only with this setting.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
# configure would choose bash, by which libtool takes twice the time that it takes by dash.
if [ -z "${CONFIG_SHELL:-}" ] && dash=$(command -v dash); then
    export CONFIG_SHELL=$dash
fi
mkdir -p "$dir"
log=$dir/build.log
: >"$log"
fail() {
    grep -E 'error|Error|\*\*\*' "$log" | head -n 30 >&2 || true
    tail -n 15 "$log" >&2
    echo "build: $1 failed; the whole log is $log" >&2
    exit 1
}
# found: prints the packages that configure looks for, with their present versions
found() {
    local m
    for m in gtest_main libnl-3.0 libnl-route-3.0 expat jansson libpci libibverbs; do
        echo "$m $(pkg-config --modversion "$m" 2>/dev/null || echo none)"
    done
    for m in /usr/include/infiniband/verbs.h /usr/local/cuda/include/cuda.h; do
        [ ! -r "$m" ] || echo "$m"
    done
    "${CC:-gcc}" -dumpfullversion 2>/dev/null || true
}
if [ ! -x "$src/configure" ] || [ "$src/configure.ac" -nt "$src/configure" ]; then
    (cd "$src" && autoreconf -fi) >>"$log" 2>&1 || fail autoreconf
fi
made_for="${flags[*]-}
$(found)"
if [ ! -f "$dir/Makefile" ] || [ "$(cat "$dir/made-for" 2>/dev/null)" != "$made_for" ]; then
    (cd "$dir" && "$src/configure" -q ${flags[@]+"${flags[@]}"}) >>"$log" 2>&1 || fail configure
    echo "$made_for" >"$dir/made-for"
fi
# make does not compare the flags of existing objects, so all objects are removed if the flags changed.
make -C "$dir" -s Makefile >>"$log" 2>&1 || fail configure
grep -E '^(CC|CXX|CPPFLAGS|CFLAGS|CXXFLAGS|AM_[A-Z]*FLAGS|PVN_[A-Z_]*FLAGS) =' "$dir/Makefile" >"$dir/compiled-by.now"
if ! cmp -s "$dir/compiled-by.now" "$dir/compiled-by"; then
    make -C "$dir" -s clean >>"$log" 2>&1 || fail clean
    mv "$dir/compiled-by.now" "$dir/compiled-by"
fi
rm -f "$dir/compiled-by.now"
make -C "$dir" -s -j"$jobs" "$@" >>"$log" 2>&1 || fail make
