#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 1800
# Tests a release, which is made from a clean clone. Its binaries need no glibc newer than 2.28. pip installs the wheel,
# and removes it after use. Its programs run in a root with only a C library. In another folder the source archive is made
# from itself, and the wheel is packed again, to the same bytes. PVN_RELEASE_TWICE=1 makes the whole release there, which
# takes a minute of processor time more.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
# configure would choose bash, by which libtool takes twice the time that it takes by dash.
if [ -z "${CONFIG_SHELL:-}" ] && dash=$(command -v dash); then
    export CONFIG_SHELL=$dash
fi
# The archives need not be small here. Both releases are compressed alike.
export XZ_OPT=-0
packaging=$PVN_SRCDIR/plugin/packaging
name="a release is made"
skip() {
    echo "skip $name: $1"
    exit 0
}
# shellcheck source=tests/packaging/verdict.sh
. "$PVN_SRCDIR/tests/packaging/verdict.sh"
[ "$(uname -m)" = x86_64 ] || skip "it is written for x86_64"
[ ! -f "$PVN_SRCDIR/config.status" ] || skip "the source tree itself is configured"
python=$("$packaging/portable/venv.sh" 2>"$tmp/out")
case $? in
0) ;;
3) skip "PyPI cannot be reached: $(tail -n 1 "$tmp/out")" ;;
*) skip "$(tail -n 1 "$tmp/out")" ;;
esac

# The first release is made from the last commit, like from a clean clone; without a clean commit from the sources as
# they are.
commit() { git -C "$PVN_SRCDIR" rev-parse --verify HEAD >/dev/null 2>&1 && [ -z "$(git -C "$PVN_SRCDIR" status --porcelain --untracked-files=no)" ]; }
first=$tmp/one
if commit; then
    "$packaging/release.sh" "$first" >"$tmp/out" 2>&1
    verdict "a release is made from a clean clone by one command" $?
else
    echo "skip a release is made from a clean clone by one command: what is checked out is not a commit"
    mkdir "$tmp/build"
    (cd "$tmp/build" && "$PVN_SRCDIR/configure" -q && make -s dist-xz) >"$tmp/out" 2>&1
    verdict "the source archive" $?
    "$packaging/release.sh" "$first" "$tmp"/build/*.tar.xz >"$tmp/out" 2>&1
    verdict "a release is made from the source archive" $?
fi
[ -s "$first/SHA256SUMS" ] || exit 1

# The second one is made in another folder, with another umask.
version=$(sed -n 's/^AC_INIT(\[nccl-net-pvrdma\], \[\([^]]*\)\].*/\1/p' "$PVN_SRCDIR/configure.ac")
archive=nccl-net-pvrdma-$version.tar.xz
second=$tmp/else/where
mkdir -p "$second/build" "$second/portable" "$tmp/bin"
again() { (umask 077 && cd "$second/build" && "$@") >"$tmp/out" 2>&1; }
tar -C "$second" --strip-components=1 --one-top-level=src -xf "$first/$archive"
again ../src/configure -q
if [ -n "${PVN_RELEASE_TWICE:-}" ]; then
    again make -s release
    verdict "make release makes one in a configured tree" $?
    diff "$first/SHA256SUMS" "$second/build/packages/release/SHA256SUMS" >"$tmp/out" 2>&1
    verdict "both releases are the same, byte for byte" $?
else
    again make -s dist-xz && cmp "$first/$archive" "$second/build/$archive" >"$tmp/out" 2>&1
    verdict "the source archive makes the same archive again" $?
fi
tar -C "$tmp/bin" --strip-components=1 -xf "$first/nccl-net-pvrdma-$version-linux-x86_64.tar.xz"
ln -s "$tmp/bin" "$second/portable/usr"
again env SOURCE_DATE_EPOCH="$(stat -c %Y "$second/src/configure.ac")" "$packaging/wheel/wheel.py" "$second/portable" "$version" "$second" &&
    cmp "$first"/*.whl "$second"/*.whl >"$tmp/out" 2>&1
verdict "the same files make the same wheel again" $?
(cd "$first" && sha256sum -c SHA256SUMS && [ "$(find . -type f ! -name SHA256SUMS | wc -l)" = "$(wc -l <SHA256SUMS)" ]) >"$tmp/out" 2>&1
verdict "SHA256SUMS has each file of the release, and its sum" $?

# The library needs no newer symbols and no libraries that a minimal system lacks.
cmp "$first/libnccl-net-pvrdma.so" "$tmp/bin/lib/libnccl-net-pvrdma.so" >"$tmp/out" 2>&1
verdict "the library alone is that of the archive" $?
for f in lib/libnccl-net-pvrdma.so bin/pvn-perf bin/pvn-topo; do
    objdump -T "$tmp/bin/$f" >"$tmp/out" && grep -q 'GLIBC_2\.' "$tmp/out" && ! grep -E 'GLIBC_2\.(29|[3-9][0-9])' "$tmp/out"
    verdict "$f needs nothing newer than glibc 2.28" $?
    readelf -d "$tmp/bin/$f" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' >"$tmp/out"
    [ -s "$tmp/out" ] && ! grep -vE '^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux-x86-64\.so\.2)$' "$tmp/out"
    verdict "$f needs no library but the C library's" $?
    strings "$tmp/bin/$f" >"$tmp/out" && [ -s "$tmp/out" ] && ! grep -F "$tmp" "$tmp/out"
    verdict "$f does not name the folder that it was built in" $?
done
readelf -Ws --dyn-syms "$first/libnccl-net-pvrdma.so" | awk '$5 != "LOCAL" && $7 ~ /^[0-9]/ { print $8 }' | sort -u >"$tmp/out"
grep -q ncclNetPlugin_v12 "$tmp/out" && ! grep -v '^ncclNetPlugin_v' "$tmp/out"
verdict "the library exports NCCL's plugin symbols alone" $?

# The wheel is installed by pip.
use() { (cd / && env -i PATH="$tmp/venv/bin:/usr/bin:/bin" HOME="$tmp" NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo "$@") >"$tmp/out" 2>&1; }
wheel=$(echo "$first"/*.whl)
pip() { "$python" -m pip --disable-pip-version-check --python "$tmp/venv/bin/python3" "$@"; }
files() { find "$tmp/venv" -type f ! -name '*.pyc' | sort; }
pip_can() {
    python3 -m venv --without-pip "$tmp/venv" && files >"$tmp/before" && pip install --no-index --no-compile "$wheel"
}
pip_can >"$tmp/out" 2>&1
verdict "pip installs the wheel" $?
use nccl-net-pvrdma
so=$(cat "$tmp/out")
[ -r "$so" ] && [ "${so##*/}" = libnccl-net-pvrdma.so ]
verdict "nccl-net-pvrdma prints the library's path" $?
use "$tmp/venv/bin/python3" -c "import ctypes, sys; ctypes.CDLL(sys.argv[1]).ncclNetPlugin_v11" "$so"
verdict "that library can be loaded" $?
use pvn-perf p2p --sizes 64K --iters 4 --check --json "$tmp/perf.json" && grep -qF "$so" "$tmp/perf.json"
verdict "pvn-perf of the wheel carries data through the library of the wheel" $?
use env NCCL_NET_PLUGIN="$so" pvn-topo check
grep -q plugin "$tmp/out" && ! grep -E "plugin +.*(cannot be loaded|exports none)" "$tmp/out"
verdict "pvn-topo of the wheel loads the library of the wheel" $?
python3 - "$wheel" >"$tmp/out" 2>&1 <<'META'
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
fields = dict(s.split(":", 1) for s in z.read(next(n for n in z.namelist() if n.endswith("/METADATA"))).decode().split("\n\n")[0].split("\n"))
sys.exit("\n".join(k + " is empty" for k, v in fields.items() if not v.strip()) or (0 if "Author" in fields else "no author"))
META
verdict "the wheel names its authors, and no field of its description is empty" $?
use test -r "$tmp/venv/share/doc/nccl-net-pvrdma/docs/messages.md"
verdict "the wheel has the pages for users" $?
use man -w "$tmp/venv/share/man/man1/pvn-topo.1"
verdict "the wheel has the manual pages" $?
for folder in 'with,comma' "$(printf 'x%.0s' $(seq 220))/$(printf 'y%.0s' $(seq 40))"; do
    mkdir -p "$tmp/$folder"
    cp -r "$tmp"/venv/lib/python3*/site-packages/nccl_net_pvrdma "$tmp/$folder/"
    use env PYTHONPATH="$tmp/$folder" "$tmp/venv/bin/python3" -m nccl_net_pvrdma
    [ $? = 1 ] && grep -q "ln -s $tmp/$folder" "$tmp/out"
    verdict "a path that NCCL cannot take is an error with a remedy (${folder:0:12})" $?
done
pip uninstall -qy nccl-net-pvrdma >"$tmp/out" 2>&1 && files | diff "$tmp/before" - >"$tmp/out" 2>&1
verdict "pip removes each file of the wheel" $?

# libc_of CODENAME: makes a root with only the C library of that Debian, if the mirror has it
libc_of() {
    local uri path
    uri=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
    get() { timeout 60 /usr/lib/apt/apt-helper -q download-file "${uri%/}/$1" "$2"; }
    get "dists/$1/main/binary-amd64/Packages.xz" "$tmp/packages.xz" || return
    path=$(xz -dc "$tmp/packages.xz" | awk '$1 == "Package:" { libc = $2 == "libc6" } libc && $1 == "Filename:" { print $2; exit }')
    [ -n "$path" ] && get "$path" "$tmp/libc6.deb" && rm -rf "$tmp/root" && mkdir -p "$tmp/root/proc" "$tmp/root/tmp" "$tmp/root/dev/shm" &&
        dpkg -x "$tmp/libc6.deb" "$tmp/root" || return
    [ -e "$tmp/root/lib" ] || ln -s usr/lib "$tmp/root/lib"
    [ -e "$tmp/root/lib64" ] || ln -s usr/lib64 "$tmp/root/lib64"
    cp -r "$tmp/bin" "$tmp/root/pvn"
}
alone() {
    unshare -m --propagation private sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" /pvn/bin/"$@"' "$tmp/root" "$@" >"$tmp/out" 2>&1
}
for code in bullseye trixie; do
    what="with the C library of Debian's $code and nothing else"
    if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
        echo "skip the tools run $what: that needs root"
    elif ! libc_of "$code" >"$tmp/out" 2>&1; then
        echo "skip the tools run $what: the mirror of this machine's apt does not have it"
    else
        NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo alone pvn-perf p2p --sizes 64K --iters 4 --check
        verdict "pvn-perf carries data through the library $what" $?
        alone pvn-topo dump
        verdict "pvn-topo shows the machine $what" $?
    fi
done
