# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/connect: the wire format, the control connection, the handshake and the listener.
libpvn_core_la_SOURCES += \
    plugin/connect/conn.c \
    plugin/connect/conn.h \
    plugin/connect/conn_frame.c \
    plugin/connect/conn_priv.h \
    plugin/connect/ctrl.c \
    plugin/connect/ctrl.h \
    plugin/connect/handshake.c \
    plugin/connect/handshake.h \
    plugin/connect/handshake_lanes.c \
    plugin/connect/handshake_priv.h \
    plugin/connect/handshake_seal.c \
    plugin/connect/handshake_steps.c \
    plugin/connect/link.c \
    plugin/connect/link.h \
    plugin/connect/link_back.c \
    plugin/connect/link_back.h \
    plugin/connect/link_failover.c \
    plugin/connect/link_failover.h \
    plugin/connect/link_keep.c \
    plugin/connect/link_keep.h \
    plugin/connect/listen_sockets.c \
    plugin/connect/listen_sockets.h \
    plugin/connect/listener.c \
    plugin/connect/listener.h \
    plugin/connect/listener_members.c \
    plugin/connect/listener_priv.h \
    plugin/connect/listener_resumed.c \
    plugin/connect/listener_undecided.c \
    plugin/connect/path_memory.c \
    plugin/connect/path_memory.h \
    plugin/connect/path_watch.c \
    plugin/connect/path_watch.h \
    plugin/connect/paths.c \
    plugin/connect/paths.h \
    plugin/connect/presence.c \
    plugin/connect/presence.h \
    plugin/connect/retry.c \
    plugin/connect/retry.h \
    plugin/connect/route.c \
    plugin/connect/route.h \
    plugin/connect/sock.c \
    plugin/connect/sock.h \
    plugin/connect/token.c \
    plugin/connect/token.h \
    plugin/connect/transport.h \
    plugin/connect/wire.c \
    plugin/connect/wire.h
