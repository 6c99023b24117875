#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Names every program that is missing, with its package, before anything is built; status 1 if one is.
# usage: needs.sh FOR-WHAT PROGRAM:PACKAGE-OF-DEBIAN:PACKAGE-OF-FEDORA...
set -eu
what=$1
shift
programs='' debian='' fedora=''
for entry; do
    IFS=: read -r program deb rpm <<<"$entry"
    command -v "$program" >/dev/null && continue
    programs+="${programs:+, }$program" debian+=" $deb" fedora+=" $rpm"
done
[ -z "$programs" ] || {
    echo "$what needs programs that are not installed: $programs: apt-get install$debian, or dnf install$fedora" >&2
    exit 1
}
