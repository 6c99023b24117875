# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# For scripts that remove a rule from a copy of a source file and show that a test notices it; to be sourced. The script
# has a folder $tmp. It defines built NAME FILE, which builds the program or library to run from $tmp/NAME.c (or .cc,
# .h), the copy of FILE. PVN_MUTATION=NAME selects one mutation. If PVN_MUTATION_PATTERNS=1 is set, nothing is built or
# run; a line that changes nothing still fails, so tests/lint.sh sees it at once.
# shellcheck shell=bash disable=SC2154

# mutant NAME FILE SED-SCRIPT: each line of the script must change something. Status 1: there is no mutant to run.
mutant() {
    local name=$1 file=$2 copy=$tmp/$1.${2##*.} line
    [ -z "${PVN_MUTATION:-}" ] || [ "$name" = "$PVN_MUTATION" ] || return 1
    cp "$PVN_SRCDIR/$file" "$copy"
    while IFS= read -r line; do
        cp "$copy" "$copy.before"
        sed -i -E "$line" "$copy"
        if cmp -s "$copy.before" "$copy"; then
            echo "not ok mutation $name: \"$line\" changes nothing in $file"
            return 1
        fi
    done <<<"$3"
    [ -z "${PVN_MUTATION_PATTERNS:-}" ] || return 1
    built "$name" "$file" && return
    echo "not ok mutation $name: it does not compile"
    tail -n 5 "$tmp/$name.log" | sed 's/^/  /'
    return 1
}
