# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# net-tcp/: the TCP lane and the choice of interfaces.
noinst_LTLIBRARIES += libpvn-tcp.la libpvn-tcp-data.la
libpvn_tcp_la_SOURCES = net-tcp/iface.c net-tcp/iface.h net-tcp/iface_choose.c net-tcp/iface_nl.c \
    net-tcp/iface_priv.h net-tcp/iface_source.c net-tcp/iface_sys.c net-tcp/nl.c net-tcp/nl.h \
    net-tcp/sockopt.c net-tcp/sockopt.h net-tcp/steer.c net-tcp/steer.h net-tcp/tcp_setup.c \
    net-tcp/tcp_transport.c net-tcp/tcp_transport.h
libpvn_tcp_la_CPPFLAGS = $(AM_CPPFLAGS) $(NL_CFLAGS)
libpvn_tcp_la_LIBADD = libpvn-tcp-data.la

# The files that every message passes through.
libpvn_tcp_data_la_SOURCES = net-tcp/frame.c net-tcp/frame.h net-tcp/tcp_cts.c net-tcp/tcp_err.c \
    net-tcp/tcp_lane.c net-tcp/tcp_lane.h net-tcp/tcp_pace.h net-tcp/tcp_priv.h net-tcp/tcp_rx.c net-tcp/tcp_trial.c \
    net-tcp/tcp_tx.c net-tcp/tcp_workers.c net-tcp/tcp_workers.h net-tcp/tcp_zerocopy.c
libpvn_tcp_data_la_CFLAGS = $(libpvn_core_data_la_CFLAGS)
