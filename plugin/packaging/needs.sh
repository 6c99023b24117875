#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Names every program and header that is missing, with its package, before anything is built; status 1 if one is.
# usage: needs.sh FOR-WHAT PROGRAM-OR-HEADER:PACKAGE-OF-DEBIAN:PACKAGE-OF-FEDORA...
set -eu
what=$1
shift
# there PROGRAM-OR-HEADER: it is installed. Without a compiler no header is.
there() {
    case $1 in
    *.h) printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | gcc -E -o /dev/null - 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}
missing='' debian='' fedora=''
for entry; do
    IFS=: read -r name deb rpm <<<"$entry"
    ! there "$name" || continue
    missing+="${missing:+, }$name"
    # Two of them may be in one package.
    [[ "$debian " == *" $deb "* ]] || debian+=" $deb"
    [[ "$fedora " == *" $rpm "* ]] || fedora+=" $rpm"
done
[ -z "$missing" ] || {
    echo "$what needs what is not installed: $missing: apt-get install$debian, or dnf install$fedora" >&2
    exit 1
}
