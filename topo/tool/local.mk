# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# topo/tool: the pvn-topo command (jansson; libpci is loaded at run time).
if TOOLS
pvn_topo_schemadir = $(pkgdatadir)
dist_pvn_topo_schema_DATA = topo/pvn-topo.schema.json

dist_man_MANS += topo/pvn-topo.1
dist_pvn_bashcomp_DATA += topo/pvn-topo.bash

bin_PROGRAMS += topo/pvn-topo
topo_pvn_topo_SOURCES = \
    topo/tool/apply.c topo/tool/check.c topo/tool/compare.c topo/tool/compare.h topo/tool/compare_show.c topo/tool/counters.c topo/tool/counters.h topo/tool/counters_json.c topo/tool/diff.c topo/tool/dot.c topo/tool/down.c topo/tool/dump.c \
    topo/tool/escape.c topo/tool/facts.c topo/tool/facts.h topo/tool/gather.c topo/tool/json.c topo/tool/lint.c topo/tool/load.c topo/tool/main.c \
    topo/tool/matrix.c topo/tool/merge.c topo/tool/missing.c topo/tool/names.c topo/tool/nccl_conf.c topo/tool/notes.c topo/tool/overview.c topo/tool/pairs.c topo/tool/output.c topo/tool/output.h topo/tool/params.c topo/tool/pci_names.c topo/tool/stat.c \
    topo/tool/query.c topo/tool/query.h topo/tool/stat.h topo/tool/stat_adapters.c topo/tool/stat_adapters.h topo/tool/stat_files.c topo/tool/stat_grown.c topo/tool/stat_grown.h topo/tool/stat_hidden.c topo/tool/stat_hidden.h topo/tool/stat_hosts.c topo/tool/stat_look.h topo/tool/stat_job.c topo/tool/stat_job.h topo/tool/stat_job_text.c topo/tool/stat_json.c \
    topo/tool/stat_label.c topo/tool/stat_list.c topo/tool/stat_meet.c topo/tool/stat_prom.c topo/tool/stat_rates.c topo/tool/stat_rates.h topo/tool/stat_saved.c topo/tool/stat_screen.c topo/tool/stat_screen.h topo/tool/stat_show.c topo/tool/stat_state.c topo/tool/stat_unanswered.c topo/tool/stat_text.c topo/tool/stat_watch.c \
    topo/tool/tool.h
topo_pvn_topo_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
topo_pvn_topo_LDADD = libpvntopotool.la libpvn-tools.la libpvn-core.la $(JANSSON_LIBS) -lm
endif
