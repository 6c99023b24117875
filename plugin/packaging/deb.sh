#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages out of a source archive; `make deb` calls it.
# usage: deb.sh ARCHIVE OUTPUT-FOLDER     DEB_BUILD_OPTIONS (noopt, nocheck, parallel=N, ...) as for any package
set -eu
fail() {
    echo "deb.sh: $1" >&2
    exit 1
}
[ $# = 2 ] || fail "usage: deb.sh ARCHIVE OUTPUT-FOLDER"
archive=$(readlink -f "$1")
[ -f "$archive" ] || fail "$1: no such archive (make dist)"
command -v dpkg-buildpackage >/dev/null || fail "there is no dpkg-buildpackage: apt-get install build-essential debhelper"
mkdir -p "$2"
out=$(cd "$2" && pwd)
rm -rf "$out/scratch"
mkdir "$out/scratch"
tar -C "$out/scratch" --strip-components=1 --one-top-level=src -xf "$archive"
cp -r "$out/scratch/src/plugin/packaging/debian" "$out/scratch/src/debian"
# The settings of a make that called this are none of the package's business.
unset MAKEFLAGS MFLAGS MAKELEVEL
echo "deb.sh: the packages, which takes minutes; the log is $out/build.log" >&2
(cd "$out/scratch/src" && dpkg-buildpackage --no-sign --build=binary) >"$out/build.log" 2>&1 || {
    tail -n 20 "$out/build.log" >&2
    fail "the packages do not build; the whole log is $out/build.log"
}
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo
mv "$out"/scratch/*.deb "$out"/scratch/*.changes "$out"/scratch/*.buildinfo "$out"
rm -rf "$out/scratch"
ls "$out"/*.deb
