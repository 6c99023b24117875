# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the commands of the pages for users that begin with a word, each once: PLACE, tab, command.

From the blocks of code, the EXAMPLES of the man pages and what stands in backquotes or bold in a sentence.
usage: lines.py WORD
"""
import re
import sys

import pages


def in_sentences(page, text):
    """Commands of several words within a paragraph."""
    found = re.finditer(r"`([^`\n]+)`|^\.BR? \"([^\"]+)\"", text, re.M)
    return [pages.Block(page, text[:m.start()].count("\n") + 1, None, [pages.unroff(m.group(1) or m.group(2))]) for m in found]


def commands(word):
    man = [p + ".in" for p in list(pages.MAN.values()) + ["plugin/docs/nccl-net-pvrdma.7"]]
    blocks = [b for p in pages.PAGES for b in pages.markdown_blocks(p)] + [b for p in man for b in pages.man_blocks(p)]
    blocks += [b for p in pages.PAGES + man for b in in_sentences(p, pages.read(p))]
    seen = set()
    for block in blocks:
        text = "\n".join(block.lines)
        if text.startswith("#!"):
            continue
        for line in re.sub(r"\\\n *", "", text).split("\n"):
            line = re.sub(r"\s+#.*", "", line).removeprefix("$ ").strip()
            if line.startswith(word + " ") and line not in seen:
                seen.add(line)
                print("%s\t%s" % (block.place(), line))


def batch_scripts():
    for block in [b for p in pages.PAGES for b in pages.markdown_blocks(p)]:
        if any(s.startswith("#SBATCH") for s in block.lines):
            print("\n".join(block.lines))


if __name__ == "__main__":
    if sys.argv[1] == "sbatch":
        batch_scripts()
    else:
        commands(sys.argv[1])
