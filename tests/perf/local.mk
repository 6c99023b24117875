# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/perf/: tests of pvn-perf. Some link its parts in. Others run the program on tests/support/testnet.c, a small
# plugin that misbehaves on request.
check_LTLIBRARIES += tests/support/testnet.la
tests_support_testnet_la_SOURCES = tests/support/testnet.c
tests_support_testnet_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
    -rpath $(abs_builddir)/tests/support

# A stand-in for libpmix.so.2.
check_LTLIBRARIES += tests/support/libpmix.la
tests_support_libpmix_la_SOURCES = tests/support/fakepmix.c
tests_support_libpmix_la_LDFLAGS = $(AM_LDFLAGS) -version-info 2:0:0 -rpath $(abs_builddir)/tests/support

# A minimal net plugin, which tests/bench/tcp.sh --bare measures beside the others.
check_LTLIBRARIES += tests/bench/bare_net.la
tests_bench_bare_net_la_SOURCES = tests/bench/bare_net.c
tests_bench_bare_net_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
    -rpath $(abs_builddir)/tests/bench

# Verbs without a plugin, for tests/bench/rdma.sh --bare.
check_LTLIBRARIES += tests/bench/bare_verbs.la
tests_bench_bare_verbs_la_SOURCES = tests/bench/bare_verbs.c
tests_bench_bare_verbs_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
    -rpath $(abs_builddir)/tests/bench
tests_bench_bare_verbs_la_LIBADD = -libverbs

# The distance of the cores, which tests/bench/tcp.sh takes before and after each measurement.
check_PROGRAMS += tests/bench/core_distance
tests_bench_core_distance_SOURCES = tests/bench/core_distance.c
tests_bench_core_distance_LDADD = -lpthread
# The two socket calls that every plugin over TCP needs, and nothing else.
check_PROGRAMS += tests/bench/tcp_alone
tests_bench_tcp_alone_SOURCES = tests/bench/tcp_alone.c
# The cost and the saving of zero-copy at each end, without a plugin.
check_PROGRAMS += tests/bench/tcp_halves
tests_bench_tcp_halves_SOURCES = tests/bench/tcp_halves.c
tests_bench_tcp_halves_LDADD = -lpthread
# A handshake of OpenSSL's own, which tests/bench/seal.sh prints beside comms that are set up with a key.
if HAVE_OPENSSL
check_PROGRAMS += tests/bench/tls_floor
tests_bench_tls_floor_SOURCES = tests/bench/tls_floor.c
tests_bench_tls_floor_LDADD = -lssl -lcrypto
endif

dist_noinst_DATA += tests/bench/README.md tests/bench/NOTES.md tests/bench/tcp.sh tests/bench/seal.sh tests/bench/seal_guest.sh tests/bench/seal_guest.awk tests/bench/congestion.sh tests/bench/tcp.awk tests/bench/distance.awk tests/bench/median.awk tests/bench/gate.sh tests/bench/gate.awk tests/bench/nccl.awk tests/bench/idle.sh tests/bench/alltoall.sh tests/bench/share.sh

PVN_TESTS += tests/perf/test_perf_parts
tests_perf_test_perf_parts_SOURCES = tests/perf/test_perf_parts.cc
tests_perf_test_perf_parts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_parts_LDADD = libpvn-perf.la $(TEST_LDADD)
EXTRA_tests_perf_test_perf_parts_DEPENDENCIES = tests/support/libpmix.la

PVN_TESTS += tests/perf/test_perf_hist
tests_perf_test_perf_hist_SOURCES = tests/perf/test_perf_hist.cc
tests_perf_test_perf_hist_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_hist_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/perf/test_ring_steps
tests_perf_test_ring_steps_SOURCES = tests/perf/test_ring_steps.cc
tests_perf_test_ring_steps_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_ring_steps_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/perf/test_mesh_parts
tests_perf_test_mesh_parts_SOURCES = tests/perf/test_mesh_parts.cc
tests_perf_test_mesh_parts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_mesh_parts_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/perf/test_pairs_plan
tests_perf_test_pairs_plan_SOURCES = tests/perf/test_pairs_plan.cc
tests_perf_test_pairs_plan_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_pairs_plan_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/perf/test_perf_boot
tests_perf_test_perf_boot_SOURCES = tests/perf/test_perf_boot.cc
tests_perf_test_perf_boot_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_boot_LDADD = libpvn-perf.la $(TEST_LDADD)

if !SANITIZE_THREAD
PVN_TESTS += tests/perf/test_perf_svg
tests_perf_test_perf_svg_SOURCES = tests/perf/test_perf_svg.cc tests/perf/perf_run.h
tests_perf_test_perf_svg_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_svg_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/perf/test_perf_help
tests_perf_test_perf_help_SOURCES = tests/perf/test_perf_help.cc tests/perf/perf_run.h tests/support/completed.h
tests_perf_test_perf_help_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_help_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/perf/test_perf_run
tests_perf_test_perf_run_SOURCES = tests/perf/test_perf_run.cc tests/perf/perf_run.h
tests_perf_test_perf_run_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS) $(EXPAT_CFLAGS)
tests_perf_test_perf_run_LDADD = $(TEST_LDADD) $(JANSSON_LIBS) $(EXPAT_LIBS)

PVN_TESTS += tests/perf/test_perf_pairs
tests_perf_test_perf_pairs_SOURCES = tests/perf/test_perf_pairs.cc tests/perf/perf_run.h
tests_perf_test_perf_pairs_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_perf_pairs_LDADD = $(TEST_LDADD) $(JANSSON_LIBS)

PVN_TESTS += tests/perf/test_perf_p2p
tests_perf_test_perf_p2p_SOURCES = tests/perf/test_perf_p2p.cc tests/perf/perf_run.h
tests_perf_test_perf_p2p_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_perf_p2p_LDADD = $(TEST_LDADD) $(JANSSON_LIBS)

PVN_TESTS += tests/perf/test_perf_memory
tests_perf_test_perf_memory_SOURCES = tests/perf/test_perf_memory.cc tests/perf/perf_run.h
tests_perf_test_perf_memory_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_perf_memory_LDADD = libpvn-perf.la $(TEST_LDADD) $(JANSSON_LIBS)
EXTRA_tests_perf_test_perf_memory_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la \
    tests/support/testnet.la

PVN_TESTS += tests/perf/test_perf_mesh
tests_perf_test_perf_mesh_SOURCES = tests/perf/test_perf_mesh.cc tests/perf/perf_run.h
tests_perf_test_perf_mesh_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS) $(EXPAT_CFLAGS)
tests_perf_test_perf_mesh_LDADD = $(TEST_LDADD) $(JANSSON_LIBS) $(EXPAT_LIBS)

PVN_TESTS += tests/perf/test_perf_serve
tests_perf_test_perf_serve_SOURCES = tests/perf/test_perf_serve.cc tests/perf/perf_run.h
tests_perf_test_perf_serve_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_perf_serve_LDADD = libpvn-perf.la $(TEST_LDADD) $(JANSSON_LIBS)
EXTRA_tests_perf_test_perf_serve_DEPENDENCIES = tests/support/libcuda.la

PVN_TESTS += tests/perf/test_perf_key
tests_perf_test_perf_key_SOURCES = tests/perf/test_perf_key.cc tests/perf/perf_run.h
tests_perf_test_perf_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_perf_key_LDADD = libpvn-perf.la $(TEST_LDADD) $(JANSSON_LIBS)

PVN_TESTS += tests/perf/test_baseline
tests_perf_test_baseline_SOURCES = tests/perf/test_baseline.cc tests/perf/perf_run.h
tests_perf_test_baseline_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_baseline_LDADD = $(TEST_LDADD) $(JANSSON_LIBS)

# The archive is the same in every tree.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/perf/dist.sh
endif

PVN_TESTS += tests/perf/test_perf_end
tests_perf_test_perf_end_SOURCES = tests/perf/test_perf_end.cc tests/perf/perf_run.h
tests_perf_test_perf_end_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_perf_test_perf_end_LDADD = libpvn-core.la $(TEST_LDADD) $(JANSSON_LIBS)

PVN_TESTS += tests/perf/test_own_stats
tests_perf_test_own_stats_SOURCES = tests/perf/test_own_stats.cc
tests_perf_test_own_stats_CPPFLAGS = $(TEST_CPPFLAGS)
tests_perf_test_own_stats_LDADD = libpvn-perf.la $(TEST_LDADD)
endif
