#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The build and test commands on a stub of the source tree. A tree is configured again if a package was installed since,
# and compiled again with other flags. The test command fails if what it built lacks GoogleTest or softverbs, and it
# ends with the counts in any case.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src/tests" "$work/bin"
cp "$PVN_SRCDIR/run-tests.sh" "$work/src/"
cp "$PVN_SRCDIR/tests/build-tree.sh" "$PVN_SRCDIR/tests/expected-skips" "$work/src/tests/"
cd "$work/src" || exit 1
unset PVN_ONLY CI MAKEFLAGS MFLAGS
export PATH=$work/bin:$PATH GTEST=none INSTALL=0 ON_BUILD=: FLAGS=-g CHECKED=$work/checked
printf 'ran 3 programs\n5 passed, 0 failed, 1 skipped\n' >"$CHECKED"

result() {
    if [ "$1" = 0 ]; then echo "ok $2"; else echo "not ok $2"; fi
}

# A configure that counts its runs, and finds GoogleTest if the stub of pkg-config does.
cat >configure <<'STUB'
#!/bin/sh
echo run >>configured
{ pkg-config --modversion gtest_main >/dev/null && echo 'S["HAVE_GTEST_TRUE"]=""' ||
    echo 'S["HAVE_GTEST_TRUE"]="#"'; } >config.status
echo "CFLAGS = $FLAGS" >Makefile
printf 'all:\nclean:\n\t@echo run >>cleaned\ncheck-build:\n\t@sh -c "$$ON_BUILD"\ncheck:\n\t@cat $$CHECKED\n' >>Makefile
STUB
cat >"$work/bin/pkg-config" <<'STUB'
#!/bin/sh
[ "$2" = gtest_main ] || { echo 1.0; exit 0; }
[ "$GTEST" = none ] && exit 1
echo "$GTEST"
STUB
printf '#!/bin/sh\nexit $INSTALL\n' >tests/install-deps.sh
touch -d '1 hour ago' configure.ac
chmod +x configure tests/install-deps.sh "$work/bin/pkg-config"

# configured TIMES: true if configure has run that often
configured() { [ "$(grep -c run build/configured)" = "$1" ]; }
tests/build-tree.sh build && tests/build-tree.sh build
configured 1
result $? "a tree is not configured again when nothing changed"
GTEST=1.12 tests/build-tree.sh build
configured 2
result $? "a tree is configured again when a package arrived"
GTEST=1.12 tests/build-tree.sh build --enable-x
configured 3
result $? "a tree is configured again with other options"
cleaned=$(wc -l <build/cleaned)
GTEST=1.12 tests/build-tree.sh build --enable-y
[ "$(wc -l <build/cleaned)" = "$cleaned" ] && FLAGS=-O1 GTEST=1.12 tests/build-tree.sh build --enable-x && [ "$(wc -l <build/cleaned)" -gt "$cleaned" ]
result $? "a tree is compiled again with other flags alone"

./run-tests.sh --quick >out 2>&1
[ $? = 1 ] && grep -q '^not ok: .*without GoogleTest' out
result $? "the test command fails without GoogleTest"
export GTEST=1.12
./run-tests.sh --quick >out 2>&1
[ $? = 1 ] && grep -q '^not ok: .*libibverbs.* is not built' out
result $? "the test command fails without softverbs"
mkdir -p build/tests/softverbs/.libs && touch build/tests/softverbs/.libs/libsoftverbs.so
./run-tests.sh --quick >out 2>&1 && tail -n 2 out | head -n 1 | grep -q '^ran 3 programs$' &&
    tail -n 1 out | grep -q '^5 passed, 0 failed, 1 skipped$'
result $? "the test command says how many programs it ran"

cat >"$work/broken" <<'SAID'
tests/unit/test_sound                          2 passed   0 failed   0 skipped     0 s    0.0 cpu
tests/unit/test_broken                         1 passed   1 failed   0 skipped     0 s    0.0 cpu
    | [       OK ] Broken.First (0 ms)
    | tests/unit/test_broken.cc:7: Failure
    | [  FAILED  ] Broken.Second (0 ms)
tests/unit/test_last                           2 passed   0 failed   0 skipped     0 s    0.0 cpu
ran 3 programs
5 passed, 1 failed, 0 skipped
SAID
CHECKED=$work/broken ./run-tests.sh --quick >out 2>&1
[ $? = 1 ] && sed -i '1,/^== what failed$/d' out && grep -q 'test_broken  .* 1 failed' out && grep -q 'test_broken.cc:7: Failure' out && ! grep -qE 'test_(sound|last)' out
result $? "what failed is said again at the end"

cat >"$work/skips" <<'SAID'
tests/unit/test_a                              2 passed   0 failed   1 skipped     0 s    0.0 cpu
    tests/unit/test_a.cc:7: Skipped
    the sanitizer owns the allocator
tests/unit/b.sh                                2 passed   0 failed   1 skipped     0 s    0.0 cpu
    skip torch_parts: python3 has no PyTorch
SAID
sed '$s/PyTorch/memory/' "$work/skips" >"$work/other_skips"
printf 'ran 2 programs\n4 passed, 0 failed, 2 skipped\n' | tee -a "$work/other_skips" >>"$work/skips"
CI=1 CHECKED=$work/skips ./run-tests.sh --quick >out 2>&1 && CHECKED=$work/other_skips ./run-tests.sh --quick >out 2>&1
result $? "skips that are expected pass on CI, and others elsewhere"
CI=1 CHECKED=$work/other_skips ./run-tests.sh --quick >out 2>&1
[ $? = 1 ] && grep -q '^not ok: .*tests/expected-skips .*python3 has no memory' out && tail -n 1 out | grep -q '^4 passed, 1 failed, 2 skipped$'
result $? "a skip that is not expected fails on CI"

INSTALL=7 ./run-tests.sh --quick >out 2>&1
[ $? != 0 ] && tail -n 1 out | grep -q '^0 passed, 1 failed, 0 skipped$'
result $? "the counts come last when a package cannot be installed"
ON_BUILD=false ./run-tests.sh --quick >out 2>&1
[ $? = 1 ] && grep -q '^not ok: .* the tests do not build' out && tail -n 1 out | grep -q '^0 passed, 1 failed, 0 skipped$'
result $? "the counts come last when the tests do not build"
rm -f building
ON_BUILD='echo $PPID >building; exec sleep 100' ./run-tests.sh --quick >out 2>&1 &
command=$!
for ((i = 0; i < 600; i++)); do [ -s building ] || [ -s build/building ] && break || sleep 0.1; done
kill -TERM $command
kill -TERM "$(cat build/building)"
wait $command
[ $? = 143 ] && tail -n 1 out | grep -q '^0 passed, [12] failed, 0 skipped$'
result $? "the counts come last when the command is ended"

# README's commands to build from the source, after the demo has built. The programs that they call are stubs.
mkdir -p "$work/stubs" build
printf '#!/bin/sh\n[ "${0##*/}" != sudo ] || exec "$@"\n' >"$work/stubs/sudo"
chmod +x "$work/stubs/sudo"
for program in autoreconf make; do
    ln -s sudo "$work/stubs/$program"
done
commands=$(grep -E '^    (tests/install-deps.sh|autoreconf|make && sudo make) ' "$PVN_SRCDIR/README.md")
[ "$(wc -l <<<"$commands")" = 3 ] && PATH=$work/stubs:$PATH bash -e -c "$commands" >out 2>&1
result $? "README's commands build from the source after the demo"

# A PATH without the programs that make packages: all of /usr/bin but those.
mkdir "$work/few"
ln -s /usr/bin/* "$work/few/"
rm -f "$work/few"/{xz,dh,git,rpmbuild}
# without WHAT THE-PROGRAMS COMMAND...: COMMAND fails and names the missing programs with their packages before it
# builds
without() {
    local what=$1 says=$2
    shift 2
    ! PATH=$work/few timeout 60 "$@" >out 2>&1 && grep -q "$says" out && ! grep -q 'dist-xz' out
    result $? "$what says what is missing, before it builds anything"
}
without "make deb" '^make deb needs what is not installed: xz, dh: apt-get install xz-utils debhelper, or dnf install xz debhelper$' \
    make -C "$PVN_BUILDDIR" --no-print-directory deb
without "make rpm" '^make rpm needs .*: xz, rpmbuild: .*, or dnf install xz rpm-build$' make -C "$PVN_BUILDDIR" --no-print-directory rpm
without release.sh '^release.sh needs .*: git, xz: apt-get install git xz-utils,' "$PVN_SRCDIR/plugin/packaging/release.sh" "$work/release"

# If nothing is installed, one message names everything that a release needs, so that there is one failure and not
# several.
mkdir "$work/none"
ln -s "$(command -v bash)" "$(command -v dirname)" "$work/none/"
! PATH=$work/none "$PVN_SRCDIR/plugin/packaging/release.sh" "$work/release" >out 2>&1 && [ "$(wc -l <out)" = 1 ] && [ ! -e "$work/release" ]
result $? "release.sh names in one line what is missing"
# The tools are C; g++ is needed by tests only.
for package in $(sed -n '/^build=(/,/)/p' "$PVN_SRCDIR/tests/install-deps.sh" | sed 's/build=(//; s/)//'); do
    [ "$package" = g++ ] || grep -qE "apt-get install.* ${package}[ ,]" out || echo "$package"
done >unnamed
cat unnamed
[ ! -s unnamed ]
result $? "release.sh names each package that building needs"
"$PVN_SRCDIR/plugin/packaging/needs.sh" it stdio.h:libc6-dev:glibc-devel pvn/no.h:libno-dev:no-devel pvn/no2.h:libno2-dev:no-devel >out 2>&1
[ $? = 1 ] && grep -qx 'it needs what is not installed: pvn/no.h, pvn/no2.h: apt-get install libno-dev libno2-dev, or dnf install no-devel' out
result $? "a header that is missing is named, with its package, and one that is there is not"
