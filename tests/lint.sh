#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 900
# Checks the source without running it: format, shell, spelling, words, openings of comments, licence lines, length of
# files, headers that compile alone, include directions, the symbols of the shared object, the patterns of the mutation
# tests, gcc's analyzer, and more.
# usage: lint.sh [CHECK...]     all checks without an argument; their names are those of the functions below
# `make check` runs it and sets PVN_SRCDIR and PVN_BUILDDIR (default: build). A check is skipped if its tool is missing.
set -u
shopt -s extglob
src=${PVN_SRCDIR:-$(cd "$(dirname "$0")/.." && pwd)}
build=${PVN_BUILDDIR:-$src/build}
[[ $build == /* ]] || build=$PWD/$build
jobs=${PVN_JOBS:-$(nproc)}
cd "$src" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=(format shell spelling words openings licence length headers cxx_headers old_headers directions cycles lane_names symbols mutations tool_code hardening analyzer)

# Lists the files that people write, without data, captures and build products. It uses git, or find in an unpacked
# archive.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1 && [[ $(git rev-parse --show-toplevel) == "$src" ]]; then
    git ls-files --cached --others --exclude-standard
else
    find . -name .git -prune -o -name 'build*' -prune -o -name autom4te.cache -prune -o -type f -printf '%P\n'
fi | grep -vE '^(tests/fuzz/corpus/|tests/topo/(data|golden)/|(aclocal\.m4|configure~?|config\.h\.in|Makefile\.in|m4/l.*)$)' |
    while read -r f; do [[ -f $f ]] && echo "$f"; done | sort >"$work/files"
files() { grep -E "$1" "$work/files"; }
scripts() {
    while read -r f; do
        IFS= read -r line <"$f" 2>/dev/null || continue
        [[ $line == '#!'*@(bash|/sh|ash)* ]] && echo "$f"
    done <"$work/files" 2>/dev/null
}
have() { command -v "$1" >/dev/null || skip "$1 is not installed (tests/install-deps.sh --tests)"; }
# A check prints its complaints, and passes if it prints nothing. skip prints a reason and ends the check with status 3.
skip() {
    echo "$1"
    exit 3
}

# Other versions of clang-format break lines at other columns.
format() {
    have clang-format
    clang-format --version | grep -q 'version 14\.' || skip "$(clang-format --version): the format is that of version 14"
    files '\.(c|h|cc|hh)$' | xargs -n 20 -P "$jobs" clang-format --dry-run -Werror 2>&1 | grep ': error:'
}

# SC2034 and SC2154 do not see that scripts of tests/vm share variables; flags are split into words (SC2046, SC2206,
# SC2207) on purpose; SC2187: busybox's ash is like dash; SC2319: what a verdict takes is the status of a condition.
shell() {
    have shellcheck
    scripts | xargs -n 8 -P "$jobs" shellcheck -S warning -e SC2034,SC2046,SC2154,SC2187,SC2206,SC2207,SC2319 -f gcc
    # Completion is built from the tools' options.
    find "$build/plugin/perf" "$build/topo" -maxdepth 1 -name 'pvn-*.bash' -exec shellcheck -s bash -S warning -f gcc {} +
}

spelling() {
    have codespell
    xargs -a "$work/files" codespell -q 7 -L upto,ontext,buildd,inout,ue,nd,te,ba,hca,ot,fo,mis,clen,lod,aer,3rt
}

# Refuses words for which the field has a standard term, in names, comments, messages and texts. HACKING.md lists the
# terms to use instead. A part of an identifier counts as a word: told_peer, IsTold.
words() {
    local never='told|tells|asked|ways?|bells?|lends?|lent|lending|receipts?|stash(es|ed)?|strangers?|owe[sd]?|torn|unusual'
    never+='|in vain|comes? to nothing|patience|aliens?|farewells?|for ?ever|deals?|dealt|anew|wants'
    never+='|(?-i:news)|sorts? of|(a|each|every|this|that|same|which) sort|quiet_(poll_)?ns|is quiet|quietly'
    never+='|in general|general (case|path|ones?)|places? (in|of) the (send )?queue'
    local camel='(?<=[a-z0-9_])(Told|Tells|Asked|Ways?|Bells?|Lent|Stash|Strangers?|Owes?|Owed|Torn|Vain|Patience|Alien|Anew|Wants)(?![a-z])'
    files . | grep -vE '^(HACKING\.md|LICENSE|tests/lint\.sh)$' |
        xargs grep -nIP "(?<![a-zA-Z])(?i:$never)(?![a-zA-Z])|$camel|(?<![a-zA-Z])Lies" |
        grep -vE 'one[-_]way'
}

# A comment begins with its subject. These openings delay the subject; "True if ..." or the thing's name does not.
openings() {
    local late='(What|Whether|The same|Of|By|Not|With|Those|Where|Likewise)\b'
    files '^(plugin|net-tcp|net-pvrdma|topo|tests)/.*\.(c|h|cc|hh)$' |
        xargs grep -nE "^[[:space:]]*(/\*|//) $late"
    # A block comment begins in its second line.
    files '^(plugin|net-tcp|net-pvrdma|topo|tests)/.*\.(c|h|cc|hh)$' |
        xargs grep -nEHA1 '^[[:space:]]*/\*$' | grep -E -- "^.*-[0-9]+-[[:space:]]*\* $late"
    { files '\.(sh|py|awk|mk|am|yml|service)$' && scripts; } | grep -v '^\.ci/' | sort -u |
        xargs grep -nE "^[[:space:]]*(#|\"\"\") ?$late"
}

licence() {
    { files '(\.(c|h|cc|hh|sh|py|m4|mk|ac|am|map)|/(local\.mk))$' && scripts; } | sort -u |
        xargs awk '
            FNR > 5 { nextfile }
            /SPDX-License-Identifier: Apache-2.0/ { one[FILENAME] = 1 }
            /SPDX-FileCopyrightText: the nccl-net-pvrdma authors/ { other[FILENAME] = 1 }
            END {
                for (i = 1; i < ARGC; i++)
                    if (!(ARGV[i] in one) || !(ARGV[i] in other)) print ARGV[i] ": the two SPDX lines are missing"
            }'
}

length() {
    files '\.(c|h|cc|hh|sh|py|awk)$' | xargs wc -l | awk '$2 != "total" && $1 > 800 { print $2 ": " $1 " lines, at most 800" }'
}

include_flags() { echo -I. -Iplugin -Itests -Itopo "-I$build" $(pkg-config --cflags libnl-3.0 libnl-route-3.0 jansson 2>/dev/null); }
is_cxx() { grep -qE '^(namespace|class |template)|std::|#include <(gtest/gtest\.h|[a-z_]+)>' "$1"; }

# A header includes everything that it needs.
headers() {
    local cc=${CC:-gcc} h
    have "$cc"
    [[ -f $build/config.h ]] || skip "$build is not configured"
    for h in $(files '\.h$'); do is_cxx "$h" || echo "$h"; done |
        xargs -P "$jobs" -I{} "$cc" -std=gnu11 -D_GNU_SOURCE -DHAVE_CONFIG_H -Wall -Wno-unused -fsyntax-only \
            $(include_flags) -x c -include /dev/null {} 2>&1 | grep -E 'error|warning' | grep -v 'pragma once in main'
}

# The tests' C++ headers. The build tree has a precompiled GoogleTest.
cxx_headers() {
    local cxx=${CXX:-g++} h without='^$'
    have "$cxx"
    [[ -f $build/config.h ]] || skip "$build is not configured"
    # The double of CUDA's runtime implements its headers.
    echo '#include <cuda.h>' | "$cxx" -fsyntax-only -x c++ - 2>/dev/null || without=^tests/nccl/
    for h in $(files '^tests/.*\.h$'); do is_cxx "$h" && echo "$h"; done | grep -vE "$without" |
        (cd "$build" && xargs -P "$jobs" -I{} "$cxx" -std=gnu++17 -g1 -DHAVE_CONFIG_H -DGTEST_HAS_PTHREAD=1 -fsyntax-only \
            "-I$src" "-I$src/plugin" "-I$src/tests" -I. -x c++ -include tests/support/pch.hh "$src/{}" 2>&1) |
        grep -E 'error'
}

# The source compiles with the headers of rdma-core 28 (Ubuntu 20.04), of libnl 3.4 (Debian 11) and of Linux before 5.1
# (RHEL 8), which lack these names. Each is hidden while the header that declares it is read.
old_headers() {
    local cc=${CC:-gcc}
    have "$cc"
    [[ -f $build/config.h ]] || skip "$build is not configured"
    cat >"$work/old.h" <<'OLD'
#include "config.h"

#define ibv_gid_entry hidden_gid_entry
#define ibv_fork_status hidden_fork_status
#define IBV_FORK_DISABLED HIDDEN_FORK_DISABLED
#define rtnl_route_lookup hidden_route_lookup
#define LINUX_IO_URING_H
#include <infiniband/verbs.h>
#include <linux/magic.h>
#include <netlink/route/route.h>
#include <sys/syscall.h>
#undef ibv_gid_entry
#undef ibv_fork_status
#undef IBV_FORK_DISABLED
#undef rtnl_route_lookup
#undef XFS_SUPER_MAGIC
#undef SYS_io_uring_setup
#undef SYS_io_uring_register
OLD
    files '^(net-tcp|net-pvrdma|plugin|topo)/.*\.c$' | xargs grep -lE '#include .*(infiniband/|net-pvrdma/|net-tcp/|io_uring|linux/magic)|SYS_io_uring' |
        xargs -P "$jobs" -I{} "$cc" -std=gnu11 -DHAVE_CONFIG_H -w -fsyntax-only $(include_flags) -include "$work/old.h" {} 2>&1 |
        grep 'error:'
}

# FOLDER: the folders whose headers its files may include, beside its own. Arrows point in one direction.
directions() {
    cat >"$work/may" <<'MAY'
plugin/nccl:
plugin/base: plugin/nccl
plugin/engine: plugin/base plugin/nccl
plugin/stats: plugin/base
plugin/memory: plugin/base plugin/nccl
plugin/seal: plugin/base
plugin/connect: plugin/base plugin/engine plugin/stats plugin/memory plugin/seal plugin/nccl
plugin/comm: plugin/base plugin/engine plugin/stats plugin/memory plugin/seal plugin/connect plugin/nccl
plugin/comm/placement.c: topo/nccl/report.h
plugin/abi: plugin/base plugin/engine plugin/stats plugin/memory plugin/connect plugin/comm plugin/nccl
plugin/abi/transports.c: net-tcp net-pvrdma
net-tcp: plugin/base plugin/engine plugin/memory plugin/seal plugin/connect plugin/nccl
net-pvrdma: plugin/base plugin/engine plugin/memory plugin/connect plugin/nccl
net-pvrdma/rdma_transport.c: net-tcp
plugin/docs: plugin/base
plugin/docs/tool_pages.c: plugin/tools plugin/perf/options topo/tool
plugin/tools: plugin/base plugin/seal
plugin/perf/workload: plugin/base
plugin/perf/driver: plugin/nccl
plugin/perf/options: plugin/perf/workload plugin/perf/driver plugin/base plugin/tools plugin/nccl
plugin/perf/rank: plugin/perf/driver plugin/perf/options plugin/base plugin/memory plugin/stats plugin/tools
plugin/perf/patterns: plugin/perf/workload plugin/perf/options plugin/perf/rank plugin/tools
plugin/perf/jobs: plugin/perf/driver plugin/perf/options plugin/perf/rank plugin/perf/patterns plugin/base plugin/tools
plugin/perf/results: plugin/perf/options plugin/perf/rank plugin/base plugin/tools
plugin/perf: plugin/perf/rank plugin/perf/jobs plugin/perf/results plugin/base plugin/seal plugin/tools
topo:
topo/nccl: topo
topo/counters: topo
topo/capture: topo topo/nccl topo/counters
topo/input: topo topo/nccl topo/capture
topo/check: topo topo/nccl topo/counters
topo/hosts:
topo/hosts/fetch.c: plugin/base/clock.h
topo/tool/base: topo/nccl topo/counters topo/input plugin/base
topo/tool/load: topo/tool/base topo/nccl topo/capture topo/check topo/hosts plugin/base
topo/tool/stat: topo/tool/base topo/tool/load topo/hosts plugin/base plugin/stats plugin/tools
topo/tool/show: topo/tool/base topo/tool/load topo/nccl plugin/base plugin/seal
topo/tool/check: topo/tool/base topo/tool/load topo/tool/stat topo/tool/show topo/hosts plugin/base plugin/seal plugin/tools
topo/tool/check/start.c: plugin/comm net-pvrdma/gid.h
topo/tool: topo/tool/base topo/tool/load topo/tool/stat topo/tool/show topo/tool/check plugin/base plugin/tools
MAY
    files '^(plugin|net-tcp|net-pvrdma|topo)/.*\.[ch]$' | xargs grep -H '^#include "' |
        awk -v may="$work/may" '
            function dir(f) { sub(/\/[^\/]*$/, "", f); return f }
            BEGIN {
                while ((getline line < may) > 0) {
                    split(line, a, ":")
                    n = split(a[2], b, " ")
                    if (a[1] !~ /\.c$/) known[a[1]] = 1
                    for (i = 1; i <= n; i++) ok[a[1], b[i]] = 1
                }
            }
            {
                f = $0; sub(/:.*/, "", f); h = $0; sub(/^[^"]*"/, "", h); sub(/".*/, "", h)
                from = dir(f)
                if (h !~ /\//) next                                   # beside the file, or config.h
                if (("plugin/" dir(h)) in known && !(dir(h) in known)) h = "plugin/" h
                to = dir(h)
                if (!(from in known)) print f ": a folder that tests/lint.sh does not know"
                else if (to != from && !((from, to) in ok) && !((f, to) in ok) && !((f, h) in ok))
                    print f ": may not include " h " (see the table in tests/lint.sh)"
            }'
}

# Calls and data between the files of a folder have one direction, too: no two files need each other, directly or
# through others. tests/support/circles.py defines what counts. Calls through the fields listed below do not count,
# because a higher layer registered the functions. A field that no circle needs must leave the list.
cycles() {
    have python3
    cat >"$work/registered" <<'REGISTERED'
pvn_rdma_lane_cfg.closed pvn_rdma_lane_cfg.health pvn_rdma_lane_cfg.sends_from: the transport, which makes lanes, takes its device's events for them
pvn_tcp_lane_cfg.dial pvn_tcp_lane_cfg.preamble pvn_tcp_lane_cfg.secret: the transport, which makes lanes, dials and keeps secrets for them; tests of a lane do that themselves
REGISTERED
    files '^(plugin|net-tcp|net-pvrdma|topo)/.*\.[ch]$' | xargs python3 tests/support/circles.py "$work/registered"
}

# Code checks the capabilities of a lane or transport, never its name.
lane_names() {
    files '^plugin/(base|engine|connect|comm|memory|abi)/.*\.[ch]$' |
        xargs grep -nE 'str(n|case|ncase)?cmp\(.*"(tcp|rdma|pvrdma|sim|mem2?|other)"|name\[0\] == '
}

# NCCL finds the plugin by these names. Any other exported name could collide with another library's.
symbols() {
    local so=$build/.libs/libnccl-net-pvrdma.so
    have nm
    [[ -f $so ]] || skip "$so is not built"
    nm -D --defined-only "$so" | awk '{ print $3 }' | sed 's/@.*//' | grep -vxE 'ncclNetPlugin_v([4-9]|1[0-2])' |
        sed 's/$/: exported, though not of the interface with NCCL/'
    local n
    n=$(nm -D --defined-only "$so" | grep -cE 'ncclNetPlugin_v')
    [[ $n = 9 ]] || echo "$n versions of ncclNetPlugin are exported, not 9"
}

# The code that the mutation tests remove is still where they look for it.
mutations() {
    local script
    for script in tests/sim/mutations.sh tests/fail/mutations.sh; do
        PVN_MUTATION_PATTERNS=1 PVN_BUILDDIR=$build PVN_SRCDIR=$src bash "$script" | grep '^not ok'
    done
}

# The shared object contains no code that only the tools need: captures, checks and counters.
tool_code() {
    local so=$build/.libs/libnccl-net-pvrdma.so
    have nm
    [[ -f $so ]] || skip "$so is not built"
    find "$build"/topo/{capture,check,counters,hosts,tool} -name '*.o' -print0 2>/dev/null | xargs -0 -r nm --defined-only 2>/dev/null |
        awk '$2 == "T" && $3 != "main" { print $3 }' | sort -u >"$work/tool"
    [[ -s $work/tool ]] || echo "$build/topo defines nothing: this check looks at the wrong files"
    nm --defined-only "$so" | awk '{ print $3 }' | sort -u | comm -12 - "$work/tool" |
        sed 's/$/: in the shared object, though only the tools need it/'
}

# The shared object and the tools are hardened as configure does it (m4/pvn_compiler.m4). A tree configured with
# --disable-hardening fails.
hardening() {
    local so=$build/.libs/libnccl-net-pvrdma.so file
    have readelf
    [[ -f $so ]] || skip "$so is not built"
    for file in "$so" "$build/pvn-perf" "$build/topo/pvn-topo"; do
        if [[ ! -f $file ]]; then
            grep -q "^TOOLS_TRUE = *$" "$build/Makefile" && echo "$file: not built"
            continue
        fi
        readelf -lW "$file" >"$work/segments"
        readelf -dW "$file" >"$work/dynamic"
        readelf -W --dyn-syms "$file" | awk '$7 == "UND" { sub(/@.*/, "", $8); print $8 }' >"$work/needed"
        grep -q GNU_RELRO "$work/segments" || echo "$file: no relro"
        grep -qE 'FLAGS.*NOW|BIND_NOW' "$work/dynamic" || echo "$file: functions are bound lazily (no -z now)"
        # Without the header the stack is executable, too.
        grep -q 'GNU_STACK .* RW ' "$work/segments" || echo "$file: an executable stack"
        [[ $file == "$so" ]] || readelf -hW "$file" | grep -q 'Type: *DYN' || echo "$file: it has a fixed address (no PIE)"
        grep -qx __stack_chk_fail "$work/needed" || echo "$file: no stack protector"
        grep -qE '^CFLAGS =.* -O([1-9sgz]|fast)?( |$)' "$build/Makefile" || continue # the compiler fortifies functions only when it optimizes
        grep -qE '^__[a-z0-9]+_chk$' "$work/needed" || echo "$file: no fortified function"
    done
    # A linked file has the note only if all its objects have it, the C library's included. So the check reads the objects.
    grep -q '^PVN_HARD_CFLAGS =.* -fcf-protection' "$build/Makefile" || return 0
    # Tests are C++ and have none of these flags.
    find "$build/topo/tool" "$build/.libs" \( -path '*/tool/*.o' -o -name 'libpvn*.a' \) ! -name '*test.a' -exec readelf -nW {} + 2>/dev/null |
        awk '/^File: / { file = $2; seen[file] = 0 } /IBT, SHSTK/ { seen[file] = 1 } END { for (f in seen) print seen[f], f }' >"$work/notes"
    grep -q '^1' "$work/notes" || echo "$build: no object has the note of -fcf-protection"
    grep -vE '_data_la-[a-z_]*\.o' "$work/notes" | sed -n 's/^0 \(.*\)/\1: indirect branches and returns are not protected (no -fcf-protection)/p' | head
    command -v hardening-check >/dev/null || return 0
    for file in "$so" "$build/pvn-perf" "$build/topo/pvn-topo"; do
        [[ ! -f $file ]] || hardening-check --quiet --nocfprotection "$file"
    done
}

# gcc's analyzer, for C only. Warnings that are often false (memory freed in another call, descriptors kept in tables) are
# off. The others need a call of free, realloc or fclose in the file itself, so only files with one are analyzed.
analyzer() {
    local cc=${CC:-gcc}
    have "$cc"
    "$cc" --version | grep -qi 'free software foundation' || skip "$cc is not gcc"
    [[ -f $build/config.h ]] || skip "$build is not configured"
    files '^(plugin/(base|connect|comm|memory|stats)|net-tcp|net-pvrdma|topo)/.*\.c$' | xargs grep -lE '\b(free|realloc|fclose)\b' |
        xargs -n 1 -P "$jobs" "$cc" -std=gnu11 -D_GNU_SOURCE -DHAVE_CONFIG_H -O1 -fanalyzer -S -o /dev/null \
            -Wanalyzer-double-free -Wanalyzer-use-after-free -Wanalyzer-double-fclose \
            $(include_flags) 2>&1 | grep -E 'Wanalyzer-(double|use-after)' | sort -u
}

failed=0
for c in "${@:-${checks[@]}}"; do
    out=$("$c")
    rc=$?
    if [[ $rc = 3 ]]; then
        echo "skip lint, $c: $out"
    elif [[ -n $out ]]; then
        failed=1
        printf '%s\n' "$out"
        echo "not ok lint, $c"
    else
        echo "ok lint, $c"
    fi
done
exit $failed
