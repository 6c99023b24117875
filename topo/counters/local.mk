# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/counters: the counters of adapters that show faults, with their meanings.
libpvntopotool_la_SOURCES += \
    topo/counters/counter_table.c \
    topo/counters/counters.h \
    topo/counters/ethtool.c \
    topo/counters/look.c
