# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/launch/: the launch lines of the pages under real launchers, between namespaces that act as hosts.
if !SANITIZE
if TOOLS
PVN_SCRIPT_TESTS += tests/launch/slurm.sh tests/launch/mpi.sh tests/launch/torchrun.sh tests/launch/containers.sh
endif
endif
EXTRA_DIST += tests/launch/base.py tests/launch/lib.sh tests/launch/lines.py
