# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/base: used by all other parts and independent of them: errors, hints, log, parameters, clock, fork, addresses, the poller.
libpvn_core_la_SOURCES += \
    plugin/base/addr.c \
    plugin/base/addr.h \
    plugin/base/clock.h \
    plugin/base/copy_in_order.c \
    plugin/base/copy_in_order.h \
    plugin/base/dev_list.c \
    plugin/base/dev_list.h \
    plugin/base/err.c \
    plugin/base/err.h \
    plugin/base/fork.c \
    plugin/base/fork.h \
    plugin/base/fork_fds.c \
    plugin/base/fork_fds.h \
    plugin/base/hints.c \
    plugin/base/hints.h \
    plugin/base/live.h \
    plugin/base/log.c \
    plugin/base/log.h \
    plugin/base/mem_copy.h \
    plugin/base/nccl_vars.c \
    plugin/base/nccl_vars.h \
    plugin/base/pages.c \
    plugin/base/pages.h \
    plugin/base/param.c \
    plugin/base/param.h \
    plugin/base/param_print.c \
    plugin/base/param_table.c \
    plugin/base/param_value.c \
    plugin/base/param_value.h \
    plugin/base/poller.c \
    plugin/base/poller.h \
    plugin/base/random.c \
    plugin/base/random.h \
    plugin/base/read_line.c \
    plugin/base/read_line.h \
    plugin/base/result.c \
    plugin/base/result.h \
    plugin/base/suggest.c \
    plugin/base/suggest.h \
    plugin/base/thread.c \
    plugin/base/thread.h \
    plugin/base/version.c \
    plugin/base/version.h
