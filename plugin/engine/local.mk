# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/engine: the lane interface and the message engine, which does no I/O.
libpvn_core_data_la_SOURCES += \
    plugin/engine/engine.c \
    plugin/engine/engine.h \
    plugin/engine/engine_calls.h \
    plugin/engine/engine_error.c \
    plugin/engine/engine_failover.c \
    plugin/engine/engine_flush.c \
    plugin/engine/engine_keep.c \
    plugin/engine/engine_match.c \
    plugin/engine/engine_place.c \
    plugin/engine/engine_plan.c \
    plugin/engine/engine_priv.h \
    plugin/engine/engine_recv.c \
    plugin/engine/engine_recv.h \
    plugin/engine/engine_tx.c \
    plugin/engine/engine_tx.h \
    plugin/engine/lane.c \
    plugin/engine/lane.h
