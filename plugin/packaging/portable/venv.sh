#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a Python that has what a list of requirements names; it is made at the first call, from PyPI (some
# 500 MB in ${XDG_CACHE_HOME:-~/.cache}/nccl-net-pvrdma; remove it at any time). Status 3: PyPI cannot be reached.
# usage: venv.sh [REQUIREMENTS]     (default: the requirements.txt beside it)
set -eu
list=${1:-$(cd "$(dirname "$0")" && pwd)/requirements.txt}
sum=$(sha256sum <"$list")
venv=${XDG_CACHE_HOME:-$HOME/.cache}/nccl-net-pvrdma/python-${sum:0:12}
mkdir -p "${venv%/*}"
exec 9>"$venv.lock"
flock 9
if [ ! -e "$venv/.complete" ]; then
    log=$venv.log
    rm -rf "$venv"
    python3 -m venv "$venv" >"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        echo "venv.sh: Python cannot make a virtual environment: apt-get install python3-venv, or dnf install python3-pip" >&2
        exit 1
    }
    echo "venv.sh: from PyPI, once, into $venv: $(sed 's/ *#.*//; /^$/d' "$list" | paste -sd ' ')" >&2
    "$venv/bin/pip" install -q --disable-pip-version-check -r "$list" >"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        rm -rf "$venv"
        echo "venv.sh: pip does not get from PyPI what $list names: see above, and pip's proxy and index settings" >&2
        exit 3
    }
    touch "$venv/.complete"
fi
echo "$venv/bin/python3"
