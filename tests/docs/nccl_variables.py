# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that the plugin's table of NCCL's variables is complete: plugin/base/nccl_vars.c, and the aliases of parameters.

nccl-variables.txt lists every variable that the sources and the user guide of NCCL name, from the list's first version
to its last one, in three sections: [network] has the variables that the table must have, [elsewhere] those that it must
not have, and [text] strings of the same form that are no variables.
1. The table, as nccl-net-pvrdma(7) prints it, equals [network].
2. The installed NCCL (nccl.h has its version, libnccl.so the names) reads only variables of the list.
3. The source tree that PVN_NCCL_SRC names reads only variables of the list, and its network code only [network].
An NCCL later than the list may read more. For an installed one this is printed and is no failure."""
import glob
import mmap
import os
import re
import subprocess
import sys

LIST = "tests/docs/nccl-variables.txt"
# NCCL's files that only the network uses, in the layouts of 2.28 and 2.30.
NETWORK = re.compile(r"src/(transport/(net|gdaki)|misc/(socket|ibv)|plugin/net|bootstrap)")
READS = (re.compile(r'\bNCCL_PARAM\s*\(\s*\w+\s*,\s*"([A-Z0-9_]+)"'),
         re.compile(r"\bDEFINE_NCCL_PARAM\s*\(\s*\w+\s*,[^,]+,\s*NCCL_([A-Z0-9_]+)"),
         re.compile(r'"NCCL_([A-Z0-9_]+)"'))
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def listed(src):
    """Returns the list's first and last version, and its sections as sets."""
    sections, versions, at = {}, [], None
    with open(os.path.join(src, LIST), encoding="utf-8") as f:
        for line in f:
            line = line.strip()
            if line.startswith("versions:"):
                versions = line.split()[1:]
            elif line.startswith("["):
                at = sections.setdefault(line.strip("[]"), [])
            elif line and not line.startswith("#"):
                at.extend(line.split())
    for name, names in sections.items():
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise SystemExit("not ok NCCL's variables: %s has these twice in [%s]: %s" % (LIST, name, " ".join(twice)))
    return versions, {k: set(v) for k, v in sections.items()}


def tabled(build):
    """Returns the names that the manual page's section describes."""
    page = subprocess.run([build + "/plugin/docs/pages", "variables"], stdout=subprocess.PIPE, text=True, check=True).stdout
    tags = re.findall(r"^\.TP\n\.BR? (.*)$", page, re.M)
    return {n for tag in tags for n in re.findall(r"NCCL_[A-Z0-9_]+", tag)}


def of_sources(top):
    """Returns each name that a source tree reads or documents, with the files."""
    found = {}
    for path in glob.glob(top + "/src/**/*", recursive=True):
        where = os.path.relpath(path, top)
        if not re.search(r"\.(cc|cu|h|cuh)$", path) or "doca-gpunetio" in where:
            continue
        with open(path, encoding="utf-8", errors="replace") as f:
            text = COMMENT.sub("", f.read())
        for pattern in READS:
            for name in pattern.findall(text):
                found.setdefault("NCCL_" + name, set()).add(where)
    guide = top + "/docs/userguide/source/env.rst"
    if os.path.exists(guide):
        with open(guide, encoding="utf-8") as f:
            for name in re.findall(r"^(NCCL_[A-Z0-9_]+)\b.*\n-{5,}$", f.read(), re.M):
                found.setdefault(name, set()).add("the user guide")
    return found


def version_of(path):
    """Returns NCCL's version from nccl.h or makefiles/version.mk."""
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    parts = [re.search(r"\bNCCL_%s\s*(?::=\s*)?(\d+)" % p, text) for p in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(m.group(1) for m in parts) if all(parts) else "0"


def number(version):
    return tuple(map(int, version.split(".")))


def installed():
    """Yields each nccl.h with the library that belongs to it."""
    for header in sorted(glob.glob("/usr/include/nccl.h") + glob.glob("/usr/local/include/nccl.h") +
                         glob.glob("/usr/local/cuda*/include/nccl.h")):
        top = os.path.dirname(os.path.dirname(header))
        for pattern in ("/lib64/libnccl.so.2", "/lib/libnccl.so.2", "/lib/*/libnccl.so.2"):
            for library in glob.glob(top + pattern):
                yield header, library


def strings_of(library):
    with open(library, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {m.decode() for m in re.findall(rb"\0(NCCL_[A-Z0-9_]+)(?=\0)", data)}


def report(name, bad):
    for line in bad:
        print(line)
    print("%s NCCL's variables, %s" % ("not ok" if bad else "ok", name))
    report.failed = report.failed or bool(bad)


report.failed = False


def check_table(build, sections):
    table = tabled(build)
    bad = ["%s has no row in plugin/base/nccl_vars.c" % n for n in sorted(sections["network"] - table)]
    bad += ["%s is not in %s [network]" % (n, LIST) for n in sorted(table - sections["network"])]
    bad += ["%s is in two sections of %s" % (n, LIST)
            for n in sorted(sections["network"] & sections["elsewhere"] | sections["network"] & sections["text"])]
    if len(table) < 100:
        bad.append("the manual page's section names only %d: this test looks at the wrong thing" % len(table))
    report("the table", bad)


def check_installed(versions, sections):
    known, seen = set().union(*sections.values()), set()
    for header, library in installed():
        version, real = version_of(header), os.path.realpath(library)
        if real in seen:
            continue
        seen.add(real)
        more = sorted(strings_of(library) - known)
        if number(versions[0]) <= number(version) <= number(versions[1]):
            report("%s (%s)" % (library, version), ["%s: %s is not in %s" % (library, n, LIST) for n in more])
        else:
            print("skip NCCL's variables, %s: it is %s, the list is that of %s; new there: %s"
                  % (library, version, " to ".join(versions), " ".join(more) or "nothing"))
    if not seen:
        print("skip NCCL's variables, of the installed NCCL: there is no nccl.h with its libnccl.so.2")


def check_sources(top, sections):
    found, known = of_sources(top), set().union(*sections.values())
    bad = ["%s (%s) is not in %s" % (n, ", ".join(sorted(found[n])), LIST) for n in sorted(set(found) - known)]
    for name, files in sorted(found.items()):
        of_network = sorted(f for f in files if NETWORK.match(f))
        if of_network and name in sections["elsewhere"]:
            bad.append("%s is in [elsewhere] of %s, but %s reads it" % (name, LIST, ", ".join(of_network)))
    if len(found) < 50:
        bad.append("%s names only %d variables: it is no NCCL source tree" % (top, len(found)))
    version = top + "/makefiles/version.mk"
    report("%s (%s)" % (top, version_of(version) if os.path.exists(version) else "no version"), bad)


def main():
    src, build = os.environ["PVN_SRCDIR"], os.path.abspath(os.environ["PVN_BUILDDIR"])
    versions, sections = listed(src)
    check_table(build, sections)
    check_installed(versions, sections)
    if os.environ.get("PVN_NCCL_SRC"):
        check_sources(os.environ["PVN_NCCL_SRC"], sections)
    else:
        print("skip NCCL's variables, of the sources: PVN_NCCL_SRC names no NCCL source tree")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
