#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests the pages for users: their commands succeed, and the names in them exist (pages.py has the details).
# PVN_UPDATE_GOLDEN=1 rewrites the table of hints in messages.md; read the difference before you commit it.
set -u
PVN_SRCDIR=${PVN_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
PVN_BUILDDIR=${PVN_BUILDDIR:-$PVN_SRCDIR/build}
export PVN_SRCDIR PVN_BUILDDIR
if ! command -v python3 >/dev/null; then
    echo "skip pages: python3 is not installed (tests/install-deps.sh --tests)"
    exit 0
fi
exec python3 -B "$PVN_SRCDIR/tests/docs/pages.py"
