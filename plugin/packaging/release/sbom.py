#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the bill of materials of a release, as SPDX 2.3 in JSON: its files, what is linked into them, what built them.

usage: sbom.py RELEASE-FOLDER NAME-VERSION EPOCH LINKED REQUIREMENTS
LINKED has lines "library version", REQUIREMENTS pins the compiler (ziglang==version).
"""
import datetime
import hashlib
import json
import pathlib
import re
import sys
import uuid

TEXT = "Copyright the nccl-net-pvrdma authors"
# Libraries that are loaded at run time where they are there.
OPTIONAL = {
    "libibverbs": "GPL-2.0-only OR BSD-2-Clause",
    "libnl": "LGPL-2.1-only",
    "libpci": "GPL-2.0-or-later",
    "libcuda": "NOASSERTION",
}


def package(name, version, licence, **more):
    """A package without its files."""
    one = {
        "SPDXID": f"SPDXRef-Package-{name}",
        "name": name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }
    if version:
        one["versionInfo"] = version
    one.update(more)
    return one


def file_of(path):
    """A file with its checksums; SPDX requires SHA-1 in any case."""
    data = path.read_bytes()
    sums = [{"algorithm": a, "checksumValue": hashlib.new(a, data).hexdigest()} for a in ("SHA1", "SHA256")]
    return {
        "SPDXID": "SPDXRef-File-" + re.sub(r"[^A-Za-z0-9.-]", "-", path.name),
        "fileName": f"./{path.name}",
        "checksums": sums,
        "licenseConcluded": "Apache-2.0 AND MIT" if has_tools(path) else "Apache-2.0",
        "copyrightText": TEXT,
    }


def has_tools(path):
    """True if expat and jansson are in it."""
    return path.name.endswith((".whl", "-linux-x86_64.tar.xz"))


def main():
    """Prints the document."""
    if len(sys.argv) != 6:
        sys.exit(__doc__.strip())
    name, version = sys.argv[2].rsplit("-", 1)
    paths = sorted(pathlib.Path(sys.argv[1]).iterdir())
    paths = [path for path in paths if not path.name.endswith((".spdx.json", "SHA256SUMS"))]
    source = next(path for path in paths if path.name == f"{name}-{version}.tar.xz")
    linked = [line.split() for line in pathlib.Path(sys.argv[4]).read_text(encoding="ascii").splitlines()]
    zig = re.search(r"^ziglang==(\S+)$", pathlib.Path(sys.argv[5]).read_text(encoding="ascii"), re.MULTILINE)[1]
    files = [file_of(path) for path in paths]
    sums = {path.name: one["checksums"] for path, one in zip(paths, files)}
    when = datetime.datetime.fromtimestamp(int(sys.argv[3]), datetime.timezone.utc)
    own = package(
        name, version, "Apache-2.0", copyrightText=TEXT, packageFileName=source.name, checksums=sums[source.name], primaryPackagePurpose="LIBRARY"
    )
    packages = [own, package("ziglang", zig, "MIT"), package("glibc", "2.28", "LGPL-2.1-or-later", comment="the oldest that it runs with")]
    packages += [package(library, its, "MIT") for library, its in linked]
    packages += [package(library, "", licence) for library, licence in OPTIONAL.items()]
    related = [("SPDXRef-DOCUMENT", "DESCRIBES", own["SPDXID"]), ("SPDXRef-Package-ziglang", "BUILD_TOOL_OF", own["SPDXID"])]
    related += [("SPDXRef-Package-glibc", "RUNTIME_DEPENDENCY_OF", own["SPDXID"])]
    related += [(f"SPDXRef-Package-{library}", "OPTIONAL_DEPENDENCY_OF", own["SPDXID"]) for library in OPTIONAL]
    for path, one in zip(paths, files):
        related.append((one["SPDXID"], "DISTRIBUTION_ARTIFACT" if path == source else "GENERATED_FROM", own["SPDXID"]))
        if has_tools(path):
            related += [(one["SPDXID"], "STATIC_LINK", f"SPDXRef-Package-{library}") for library, _ in linked]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": sys.argv[2],
        "documentNamespace": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(files, sort_keys=True))),
        "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [f"Tool: {name}-sbom-{version}"]},
        "packages": packages,
        "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": r, "relatedSpdxElement": b} for a, r, b in related],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
