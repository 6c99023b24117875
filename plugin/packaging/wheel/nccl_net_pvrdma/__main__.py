# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""The commands nccl-net-pvrdma, pvn-perf and pvn-topo."""
import argparse
import os
import sys

import nccl_net_pvrdma


def main():
    """Prints what NCCL needs to find the plugin."""
    parser = argparse.ArgumentParser(
        prog="nccl-net-pvrdma",
        description="Prints the path of NCCL's network plugin: export NCCL_NET_PLUGIN=$(nccl-net-pvrdma) NCCL_NET=pvrdma",
    )
    parser.add_argument(
        "--dir", action="store_true", help="its folder alone, for LD_LIBRARY_PATH (NCCL before 2.21.5, with NCCL_NET_PLUGIN=pvrdma)"
    )
    options = parser.parse_args()
    try:
        library = nccl_net_pvrdma.path()
    except ValueError as error:
        if not options.dir:
            sys.exit(f"nccl-net-pvrdma: {error}")
        library = os.path.join(nccl_net_pvrdma.HERE, "lib", nccl_net_pvrdma.NAME)
    print(os.path.dirname(library) if options.dir else library)


def perf():
    """The command pvn-perf."""
    nccl_net_pvrdma.run_tool("pvn-perf", sys.argv[1:])


def topo():
    """The command pvn-topo."""
    nccl_net_pvrdma.run_tool("pvn-topo", sys.argv[1:])


if __name__ == "__main__":
    main()
