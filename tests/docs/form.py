# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the form of a man page: a short description, examples, options as a list, no long paragraph."""
import os
import re
import subprocess

COLUMNS = 80
LONGEST = 8         # lines of one paragraph
DESCRIPTION = 14    # lines before the examples


def rendered(page, text):
    """Returns a page's lines at 80 columns. The name is only for messages, because man reads the text from standard input."""
    env = dict(os.environ, MANWIDTH=str(COLUMNS), LC_ALL="C.UTF-8", MANPAGER="cat", MANROFFOPT="-c")
    r = subprocess.run(["man", "-E", "UTF-8", "-l", "-"], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True, env=env, check=False)
    if r.returncode != 0:
        raise RuntimeError("%s: man: %s" % (page, r.stderr))
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", r.stdout).split("\n")


def sections(lines):
    """Returns the name and the lines of each section, in the page's order."""
    found = []
    for line in lines[1:]:
        if re.match(r"[A-Z]", line):
            found.append((line.strip(), []))
        elif found:
            found[-1][1].append(line)
    return found


def paragraphs(lines):
    """Yields the paragraphs as lists of lines. Sub-headings, and tags with their text indented below, belong to none."""
    run = []
    for line in lines + [""]:
        indent = len(line) - len(line.lstrip())
        if run and (not line.strip() or indent <= 3 or indent > len(run[-1]) - len(run[-1].lstrip())):
            yield run
            run = []
        if line.strip() and indent > 3:
            run.append(line)


def tags(text):
    """Returns the options with an entry of their own, which is the line after .TP or .TQ."""
    lines = re.findall(r"^\.T[PQ].*\n((?:.*\\\n)*.*)$", text.replace(r"\-", "-"), re.M)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", "\n".join(lines)))


def wrong_in(page, text, options):
    """Yields the faults of a page, whose tool has these options."""
    parts = sections(rendered(page, text))
    order = [name for name, lines in parts]
    if order[:4] != ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES"]:
        yield "its sections begin with %s, not NAME, SYNOPSIS, DESCRIPTION, EXAMPLES" % ", ".join(order[:4])
    length = len(dict(parts).get("DESCRIPTION", []))
    if length > DESCRIPTION:
        yield "%d lines of DESCRIPTION before the examples, at most %d" % (length, DESCRIPTION)
    for option in sorted(options - tags(text)):
        yield "%s has no entry of its own in a list" % option
    # A block of code is no paragraph.
    filled = re.sub(r"^\.nf$.*?^\.fi$", ".PP", text, flags=re.M | re.S)
    for name, lines in sections(rendered(page, filled)):
        for run in paragraphs(lines):
            if len(run) > LONGEST:
                yield "%s: a paragraph of %d lines, at most %d: %s" % (name, len(run), LONGEST, run[0].strip())
