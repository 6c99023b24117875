# topo/: libpvntopo (the machine model: libc only, so that the plugin links it) and the pvn-topo tool.
noinst_LTLIBRARIES += libpvntopo.la
libpvntopo_la_SOURCES = topo/pvn_topo.h topo/model.c topo/names.c topo/reader.h topo/reader.c \
    topo/fs.h topo/fs.c topo/fs_dir.c topo/fs_tar.c topo/system.c topo/pci.c topo/pci_kind.c \
    topo/config.c topo/net.c topo/rdma.c topo/gpu.c topo/guest.c topo/distance.c topo/check.h \
    topo/check.c topo/check_pci.c topo/check_net.c topo/check_host.c topo/edit.h topo/edit.c \
    topo/hints.c topo/merge.c topo/esxcli.c topo/remedies.c topo/gather.h topo/gather.c \
    topo/redact.c topo/tar_write.c

include $(srcdir)/topo/nccl.mk
