# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/input: descriptions of a machine in other forms: compressed, through a pipe, or written by other tools. Only
# for the tool.
libpvntopotool_la_SOURCES += \
    topo/input/hwloc.c \
    topo/input/inflate.c topo/input/inflate.h \
    topo/input/input.c topo/input/input.h \
    topo/input/lspci.c \
    topo/input/nccl_machine.c \
    topo/input/rdma_topo.c \
    topo/input/read.c \
    topo/input/synth.c topo/input/synth.h \
    topo/input/unpack.c
