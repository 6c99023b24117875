# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/perf/: pvn-perf, which loads any net plugin and drives it as NCCL does.
#   libpvn-netdrv.la   the driver, for pvn-perf and for the tests of the plugin
#   libpvn-perf.la     the rest of pvn-perf but its main, for pvn-perf and for its tests

if TOOLS
noinst_LTLIBRARIES += libpvn-netdrv.la libpvn-perf.la
else
EXTRA_LTLIBRARIES += libpvn-netdrv.la libpvn-perf.la
endif
libpvn_netdrv_la_SOURCES = plugin/perf/netdrv.c plugin/perf/netdrv.h plugin/perf/netdrv_v4.c \
    plugin/perf/netdrv_v4.h
libpvn_perf_la_SOURCES = plugin/perf/baseline.c plugin/perf/baseline.h plugin/perf/figures.c plugin/perf/find_plugin.c \
    plugin/perf/gpu.c plugin/perf/gpu.h plugin/perf/job.c plugin/perf/job.h plugin/perf/messages.c plugin/perf/messages.h plugin/perf/model.c plugin/perf/model.h plugin/perf/opts.c plugin/perf/opts.h \
    plugin/perf/opts_check.c plugin/perf/opts_check.h plugin/perf/opts_table.c plugin/perf/opts_table.h \
    plugin/perf/opts_values.c plugin/perf/opts_values.h \
    plugin/perf/output.c plugin/perf/own_stats.c plugin/perf/own_stats.h plugin/perf/p2p.c plugin/perf/plot.c \
    plugin/perf/pin.c plugin/perf/pin.h plugin/perf/rank.c plugin/perf/rank_fail.c plugin/perf/rank_rows.c plugin/perf/rank.h \
    plugin/perf/report.c plugin/perf/report.h plugin/perf/ring.c plugin/perf/ring.h \
    plugin/perf/ring_run.c plugin/perf/ring_steps.c plugin/perf/ring_steps.h plugin/perf/row.h plugin/perf/run_info.c \
    plugin/perf/run_info.h plugin/perf/stop.c plugin/perf/stop.h \
    plugin/perf/slots.c plugin/perf/slots.h plugin/perf/timed.c plugin/perf/timed.h plugin/perf/usage.c plugin/perf/values.c \
    plugin/perf/values.h
libpvn_perf_la_SOURCES += plugin/perf/hist.c plugin/perf/hist.h plugin/perf/p2p_soak.c plugin/perf/p2p_soak.h plugin/perf/rank_peer.c plugin/perf/serve.c plugin/perf/serve.h plugin/perf/serve_client.c \
    plugin/perf/serve_proto.c plugin/perf/serve_proto.h plugin/perf/p2p_flow.c plugin/perf/p2p_flow.h plugin/perf/plot.h \
    plugin/perf/plot_dist.c plugin/perf/plot_parts.c
libpvn_perf_la_SOURCES += plugin/perf/mesh_find.c plugin/perf/mesh_find.h plugin/perf/mesh_groups.c plugin/perf/mesh_groups.h plugin/perf/mesh_rounds.c \
    plugin/perf/mesh_rounds.h plugin/perf/mesh_text.c plugin/perf/mesh.c plugin/perf/mesh.h plugin/perf/mesh_pair.c \
    plugin/perf/mesh_view.c plugin/perf/mesh_view.h plugin/perf/mesh_output.c plugin/perf/mesh_plot.c plugin/perf/p2p.h
libpvn_perf_la_SOURCES += plugin/perf/alltoall.c plugin/perf/moe.c plugin/perf/moe.h plugin/perf/pairs.c plugin/perf/pairs.h \
    plugin/perf/pairs_plan.c plugin/perf/pairs_plan.h plugin/perf/pairs_run.c plugin/perf/pipeline.c
libpvn_perf_la_CPPFLAGS = $(AM_CPPFLAGS) -DPVN_LIBDIR=\"$(libdir)\" -DPVN_PREFIX=\"$(prefix)\"
libpvn_perf_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
libpvn_perf_la_LIBADD = libpvn-netdrv.la libpvn-tools.la libpvn-core.la $(JANSSON_LIBS) -lm

if TOOLS
bin_PROGRAMS += pvn-perf
pvn_perf_SOURCES = plugin/perf/main.c
pvn_perf_LDADD = libpvn-perf.la
dist_man_MANS += plugin/perf/pvn-perf.1
dist_pvn_bashcomp_DATA += plugin/perf/pvn-perf.bash
pvn_perf_schemadir = $(pkgdatadir)
dist_pvn_perf_schema_DATA = plugin/perf/pvn-perf.schema.json
endif
