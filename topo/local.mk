# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/: the topology library and the pvn-topo tool.
#   libpvntopo.la       the machine as sysfs shows it, and NCCL's view of it; needs only libc, so the plugin links it
#   libpvntopotool.la   the parts for the tools only: captures, hints and merges, counters, checks and remedies,
#                       GPUDirect verdicts, the reader and the linter of NCCL's XML (expat)
# Data and includes go in one direction: topo (the machine's model) <- topo/nccl (NCCL's view of it), topo/counters
# <- topo/capture and topo/check <- topo/input <- topo/tool. A folder includes only folders on its left.
noinst_LTLIBRARIES += libpvntopo.la
if TOOLS
noinst_LTLIBRARIES += libpvntopotool.la
else
EXTRA_LTLIBRARIES += libpvntopotool.la
endif
libpvntopo_la_SOURCES = topo/config.c topo/distance.c topo/fs.c topo/fs.h topo/fs_dir.c topo/gpu.c \
    topo/guest.c topo/load.c topo/model.c topo/names.c topo/net.c topo/pci.c topo/pci_kind.c topo/pvn_topo.h \
    topo/rdma.c topo/reader.c topo/reader.h topo/system.c
libpvntopotool_la_SOURCES =
libpvntopotool_la_CPPFLAGS = $(AM_CPPFLAGS) $(EXPAT_CFLAGS) $(JANSSON_CFLAGS)
libpvntopotool_la_LIBADD = libpvntopo.la $(EXPAT_LIBS) $(JANSSON_LIBS)

include $(srcdir)/topo/nccl/local.mk
include $(srcdir)/topo/counters/local.mk
include $(srcdir)/topo/capture/local.mk
include $(srcdir)/topo/check/local.mk
include $(srcdir)/topo/hosts/local.mk
include $(srcdir)/topo/input/local.mk
include $(srcdir)/topo/tool/local.mk
