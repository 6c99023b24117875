# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/comm: a comm as NCCL knows it, the device table and its placement in the machine, the life of the plugin.
libpvn_core_la_SOURCES += \
    plugin/comm/comm.h \
    plugin/comm/comm_ctrl.c \
    plugin/comm/comm_error.c \
    plugin/comm/comm_failover.c \
    plugin/comm/comm_help.c \
    plugin/comm/comm_help.h \
    plugin/comm/comm_mr.c \
    plugin/comm/comm_mr_detach.c \
    plugin/comm/comm_pending.h \
    plugin/comm/comm_priv.h \
    plugin/comm/comm_setup.c \
    plugin/comm/comm_stall.c \
    plugin/comm/comm_stats.c \
    plugin/comm/comm_watch.c \
    plugin/comm/comm_workers.c \
    plugin/comm/device.c \
    plugin/comm/device.h \
    plugin/comm/placement.c \
    plugin/comm/placement.h \
    plugin/comm/plugin.c \
    plugin/comm/plugin_priv.h \
    plugin/comm/plugin_use.c \
    plugin/comm/profile.c \
    plugin/comm/profile.h \
    plugin/comm/plugin.h
# The files that every message passes through.
libpvn_core_data_la_SOURCES += \
    plugin/comm/comm.c \
    plugin/comm/comm_attend.c \
    plugin/comm/comm_live.c \
    plugin/comm/comm_pending.c \
    plugin/comm/comm_thread.c
