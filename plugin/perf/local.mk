# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# plugin/perf/: pvn-perf, which loads any net plugin and drives it as NCCL does. A folder may use those above it:
#   workload, driver   the data: models, plans, values that can be checked; NCCL's calls to any plugin
#   options            the command line
#   rank               one rank: its memory, slots, time measurement, errors, reports
#   patterns           exchanges of messages between ranks: p2p, ring, pairs of ranks, mesh
#   jobs               a measurement in processes of its own, and `pvn-perf serve`, which runs one for another host
#   results            the ranks' reports as text, JSON, CSV and SVG (uses only options and rank)
#   libpvn-netdrv.la   the driver, for pvn-perf and for the tests of the plugin
#   libpvn-perf.la     the rest of pvn-perf except main, for pvn-perf and for its tests

if TOOLS
noinst_LTLIBRARIES += libpvn-netdrv.la libpvn-perf.la
else
EXTRA_LTLIBRARIES += libpvn-netdrv.la libpvn-perf.la
endif
libpvn_netdrv_la_SOURCES = plugin/perf/driver/netdrv.c plugin/perf/driver/netdrv.h plugin/perf/driver/netdrv_v4.c \
    plugin/perf/driver/netdrv_v4.h
libpvn_perf_la_SOURCES = plugin/perf/workload/model.c plugin/perf/workload/model.h plugin/perf/workload/pairs_plan.c \
    plugin/perf/workload/pairs_plan.h plugin/perf/workload/values.c plugin/perf/workload/values.h
libpvn_perf_la_SOURCES += plugin/perf/options/opts.c plugin/perf/options/opts.h plugin/perf/options/opts_check.c \
    plugin/perf/options/opts_check.h plugin/perf/options/opts_table.c plugin/perf/options/opts_table.h \
    plugin/perf/options/opts_values.c plugin/perf/options/opts_values.h
libpvn_perf_la_SOURCES += plugin/perf/rank/find_plugin.c plugin/perf/rank/gpu.c plugin/perf/rank/gpu.h \
    plugin/perf/rank/hist.c plugin/perf/rank/hist.h plugin/perf/rank/messages.c plugin/perf/rank/messages.h \
    plugin/perf/rank/own_stats.c plugin/perf/rank/own_stats.h plugin/perf/rank/pin.c plugin/perf/rank/pin.h \
    plugin/perf/rank/rank.c plugin/perf/rank/rank.h plugin/perf/rank/rank_fail.c plugin/perf/rank/rank_fail.h \
    plugin/perf/rank/rank_peer.c plugin/perf/rank/rank_rows.c plugin/perf/rank/row.h plugin/perf/rank/slots.c plugin/perf/rank/slots.h \
    plugin/perf/rank/stop.c plugin/perf/rank/stop.h plugin/perf/rank/timed.c plugin/perf/rank/timed.h
libpvn_perf_la_SOURCES += plugin/perf/patterns/alltoall.c plugin/perf/patterns/mesh.c plugin/perf/patterns/mesh.h \
    plugin/perf/patterns/mesh_pair.c plugin/perf/patterns/mesh_rounds.c plugin/perf/patterns/mesh_rounds.h \
    plugin/perf/patterns/moe.c plugin/perf/patterns/moe.h plugin/perf/patterns/p2p.c plugin/perf/patterns/p2p.h \
    plugin/perf/patterns/p2p_flow.c plugin/perf/patterns/p2p_flow.h plugin/perf/patterns/p2p_soak.c \
    plugin/perf/patterns/p2p_soak.h plugin/perf/patterns/pairs.c plugin/perf/patterns/pairs.h \
    plugin/perf/patterns/pairs_run.c plugin/perf/patterns/pipeline.c plugin/perf/patterns/ring.c \
    plugin/perf/patterns/ring.h plugin/perf/patterns/ring_run.c plugin/perf/patterns/ring_steps.c \
    plugin/perf/patterns/ring_steps.h
libpvn_perf_la_SOURCES += plugin/perf/jobs/job.c plugin/perf/jobs/job.h plugin/perf/jobs/serve.c \
    plugin/perf/jobs/serve.h plugin/perf/jobs/serve_client.c plugin/perf/jobs/serve_proto.c \
    plugin/perf/jobs/serve_proto.h
libpvn_perf_la_SOURCES += plugin/perf/results/baseline.c plugin/perf/results/baseline.h \
    plugin/perf/results/figures.c plugin/perf/results/mesh_find.c plugin/perf/results/mesh_find.h \
    plugin/perf/results/mesh_groups.c plugin/perf/results/mesh_groups.h plugin/perf/results/mesh_output.c \
    plugin/perf/results/mesh_plot.c plugin/perf/results/mesh_text.c plugin/perf/results/mesh_view.c \
    plugin/perf/results/mesh_view.h plugin/perf/results/order.h plugin/perf/results/output.c plugin/perf/results/plot.c \
    plugin/perf/results/plot.h plugin/perf/results/plot_dist.c plugin/perf/results/plot_parts.c \
    plugin/perf/results/plot_time.c \
    plugin/perf/results/report.c plugin/perf/results/report.h plugin/perf/results/run_info.c \
    plugin/perf/results/run_info.h
libpvn_perf_la_CPPFLAGS = $(AM_CPPFLAGS) -DPVN_LIBDIR=\"$(libdir)\" -DPVN_PREFIX=\"$(prefix)\"
libpvn_perf_la_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
libpvn_perf_la_LIBADD = libpvn-netdrv.la libpvn-tools.la libpvn-core.la $(JANSSON_LIBS) -lm

if TOOLS
bin_PROGRAMS += pvn-perf
pvn_perf_SOURCES = plugin/perf/main.c
pvn_perf_CFLAGS = $(AM_CFLAGS) $(PVN_PIE_CFLAGS)
pvn_perf_LDFLAGS = $(AM_LDFLAGS) $(PVN_LDFLAGS) $(PVN_PIE_LDFLAGS)
pvn_perf_LDADD = libpvn-perf.la
pvn_perf_schemadir = $(pkgdatadir)
dist_pvn_perf_schema_DATA = plugin/perf/pvn-perf.schema.json
endif
