#!/usr/bin/env bash
# Installs what is missing, builds and runs all the tests: the ordinary build (with the virtual machines), the same
# under AddressSanitizer and UndefinedBehaviorSanitizer (with coverage), and under ThreadSanitizer. Ends with the
# sum of the counts. --quick: the ordinary build only, without virtual machines.
set -u
cd "$(dirname "$0")" || exit 2
quick=0
[ "${1:-}" = --quick ] && quick=1
passed=0 failed=0 skipped=0
# Warnings are errors where the compiler is known; with a sanitizer gcc warns of flows that cannot be.
strict=()
[ -n "${CI:-}" ] && strict=(--enable-werror)
start=$SECONDS

# Runs one tree's tests and adds its closing line to the sums.
add() {
    local name=$1 dir=$2 line
    shift 2
    echo "== $name ($((SECONDS - start)) s)"
    if ! tests/build-tree.sh "$dir" "$@"; then
        failed=$((failed + 1))
        echo "not ok: $name does not build"
        return
    fi
    mkdir -p "$dir/test-logs"
    make -C "$dir" -s -j"${PVN_JOBS:-$(nproc)}" check 2>&1 | tee "$dir/test-logs/check.log" |
        grep --line-buffered -vE '^make|^  (CC|CXX|CCLD|CXXLD|GEN|AR) '
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$dir/test-logs/check.log" | tail -n 1)
    if [ -z "$line" ]; then
        failed=$((failed + 1))
        echo "not ok: $name: the tests did not reach their end; see $dir/test-logs"
        return
    fi
    read -r p _ f _ s _ <<<"${line//,/ }"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

tests/install-deps.sh --tests || exit 1
if [ $quick = 1 ]; then
    add "ordinary build" build ${strict[@]+"${strict[@]}"}
else
    add "ordinary build, virtual machines" build-check --enable-vm-tests ${strict[@]+"${strict[@]}"}
    add "AddressSanitizer, UndefinedBehaviorSanitizer" build-asan \
        --enable-sanitize=address,undefined --enable-coverage CFLAGS="-g -O1"
    tests/coverage.sh build-asan
    add "ThreadSanitizer" build-tsan --enable-sanitize=thread CFLAGS="-g -O1"
    echo "== distribution ($((SECONDS - start)) s)"
    # What the archive is to show is that it is complete and installs, not what the trees above have shown.
    one=tests/unit/test_version
    if make -C build-check -s -j"${PVN_JOBS:-$(nproc)}" distcheck PVN_ONLY=$one check_PROGRAMS=$one check_LTLIBRARIES= \
        DISTCHECK_CONFIGURE_FLAGS="CFLAGS=-O0" >build-check/distcheck.log 2>&1; then
        passed=$((passed + 1))
        echo "ok: make distcheck"
    else
        failed=$((failed + 1))
        tail -n 30 build-check/distcheck.log
        echo "not ok: make distcheck"
    fi
fi
echo "all tests took $((SECONDS - start)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
