# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that names in pages exist: options, parameters, commands, files of the source."""
import os
import re

# All variables of NCCL, of the network and others.
with open(os.path.join(os.path.dirname(__file__), "nccl-variables.txt"), encoding="utf-8") as f:
    NCCL = re.findall(r"NCCL_\w+", "".join(s for s in f if not s.startswith("#")))

# A page misspells this one on purpose, to show the plugin's message about it.
MISSPELT = ["NCCL_PVRDMA_TRANSPROT"]

# Options of other programs that pages name.
OTHERS = """--accelerator --bcast --cap-add --check-build --device --export --from-file --gpus --help --ipc --nproc_per_node --nnodes
--jobid --no_python --ntasks-per-node --overlap --gpus-per-node --cpus-per-task --network --nodes --prefix --privileged --rdzv_backend --rdzv_endpoint --shm-size
--ulimit --version --variant --warnings""".split()

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z_-]*[a-z]")


def options(text):
    return set(OPTION.findall(text))


def paths(page):
    """Yields the files of the source that code spans name. Names in capitals are placeholders."""
    for span in re.findall(r"`([^`\n]+)`", page):
        if re.fullmatch(r"(plugin|tests|topo|net-tcp|net-pvrdma|m4)/[a-z0-9_./*-]+", span):
            yield span


def late_cases(source):
    """Returns the cases of tests/fail/test_late_rank.cc. A case of RDMA exists once per mode."""
    rdma = re.findall(r'RDMA(?:_LOST)?\("(\w+)", mode', source)
    return set(re.findall(r'(?:TCP\(|^    \{)"([a-z_]+)"', source, re.M)) | {
        "rdma_%s_%s" % (mode, name) for mode in re.findall(r'RDMA_CASES\("(\w+)"\)', source) for name in rdma}


def wrong_limits(manual, table, late, tests):
    """Yields faults of the manual's time limits, and of the tests that ARCHITECTURE's table of limits names. late has the
    cases of test_late_rank.cc, tests the names of all tests as Suite.Name."""
    section = re.search(r"^\.SH TIME LIMITS$(.*?)^\.SH ", manual, re.M | re.S).group(1)
    entries = section.split(".TP\n")[1:]
    for entry in entries:
        name, found = entry.split("\n")[0], re.search(r"^Counts: .*^Not: .*^Tests: (.*)\.$", entry, re.M | re.S)
        if not found:
            yield "%s: no lines Counts:, Not: and Tests:" % name
            continue
        for test in re.split(r",\s+", found.group(1).replace(r"\%", "")):
            if test not in late and test not in tests:
                yield "%s: there is no test %s" % (name, test)
    rows = [row for row in re.search(r"^## Time limits$(.*?)^## ", table, re.M | re.S).group(1).split("\n") if row.startswith("| ")][1:]
    for row in rows:
        cells = row.strip("| ").split(" | ")
        for test in re.findall(r"`([a-z_.]+)`", cells[-1]):
            if not any(re.fullmatch(re.escape(test).replace(r"\.\.\.", ".*"), case) for case in late):
                yield "plugin/ARCHITECTURE.md, %s: there is no case %s" % (cells[0], test)
    if len(rows) < 10 or len(entries) < 10:
        yield "%d rows and %d entries: this test looks at the wrong thing" % (len(rows), len(entries))


def is_man(page):
    return re.search(r"^\.TH ", page, re.M)


def code(page):
    """Returns spans and lines of code; of a man page, the lines that are not filled."""
    if is_man(page):
        return "\n".join(re.findall(r"^\.nf$(.*?)^\.fi$", page, re.M | re.S)).split("\n")
    return re.findall(r"`([^`\n]+)`", page) + [s for s in page.split("\n") if s.startswith("    ")]


class Known:
    def __init__(self, helps, params, scripts):
        self.help_options = {tool: options(text) for tool, text in helps.items()}
        self.commands = {tool: set(re.findall(r"^  ([a-z0-9]+) ", text, re.M)) for tool, text in helps.items()}
        self.params = re.findall(r"^(NCCL_PVRDMA_\w+)=", params, re.M)
        self.script_options = options(scripts) | {
            "--" + kind + "-" + name for kind, name in
            re.findall(r"\[--((?:en|dis)able)-([a-z-]+)", scripts) + re.findall(r"AC_ARG_(?:EN)?(able|WITH)\(\[([a-z-]+)", scripts)}

    def parameters(self):
        return self.params

    def wrong_in(self, page):
        known = set(self.params) | set(NCCL) | set(MISSPELT)
        for name in sorted(set(re.findall(r"(?<![A-Z_])NCCL_[A-Z0-9_]+", page))):
            if name not in known and not (name.endswith("_") and any(k.startswith(name) for k in known)):
                yield "%s is neither a parameter nor known as NCCL's (tests/docs/names.py)" % name
        known = self.script_options | set(OTHERS) | set().union(*self.help_options.values())
        for option in sorted(options(page if is_man(page) else "\n".join(code(page))) - known):
            yield "%s is no option of a tool here, nor known as another program's (tests/docs/names.py)" % option
        for line in code(page):
            yield from self.wrong_command(line)

    def wrong_command(self, line):
        """Yields faults of a tool's name followed by options and a command, as far as prose can be parsed."""
        for tool, rest in re.findall(r"(?:^|[ (;|$&])(pvn-topo|pvn-perf) ([^|;&#)`]*)", line):
            mine = options(rest)
            for option in sorted(mine - self.help_options[tool]):
                if option not in OTHERS:
                    yield "%s has no option %s" % (tool, option)
            words = [w for w in rest.split() if re.fullmatch(r"[a-z0-9]+", w)]
            if re.match(r"[a-z]", rest) and words and line.strip().startswith(tool) and rest.split()[0] not in self.commands[tool]:
                yield "%s has no command %s" % (tool, rest.split()[0])

    def differences(self, tool, page):
        """Compares a tool's man page with its --help=all, in both directions."""
        in_page = {o for o in options(page)}
        for option in sorted(self.help_options[tool] - in_page):
            yield "does not have %s, which --help=all has" % option
