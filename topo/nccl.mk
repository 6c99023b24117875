# NCCL's side of the topology library. In libpvntopo.la what the plugin may link (libc only): NCCL's
# document, reduced tree and choices. In libpvntopotool.la what only the tools link: NCCL's XML read
# and judged (expat). Then the pvn-topo command (jansson, libpci).
libpvntopo_la_SOURCES += \
    topo/assign.c topo/assign.h \
    topo/fusion.c topo/gdr.c topo/gdr.h \
    topo/nccl_detect.c topo/nccl_detect.h \
    topo/nccl_doc.c topo/nccl_doc.h \
    topo/nccl_env.c topo/nccl_graph.c topo/nccl_graph.h topo/nccl_paths.c topo/nccl_tree.h \
    topo/nic.c topo/nic.h \
    topo/pair.c topo/pair.h \
    topo/report.c topo/report.h

noinst_LTLIBRARIES += libpvntopotool.la
libpvntopotool_la_SOURCES = topo/nccl_lint.c topo/nccl_scan.c topo/nccl_xml.h topo/nccl_xml_read.c
libpvntopotool_la_CPPFLAGS = $(AM_CPPFLAGS) $(EXPAT_CFLAGS) $(JANSSON_CFLAGS)
libpvntopotool_la_LIBADD = libpvntopo.la $(EXPAT_LIBS) $(JANSSON_LIBS)

pvn_topo_schemadir = $(pkgdatadir)
dist_pvn_topo_schema_DATA = topo/pvn-topo.schema.json

dist_man_MANS += topo/pvn-topo.1
pvn_bashcompdir = $(datadir)/bash-completion/completions
dist_pvn_bashcomp_DATA = topo/pvn-topo.bash

bin_PROGRAMS += topo/pvn-topo
topo_pvn_topo_SOURCES = \
    topo/tool/check.c topo/tool/choice.c topo/tool/choice.h topo/tool/diff.c topo/tool/dot.c topo/tool/dump.c topo/tool/gather.c \
    topo/tool/json.c topo/tool/lint.c \
    topo/tool/load.c topo/tool/main.c topo/tool/matrix.c topo/tool/merge.c topo/tool/names.c \
    topo/tool/pairs.c topo/tool/params.c topo/tool/stat.c topo/tool/stat.h topo/tool/stat_json.c \
    topo/tool/stat_prom.c topo/tool/stat_text.c \
    topo/tool/tool.h
topo_pvn_topo_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(LIBPCI_CFLAGS)
topo_pvn_topo_LDADD = libpvntopotool.la libpvn-rdma.la libpvn-tcp.la libpvn-core.la $(JANSSON_LIBS) $(LIBPCI_LIBS)
