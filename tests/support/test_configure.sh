#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# configure's switches. If tools are off, it neither looks for libraries that only tools need nor builds tools. On
# request, it installs the link that NCCL before 2.11 looks for.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset MAKEFLAGS MFLAGS
result() {
    if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; fi
}
# A machine without the libraries that only the tools and the tests need.
cat >"$work/pkg-config" <<'STUB'
#!/bin/sh
for a; do case $a in expat*|jansson*|gtest*) exit 1 ;; esac; done
exec pkg-config "$@"
STUB
chmod +x "$work/pkg-config"
mkdir "$work/b"
cd "$work/b" || exit 1
# An out-of-tree build fails if the source tree itself is configured.
if [ -f "$PVN_SRCDIR/config.status" ]; then
    echo "skip configure's switches: the source tree itself is configured"
    exit 0
fi
PKG_CONFIG=$work/pkg-config "$PVN_SRCDIR/configure" -q --disable-tools --enable-libnccl-net-link --without-openssl \
    --with-bugurl=https://example.com/faults --libdir=/lib ac_cv_header_pci_pci_h=no >log 2>&1
rc=$?
[ $rc = 0 ] || cat log
result $rc "the plugin alone needs neither expat nor jansson nor libpci"
make -n all >plan 2>/dev/null
grep -q 'libnccl-net-pvrdma\.la' plan && ! grep -qE '(-o|/)(pvn-perf|pvn-topo) |libpvntopotool|libpvn-perf' plan
result $? "--disable-tools builds the plugin and no tool"
grep -q 'seal/without\.' plan && ! grep -qE 'seal/(seal|ssl_dl|key_derive)\.' plan && ! grep -q 'define HAVE_OPENSSL' config.h
result $? "--without-openssl leaves out what needs its headers"
grep -qxF 'URL: https://example.com/faults' plugin/nccl-net-pvrdma.pc
result $? "--with-bugurl is the URL of the pkg-config file"
mkdir -p "$work/d/lib" && make -s install-exec-hook DESTDIR="$work/d" >log 2>&1 &&
    [ "$(readlink "$work/d/lib/libnccl-net.so")" = libnccl-net-pvrdma.so ]
result $? "--enable-libnccl-net-link installs libnccl-net.so"
if git -C "$PVN_SRCDIR" ls-files >"$work/tracked" 2>/dev/null && [ -e "$PVN_SRCDIR/.git" ]; then
    make -s distdir distdir=d >log 2>&1
    (cd d && find . -type f) | sed 's,^\./,,' | sort >packed
    grep -vE '(^|/)\.gitignore$|^\.ci/' "$work/tracked" | sort | comm -23 - packed >missing
    [ -s packed ] && [ ! -s missing ]
    rc=$?
    [ $rc = 0 ] || cat log missing
    result $rc "the archive of a tree without tools and tests has every file of the repository"
else
    echo "skip the archive's completeness: this is not a git checkout"
fi
mkdir "$work/n" && cd "$work/n" || exit 1
! PKG_CONFIG=$work/pkg-config "$PVN_SRCDIR/configure" -q --disable-tools pvn_cv_openssl=no >log 2>&1 &&
    grep -q 'install libssl-dev .* or configure with --without-openssl' log
result $? "headers of OpenSSL 3 that are missing end configure with what to install"
! "$PVN_SRCDIR/configure" -q --disable-tools ac_cv_have_decl_IBV_ACCESS_RELAXED_ORDERING=no >log 2>&1 &&
    grep -q 'an rdma-core before version 28: build on a newer system' log
result $? "headers of an older rdma-core end configure with what to do"
! "$PVN_SRCDIR/configure" -q --disable-shared >log 2>&1 && grep -q -e '--disable-shared: .* configure without this option' log
result $? "--disable-shared is refused, since the plugin is a shared object"
mkdir -p "$work/old/openssl"
echo '#define OPENSSL_VERSION_NUMBER 0x101010bfL' | tee "$work/old/openssl/ssl.h" >"$work/old/openssl/kdf.h"
! PKG_CONFIG=$work/pkg-config "$PVN_SRCDIR/configure" -q --disable-tools CPPFLAGS="-I$work/old" >log 2>&1 &&
    grep -q 'an OpenSSL before version 3: configure with --without-openssl' log
result $? "headers of OpenSSL 1.1 end configure with what to do"
! PKG_CONFIG=$work/pkg-config "$PVN_SRCDIR/configure" -q --disable-tools pvn_cv_linux_tls=no >log 2>&1 &&
    grep -q 'linux/tls.h .*: install a newer linux-libc-dev .* or configure with --without-openssl' log
result $? "headers of a kernel without TLS 1.3 end configure with what to install"
