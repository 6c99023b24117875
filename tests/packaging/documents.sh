#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The pages that an installation has: those for users, at places where their links to each other lead to them.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
# verdict NAME STATUS: prints ok, or not ok and what was printed
verdict() {
    if [ "$2" = 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        tail -n 40 "$tmp/out" | sed 's/^/  /'
    fi
}
make -s -C "$PVN_BUILDDIR" install-dist_docDATA install-dist_pvn_docsDATA install-dist_pvn_packagingDATA install-dist_pvn_packaging_monitoringDATA \
    DESTDIR="$tmp/root" docdir=/doc >"$tmp/out" 2>&1
verdict "the pages are installed" $?
doc=$tmp/root/doc
ls "$doc"/{NEWS,USERS.md,docs/{messages,security,troubleshooting,vsphere}.md,packaging/README.md} >"$tmp/out" 2>&1
verdict "the pages for users, each message and troubleshooting are among them" $?
# HACKING.md and what is said of the tests are of the source.
find "$doc" -name '*.md' | while read -r page; do
    grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -vE '^$|^[a-z]+:' | while read -r link; do
        [[ $link == *HACKING.md || $link == */tests/* || -e $(dirname "$page")/$link ]] || echo "${page#"$doc/"}: $link is not installed"
    done
done >"$tmp/out"
[ ! -s "$tmp/out" ]
verdict "the links between the installed pages lead to pages" $?
