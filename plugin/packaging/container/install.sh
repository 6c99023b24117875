#!/bin/sh
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Copies the plugin into a folder: of the node, or of the volume that the containers of a pod share. Jobs that have the
# former file open keep it.
# usage: install.sh FOLDER
set -eu
[ $# = 1 ] || {
    echo "install.sh: usage: install.sh FOLDER" >&2
    exit 2
}
name=libnccl-net-pvrdma.so
from=$(cd "$(dirname "$0")/../../.." && pwd)/lib/$name
[ -r "$from" ] || {
    echo "install.sh: $from is not there: this image was not made by the Dockerfile beside this script" >&2
    exit 1
}
{ mkdir -p "$1" 2>/dev/null && [ -w "$1" ]; } || {
    echo "install.sh: $1 cannot be written to: is the volume mounted there, without readOnly, and does the container run as root?" >&2
    exit 1
}
if cmp -s "$from" "$1/$name"; then
    echo "install.sh: $1/$name is there already"
    exit 0
fi
new=$1/.$name.$$
trap 'rm -f "$new"' EXIT
cp "$from" "$new"
chmod 755 "$new"
mv -f "$new" "$1/$name"
echo "install.sh: $1/$name is installed"
