#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 900
# Tests the Debian and RPM packages. They are built from the source archive, installed in a throwaway root (this machine's
# own root below an overlay that takes every change), used there, and removed without a trace.
set -u
build=$PVN_BUILDDIR
tmp=$(mktemp -d)
name=pvn-packages-$$
trap 'chmod -R u+w "$build/$name" 2>/dev/null; rm -rf "$tmp" "$build/$name" "$build/$name.tar.xz"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
# configure would choose bash, by which libtool takes twice the time that it takes by dash.
if [ -z "${CONFIG_SHELL:-}" ] && dash=$(command -v dash); then
    export CONFIG_SHELL=$dash
fi

# shellcheck source=tests/packaging/verdict.sh
. "$PVN_SRCDIR/tests/packaging/verdict.sh"

# in_root SCRIPT: runs it in the throwaway root, where the packages are in /packages. Its changes stay in $tmp/layer/up.
in_root() {
    unshare -m --propagation private bash -c '
        mount -t tmpfs none "$0/layer" && mkdir "$0/layer/up" "$0/layer/work" "$0/layer/root" || exit 90
        mount -t overlay overlay -o "lowerdir=/,upperdir=$0/layer/up,workdir=$0/layer/work" "$0/layer/root" || exit 90
        root=$0/layer/root
        mkdir -p "$root/packages" && mount --bind "$0/packages" "$root/packages" && mount --rbind /dev "$root/dev" &&
            mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" || exit 90
        chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "$1"
        rc=$?
        umount -R "$root"
        # Files of theirs that are left anywhere, but for the package managers own records and caches.
        find "$0/layer/up" ! -type d \( -name "*pvrdma*" -o -name "pvn-*" \) -printf "/%P\n" | grep -vE "^/(var/|packages)" >"$0/left"
        exit $rc' "$tmp" "$1" >"$tmp/out" 2>&1 </dev/null
}

# A script that uses the installed packages as a user does. The loader must find the library by its name alone, because
# NCCL loads it so.
use='
    python3 -c "import ctypes; ctypes.CDLL(\"libnccl-net-pvrdma.so\").ncclNetPlugin_v11" || exit 11
    grep -q libnccl-net-pvrdma.so <(python3 -c "
import ctypes
ctypes.CDLL(\"libnccl-net-pvrdma.so\")
print(open(\"/proc/self/maps\").read())") || exit 12
    [ "$(command -v pvn-perf)" = /usr/bin/pvn-perf ] || exit 13
    NCCL_PVRDMA_TRANSPORT=tcp NCCL_SOCKET_IFNAME=lo pvn-perf p2p --sizes 64K --iters 4 --check || exit 14
    NCCL_NET_PLUGIN=pvrdma pvn-topo check >/tmp/check
    grep -E "plugin +.*(cannot be loaded|no interface)" /tmp/check && exit 15
    rm -f /tmp/check
    ls /usr/share/man/man7/nccl-net-pvrdma.7* || exit 19
    for page in NEWS USERS.md docs/messages.md docs/troubleshooting.md docs/vsphere.md; do
        ls /usr/share/doc/*nccl-net-pvrdma/$page* || exit 20
    done
    for t in pvn-perf pvn-topo; do
        ls /usr/share/man/man1/$t.1* /usr/share/bash-completion/completions/$t* || exit 16
    done
'
can_root() {
    [ "$(id -u)" = 0 ] || { why="a throwaway root needs root"; return 1; }
    in_root "touch /usr/pvn-left" || { why="no overlay of the root directory can be mounted here"; return 1; }
    [ "$(cat "$tmp/left")" = /usr/pvn-left ]
    verdict "a file that is left behind would be seen" $?
    return 0
}
mkdir "$tmp/packages" "$tmp/layer"
why='' rooted=0
can_root || rooted=1

(cd "$build" && XZ_OPT=-0 make -s dist-xz distdir="$name") >"$tmp/out" 2>&1 || { verdict "the source archive" 1; exit 1; }
version=$(sed -n 's/^AC_INIT(\[nccl-net-pvrdma\], \[\([^]]*\)\].*/\1/p' "$PVN_SRCDIR/configure.ac")
mkdir "$tmp/src"
# rpm unpacks NAME-VERSION.
tar -C "$tmp/src" --strip-components=1 --one-top-level="nccl-net-pvrdma-$version" -xf "$build/$name.tar.xz"
archive=$tmp/nccl-net-pvrdma-$version.tar.xz
XZ_OPT=-0 tar -C "$tmp/src" -cJf "$archive" "nccl-net-pvrdma-$version"
grep -q "^nccl-net-pvrdma ($version-" "$PVN_SRCDIR/plugin/packaging/debian/changelog" &&
    grep -q "^Version: *$version\$" "$PVN_SRCDIR/plugin/packaging/rpm/nccl-net-pvrdma.spec"
verdict "the packages have the version of configure.ac ($version)" $?

# The packages are compiled without optimisation, which this test does not need.
debian() {
    DEB_BUILD_OPTIONS="noopt noautodbgsym parallel=${PVN_JOBS:-$(nproc)}" \
        "$PVN_SRCDIR/plugin/packaging/deb.sh" "$archive" "$tmp/deb" >"$tmp/out" 2>&1
    local rc=$?
    cat "$tmp/deb/build.log" >>"$tmp/out"
    verdict "the Debian packages are built, and carry data as they are" $rc
    [ $rc = 0 ] || return
    if [ $rooted != 0 ]; then
        echo "skip the Debian packages installed: $why"
    else
        rm -f "$tmp"/packages/*
        cp "$tmp"/deb/*.deb "$tmp/packages/"
        in_root "dpkg -i /packages/*.deb || exit 10
            $use
            dpkg --purge pvn-tools libnccl-net-pvrdma || exit 17
            [ ! -e /usr/bin/pvn-perf ]"
        verdict "the Debian packages are installed, used and removed" $?
        cp "$tmp/left" "$tmp/out"
        [ ! -s "$tmp/left" ]
        verdict "the Debian packages leave nothing behind" $?
    fi
    if command -v lintian >/dev/null; then
        # --fail-on none, because other values also count the exceptions if they are shown.
        lintian --allow-root --show-overrides --fail-on none "$tmp"/deb/*.changes >"$tmp/out" 2>&1 && ! grep '^[EW]:' "$tmp/out"
        verdict "lintian has no error and no warning about the Debian packages" $?
        # lintian must still find each exception that debian/*.lintian-overrides names with its reason.
        sed -n 's/^O: \([^ ]*\): \([^ ]*\).*/\1: \2/p' "$tmp/out" | sort -u >"$tmp/found"
        sed -n 's/^\([a-z][^ ]*: [^ ]*\).*/\1/p' "$PVN_SRCDIR"/plugin/packaging/debian/*.lintian-overrides | sort -u >"$tmp/named"
        diff "$tmp/named" "$tmp/found" >"$tmp/out" 2>&1
        verdict "lintian finds each of the exceptions that the packages name" $?
    else
        echo "skip lintian: it is not installed (tests/install-deps.sh --tests)"
    fi
}

fedora() {
    # Debian's rpmbuild knows neither Fedora's macros for flags nor its names of packages.
    "$PVN_SRCDIR/plugin/packaging/rpm.sh" "$archive" "$tmp/rpm" --nodeps --define "debug_package %{nil}" --define "optflags -O0" \
        --define "_smp_mflags -j${PVN_JOBS:-$(nproc)}" >"$tmp/out" 2>&1
    local rc=$?
    cat "$tmp/rpm/build.log" >>"$tmp/out"
    verdict "the RPM packages are built, and carry data as they are" $rc
    [ $rc = 0 ] || return
    for f in "$tmp"/rpm/*.rpm; do rpm -qp --requires "$f"; done >"$tmp/out" 2>/dev/null && ! grep pkg-config "$tmp/out"
    verdict "the RPM packages do not need pkg-config" $?
    if [ $rooted != 0 ]; then
        echo "skip the RPM packages installed: $why"
        return
    fi
    rm -f "$tmp"/packages/*
    cp "$tmp"/rpm/*.rpm "$tmp/packages/"
    # Debian's rpm before 4.20 refuses to install anything without this option, and a later one does not know it.
    local force=''
    ! rpm --force-debian --version >/dev/null 2>&1 || force=--force-debian
    in_root "rpm -i --nodeps $force /packages/*.rpm || exit 10
        # Fedora's loader looks there by itself, Debian's does not.
        libdir=\$(dirname \$(rpm -ql nccl-net-pvrdma | grep 'pvrdma.so\$')); export LD_LIBRARY_PATH=\$libdir
        $use
        rpm -e --nodeps $force pvn-tools nccl-net-pvrdma || exit 17
        [ ! -e /usr/bin/pvn-perf ]"
    verdict "the RPM packages are installed, used and removed" $?
    cp "$tmp/left" "$tmp/out"
    [ ! -s "$tmp/left" ]
    verdict "the RPM packages leave nothing behind" $?
}

if command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null; then
    debian
else
    echo "skip the Debian packages: there is no debhelper (tests/install-deps.sh --tests)"
fi
if command -v rpmbuild >/dev/null; then
    fedora
else
    echo "skip the RPM packages: there is no rpmbuild (package rpm)"
fi
