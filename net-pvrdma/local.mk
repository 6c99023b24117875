# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# net-pvrdma/: the RDMA lane.
noinst_LTLIBRARIES += libpvn-rdma.la libpvn-rdma-data.la
libpvn_rdma_la_SOURCES = net-pvrdma/gid.c net-pvrdma/gid.h net-pvrdma/gpu.c net-pvrdma/gpu.h \
    net-pvrdma/hca.c net-pvrdma/hca.h net-pvrdma/hca_priv.h net-pvrdma/hca_sys.c net-pvrdma/nic.c net-pvrdma/nic.h \
    net-pvrdma/ordering.c net-pvrdma/ordering.h net-pvrdma/probe.c net-pvrdma/probe.h net-pvrdma/rdma_setup.c net-pvrdma/rdma_wire.c net-pvrdma/rdma_wire.h \
    net-pvrdma/verbs.c net-pvrdma/verbs.h net-pvrdma/verbs_cmd.c net-pvrdma/verbs_cmd.h
libpvn_rdma_la_LIBADD = libpvn-rdma-data.la

# The files that every message passes through.
libpvn_rdma_data_la_SOURCES = net-pvrdma/rdma_err.c net-pvrdma/rdma_fence.c net-pvrdma/rdma_flush.c \
    net-pvrdma/rdma_imm.c net-pvrdma/rdma_lane.c net-pvrdma/rdma_lane.h net-pvrdma/rdma_lane_priv.h \
    net-pvrdma/rdma_mode.h net-pvrdma/rdma_one_sided.c net-pvrdma/rdma_one_sided.h net-pvrdma/rdma_overdue.c \
    net-pvrdma/rdma_path.c net-pvrdma/rdma_path.h net-pvrdma/rdma_post.c net-pvrdma/rdma_post.h net-pvrdma/rdma_qp.c \
    net-pvrdma/rdma_qp.h net-pvrdma/rdma_record.c net-pvrdma/rdma_rx.c net-pvrdma/rdma_rx.h net-pvrdma/rdma_short.c \
    net-pvrdma/rdma_two.c net-pvrdma/rdma_tx.c net-pvrdma/rdma_tx.h net-pvrdma/rdma_wr.h
libpvn_rdma_data_la_CFLAGS = $(libpvn_core_data_la_CFLAGS)

# These files are part of the plugin, not of the library, because they join RDMA with TCP. Tests of the lane link the library without TCP.
libnccl_net_pvrdma_la_SOURCES += net-pvrdma/rdma_transport.c net-pvrdma/rdma_transport.h
libnccl_net_pvrdma_la_SOURCES += net-pvrdma/rdma_adapter.c net-pvrdma/rdma_adapter.h
