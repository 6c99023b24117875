#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Builds everything inside Debian's newest stable release, with its compiler, warnings as errors and no precompiled
# header. This finds new warnings of the next compiler and missing #includes. Nothing is run there, so the compiler only
# checks the source of the C++ tests (-fsyntax-only), except one test, which is compiled and linked.
# The release and its build tree are in ${XDG_CACHE_HOME:-~/.cache}/nccl-net-pvrdma/debian-CODENAME (some 700 MB; remove
# it at any time). A second run compiles only what changed. Packages come from the mirror that this machine's apt uses.
# usage: newest-debian.sh      prints one line: "ok ...", "not ok ..." or "skip ...: why"; status 1 after "not ok"
set -u
src=$(cd "$(dirname "$0")/.." && pwd)
limit=${PVN_NEWEST_TIMEOUT:-900}
name="everything builds on Debian's newest stable"
skip() {
    echo "skip $name: $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "making a root directory for it needs root"
command -v debootstrap >/dev/null || skip "no debootstrap"
command -v apt-get >/dev/null || skip "no apt"
unshare -m true 2>/dev/null || skip "no mount namespaces here"

mirror=$(apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
    awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
[ -n "$mirror" ] || skip "apt has no Debian mirror"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout 30 /usr/lib/apt/apt-helper -q download-file "${mirror%/}/dists/stable/Release" "$work/release" >/dev/null 2>&1 ||
    skip "the mirror of this machine's apt has no stable release, or cannot be reached"
codename=$(sed -n 's/^Codename: //p' "$work/release")
[ -n "$codename" ] || skip "the mirror does not name its stable release"

tree=${XDG_CACHE_HOME:-$HOME/.cache}/nccl-net-pvrdma/debian-$codename
log=${PVN_NEWEST_LOG:-$work/log}
mkdir -p "${tree%/*}"
# One run at a time uses the tree. An incomplete tree is made again.
exec 9>"$tree.lock"
flock -w "$limit" 9 || skip "another run uses $tree"
packages=$(sed -n '/^build=(/,/)/p' "$src/tests/install-deps.sh" | sed 's/build=(//; s/)//' | tr -s ' \n' '  ')
packages=$(echo "$packages libgtest-dev binutils" | tr -s " " , | sed "s/^,//")
if [ "$(cat "$tree/.complete" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$tree"
    timeout -k 10 "$limit" debootstrap --variant=minbase --include="$packages" "$codename" "$tree" "$mirror" >"$log" 2>&1 ||
        skip "debootstrap $codename did not succeed: $(grep -E '^E:|rror' "$log" | tail -n 1)"
    echo "$packages" >"$tree/.complete"
fi

# Only sources are copied, so that the release's own autoreconf makes configure.
rm -rf "$tree/src"
mkdir -p "$tree/src" "$tree/build"
tar -C "$src" --exclude=./.git --exclude='./build*' --exclude=./configure --exclude=./aclocal.m4 --exclude=./Makefile.in \
    --exclude=./config.h.in --exclude=./autom4te.cache --exclude='./m4/l*' -cf - . | tar -C "$tree/src" --no-same-owner -xf -
timeout -k 10 "$limit" unshare -m --propagation private sh -c '
    mount -t proc proc "$0/proc"
    exec chroot "$0" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin PVN_JOBS="$1" \
        /src/tests/build-tree.sh /build --enable-werror --disable-pch -- check-source' \
    "$tree" "${PVN_JOBS:-$(nproc)}" >"$log" 2>&1 </dev/null
rc=$?
if [ $rc = 0 ]; then
    echo "ok $name ($codename, gcc $(chroot "$tree" gcc -dumpfullversion))"
    exit 0
fi
rm -rf "$tree/build" # an interrupted compiler may have left a partial file
tail -n 40 "$log"
echo "not ok $name ($codename): status $rc$([ $rc = 124 ] && echo ", not done in $limit s")"
exit 1
