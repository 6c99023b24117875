#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Circles of calls between the files of a folder, for `tests/lint.sh cycles`.

usage: circles.py REGISTERED FILE...     C files and headers; paths are from the root of the source

A file needs another one whose functions or data it names; a header does by its inline functions and macros.
A call through a field of a struct (x->ops->poll(x)) needs every file of the folder whose function is put into
that field anywhere. NAME.c may use the inline functions of NAME.h, and has their needs. A callback that is
a parameter does not count.

REGISTERED has lines "STRUCT.FIELD...: reason": functions in these fields are registered from above, and calls
through them do not count. A field is reported if there are no more circles without it on the list.
"""
import collections
import os
import re
import sys

TOKEN = re.compile(r'[A-Za-z_]\w*|->|\.\.\.|\d[\w.]*|\S')
COMMENTS = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
MACRO = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)\(([^)]*)\)((?:\\\n|[^\n])*)', re.M)
DIRECTIVE = re.compile(r'^[ \t]*#(?:\\\n|[^\n])*', re.M)
KEYWORDS = set('''if else for while do switch case default break continue return goto sizeof struct union enum const
    volatile static inline extern typedef unsigned signed int char long short void bool float double _Bool
    __attribute__ restrict _Static_assert _Thread_local _Atomic __typeof__ typeof'''.split())
STORAGE = {'static', 'inline', 'extern', 'const', 'volatile', 'unsigned', 'signed', '_Thread_local', '__thread'}
PAIRS = {'(': ')', '[': ']', '{': '}'}


def is_name(token):
    return (token[0].isalpha() or token[0] == '_') and token not in KEYWORDS


def tokens(text):
    return TOKEN.findall(text)


def close(toks, at):
    """The index of the bracket that ends the one at `at`."""
    depth = 0
    for i in range(at, len(toks)):
        if toks[i] in '([{':
            depth += 1
        elif toks[i] in ')]}':
            depth -= 1
            if depth == 0:
                return i
    return len(toks) - 1


def opening(toks, at):
    """The index of the bracket that the one at `at` ends."""
    depth = 0
    for i in range(at, -1, -1):
        if toks[i] in ')]}':
            depth += 1
        elif toks[i] in '([{':
            depth -= 1
            if depth == 0:
                return i
    return 0


def split(toks, separator=','):
    """The parts of a list, without the separators that are within brackets."""
    parts, part, depth = [], [], 0
    for t in toks:
        if t in '([{':
            depth += 1
        elif t in ')]}':
            depth -= 1
        if t == separator and depth == 0:
            parts.append(part)
            part = []
        else:
            part.append(t)
    if part:
        parts.append(part)
    return parts


Function = collections.namedtuple('Function', 'file name private result params body')
Declared = collections.namedtuple('Declared', 'name type pointer')  # type: of a struct; pointer: to functions


class File:
    def __init__(self, path):
        self.path = path
        self.folder = os.path.dirname(path)
        self.functions = []
        self.data = []  # (name, private, type, tokens of the initialiser)


class Source:
    """Everything that the files declare and define."""

    def __init__(self, paths):
        self.structs = {}      # name of a struct -> field -> Declared
        self.pointers = set()  # typedefs of pointers to functions
        self.results = {}      # function -> struct that it returns
        self.files = []
        texts = [(p, self.cleaned(p)) for p in paths]
        for _, text in texts:
            self.pointers.update(re.findall(r'\btypedef\b[^;{]*?\(\s*\*\s*(\w+)\s*\)\s*\(', text))
        for path, text in texts:
            self.files.append(self.parse(File(path), text))

    @staticmethod
    def cleaned(path):
        with open(path, encoding='utf-8', errors='replace') as f:
            return COMMENTS.sub(lambda m: '0' if m[0][0] in '"\'' else ' ', f.read())

    def declarators(self, toks):
        """Names and types in a declaration: `const struct a *b, c[4]`, `int (*f)(void)`, `fn_type f`."""
        struct = pointer = None
        i = 0
        while i < len(toks) and toks[i] in STORAGE:
            i += 1
        if i + 1 < len(toks) and toks[i] in ('struct', 'union', 'enum'):
            struct = toks[i + 1] if is_name(toks[i + 1]) else None
            i += 2 if struct else 1
            if i < len(toks) and toks[i] == '{':
                if not struct:
                    struct = 'anonymous %d' % len(self.structs)
                self.fields(struct, toks[i + 1:close(toks, i)])
                i = close(toks, i) + 1
        elif i < len(toks):
            pointer = toks[i] in self.pointers
            while i + 1 < len(toks) and toks[i] in KEYWORDS and toks[i + 1] in KEYWORDS:
                i += 1
            i += 1
        out = []
        for part in split(toks[i:]):
            j = 0
            while j < len(part) and part[j] in ('*', 'const', 'volatile', 'restrict'):
                j += 1
            if part[j:j + 2] == ['(', '*']:
                names = [t for t in part[j:close(part, j)] if is_name(t)]
                if names:
                    out.append(Declared(names[0], None, True))
            elif j < len(part) and is_name(part[j]):
                out.append(Declared(part[j], struct, bool(pointer)))
        return out, struct

    def fields(self, struct, toks):
        known = self.structs.setdefault(struct, {})
        for part in split(toks, ';'):
            declared, inner = self.declarators(part)
            for d in declared:
                known[d.name] = d
            if not declared and inner in self.structs:  # an anonymous struct or union within
                known.update(self.structs[inner])

    def parse(self, f, text):
        for name, params, body in MACRO.findall(text):
            body = tokens(body.replace('\\\n', ' '))
            f.functions.append(Function(f, name, not f.path.endswith('.h'), None,
                                        [Declared(p.strip(), None, False) for p in params.split(',')], body))
        toks = tokens(DIRECTIVE.sub(' ', text))
        start = i = 0
        while i < len(toks):
            if toks[i] in '([':
                i = close(toks, i)
            elif toks[i] == '{':
                end = close(toks, i)
                if self.function(f, toks[start:i], toks[i + 1:end]):
                    start = end + 1
                i = end
            elif toks[i] == ';':
                self.declaration(f, toks[start:i])
                start = i + 1
            i += 1
        return f

    def function(self, f, head, body):
        while len(head) > 3 and head[-1] == ')' and '__attribute__' in head:
            at = opening(head, len(head) - 1)
            if head[at - 1] != '__attribute__':
                break
            head = head[:at - 1]
        if not head or head[-1] != ')' or '=' in head:
            return False
        at = opening(head, len(head) - 1)
        if at < 1 or not is_name(head[at - 1]):
            return False
        name = head[at - 1]
        result = self.returns(head[:at - 1])
        params = []
        for p in split(head[at + 1:-1]):
            params.append((self.declarators(p)[0] or [Declared('', None, False)])[0])
        private = 'static' in head and f.path.endswith('.c')
        f.functions.append(Function(f, name, private, result, params, body))
        if result:
            self.results[name] = result
        return True

    @staticmethod
    def returns(toks):
        return next((toks[i + 1] for i in range(len(toks) - 1) if toks[i] == 'struct'), None)

    def declaration(self, f, toks):
        if not toks or toks[0] in ('_Static_assert',):
            return
        if 'typedef' in toks:
            self.declarators(toks[1:])
            return
        at = toks.index('=') if '=' in toks else len(toks)
        if at == len(toks) and '(' in toks and '{' not in toks:  # a prototype
            paren = toks.index('(')
            if paren and is_name(toks[paren - 1]):
                result = self.returns(toks[:paren - 1])
                if result:
                    self.results[toks[paren - 1]] = result
                return
        declared, struct = self.declarators(toks[:at])
        if 'extern' in toks or not declared:
            return
        f.data.append((declared[0].name, 'static' in toks, struct, toks[at + 1:]))


class Calls:
    """Which file needs which, and by which name."""

    def __init__(self, source):
        self.source = source
        self.own = collections.defaultdict(dict)           # file -> name -> (function or data)
        self.shared = collections.defaultdict(set)         # name -> files that define it for others
        self.put = collections.defaultdict(set)            # slot -> functions (file, name)
        self.copies = collections.defaultdict(set)         # slot -> slots whose functions it gets, too
        self.through = collections.defaultdict(set)        # node -> slots that it calls
        self.direct = collections.defaultdict(dict)        # (node, node) -> name
        self.params = {}                                   # function -> its params
        for f in source.files:
            for fn in f.functions:
                self.define(f, fn.name, fn.private)
                self.params[(f.path, fn.name)] = fn.params
            for name, private, _, _ in f.data:
                self.define(f, name, private)
        for f in source.files:
            for fn in f.functions:
                self.body(f, fn)
            for _, _, struct, init in f.data:
                self.refer(f, init, {})
                if init[:1] == ['{']:
                    self.initialise(f, struct, init, {}, None)
        self.flow()

    def define(self, f, name, private):
        self.own[f.path][name] = True
        if not private:
            self.shared[name].add(f)

    def find(self, f, name):
        """The files that define what f means by a name: its own, else its folder's, else any."""
        if name in self.own[f.path]:
            return [f]
        found = self.shared.get(name, ())
        return [g for g in found if g.folder == f.folder] or list(found)

    def functions(self, f, name):
        return {(g, name) for g in self.find(f, name) if (g.path, name) in self.params}

    def refer(self, f, toks, local):
        for i, t in enumerate(toks):
            if not is_name(t) or t in local or (i and toks[i - 1] in ('.', '->', 'struct', 'enum', 'goto')):
                continue
            for g in self.find(f, t):
                if g.path != f.path and g.folder == f.folder:
                    self.direct.setdefault((f.path, g.path), {}).setdefault(t)

    def locals(self, fn):
        known = {p.name: p for p in fn.params}
        toks, start = fn.body, 0
        for i, t in enumerate(toks + [';']):
            if t == ';' or (t in '{}' and (i == 0 or toks[i - 1] not in '=')):
                part = toks[start:i]
                while part and part[0] in ('for', '(', 'static', 'const', 'else', 'if') and len(part) > 2:
                    part = part[1:]
                # TYPE NAME, TYPE *NAME: two words, stars between them
                j = 2 if part and part[0] in ('struct', 'enum', 'union') else 1
                while j < len(part) and part[j - 1] in KEYWORDS and part[j] in KEYWORDS and part[0] not in ('struct', 'enum', 'union'):
                    j += 1
                k = j
                while k < len(part) and part[k] in ('*', 'const'):
                    k += 1
                ok = len(part) > 1 and (is_name(part[0]) or part[0] in KEYWORDS) and part[0] not in ('return', 'goto', 'case', 'sizeof')
                if ok and k < len(part) and (is_name(part[k]) or part[k:k + 2] == ['(', '*']) and \
                        (k + 1 == len(part) or part[k + 1] in ('=', ',', '[', '*')):
                    for d in self.source.declarators(part)[0]:
                        known.setdefault(d.name, d)
                start = i + 1
        return known

    def typed(self, f, toks, end, local):
        """The struct that the expression before index `end` has or points to."""
        i = end - 1
        while i >= 0 and toks[i] == ']':
            i = opening(toks, i) - 1
        if i < 0:
            return None
        if toks[i] == ')':
            at = opening(toks, i)
            if at > 0 and is_name(toks[at - 1]):
                return self.source.results.get(toks[at - 1])
            inner = toks[at + 1:i]
            if inner[:1] == ['('] and 'struct' in inner[:close(inner, 0)]:
                return self.source.returns(inner[:close(inner, 0)])
            while inner and inner[0] in ('*', '&'):
                inner = inner[1:]
            return self.typed(f, inner, len(inner), local)
        name = toks[i]
        if not is_name(name):
            return None
        if i and toks[i - 1] in ('.', '->'):
            outer = self.typed(f, toks, i - 1, local)
            field = self.source.structs.get(outer, {}).get(name)
            return field.type if field else None
        if name in local:
            return local[name].type
        for g in self.find(f, name):
            for n, _, struct, _ in g.data:
                if n == name:
                    return struct
        return None

    def slots(self, f, toks, at, local):
        """The fields that the member named at index `at` may be: of its struct, else of all that have such a one."""
        name = toks[at]
        struct = self.typed(f, toks, at - 1, local)
        if struct in self.source.structs:
            field = self.source.structs[struct].get(name)
            return {struct + '.' + name} if field and field.pointer else set()
        return {s + '.' + name for s, fields in self.source.structs.items() if name in fields and fields[name].pointer}

    def value(self, f, toks, local, fn, slot):
        """Notes which functions an expression puts into a slot."""
        for i, t in enumerate(toks):
            if not is_name(t) or toks[i + 1:i + 2] == ['(']:
                continue
            if i and toks[i - 1] in ('.', '->'):
                self.copies[slot] |= self.slots(f, toks, i, local)
            elif t in local:
                if local[t].pointer and fn:
                    self.copies[slot].add('%s:%s(%s)' % (f.path, fn.name, t))
            else:
                self.put[slot] |= self.functions(f, t)

    def initialise(self, f, struct, toks, local, fn):
        """{...} of a struct, or of an array of them."""
        fields = self.source.structs.get(struct)
        if not fields:
            return
        order = list(fields.values())
        place = 0
        for part in split(toks[1:close(toks, 0)]):
            if part[0] == '[':
                part = part[close(part, 0) + 2:]
            if not part:
                continue
            if part[0] == '.' and '=' in part:
                d = fields.get(part[1])
                rest = part[part.index('=') + 1:]
                if d in order:
                    place = order.index(d)
                if part[2] != '=':
                    d = None
            else:
                rest = part
                d = order[place] if place < len(order) else None
            if rest[:1] == ['{']:
                inner = d.type if d and d.type else None
                self.initialise(f, inner or struct, rest, local, fn)
                if not inner and part[0] != '.':
                    continue  # an element of an array
            elif d and d.pointer:
                self.value(f, rest, local, fn, struct + '.' + d.name)
            place += 1

    def body(self, f, fn):
        toks, local = fn.body, self.locals(fn)
        self.refer(f, toks, local)
        for i, t in enumerate(toks):
            after = toks[i + 1] if i + 1 < len(toks) else ''
            member = i and toks[i - 1] in ('.', '->') and is_name(t)
            if member and after == '(':
                self.through[f.path] |= self.slots(f, toks, i, local)
            elif member and after == '=' and toks[i + 2:i + 3] != ['='] and i > 1 and \
                    (is_name(toks[i - 2]) or toks[i - 2] in ')]'):
                for slot in self.slots(f, toks, i, local):
                    self.value(f, split(split(toks[i + 2:], ';')[0])[0], local, fn, slot)
            elif t == '(' and toks[i + 1:i + 2] == ['struct'] and toks[close(toks, i) + 1:][:1] == ['{']:
                self.initialise(f, toks[i + 2], toks[close(toks, i) + 1:], local, fn)
            elif t == '=' and after == '{' and i:
                j = i - 1
                while j > 0 and toks[j] == ']':
                    j = opening(toks, j) - 1
                if toks[j] in local:
                    self.initialise(f, local[toks[j]].type, toks[i + 1:], local, fn)
            elif is_name(t) and after == '(' and not member:
                for g, name in self.functions(f, t):
                    args = split(toks[i + 2:close(toks, i + 1)])
                    for p, arg in zip(self.params[(g.path, name)], args):
                        if p.pointer:
                            self.value(f, arg, local, fn, '%s:%s(%s)' % (g.path, name, p.name))

    def flow(self):
        changed = True
        while changed:
            changed = False
            for slot, others in list(self.copies.items()):
                for other in others:
                    more = self.put.get(other, set()) - self.put[slot]
                    if more:
                        self.put[slot] |= more
                        changed = True

    def edges(self, registered):
        out = {k: {n: None for n in v} for k, v in self.direct.items()}
        for node, slots in self.through.items():
            for slot in slots - registered:
                for g, name in self.put.get(slot, ()):
                    if g.path != node and g.folder == os.path.dirname(node):
                        out.setdefault((node, g.path), {})['%s: %s' % (slot, name)] = None
        for a, b in list(out):
            if a.endswith('.c') and b == a[:-1] + 'h':  # its own header
                del out[(a, b)]
                for c, d in list(out):
                    if c == b and d != a:
                        out.setdefault((a, d), {}).update(out[(c, d)])
        return out


def components(edges):
    """The sets of files that need each other."""
    after = collections.defaultdict(set)
    for a, b in edges:
        after[a].add(b)
    reach = {}
    for a in list(after):
        seen, todo = set(), [a]
        while todo:
            for b in after.get(todo.pop(), ()):
                if b not in seen:
                    seen.add(b)
                    todo.append(b)
        reach[a] = seen
    found = {frozenset(b for b in reach[a] if a in reach.get(b, ())) for a in reach if a in reach[a]}
    return sorted(found, key=min), after


def shortest(after, group, a, b):
    """The shortest path from a to b within a group."""
    before, todo = {a: None}, collections.deque([a])
    while todo:
        n = todo.popleft()
        if n == b:
            path = []
            while n:
                path.append(n)
                n = before[n]
            return path[::-1]
        for m in sorted(after[n] & group):
            if m not in before:
                before[m] = n
                todo.append(m)
    return []


def show(edges, path):
    def names(a, b):
        n = sorted(edges[(a, b)])
        return ', '.join(n[:3]) + (' and %d more' % (len(n) - 3) if len(n) > 3 else '')
    return os.path.basename(path[0]) + ''.join(' -> %s (%s)' % (os.path.basename(b), names(a, b))
                                               for a, b in zip(path, path[1:]))


def report(edges):
    groups, after = components(edges)
    for group in groups:
        print('%s: %d files need each other:' % (os.path.dirname(min(group)), len(group)))
        circles = {}
        for a, b in sorted(edges):
            if a in group and b in group:
                files = shortest(after, group, b, a)
                first = files.index(min(files))
                circle = files[first:] + files[:first + 1]
                circles[frozenset(zip(circle, circle[1:]))] = circle
        named = set()
        for _, circle in sorted(circles.items(), key=lambda c: (len(c[0]), c[1])):
            if not named.issuperset(circle):  # each file once, by a short circle
                named.update(circle)
                print('    ' + show(edges, circle))


def main():
    registered = set()
    with open(sys.argv[1], encoding='utf-8') as f:
        for line in f:
            registered.update(line.split(':')[0].split())
    calls = Calls(Source(sys.argv[2:]))
    edges = calls.edges(registered)
    report(edges)
    circles = components(edges)[0]
    for field in sorted(registered):
        if components(calls.edges(registered - {field}))[0] == circles:
            print('%s: no circle needs it on the list any more' % field)


main()
