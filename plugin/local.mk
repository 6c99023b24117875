# plugin/: the shared object that NCCL loads, and pvn-perf.
#   libpvn-core.la          engine, handshake, parameters, log, errors, CUDA shim (no transport)
#   libnccl-net-pvrdma.so   core + lanes + the ABI adapters; exports only NCCL's plugin symbols

noinst_LTLIBRARIES += libpvn-core.la
libpvn_core_la_SOURCES =
include $(srcdir)/plugin/core/local.mk
include $(srcdir)/plugin/nccl/local.mk

lib_LTLIBRARIES += libnccl-net-pvrdma.la
libnccl_net_pvrdma_la_SOURCES =
include $(srcdir)/plugin/abi/local.mk
# The library's name is fixed by NCCL (libnccl-net-<NCCL_NET_PLUGIN>.so) and carries no version.
libnccl_net_pvrdma_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
    -Wl,--version-script=$(srcdir)/plugin/libnccl-net-pvrdma.map
if !SANITIZE
libnccl_net_pvrdma_la_LDFLAGS += -Wl,-z,defs
endif
libnccl_net_pvrdma_la_LIBADD = libpvn-rdma.la libpvn-tcp.la libpvn-core.la
EXTRA_libnccl_net_pvrdma_la_DEPENDENCIES = $(srcdir)/plugin/libnccl-net-pvrdma.map
EXTRA_DIST += plugin/libnccl-net-pvrdma.map
pkgconfig_DATA += plugin/nccl-net-pvrdma.pc

include $(srcdir)/plugin/perf/local.mk
