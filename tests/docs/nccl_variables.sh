#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests the plugin's table of NCCL's variables against the list of those that NCCL reads, and the list against the NCCL
# that is installed here (nccl_variables.py has the details). PVN_NCCL_SRC names an NCCL source tree, the parent of src/.
set -u
PVN_SRCDIR=${PVN_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
PVN_BUILDDIR=${PVN_BUILDDIR:-$PVN_SRCDIR/build}
export PVN_SRCDIR PVN_BUILDDIR
if ! command -v python3 >/dev/null; then
    echo "skip NCCL's variables: python3 is not installed (tests/install-deps.sh --tests)"
    exit 0
fi
exec python3 -B "$PVN_SRCDIR/tests/docs/nccl_variables.py"
