# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/topo/: tests of the machine model with made-up machines, captures of real ones, and damaged input.
check_LTLIBRARIES += libpvntopotest.la
libpvntopotest_la_SOURCES = tests/topo/tree.h tests/topo/tree.cc
libpvntopotest_la_CPPFLAGS = $(TEST_CPPFLAGS)

PVN_TESTS += tests/topo/test_reader
tests_topo_test_reader_SOURCES = tests/topo/test_reader.cc
tests_topo_test_reader_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_reader_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_check
tests_topo_test_check_SOURCES = tests/topo/test_check.cc
tests_topo_test_check_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_check_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_unread
tests_topo_test_unread_SOURCES = tests/topo/test_unread.cc
tests_topo_test_unread_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_unread_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_hints
tests_topo_test_hints_SOURCES = tests/topo/test_hints.cc
tests_topo_test_hints_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_hints_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_distance
tests_topo_test_distance_SOURCES = tests/topo/test_distance.cc
tests_topo_test_distance_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_distance_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_gather
tests_topo_test_gather_SOURCES = tests/topo/test_gather.cc
tests_topo_test_gather_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_gather_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_stat_job
tests_topo_test_stat_job_SOURCES = tests/topo/test_stat_job.cc tests/topo/stat_saved.h
tests_topo_test_stat_job_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_stat_job_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_stat_view
tests_topo_test_stat_view_SOURCES = tests/topo/test_stat_view.cc tests/topo/stat_saved.h
tests_topo_test_stat_view_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_stat_view_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD) -lutil

PVN_TESTS += tests/topo/test_stat_hosts
tests_topo_test_stat_hosts_SOURCES = tests/topo/test_stat_hosts.cc tests/topo/stat_saved.h
tests_topo_test_stat_hosts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_stat_hosts_LDADD = libpvntopotest.la libpvntopotool.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_stat_key
tests_topo_test_stat_key_SOURCES = tests/topo/test_stat_key.cc tests/support/key_file.h tests/topo/stat_saved.h
tests_topo_test_stat_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_stat_key_LDADD = libpvntopotest.la libpvntopotool.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_check_key
tests_topo_test_check_key_SOURCES = tests/topo/test_check_key.cc tests/support/key_file.h
tests_topo_test_check_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_check_key_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_check_start
tests_topo_test_check_start_SOURCES = tests/topo/test_check_start.cc tests/support/key_file.h
tests_topo_test_check_start_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_check_start_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)
EXTRA_tests_topo_test_check_start_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/topo/test_check_hosts
tests_topo_test_check_hosts_SOURCES = tests/topo/test_check_hosts.cc
tests_topo_test_check_hosts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_check_hosts_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_hostile
tests_topo_test_hostile_SOURCES = tests/topo/test_hostile.cc
tests_topo_test_hostile_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_hostile_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_captures
tests_topo_test_captures_SOURCES = tests/topo/test_captures.cc tests/topo/hwloc_line.h
tests_topo_test_captures_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_captures_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_hwloc_xml
tests_topo_test_hwloc_xml_SOURCES = tests/topo/test_hwloc_xml.cc tests/topo/hwloc_line.h
tests_topo_test_hwloc_xml_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_hwloc_xml_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_counters
tests_topo_test_counters_SOURCES = tests/topo/test_counters.cc
tests_topo_test_counters_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_counters_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)
