# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/: the shared object that NCCL loads, and pvn-perf.
#   libpvn-core.la          all but the transports and the ABI adapters, in layers: base, engine, stats,
#                           memory, seal, connect, comm; each may include what stands before it
#   libpvn-core-data.la     its files that every message passes through, which are compiled with less hardening, as
#                           those of each transport are (m4/pvn_compiler.m4); part of libpvn-core.la
#   libnccl-net-pvrdma.so   core + lanes + the ABI adapters; exports only NCCL's plugin symbols

noinst_LTLIBRARIES += libpvn-core.la libpvn-core-data.la
libpvn_core_la_SOURCES =
libpvn_core_data_la_SOURCES =
libpvn_core_data_la_CFLAGS = $(PVN_CFLAGS) $(PVN_DATA_CFLAGS)
include $(srcdir)/plugin/base/local.mk
include $(srcdir)/plugin/engine/local.mk
include $(srcdir)/plugin/seal/local.mk
include $(srcdir)/plugin/connect/local.mk
include $(srcdir)/plugin/memory/local.mk
include $(srcdir)/plugin/stats/local.mk
include $(srcdir)/plugin/comm/local.mk
include $(srcdir)/plugin/nccl/local.mk
# The layout of the machine is the topology library's, which needs nothing but libc.
libpvn_core_la_LIBADD = libpvn-core-data.la libpvntopo.la

lib_LTLIBRARIES += libnccl-net-pvrdma.la
libnccl_net_pvrdma_la_SOURCES =
libnccl_net_pvrdma_la_CFLAGS = $(libpvn_core_data_la_CFLAGS)
include $(srcdir)/plugin/abi/local.mk
# The library's name is fixed by NCCL (libnccl-net-<NCCL_NET_PLUGIN>.so) and carries no version.
libnccl_net_pvrdma_la_LDFLAGS = $(AM_LDFLAGS) $(PVN_LDFLAGS) -module -avoid-version -shared \
    -Wl,--version-script=$(srcdir)/plugin/libnccl-net-pvrdma.map
if !SANITIZE
libnccl_net_pvrdma_la_LDFLAGS += -Wl,-z,defs
endif
libnccl_net_pvrdma_la_LIBADD = libpvn-rdma.la libpvn-tcp.la libpvn-core.la
EXTRA_libnccl_net_pvrdma_la_DEPENDENCIES = $(srcdir)/plugin/libnccl-net-pvrdma.map
EXTRA_DIST += plugin/libnccl-net-pvrdma.map
pkgconfig_DATA += plugin/nccl-net-pvrdma.pc

if LIBNCCL_NET_LINK
install-exec-hook:
	cd '$(DESTDIR)$(libdir)' && rm -f libnccl-net.so && $(LN_S) libnccl-net-pvrdma.so libnccl-net.so

uninstall-hook:
	rm -f '$(DESTDIR)$(libdir)/libnccl-net.so'
endif

include $(srcdir)/plugin/docs/local.mk
include $(srcdir)/plugin/tools/local.mk
include $(srcdir)/plugin/perf/local.mk
include $(srcdir)/plugin/packaging/monitoring/local.mk
include $(srcdir)/plugin/packaging/local.mk
