# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/check: checks of a machine, with remedies.
libpvntopotool_la_SOURCES += \
    topo/check/check.c \
    topo/check/check.h \
    topo/check/check_counters.c \
    topo/check/check_host.c \
    topo/check/check_net.c \
    topo/check/check_pci.c \
    topo/check/check_row.c \
    topo/check/remedies.c
