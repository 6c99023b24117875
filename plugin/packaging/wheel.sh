#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel out of a source archive; `make wheel` calls it. auditwheel has the last word.
# usage: wheel.sh ARCHIVE OUTPUT-FOLDER     OUTPUT-FOLDER/portable keeps what the wheel is made of
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
    echo "wheel.sh: $1" >&2
    exit "${2:-1}"
}
[ $# = 2 ] || fail "usage: wheel.sh ARCHIVE OUTPUT-FOLDER"
archive=$1 out=$2
python=$("$here/portable/venv.sh") || exit
"$here/portable.sh" "$archive" "$out/portable"
version=$("$out/portable/usr/bin/pvn-perf" --version | sed -n 's/^pvn-perf \([0-9.]*\).*/\1/p')
[ -n "$version" ] || fail "pvn-perf --version names no version"
# All files of the archive have the time of the last commit.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$("$python" -c 'import sys, tarfile; print(int(max(m.mtime for m in tarfile.open(sys.argv[1]))))' "$archive")
fi
export SOURCE_DATE_EPOCH
rm -f "$out"/*.whl
wheel=$("$python" "$here/wheel/wheel.py" "$out/portable" "$version" "$out")
"$python" -m auditwheel show "$wheel" >"$out/auditwheel.log" 2>&1 || {
    cat "$out/auditwheel.log" >&2
    fail "auditwheel does not take $wheel"
}
# It names the oldest system that the wheel fits, which may be older than what the wheel promises.
minor=$(tr '\n' ' ' <"$out/auditwheel.log" | sed -n 's/.*platform tag: *"manylinux_2_\([0-9]*\)_x86_64".*/\1/p')
if [ "${minor:-99}" -gt 28 ]; then
    cat "$out/auditwheel.log" >&2
    fail "the wheel does not fit manylinux_2_28: see auditwheel's words above"
fi
echo "$wheel"
