# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/: the topology library and the pvn-topo tool.
#   libpvntopo.la       the machine as sysfs shows it, and what NCCL makes of it: libc only, so that the
#                       plugin links it
#   libpvntopotool.la   what only the tools need, so that the plugin does not carry it: captures, hints and
#                       merges, counters, checks and remedies, GPUDirect verdicts, NCCL's XML read and judged (expat)
# Data flows in one direction, and so do includes: topo (the machine's model) <- topo/nccl (what NCCL makes of it),
# topo/counters <- topo/capture and topo/check <- topo/input <- topo/tool. A folder includes only what stands left of it.
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
