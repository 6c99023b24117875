#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds and runs all the tests: the ordinary build (with the virtual machines), the same
# under AddressSanitizer and UndefinedBehaviorSanitizer (with coverage), and under ThreadSanitizer. Ends with the
# sum of the counts. Debian's newest stable builds the same, without running it, where that can be had.
# --quick: the ordinary build only, without virtual machines.
set -u
cd "$(dirname "$0")" || exit 2
quick=0
[ "${1:-}" = --quick ] && quick=1
passed=0 failed=0 skipped=0 programs=0
# Warnings are errors where the compiler is known; with a sanitizer gcc warns of flows that cannot be.
strict=()
[ -n "${CI:-}" ] && strict=(--enable-werror)
start=$SECONDS
times=$(mktemp)
# Failures, to be said again at the end: whoever sees the end of a long output alone sees which they were.
again=$(mktemp)
# Seconds after which a tree that is still being built, or tested, has failed. Each test has a limit of its own.
build_limit=1800 check_limit=3600
# Three checks of the C++, which is tests alone, are left out, since they double the time of compiling it: of virtual tables,
# of null (where AddressSanitizer reports the access) and of alignment. Calls check the accesses in place of instructions in
# line, which takes a fifth off that time.
asan=("--enable-sanitize=address,undefined" --enable-coverage CFLAGS="-g -O1"
    CXXFLAGS="-g1 -fno-sanitize=vptr,null,alignment --param=asan-instrumentation-with-call-threshold=0")
tsan=(--enable-sanitize=thread CFLAGS="-g -O1")

not_ok() {
    failed=$((failed + 1))
    echo "not ok: $1"
    echo "not ok: $1" >>"$again"
}

# unexpected_skips NAME OUTPUT: what was skipped for a reason that is not expected of CI's machine fails there.
unexpected_skips() {
    local reason
    while read -r reason; do
        [ -n "${CI:-}" ] && not_ok "$1: skipped for a reason that tests/expected-skips does not have: $reason"
    done < <(awk '/^ *skip /; reason { print; reason = 0 } /: Skipped$/ { reason = 1 }' "$2" |
        grep -vFf <(grep -vE '^(#|$)' tests/expected-skips) | sort -u)
}

# Whatever ends this, the counts are the last line; what did not come to its end has failed.
ended=
close() {
    local rc=$?
    trap - EXIT
    [ -z "${ahead:-}" ] || kill -- "-$ahead" 2>/dev/null
    [ -n "$ended" ] || not_ok "the tests ended early"
    [ ! -s "$again" ] || { echo "== what failed" && cut -c1-300 "$again"; }
    rm -f "$times" "$again"
    echo "all tests took $((SECONDS - start)) s"
    echo "ran $programs programs"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] || [ $rc != 0 ] || rc=1
    exit $rc
}
trap close EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A step begins: the seconds since the start, and those of processor time of what has ended.
cpu() { awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$times"; }
step() {
    times >"$times"
    echo "== $1 ($((SECONDS - start)) s, $(cpu) s of processor time)"
}

# Runs one tree's tests and adds its closing line to the sums.
add() {
    local name=$1 dir=$2 line
    shift 2
    step "$name"
    if ! timeout --foreground -k 10 $build_limit tests/build-tree.sh "$dir" "$@"; then
        not_ok "$name does not build"
        return
    fi
    mkdir -p "$dir/test-logs"
    if ! timeout --foreground -k 10 $build_limit make -C "$dir" -s -j"${PVN_JOBS:-$(nproc)}" check-build >"$dir/check-build.log" 2>&1; then
        tail -n 30 "$dir/check-build.log"
        not_ok "$name: the tests do not build"
        return
    fi
    step "$name, tests"
    timeout --foreground -k 10 $check_limit make -C "$dir" -s -j"${PVN_JOBS:-$(nproc)}" check 2>&1 </dev/null | tee "$dir/test-logs/check.log" |
        grep --line-buffered -vE '^make|^  (CC|CXX|CCLD|CXXLD|GEN|AR) '
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$dir/test-logs/check.log" | tail -n 1)
    if [ -z "$line" ]; then
        not_ok "$name: the tests did not reach their end; see $dir/test-logs"
        return
    fi
    # Tests that are not there do not fail by themselves.
    if ! grep -q 'HAVE_GTEST_TRUE"\]=""$' "$dir/config.status"; then
        not_ok "$name: built without GoogleTest, so nearly all tests are missing; see $dir/config.log"
    elif [ ! -e "$dir/tests/softverbs/.libs/libsoftverbs.so" ]; then
        not_ok "$name: the stand-in for libibverbs (tests/softverbs) is not built, so no test used RDMA"
    fi
    # A program with a failure: its line and what the tests said where they failed.
    awk -v name="$name" '
        / passed +[0-9]+ failed +[0-9]+ skipped .* cpu$/ { in_it = $4 > 0; left = 60; near = 0; if (in_it) print name ": " $0; next }
        /^not ok: / { print name ": " $0 }
        in_it && (/Failure$/ || /not ok/ || /FAILED/ || /ERROR: / || /WARNING: ThreadSanitizer/) { near = 20 }
        in_it && near-- > 0 && left-- > 0' "$dir/test-logs/check.log" >>"$again"
    unexpected_skips "$name" "$dir/test-logs/check.log"
    read -r n < <(sed -n 's/^ran \([0-9]*\) programs$/\1/p' "$dir/test-logs/check.log" | tail -n 1)
    programs=$((programs + ${n:-0}))
    read -r p _ f _ s _ <<<"${line//,/ }"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# Adds what a script printed to the sums: one_by_one FILE
one_by_one() {
    local p f s
    p=$(grep -c '^ok ' "$1") f=$(grep -c '^not ok ' "$1") s=$(grep -c '^skip ' "$1")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    programs=$((programs + 1))
    if ((p + f + s == 0)); then
        not_ok "$1 has no result"
    fi
    grep -v '^ok ' "$1"
    grep '^not ok ' "$1" >>"$again"
    unexpected_skips "${1##*/}" "$1"
    echo "$p passed, $f failed, $s skipped here"
}

# Builds what comes after the ordinary tree's tests while those and the later ones run, in processor time that is otherwise
# idle. Beside other programs that may take hours, so its limit is for a build that stands still. A tree that does not build
# here is tried again, and reported, in its turn. Prints a word at the end of each part, which
# ahead_of waits for: asan, tsan, distcheck STATUS, debian. What else is said goes to build-check/ahead.log.
build_ahead() {
    chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null
    exec 3>&1 >build-check/ahead.log 2>&1 </dev/null
    tree_ahead build-asan "${asan[@]}"
    echo asan >&3
    tree_ahead build-tsan "${tsan[@]}"
    echo tsan >&3
    # The archive has to be complete and to install; the trees' own tests show the rest.
    local one=tests/unit/test_version
    timeout --foreground $build_limit make -C build-check -s -j"${PVN_JOBS:-$(nproc)}" distcheck PVN_ONLY=$one check_PROGRAMS=$one check_LTLIBRARIES= \
        DISTCHECK_CONFIGURE_FLAGS="CFLAGS=-O0" >build-check/distcheck.log 2>&1
    echo "distcheck $?" >&3
    PVN_NEWEST_LOG=$PWD/build-check/newest-debian.build.log tests/newest-debian.sh >build-check/newest-debian.log 2>&1
    echo debian >&3
}

# A build that was stopped may leave a library without its archive, which make takes for finished, so that the tree is removed.
tree_ahead() {
    local dir=$1
    shift
    timeout --foreground $((4 * build_limit)) tests/build-tree.sh "$dir" "$@" &&
        timeout --foreground $((4 * build_limit)) make -C "$dir" -s -j"${PVN_JOBS:-$(nproc)}" check-build
    [ $? != 124 ] || rm -rf "$dir"
}

# ahead_of PART: returns when build_ahead has come to the end of it, or has ended; the part's status is then in ahead_status.
# While it is waited for, it does not wait for idle time.
ahead_of() {
    local part=
    ahead_status=
    ahead_runs --other
    while [ -n "${ahead:-}" ] && [ "$part" != "$1" ]; do
        read -r -u "$ahead_says" part ahead_status || break
    done
    ahead_runs --idle
}

# ahead_runs --other, --idle: its processes from now on, as far as the kernel and the user's rights allow.
ahead_runs() {
    local pid
    [ -n "${ahead:-}" ] || return
    for pid in $(ps -A -o pid= -o pgid= | awk -v g="$ahead" '$2 == g { print $1 }'); do
        chrt "$1" --pid 0 "$pid" 2>/dev/null
    done
}

timeout --foreground -k 10 $build_limit tests/install-deps.sh --tests </dev/null || exit 1
if [ $quick = 1 ]; then
    add "ordinary build" build ${strict[@]+"${strict[@]}"}
else
    full=(--enable-vm-tests ${strict[@]+"${strict[@]}"})
    mkdir -p build-check
    rm -f build-check/newest-debian.log
    step "ordinary build"
    if timeout --foreground -k 10 $build_limit tests/build-tree.sh build-check "${full[@]}"; then
        # A process group of its own, so that an interrupted run leaves no compilers behind.
        set -m
        coproc AHEAD { build_ahead; }
        ahead=$AHEAD_PID
        # A copy, as bash closes its own when that ends.
        exec {ahead_says}<&"${AHEAD[0]}"
        set +m
    fi
    # Scripts that start whole jobs show the same in both trees, but a wrong access only in the one with AddressSanitizer.
    PVN_ONCE=1 add "ordinary build, virtual machines" build-check "${full[@]}"
    ahead_of asan
    add "AddressSanitizer, UndefinedBehaviorSanitizer" build-asan "${asan[@]}"
    timeout --foreground -k 10 300 tests/coverage.sh build-asan >build-asan/coverage.log 2>&1 &
    coverage=$!
    for script in $(grep -l '^# run-all once$' tests/*/*.sh); do
        [ -e "build-asan/test-logs/${script//\//-}.log" ] || not_ok "$script runs in no tree"
    done
    ahead_of tsan
    add "ThreadSanitizer" build-tsan "${tsan[@]}"
    wait "$coverage"
    cat build-asan/coverage.log
    step distribution
    ahead_of distcheck
    if [ "$ahead_status" = 0 ]; then
        passed=$((passed + 1))
        echo "ok: make distcheck"
    else
        tail -n 30 build-check/distcheck.log
        not_ok "make distcheck"
    fi
    step "the newest Debian"
    ahead_of debian
    [ -z "${ahead:-}" ] || wait "$ahead"
    ahead=
    [ -s build-check/newest-debian.log ] || tests/newest-debian.sh >build-check/newest-debian.log 2>&1
    one_by_one build-check/newest-debian.log
fi
step end
ended=1
