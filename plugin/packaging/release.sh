#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Makes what a release consists of, the same bytes from the same commit: source archive, wheel, the library alone, an
# archive of library and tools, a bill of materials (SPDX) and the SHA-256 of each. `make release` calls it with the archive of
# `make dist`; without one it makes that out of the last commit of this clone, and needs nothing configured.
# usage: release.sh OUTPUT-FOLDER [ARCHIVE]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fail() {
    echo "release.sh: $1" >&2
    exit "${2:-1}"
}
[ $# = 1 ] || [ $# = 2 ] || fail "usage: release.sh OUTPUT-FOLDER [ARCHIVE]"
[ $# = 2 ] || "$here/needs.sh" release.sh git:git:git xz:xz-utils:xz autoreconf:autoconf:autoconf \
    automake:automake:automake libtoolize:libtool:libtool make:make:make gcc:gcc:gcc pkg-config:pkg-config:pkgconf-pkg-config \
    python3:python3-venv:python3-pip infiniband/verbs.h:libibverbs-dev:rdma-core-devel libnl3/netlink/netlink.h:libnl-3-dev:libnl3-devel \
    libnl3/netlink/route/link.h:libnl-route-3-dev:libnl3-devel pci/pci.h:libpci-dev:pciutils-devel \
    expat.h:libexpat1-dev:expat-devel jansson.h:libjansson-dev:jansson-devel \
    openssl/ssl.h:libssl-dev:openssl-devel
mkdir -p "$1"
out=$(cd "$1" && pwd)
python=$("$here/portable/venv.sh") || exit
rm -rf "$out/work"
mkdir "$out/work"
unset MAKEFLAGS MFLAGS MAKELEVEL

# The archive of the last commit; nothing is written into the clone.
from_commit() {
    git -C "$here/../.." archive --format=tar --prefix=src/ HEAD | tar -C "$out/work" -xf - &&
        mkdir "$out/work/build" && cd "$out/work/build" &&
        (cd ../src && autoreconf -fi) && ../src/configure -q && make -s dist-xz
}
if [ $# = 2 ]; then
    archive=$(readlink -f "$2")
    [ -f "$archive" ] || fail "$2: no such archive (make dist)"
else
    SOURCE_DATE_EPOCH=$(git -C "$here" log -1 --format=%ct) || fail "this is no git clone: name an archive that make dist has made"
    export SOURCE_DATE_EPOCH
    echo "release.sh: the source archive; the log is dist.log in the work folder of $out" >&2
    (from_commit) >"$out/work/dist.log" 2>&1 || {
        tail -n 15 "$out/work/dist.log" >&2
        fail "the source archive was not made; the whole log is $out/work/dist.log"
    }
    archive=$(echo "$out"/work/build/nccl-net-pvrdma-*.tar.xz)
fi
name=$(basename "$archive" .tar.xz)
# All files of the archive have the time of the last commit.
epoch=$("$python" -c 'import sys, tarfile; print(int(max(m.mtime for m in tarfile.open(sys.argv[1]))))' "$archive")
export SOURCE_DATE_EPOCH=$epoch
wheel=$("$here/wheel.sh" "$archive" "$out/work/wheel")
rm -f "$out"/nccl?net?pvrdma-* "$out/libnccl-net-pvrdma.so" "$out/recipe.yaml" "$out/SHA256SUMS"
mkdir "$out/release"
cp "$archive" "$wheel" "$out/work/wheel/portable/usr/lib/libnccl-net-pvrdma.so" "$out/release/"
tar -C "$out/work/wheel/portable" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@$epoch" --transform "s,^usr,$name-linux-x86_64," -cf - usr | xz -T1 >"$out/release/$name-linux-x86_64.tar.xz"
sum=$(sha256sum <"$archive")
sed "s/@VERSION@/${name##*-}/; s/@SHA256@/${sum%% *}/" "$here/conda/recipe.yaml.in" >"$out/release/recipe.yaml"
sbom=$out/release/$name.spdx.json
"$python" "$here/release/sbom.py" "$out/release" "$name" "$epoch" "$out/work/wheel/portable/linked" "$here/portable/requirements.txt" >"$sbom"
"$python" -m spdx_tools.spdx.clitools.pyspdxtools -i "$sbom" >"$out/work/spdx.log" 2>&1 || {
    cat "$out/work/spdx.log" >&2
    fail "spdx-tools does not take $sbom"
}
(cd "$out/release" && sha256sum -- * >SHA256SUMS)
mv "$out"/release/* "$out/"
rm -rf "${out:?}/release" "$out/work"
cat "$out/SHA256SUMS"
