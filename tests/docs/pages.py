# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages for users: README.md, plugin/USERS.md, plugin/docs/*.md and the man pages.

Before each block of code a page has a comment, which readers do not see, with the kind of the block:
    <!-- run -->                 commands that are run here; all must succeed
    <!-- run: status 0 or 1 -->  the same, with the exit statuses that count as success
    <!-- run: needs dot -->      the same, if that program is installed
    <!-- not run: REASON -->     commands that cannot run here (this test's output lists them)
    <!-- text -->                no commands: a log, a configuration
In a block that is run, lines that begin with "$ " are commands, and the other lines are their output, of which "..."
leaves out lines. Without any "$ " all lines are commands. Blocks that begin with "$ pvn-topo" need no comment in the
pages that tests/topo/test_cli compares. In the EXAMPLES of a man page .\\" run and .\\" not run: REASON apply to the
lines that follow.
"""
import glob
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile

import form
import messages
import names

SRC, BUILD = os.environ["PVN_SRCDIR"], os.path.abspath(os.environ["PVN_BUILDDIR"])
PAGES = ["README.md", "plugin/USERS.md"] + sorted(
    os.path.relpath(p, SRC) for p in glob.glob(SRC + "/plugin/docs/*.md"))
LINKED = PAGES + ["HACKING.md", "plugin/ARCHITECTURE.md"]
MAN = {"pvn-perf": "plugin/perf/pvn-perf.1", "pvn-topo": "topo/pvn-topo.1"}

# The pages whose examples of pvn-topo's output are compared by tests/topo/test_cli.
COMPARED = ("plugin/docs/cluster.md", "plugin/docs/troubleshooting.md", "plugin/docs/vsphere.md")

# Replacements for the commands in a page: the tools of this tree, on loopback, with fewer measurements.
TOOLS = {
    "pvn-topo": 'exec "$PVN_BUILDDIR/topo/pvn-topo" "$@"',
    "pvn-perf": """
args=() before= quick=()
for a; do
    [ "$a" != bert-large ] || a=resnet50
    [ "$before" != --repeat ] || a=2
    args+=("$a")
    before=$a
done
case ${1:-} in p2p | ring | scale) quick=(--iters 1 --warmup 0) ;; esac
exec "$PVN_BUILDDIR/pvn-perf" "${args[@]}" ${quick[@]+"${quick[@]}"}""",
}


class Block:
    def __init__(self, page, line, mark, lines):
        self.page, self.line, self.mark, self.lines = page, line, mark, lines

    def place(self):
        return "%s:%d" % (self.page, self.line)


def read(path):
    with open(path if os.path.isabs(path) else os.path.join(SRC, path), encoding="utf-8") as f:
        return f.read()


def markdown_blocks(page):
    """Returns the blocks of code, fenced or indented, each with its mark, which is the comment in the line before."""
    lines = read(page).split("\n")
    blocks, i = [], 0
    while i < len(lines):
        mark = re.fullmatch(r"<!-- (.*) -->", lines[i - 1]) if i else None
        mark = mark and mark.group(1)
        blank = i == 0 or not lines[i - 1] or mark
        if lines[i].startswith("```"):
            end = lines.index("```", i + 1)
            blocks.append(Block(page, i + 1, mark, lines[i + 1:end]))
            i = end
        elif blank and lines[i].startswith("    "):
            end = i
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end]):
                end += 1
            while not lines[end - 1]:
                end -= 1
            blocks.append(Block(page, i + 1, mark, [s[4:] for s in lines[i:end]]))
            i = end
        i += 1
    return blocks


def unroff(text):
    text = re.sub(r"\\f.", "", text)
    for roff, plain in ((r"\-", "-"), (r"\(dq", '"'), (r"\(cq", "'"), (r"\&", ""), (r"\e", "\\")):
        text = text.replace(roff, plain)
    return text


def man_blocks(page):
    """Returns the blocks of unfilled lines in EXAMPLES, each with the comment above it."""
    text = read(page)
    at = text.index(".SH EXAMPLES")
    number = text[:at].count("\n") + 1
    blocks, mark, code = [], None, False
    for line in text[at:].split("\n")[1:]:
        number += 1
        if line.startswith(".SH"):
            break
        comment = re.fullmatch(r'\.\\" (.*)', line)
        if comment:
            mark = comment.group(1)
        elif line in (".nf", ".fi"):
            code = line == ".nf"
        elif code and line and not line.startswith("."):
            if blocks and (blocks[-1].mark is mark or blocks[-1].lines[-1].endswith("\\")):
                blocks[-1].lines.append(unroff(line))
            else:
                blocks.append(Block(page, number, mark, [unroff(line)]))
    return blocks


def shown(want, got):
    """Searches the output for a page's lines, in this order. Returns the first line that is missing."""
    at, gap = 0, False
    for line in want:
        if line == "...":
            gap = True
            continue
        found = at
        while gap and found < len(got) and got[found] != line:
            found += 1
        if found >= len(got) or got[found] != line:
            return line
        at, gap = found + 1, False
    return None


def shell(script, where, env):
    """Runs a script for at most 120 s. All processes that it has started end with it."""
    command = ["timeout", "-k", "5", "120", "bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=where, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)


def run_block(block, good, where, env):
    """Runs a block. Returns its fault, or None."""
    if not any(s.startswith("$ ") for s in block.lines):
        parts = [("\n".join(block.lines), [])]
    else:
        parts = []
        for line in block.lines:
            if line.startswith("$ "):
                parts.append((line[2:], []))
            else:
                parts[-1][1].append(line)
    for script, want in parts:
        r = shell(script, where, env)
        if r.returncode not in good:
            return "%s\nstatus %d\n%s%s" % (script, r.returncode, r.stdout[-2000:], r.stderr[-2000:])
        missing = shown(want, r.stdout.rstrip("\n").split("\n"))
        if missing is not None:
            return "%s does not print: %s\nit prints:\n%s" % (script, missing, r.stdout)
    return None


def good_statuses(mark):
    """Returns the exit statuses that a block may have; none if it is not run."""
    status = re.fullmatch(r"run(?:: status (\d+)(?: or (\d+))?)?", mark)
    if status:
        return {int(s) for s in status.groups() if s} or {0}
    needed = re.fullmatch(r"run: needs (\S+)", mark)
    return {0} if needed and shutil.which(needed.group(1)) else set()


def commands(work):
    """Runs the blocks that can be run. Returns the problems, one per line."""
    bindir, where = os.path.join(work, "bin"), os.path.join(work, "where")
    os.makedirs(bindir)
    os.makedirs(where)
    for name, script in TOOLS.items():
        with open(os.path.join(bindir, name), "w", encoding="utf-8") as f:
            f.write("#!/usr/bin/env bash\n" + script + "\n")
        os.chmod(f.name, 0o755)
    for path in glob.glob(SRC + "/tests/topo/data/*"):
        with open(path, "rb") as f, open(os.path.join(where, os.path.basename(path)), "wb") as g:
            g.write(f.read())
    env = {k: v for k, v in os.environ.items() if not k.startswith("NCCL_")}
    env.update(PATH=bindir + ":" + os.environ["PATH"], PVN_BUILDDIR=BUILD, NCCL_SOCKET_IFNAME="lo", LC_ALL="C",
               NCCL_PVRDMA_STATS_DIR=os.path.join(work, "stats"))
    blocks = [b for p in PAGES for b in markdown_blocks(p)]
    blocks += [b for p in list(MAN.values()) + ["plugin/docs/nccl-net-pvrdma.7"] for b in man_blocks(p + ".in")]
    bad, ran = [], 0
    for b in blocks:
        mark = b.mark or ""
        good = good_statuses(mark)
        if b.lines[0].startswith("$ pvn-topo ") and not mark and b.page in COMPARED:
            continue
        if good:
            ran += 1
            wrong = run_block(b, good, where, env)
            if wrong:
                bad.append("%s: %s" % (b.place(), wrong))
        elif re.match("not run: |run: needs ", mark):
            print("# %s is not run: %s" % (b.place(), mark.split("run: ")[1]))
        elif mark != "text":
            bad.append("%s: this block does not say what it is (see tests/docs/pages.py)" % b.place())
    print("# %d blocks were run" % ran)
    if ran == 0:
        bad.append("no page has a block that is run: this test looks at the wrong thing")
    return bad


def launch_lines():
    """Checks lines that start a job on several hosts and cannot run here: each must have what jobs hung or failed without."""
    bad, seen = [], 0
    for block in [b for p in PAGES for b in markdown_blocks(p)] + [
            b for p in list(MAN.values()) + ["plugin/docs/nccl-net-pvrdma.7"] for b in man_blocks(p + ".in")]:
        text = "\n".join(block.lines)
        for line in text.replace("\\\n", " ").split("\n"):
            seen += "torchrun" in line or "srun" in line
            if "torchrun" in line and "--nnodes" in line and "--rdzv_backend c10d" not in line:
                bad.append("%s: torchrun waits at nobody's port without --rdzv_backend c10d: %s" % (block.place(), line))
            if re.search(r"\btorchrun .*?--[a-z]+-[a-z]", line.split(" pvn-")[0]):
                bad.append("%s: torchrun before PyTorch 2.0 takes no dash within an option: %s" % (block.place(), line))
            if re.search(r"\bsrun\b.* python", line):
                bad.append("%s: srun sets no RANK for PyTorch: %s" % (block.place(), line))
        if "#SBATCH" in text and not text.startswith("#!"):
            bad.append("%s: sbatch refuses a script without #!" % block.place())
    if seen < 5:
        bad.append("%d launch lines were found: this test looks at the wrong thing" % seen)
    return bad


def slug(heading):
    heading = re.sub(r"[*`]|\[|\]\([^)]*\)|\]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def links():
    bad = []
    for page in LINKED:
        text = read(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(SRC, to)):
                bad.append("%s: there is no %s" % (page, target))
            elif anchor and anchor not in map(slug, re.findall(r"^#+ (.*)$", read(to), re.M)):
                bad.append("%s: %s has no heading for #%s" % (page, to, anchor))
        bad += ["%s: there is no %s" % (page, p) for p in names.paths(text)
                if not any(glob.glob(os.path.join(SRC, p + kind)) for kind in ("", ".c", ".cc"))]
    return bad


def first_page():
    """Checks that the README can be read in two minutes, also in a terminal, and that its picture is the tool's present one."""
    lines = read("README.md").split("\n")
    bad = ["README.md:%d: %d columns, of 120 at most" % (i, len(s)) for i, s in enumerate(lines, 1) if len(s) > 120]
    if len(lines) > 151:
        bad.append("README.md has %d lines, of 150 at most: the rest belongs to a page of plugin/docs" % (len(lines) - 1))
    drawn = output(BUILD + "/topo/pvn-topo", "--root", SRC + "/tests/topo/data/two-switches.xml", "--dot", "dump")
    words = [html.unescape(s) for s in re.findall(r"<text[^>]*>(.*?)</text>", read("plugin/docs/machine.svg"))]
    bad += ["plugin/docs/machine.svg has `%s`, and pvn-topo --dot dump has not" % s for s in words if s.replace("\xa0", " ") not in drawn]
    if len(words) < 10:
        bad.append("plugin/docs/machine.svg has %d words: this test looks at the wrong thing" % len(words))
    return bad


def beginnings():
    """Checks that a page begins with its audience and its goal."""
    return ["%s does not begin with \"For whoever\" and \"At the end of this page\"" % page for page in PAGES[1:]
            if not re.match(r"# .*\n\nFor whoever [^.]*\. At the end of this page ", read(page))]


def output(*command):
    r = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return r.stdout


def whole_page(path):
    return path if path.endswith(".md") else os.path.join(BUILD, path)


def named():
    known = names.Known(
        helps={"pvn-perf": output(BUILD + "/pvn-perf", "--help=all"), "pvn-topo": output(BUILD + "/topo/pvn-topo", "--help=all")},
        params=output(BUILD + "/topo/pvn-topo", "--no-env", "params"),
        scripts="".join(read(p) for p in ("run-tests.sh", "run-demo.sh", "tests/install-deps.sh", "tests/gpu/run",
                                          "plugin/packaging/wheel/nccl_net_pvrdma/__main__.py", "tests/nccl/run",
                                          "m4/pvn_packages.m4", "m4/pvn_compiler.m4", "m4/pvn_vm.m4")))
    bad = []
    for page in PAGES + list(MAN.values()) + ["plugin/docs/nccl-net-pvrdma.7"]:
        text = read(whole_page(page))
        bad += ["%s: %s" % (page, s) for s in known.wrong_in(text if page.endswith(".md") else unroff(text))]
    for tool, page in MAN.items():
        bad += ["%s: %s" % (page, s) for s in known.differences(tool, unroff(read(whole_page(page))))]
    manual = unroff(read(whole_page("plugin/docs/nccl-net-pvrdma.7")))
    bad += ["plugin/docs/nccl-net-pvrdma.7: there is no word of %s" % p for p in known.parameters() if p not in manual]
    return bad


def limits():
    tests = set()
    for path in glob.glob(SRC + "/tests/*/*.cc"):
        tests |= {suite + "." + name for suite, name in re.findall(r"^TEST\w*\((\w+), (\w+)\)", read(path), re.M)}
    return list(names.wrong_limits(read(whole_page("plugin/docs/nccl-net-pvrdma.7")), read("plugin/ARCHITECTURE.md"),
                                   names.late_cases(read("tests/fail/test_late_rank.cc")), tests))


def man_form():
    if not shutil.which("man"):
        print("skip form of man pages: man is not installed (tests/install-deps.sh --tests)")
        return
    bad = []
    for page, tool in (("plugin/docs/nccl-net-pvrdma.7", None), (MAN["pvn-perf"], "/pvn-perf"), (MAN["pvn-topo"], "/topo/pvn-topo")):
        options = names.options(output(BUILD + tool, "--help=all")) if tool else set()
        bad += ["%s: %s" % (page, s) for s in form.wrong_in(page, read(whole_page(page)), options)]
    report("form of man pages", bad)


def man_pages():
    """Returns the warnings of man and of mandoc, another reader of the same pages."""
    pages = [whole_page(p) for p in list(MAN.values()) + ["plugin/docs/nccl-net-pvrdma.7"]]
    for tool, command in (("man", ["man", "--warnings", "-E", "UTF-8", "-l"]),
                          ("mandoc", ["mandoc", "-T", "lint", "-W", "warning"])):
        if not shutil.which(tool):
            print("skip man pages by %s: it is not installed (tests/install-deps.sh --tests)" % tool)
            continue
        bad = []
        for page in pages:
            r = subprocess.run(command + [page], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, MANWIDTH="100", LC_ALL="C.UTF-8"), check=False)
            said = r.stderr if tool == "man" else r.stdout + r.stderr
            # The pages have no date, so that packages are reproducible. A line of one long word cannot be adjusted, and groff 1.23
            # says so.
            bad += [s for s in said.split("\n") if s and "missing date" not in s and "cannot adjust line" not in s]
            if tool == "man" and len(r.stdout) < 1000:
                bad.append("%s: man shows next to nothing of it" % page)
        report("man pages by " + tool, bad)


def report(name, bad):
    for line in bad:
        print(line)
    print("%s pages, %s" % ("not ok" if bad else "ok", name))
    report.failed = report.failed or bool(bad)


report.failed = False


def main():
    with tempfile.TemporaryDirectory() as work:
        report("commands", commands(work))
    report("launch lines", launch_lines())
    report("links", links())
    report("first page", first_page())
    report("beginnings", beginnings())
    report("names of options, parameters and commands", named())
    report("time limits and their tests", limits())
    report("messages", messages.missing(SRC, output(BUILD + "/plugin/docs/pages", "hints")))
    man_pages()
    man_form()
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
