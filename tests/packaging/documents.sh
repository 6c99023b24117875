#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests the installed pages: all pages for users are among them, and their links to each other work.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
# shellcheck source=tests/packaging/verdict.sh
. "$PVN_SRCDIR/tests/packaging/verdict.sh"
make -s -C "$PVN_BUILDDIR" install-dist_docDATA install-dist_pvn_docsDATA install-dist_pvn_packagingDATA install-dist_pvn_packaging_monitoringDATA \
    DESTDIR="$tmp/root" docdir=/doc >"$tmp/out" 2>&1
verdict "the pages are installed" $?
doc=$tmp/root/doc
ls "$doc"/{NEWS,USERS.md,docs/{messages,security,troubleshooting,vsphere,cluster}.md,packaging/README.md} >"$tmp/out" 2>&1
verdict "the pages for users, each message and troubleshooting are among them" $?
# Links to HACKING.md and to pages of the tests do not count, because those are only in the source.
find "$doc" -name '*.md' | while read -r page; do
    grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//; s/#.*//' | grep -vE '^$|^[a-z]+:' | while read -r link; do
        echo "$link" >>"$tmp/links"
        [[ $link == *HACKING.md || $link == */tests/* || -e $(dirname "$page")/$link ]] || echo "${page#"$doc/"}: $link is not installed"
    done
done >"$tmp/out"
[ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/links")" -gt 10 ]
verdict "the links between the installed pages lead to pages" $?
