# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
PVN_TESTS += tests/unit/test_poller
tests_unit_test_poller_SOURCES = tests/unit/test_poller.cc
tests_unit_test_poller_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_poller_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_path_watch
tests_unit_test_path_watch_SOURCES = tests/unit/test_path_watch.cc
tests_unit_test_path_watch_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_path_watch_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_link
tests_unit_test_link_SOURCES = tests/unit/test_link.cc
tests_unit_test_link_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_link_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_thread
tests_unit_test_thread_SOURCES = tests/unit/test_thread.cc
tests_unit_test_thread_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_thread_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_retry
tests_unit_test_retry_SOURCES = tests/unit/test_retry.cc
tests_unit_test_retry_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_retry_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_paths
tests_unit_test_paths_SOURCES = tests/unit/test_paths.cc
tests_unit_test_paths_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_paths_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_fork_fds
tests_unit_test_fork_fds_SOURCES = tests/unit/test_fork_fds.cc
tests_unit_test_fork_fds_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_fork_fds_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_presence
tests_unit_test_presence_SOURCES = tests/unit/test_presence.cc
tests_unit_test_presence_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_presence_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_comm_thread
tests_unit_test_comm_thread_SOURCES = tests/unit/test_comm_thread.cc
tests_unit_test_comm_thread_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_comm_thread_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_fork
tests_unit_test_fork_SOURCES = tests/unit/test_fork.cc
tests_unit_test_fork_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_fork_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_log
tests_unit_test_log_SOURCES = tests/unit/test_log.cc
tests_unit_test_log_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_log_LDADD = libpvn-core.la $(TEST_LDADD)

dist_noinst_DATA += tests/support/netns.h tests/support/bytes.h tests/support/deadline.h tests/support/next_symbol.h tests/support/watched_copy.h tests/support/whole_table.h

# The engine's inline calls, for all tests that have an engine and no comm.
check_LTLIBRARIES += tests/support/libengine-calls.la
tests_support_libengine_calls_la_SOURCES = tests/support/engine_calls.c tests/support/engine_calls.h
tests_support_libengine_calls_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests

PVN_TESTS += tests/unit/test_chaosproxy
tests_unit_test_chaosproxy_SOURCES = tests/unit/test_chaosproxy.cc tests/support/chaosproxy.cc \
    tests/support/chaosproxy.h
tests_unit_test_chaosproxy_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_chaosproxy_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/unit/test_memcache
tests_unit_test_memcache_SOURCES = tests/unit/test_memcache.cc
tests_unit_test_memcache_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_memcache_LDADD = libpvn-core.la $(TEST_LDADD)

if HAVE_OPENSSL

PVN_TESTS += tests/unit/test_seal_send
tests_unit_test_seal_send_SOURCES = tests/unit/test_seal_send.cc tests/unit/seal_ends.h
tests_unit_test_seal_send_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_seal_send_LDADD = libpvn-core.la $(TEST_LDADD) -lssl -lcrypto

PVN_TESTS += tests/unit/test_seal_kernel
tests_unit_test_seal_kernel_SOURCES = tests/unit/test_seal_kernel.cc tests/unit/seal_ends.h
tests_unit_test_seal_kernel_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_seal_kernel_LDADD = libpvn-core.la $(TEST_LDADD) -lssl -lcrypto

# The test replaces functions of the C library, as this sanitizer does.
if !SANITIZE_THREAD
PVN_TESTS += tests/unit/test_seal_fork
tests_unit_test_seal_fork_SOURCES = tests/unit/test_seal_fork.cc tests/unit/seal_ends.h
tests_unit_test_seal_fork_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_seal_fork_LDADD = libpvn-core.la $(TEST_LDADD) -lssl -lcrypto
endif
endif

# These tests replace calloc and realloc, as the sanitizers do.
if !SANITIZE
PVN_TESTS += tests/unit/test_ctrl_memory
tests_unit_test_ctrl_memory_SOURCES = tests/unit/test_ctrl_memory.cc
tests_unit_test_ctrl_memory_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_ctrl_memory_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_engine_memory
tests_unit_test_engine_memory_SOURCES = tests/unit/test_engine_memory.cc
tests_unit_test_engine_memory_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_engine_memory_LDADD = tests/support/libengine-calls.la libpvn-core.la $(TEST_LDADD)
endif

# Built by `make check` so that it stays buildable; run by hand: build/tests/bench/memcache
check_PROGRAMS += tests/bench/memcache
tests_bench_memcache_SOURCES = tests/bench/memcache.c
tests_bench_memcache_LDADD = libpvn-core.la

PVN_TESTS += tests/unit/test_stats
tests_unit_test_stats_SOURCES = tests/unit/test_stats.cc tests/unit/stats_files.h
tests_unit_test_stats_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_stats_LDADD = libpvn-core.la $(TEST_LDADD)
