#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/support/circles.py, on small sources: it reports each circle, whatever kind of call forms it, and nothing else.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# source NAME: starts an empty source, to which the test adds files
source() {
    rm -rf "${work:?}"/*
    mkdir d e
    : >registered
}
# finds NAME LINE...: expects these lines of output for the source, besides the line that counts the files
finds() {
    local name=$1
    shift
    printf '%s\n' "$@" >want
    python3 "$PVN_SRCDIR/tests/support/circles.py" registered $(ls d/* e/* 2>/dev/null) 2>&1 | sed '/ files need each other:$/d;s/^ *//' >got
    [ $# -gt 0 ] || : >want
    if cmp -s want got; then
        echo "ok $name"
    else
        echo "not ok $name"
        diff want got | sed 's/^/  /'
    fi
}

source
echo 'void b(void); void a(void) { b(); }' >d/a.c
echo 'void a(void); void b(void) { a(); }' >e/b.c
finds "files of two folders are no circle"

source
echo 'int data; void b(void); void a(void) { b(); }' >d/a.c
echo 'void c(void); void b(void) { c(); }' >d/b.c
echo 'extern int data; void c(void) { data++; }' >d/c.c
finds "calls and data" "a.c -> b.c (b) -> c.c (c) -> a.c (data)"

source
echo 'struct x { const struct ops *ops; }; struct ops { int n; void (*f)(int); void (*g)(int); };' >d/x.h
echo 'void b(struct x *x) { x->ops->g(1); }' >d/b.c
echo 'void b(struct x *x); static void f(int n) { b(0); } const struct ops table = {.f = f};' >d/a.c
finds "a call through another field of a table"
echo 'void b(struct x *x); static void f(int n) { b(0); } const struct ops table = {3, 0, f};' >d/a.c
finds "a call through a table" "a.c -> b.c (b) -> a.c (ops.g: f)"
echo 'ops.g: made by a' >registered
finds "a call that is registered from above"
echo 'void b(struct x *x) { }' >d/b.c
finds "a field that is on the list and in no circle" "ops.g: no circle needs it on the list any more"

source
echo 'struct ops { void (*f)(int); }; struct x { struct ops ops[2]; };' >d/x.h
echo 'void b(struct x *x, int i) { (*(&x->ops[i])).f(1); }' >d/b.c
echo 'static void fill(struct x *x, void (*f)(int)) { x->ops[1].f = f; }
void b(struct x *x, int i); static void g(int n) { b(0, n); } void a(struct x *x) { fill(x, g); }' >d/a.c
finds "a table that is filled by a function" "a.c -> b.c (b) -> a.c (ops.f: g)"

source
echo 'void b(void); static inline void a(void) { b(); }' >d/a.h
echo 'void b(void) { a(); }' >d/b.c
finds "an inline function" "a.h -> b.c (b) -> a.h (a)"
echo 'static inline void b2(void); void b(void) { b2(); }' >d/b.c
echo 'void a(void); void b(void); static inline void b2(void) { a(); }' >d/b.h
echo 'void b(void); void a(void) { b(); }' >d/a.c
rm d/a.h
finds "an inline function of the own header" "a.c -> b.c (b) -> a.c (a)"

source
echo '#define A(x) (b(), \\
    (x))' >d/a.h
echo 'int b(void) { return A(1); }' >d/b.c
finds "a macro" "a.h -> b.c (b) -> a.h (A)"

source
echo 'void b(void (*f)(int)) { f(1); }' >d/b.c
echo 'void b(void (*f)(int)); void f(int n); void a(void) { b(f); } void f(int n) { }' >d/a.c
finds "a callback that is passed"

source
echo 'void b(void); void same(void); static void mine(void) { b(); same(); }' >d/a.c
echo 'static void mine(void); /* same(); */ void b(void) { int same = 0; mine(); } static void mine(void) { }' >d/b.c
finds "names that are a file's own, a variable's, or in a comment"
