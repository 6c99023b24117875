# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that plugin/docs/messages.md has every message of the plugin and no others.

Messages are the format strings of calls to the functions below. A row of the page quotes a message with "..." for the
variable parts; one quotation may stand for several messages. Messages of plugin/seal are quoted under "A key". The last
table is made from plugin/base/hints.c."""
import glob
import os
import re

CALLS = ("pvn_err_set", "pvn_err_add", "pvn_warn", "comm_refuse", "comm_refuse_elsewhere", "eng_fail", "give_up",
         "peer_has_ended")
CONVERSION = re.compile(r"%[-+ #0]*(\*|\d+)?(\.(\*|\d+))?(hh|h|ll|l|z|j|t)?[a-zA-Z]")
SECTION = {"plugin/seal": "A key"}  # the section for a folder's messages; others may be in any section
MARK = "<!-- what follows is written from plugin/base/hints.c by PVN_UPDATE_GOLDEN=1 tests/docs/test_pages.sh -->\n"


def arguments(text, at):
    """Returns the arguments of the call whose parenthesis opens before `at`."""
    out, depth, quoted = [""], 1, False
    while depth:
        c = text[at]
        if quoted and c == "\\":
            out[-1] += c + text[at + 1]
            at += 2
            continue
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "([{":
            depth += 1
        elif not quoted and c in ")]}":
            depth -= 1
        if c == "," and depth == 1 and not quoted:
            out.append("")
        elif depth:
            out[-1] += c
        at += 1
    return out


def formats(path):
    """Yields the format string of each call, with \\0 for each conversion."""
    with open(path, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    for m in re.finditer(r"\b(?:%s)\s*\(" % "|".join(CALLS), text):
        for a in arguments(text, m.end()):
            literals = re.findall(r'"((?:[^"\\]|\\.)*)"', a)
            if literals:
                # A name between two literals is a macro, which stands for a conversion or for text.
                whole = "".join(literals).replace('\\"', '"') if "?" not in a else "\0".join(literals)
                whole = CONVERSION.sub("\0", whole)
                if sum(c.isalpha() for c in whole) >= 4 and " " in whole.strip():
                    yield whole
                break


def sources(src):
    for pattern in ("plugin/*/*.c", "net-*/*.c"):
        for path in sorted(glob.glob(os.path.join(src, pattern))):
            if os.path.basename(os.path.dirname(path)) not in ("perf", "docs"):
                yield path


def quotations(page):
    """Returns the quotations in the first column of the page's own tables as regular expressions, by section and text."""
    out, section = {}, ""
    for line in page.split("\n"):
        if line.startswith("#"):
            section = line.lstrip("# ")
        if not line.startswith("| `"):
            continue
        for q in re.findall(r"`([^`]*)`", line.split(" | ")[0]):
            parts = [re.escape(p) for p in re.split(r"\.\.\.", q) if p.strip()]
            out[section, q] = re.compile(".*".join(parts), re.S)
    return out


def missing(src, hints):
    path = os.path.join(src, "plugin/docs/messages.md")
    with open(path, encoding="utf-8") as f:
        page = f.read()
    own, _, table = page.partition(MARK)
    bad = []
    if os.environ.get("PVN_UPDATE_GOLDEN"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(own + MARK + hints)
    elif table != hints:
        bad.append("plugin/docs/messages.md: its last table is not that of plugin/base/hints.c; run "
                   "PVN_UPDATE_GOLDEN=1 tests/docs/test_pages.sh and read the difference")
    quoted = quotations(own)
    bad += ["plugin/docs/messages.md: '%s' is too short to stand for a message" % q for _, q in quoted
            if sum(c.isalpha() for c in q) < 5]
    used = set()
    for source in sources(src):
        section = SECTION.get(os.path.relpath(os.path.dirname(source), src))
        for message in formats(source):
            hits = [key for key, pattern in quoted.items() if pattern.search(message) and section in (None, key[0])]
            used.update(hits)
            if not hits:
                bad.append("plugin/docs/messages.md has no row for '%s' (%s)%s: quote it there, with meaning and remedy"
                           % (message.replace("\0", "..."), os.path.relpath(source, src),
                              " under \"%s\"" % section if section else ""))
    bad += ["plugin/docs/messages.md: no message is '%s' any more" % q for key in quoted if key not in used for q in key[1:]]
    return bad
