# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/tool/: the pvn-topo command (jansson; libpci is loaded at run time). A folder may use those above it:
#   base     shared by all commands: names and sentences for people, JSON for programs, output files
#   load     inputs of the commands: a machine or an NCCL file, counters of adapters, answers of many hosts
#   stat     the plugin's processes, on this host or on many
#   show     commands that show or write a machine: dump, matrix, pairs, why, diff, merge, gather, params
#   check    commands that check a machine, an NCCL file or many hosts: check, lint
# options.c has the commands and options; main.c calls the commands; overview.c answers a call without a command.
if TOOLS
pvn_topo_schemadir = $(pkgdatadir)
dist_pvn_topo_schema_DATA = topo/pvn-topo.schema.json

bin_PROGRAMS += topo/pvn-topo
topo_pvn_topo_SOURCES = topo/tool/main.c topo/tool/options.c topo/tool/options.h topo/tool/overview.c topo/tool/overview.h
topo_pvn_topo_SOURCES += topo/tool/base/down.c topo/tool/base/escape.c topo/tool/base/json.c \
    topo/tool/base/json.h topo/tool/base/names.c topo/tool/base/notes.c topo/tool/base/output.c topo/tool/base/output.h \
    topo/tool/base/pci_names.c topo/tool/base/tool.h
topo_pvn_topo_SOURCES += topo/tool/load/apply.c topo/tool/load/counters.c topo/tool/load/counters.h \
    topo/tool/load/counters_json.c topo/tool/load/load.c topo/tool/load/load.h topo/tool/load/query.c topo/tool/load/query.h
topo_pvn_topo_SOURCES += topo/tool/stat/stat.c topo/tool/stat/stat.h topo/tool/stat/stat_adapters.c \
    topo/tool/stat/stat_adapters.h topo/tool/stat/stat_files.c topo/tool/stat/stat_grown.c \
    topo/tool/stat/stat_grown.h topo/tool/stat/stat_hidden.c topo/tool/stat/stat_hidden.h topo/tool/stat/stat_room.c topo/tool/stat/stat_room.h \
    topo/tool/stat/stat_hosts.c topo/tool/stat/stat_job.c topo/tool/stat/stat_job.h \
    topo/tool/stat/stat_job_text.c topo/tool/stat/stat_json.c topo/tool/stat/stat_label.c \
    topo/tool/stat/stat_list.c topo/tool/stat/stat_look.h topo/tool/stat/stat_meet.c topo/tool/stat/stat_prom.c \
    topo/tool/stat/stat_rates.c topo/tool/stat/stat_rates.h topo/tool/stat/stat_saved.c \
    topo/tool/stat/stat_screen.c topo/tool/stat/stat_screen.h topo/tool/stat/stat_show.c \
    topo/tool/stat/stat_state.c topo/tool/stat/stat_text.c topo/tool/stat/stat_unanswered.c \
    topo/tool/stat/stat_watch.c
topo_pvn_topo_SOURCES += topo/tool/show/diff.c topo/tool/show/dot.c topo/tool/show/dump.c \
    topo/tool/show/gather.c topo/tool/show/matrix.c topo/tool/show/merge.c topo/tool/show/missing.c \
    topo/tool/show/pairs.c topo/tool/show/params.c topo/tool/show/show.h
topo_pvn_topo_SOURCES += topo/tool/check/check.c topo/tool/check/check.h topo/tool/check/compare.c topo/tool/check/compare.h \
    topo/tool/check/compare_show.c topo/tool/check/facts.c topo/tool/check/facts.h topo/tool/check/key_file.c topo/tool/check/key_file.h topo/tool/check/lint.c \
    topo/tool/check/nccl_conf.c topo/tool/check/plugin_place.c topo/tool/check/plugin_place.h \
    topo/tool/check/start.c topo/tool/check/start.h
# check looks for devices as the plugin does.
topo_pvn_topo_SOURCES += net-pvrdma/rdma_adapter.c net-pvrdma/rdma_transport.c plugin/abi/transports.c
topo_pvn_topo_CFLAGS = $(AM_CFLAGS) $(PVN_PIE_CFLAGS)
topo_pvn_topo_LDFLAGS = $(AM_LDFLAGS) $(PVN_LDFLAGS) $(PVN_PIE_LDFLAGS)
topo_pvn_topo_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
topo_pvn_topo_LDADD = libpvntopotool.la libpvn-tools.la libpvn-rdma.la libpvn-tcp.la libpvn-core.la $(JANSSON_LIBS) -lm
endif
