#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a verified all-reduce in one command: installs what is missing, builds, and runs a ring
# all-reduce of BERT-Large's gradients between 4 rank processes through the built plugin, every element
# checked. Further arguments go to pvn-perf (e.g. --ranks 2, --preset resnet50, --json -).
set -eu
cd "$(dirname "$0")"
# All ranks are on this machine: its loopback carries them, unless the caller names an interface.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo}
# The seconds of each step: those of the package manager are not the build's.
began=0
took() {
    echo "$1: $((SECONDS - began)) s"
    began=$SECONDS
}
tests/install-deps.sh
took "packages that were missing"
tests/build-tree.sh build -- config.h
took "configure (build/)"
tests/build-tree.sh build -- libnccl-net-pvrdma.la pvn-perf
took "compile the plugin and pvn-perf"
exec build/pvn-perf ring --plugin "$PWD/build/.libs/libnccl-net-pvrdma.so" --ranks 4 \
    --preset bert-large --check "$@"
