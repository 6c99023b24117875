#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Builds the plugin and the tools out of a source archive for x86_64 and glibc 2.28 (RHEL 8, Debian 10, Ubuntu 20.04)
# and whatever is newer: into OUTPUT-FOLDER/usr, as they are installed. zig's C compiler links against any version of
# glibc; expat and jansson are linked into the tools; everything else is loaded at run time where it is there.
# usage: portable.sh ARCHIVE OUTPUT-FOLDER     OUTPUT-FOLDER/linked has the versions of expat and jansson
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
    echo "portable.sh: $1" >&2
    exit "${2:-1}"
}
[ $# = 2 ] || fail "usage: portable.sh ARCHIVE OUTPUT-FOLDER"
archive=$(readlink -f "$1")
[ -f "$archive" ] || fail "$1: no such archive (make dist)"
[ "$(uname -m)" = x86_64 ] || fail "it is written for x86_64, and this machine is $(uname -m)"
python=$("$here/portable/venv.sh") || exit
# The compiler itself: Python would be started for each file.
zig=$("$python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
mkdir -p "$2"
out=$(cd "$2" && pwd)
rm -rf "$out/scratch" "${out:?}/usr"
mkdir -p "$out/scratch/include" "$out/scratch/lib" "$out/scratch/build"
cd "$out/scratch"
tar --strip-components=1 --one-top-level=src -xf "$archive"

# All of /usr/include would bring the libc headers of this machine.
triplet=$(gcc -print-multiarch 2>/dev/null || true)
for f in infiniband rdma libnl3 pci expat.h expat_external.h expat_config.h jansson.h jansson_config.h; do
    for dir in /usr/include "/usr/include/$triplet"; do
        [ ! -e "$dir/$f" ] || ln -sf "$dir/$f" include/
    done
done
# A part of these depends on the machine, and lies in a folder of its own.
mkdir -p include/openssl
for dir in /usr/include "/usr/include/$triplet"; do
    for f in "$dir"/openssl/*.h; do
        [ ! -e "$f" ] || ln -sf "$f" include/openssl/
    done
done
licenses=$out/usr/share/licenses/nccl-net-pvrdma
for lib in expat jansson; do
    for f in "/usr/share/doc/lib$lib"*-dev/copyright "/usr/share/licenses/$lib/"*; do
        [ ! -f "$f" ] || install -D -m 644 "$f" "$licenses/$lib"
    done
    [ -f "$licenses/$lib" ] || fail "the licence of $lib is not in /usr/share/doc: install its -dev package with its documents"
    for dir in "/usr/lib/$triplet" /usr/lib64; do
        [ ! -e "$dir/lib$lib.a" ] || cp "$dir/lib$lib.a" lib/
    done
    [ -e "lib/lib$lib.a" ] || fail "there is no lib$lib.a: apt-get install libexpat1-dev libjansson-dev"
done
printf '#!/bin/sh\nexec "%s" cc -target x86_64-linux-gnu.2.28 "$@"\n' "$zig" >cc
chmod +x cc
log=$out/build.log
# The settings of a make that called this are none of the build's business.
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS LDFLAGS
build() {
    ./cc -O2 -fPIC -c "$here/portable/compat.c" -o compat.o &&
        ar crD lib/libcompat.a compat.o &&
        cd build &&
        ../src/configure -q --prefix=/usr --libdir=/usr/lib --disable-dependency-tracking --without-cuda \
            CC="../cc" CFLAGS="-O2 -fPIC -fstack-protector-strong -Werror=date-time" LDFLAGS="-pie" \
            CPPFLAGS="-I../include" NL_CFLAGS="-I../include/libnl3" NL_LIBS=" " \
            EXPAT_CFLAGS=" " EXPAT_LIBS="-L../lib -lexpat -lcompat" \
            JANSSON_CFLAGS=" " JANSSON_LIBS="-L../lib -ljansson -lcompat" &&
        make -s -j"${PVN_JOBS:-$(nproc)}" all &&
        make -s install-strip DESTDIR="$out"
}
install -D -m 644 src/LICENSE "$licenses/LICENSE"
# Libraries that are linked into the tools, for the bill of materials.
for lib in expat jansson; do
    echo "$lib $(pkg-config --modversion "$lib")"
done >"$out/linked"
echo "portable.sh: the library and the tools, for glibc 2.28, which takes minutes; the log is $log" >&2
build >"$log" 2>&1 || {
    grep -E 'error|undefined' "$log" | head -n 20 >&2
    tail -n 5 "$log" >&2
    fail "the build for glibc 2.28 failed; the whole log is $log"
}
rm -rf "$out"/usr/lib/*.la "$out"/usr/lib/pkgconfig
cd "$out"
rm -rf "$out/scratch"
