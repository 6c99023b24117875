#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The pages for users: their commands run, and what they name exists (pages.py says how).
# PVN_UPDATE_GOLDEN=1 writes the table of hints in messages.md again; read the difference before you commit it.
set -u
PVN_SRCDIR=${PVN_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
PVN_BUILDDIR=${PVN_BUILDDIR:-$PVN_SRCDIR/build}
export PVN_SRCDIR PVN_BUILDDIR
if ! command -v python3 >/dev/null; then
    echo "skip pages: python3 is not installed (tests/install-deps.sh --tests)"
    exit 0
fi
exec python3 -B "$PVN_SRCDIR/tests/docs/pages.py"
