# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""The place where pip has put NCCL's network plugin: NCCL_NET_PLUGIN=$(nccl-net-pvrdma)"""
import os

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "libnccl-net-pvrdma.so"
# NCCL separates the plugins of NCCL_NET_PLUGIN by commas and keeps so many bytes of each name.
NCCL_BYTES = 254


def path():
    """The library, as a value of NCCL_NET_PLUGIN. ValueError: NCCL cannot take the path that it has."""
    library = os.path.join(HERE, "lib", NAME)
    remedy = f"make a link (ln -s {library} /usr/local/lib/) and let NCCL_NET_PLUGIN name that"
    if "," in library:
        raise ValueError(f"{library}: NCCL takes the comma in this path for the end of a name: {remedy}")
    if len(os.fsencode(library)) > NCCL_BYTES:
        raise ValueError(f"{library}: this path has more than {NCCL_BYTES} bytes, and NCCL cuts it: {remedy}")
    return library


def run_tool(name, arguments):
    """Becomes pvn-perf or pvn-topo; they find the library beside themselves."""
    program = os.path.join(HERE, "bin", name)
    os.execv(program, [program, *arguments])
