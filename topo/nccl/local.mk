# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/nccl: NCCL's document, reduced tree, paths and choices, and our advice.
libpvntopo_la_SOURCES += \
    topo/nccl/advice.c topo/nccl/assign.c topo/nccl/assign.h \
    topo/nccl/nccl_detect.c topo/nccl/nccl_detect.h \
    topo/nccl/nccl_doc.c topo/nccl/nccl_doc.h \
    topo/nccl/nccl_env.c topo/nccl/nccl_graph.c topo/nccl/nccl_graph.h topo/nccl/nccl_paths.c topo/nccl/nccl_tree.h \
    topo/nccl/nic.c topo/nccl/nic.h \
    topo/nccl/pair.c topo/nccl/pair.h topo/nccl/pair_nodes.c topo/nccl/pair_priv.h \
    topo/nccl/report.c topo/nccl/report.h
libpvntopotool_la_SOURCES += topo/nccl/fusion.c topo/nccl/gdr.c topo/nccl/gdr.h topo/nccl/lost.c topo/nccl/lost.h \
    topo/nccl/nccl_lint.c topo/nccl/nccl_lint_numbers.c topo/nccl/nccl_lint_whole.c topo/nccl/nccl_reader.c topo/nccl/nccl_scan.c topo/nccl/nccl_xml.h topo/nccl/xml_position.h \
    topo/nccl/nccl_xml_read.c
