#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the wheel out of what portable.sh has built: the same bytes from the same files, whoever does it and when.

usage: wheel.py PORTABLE-FOLDER VERSION OUTPUT-FOLDER     SOURCE_DATE_EPOCH: the time of the files in it,
PVN_URL: where it is distributed
"""
import base64
import hashlib
import os
import pathlib
import stat
import sys
import time
import zipfile

TAG = "py3-none-manylinux_2_28_x86_64"
PACKAGE = pathlib.Path(__file__).parent / "nccl_net_pvrdma"
METADATA = """\
Metadata-Version: 2.1
Name: nccl-net-pvrdma
Version: {version}
Author: the nccl-net-pvrdma authors
{urls}Summary: NCCL network plugin for PVRDMA, RoCE, InfiniBand and TCP, with tools that measure and check
License: Apache-2.0 (the plugin), with expat and jansson, both MIT, in the tools
Classifier: Operating System :: POSIX :: Linux
Requires-Python: >=3.8
Description-Content-Type: text/plain

export NCCL_NET_PLUGIN=$(nccl-net-pvrdma) NCCL_NET=pvrdma

before torchrun, mpirun or srun. pvn-perf measures the network as NCCL uses it, pvn-topo shows and checks the machine.
"""
ENTRY_POINTS = """\
[console_scripts]
nccl-net-pvrdma = nccl_net_pvrdma.__main__:main
pvn-perf = nccl_net_pvrdma.__main__:perf
pvn-topo = nccl_net_pvrdma.__main__:topo
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: nccl-net-pvrdma\nRoot-Is-Purelib: false\nTag: {TAG}\n"


def urls():
    """The address where the wheel is distributed, which only who does that knows."""
    url = os.environ.get("PVN_URL", "")
    return f"Home-page: {url}\n" if url else ""


def contents(usr, version):
    """Name in the wheel: (bytes, mode)."""
    info = f"nccl_net_pvrdma-{version}.dist-info"
    share = f"nccl_net_pvrdma-{version}.data/data/share"
    files = {f"nccl_net_pvrdma/{source.name}": (source.read_bytes(), 0o644) for source in PACKAGE.glob("*.py")}
    files["nccl_net_pvrdma/lib/libnccl-net-pvrdma.so"] = ((usr / "lib/libnccl-net-pvrdma.so").read_bytes(), 0o755)
    for tool in ("pvn-perf", "pvn-topo"):
        files[f"nccl_net_pvrdma/bin/{tool}"] = ((usr / "bin" / tool).read_bytes(), 0o755)
    for source in (usr / "share").rglob("*"):
        if source.is_file() and "licenses" not in source.parts:
            files[f"{share}/{source.relative_to(usr / 'share')}"] = (source.read_bytes(), 0o644)
    for source in (usr / "share/licenses/nccl-net-pvrdma").iterdir():
        files[f"{info}/licenses/{source.name}"] = (source.read_bytes(), 0o644)
    files[f"{info}/METADATA"] = (METADATA.format(version=version, urls=urls()).encode(), 0o644)
    files[f"{info}/WHEEL"] = (WHEEL.encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (ENTRY_POINTS.encode(), 0o644)
    record = f"{info}/RECORD"
    lines = []
    for name, (data, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join(lines) + f"{record},,\n").encode(), 0o644
    return files


def main():
    """Writes the wheel and prints its path."""
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    usr, version, out = pathlib.Path(sys.argv[1]) / "usr", sys.argv[2], pathlib.Path(sys.argv[3])
    if not (usr / "lib/libnccl-net-pvrdma.so").is_file():
        sys.exit(f"wheel.py: {usr}: there is no plugin in it: first run portable.sh ARCHIVE {sys.argv[1]}")
    # A zip file knows no time before 1980.
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315532800))[:6]
    path = out / f"nccl_net_pvrdma-{version}-{TAG}.whl"
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        for name, (data, mode) in sorted(contents(usr, version).items()):
            info = zipfile.ZipInfo(name, when)
            info.external_attr = (stat.S_IFREG | mode) << 16
            info.create_system = 3
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
    print(path)


if __name__ == "__main__":
    main()
