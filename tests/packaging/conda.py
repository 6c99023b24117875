#!/usr/bin/env python3
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
"""Renders a conda recipe with rattler-build and prints the commands of its build, one per line.

usage: conda.py RECIPE VERSION
"""
import sys

import rattler_build


def main():
    """Ends with an error if the recipe does not render or is not of this version."""
    recipe = rattler_build.Stage0Recipe.from_file(sys.argv[1])
    variants = recipe.render(rattler_build.VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}))
    if len(variants) != 1:
        sys.exit(f"{len(variants)} variants instead of one")
    rendered = variants[0].recipe.to_dict()
    if rendered["package"] != {"name": "nccl-net-pvrdma", "version": sys.argv[2]}:
        sys.exit(f"it is of {rendered['package']}")
    if "sysroot_linux-64 2.28.*" not in rendered["requirements"]["build"]:
        sys.exit(f"it asks for no C library: {rendered['requirements']['build']}")
    print("\n".join(rendered["build"]["script"]))


if __name__ == "__main__":
    main()
