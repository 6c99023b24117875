# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/stats: the statistics file of a process: its layout, writer and reader.
libpvn_core_la_SOURCES += \
    plugin/stats/stat_layout.h \
    plugin/stats/stat_via.c \
    plugin/stats/stat_via.h \
    plugin/stats/stats.c \
    plugin/stats/stats.h \
    plugin/stats/stats_dir.c \
    plugin/stats/stats_dir.h \
    plugin/stats/stats_read.c \
    plugin/stats/stats_read.h
