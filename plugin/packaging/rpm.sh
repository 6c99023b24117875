#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Builds the RPM packages out of a source archive; `make rpm` calls it.
# usage: rpm.sh ARCHIVE OUTPUT-FOLDER [rpmbuild options...]     e.g. --nodeps where the build packages have other names
set -eu
fail() {
    echo "rpm.sh: $1" >&2
    exit 1
}
[ $# -ge 2 ] || fail "usage: rpm.sh ARCHIVE OUTPUT-FOLDER [rpmbuild options...]"
archive=$(readlink -f "$1")
[ -f "$archive" ] || fail "$1: no such archive (make dist)"
command -v rpmbuild >/dev/null || fail "there is no rpmbuild: dnf install rpm-build, or apt-get install rpm"
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
rm -rf "$out/scratch"
mkdir -p "$out/scratch/SOURCES"
cp "$archive" "$out/scratch/SOURCES/"
tar -xf "$archive" -O --wildcards '*/plugin/packaging/rpm/nccl-net-pvrdma.spec' >"$out/scratch/nccl-net-pvrdma.spec"
unset MAKEFLAGS MFLAGS MAKELEVEL
echo "rpm.sh: the packages, which takes minutes; the log is $out/build.log" >&2
rpmbuild -bb --define "_topdir $out/scratch" "$@" "$out/scratch/nccl-net-pvrdma.spec" >"$out/build.log" 2>&1 || {
    tail -n 20 "$out/build.log" >&2
    fail "the packages do not build; the whole log is $out/build.log"
}
rm -f "$out"/*.rpm
find "$out/scratch/RPMS" -name '*.rpm' -exec mv {} "$out/" \;
rm -rf "$out/scratch"
ls "$out"/*.rpm
