# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/capture: machines described elsewhere: tar captures of sysfs, hints, a host's dump merged into a guest's.
libpvntopotool_la_SOURCES += \
    topo/capture/edit.c \
    topo/capture/edit.h \
    topo/capture/esxcli.c \
    topo/capture/fs_tar.c \
    topo/capture/gather.c \
    topo/capture/gather.h \
    topo/capture/hints.c \
    topo/capture/merge.c \
    topo/capture/open.c \
    topo/capture/open.h \
    topo/capture/redact.c \
    topo/capture/tar_write.c
