# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/check: what is wrong with a machine, and what to do about it.
libpvntopotool_la_SOURCES += \
    topo/check/check.c \
    topo/check/check.h \
    topo/check/check_counters.c \
    topo/check/check_host.c \
    topo/check/check_net.c \
    topo/check/check_pci.c \
    topo/check/check_row.c \
    topo/check/remedies.c
