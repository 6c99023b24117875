# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests of NCCL's side of the topology library and of the pvn-topo command.
dist_noinst_DATA += $(srcdir)/tests/topo/data $(srcdir)/tests/topo/golden
PVN_SCRIPT_TESTS += tests/topo/shared_object.sh
TOPO_TOOL_LDADD = libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_corpus
tests_topo_test_corpus_SOURCES = tests/topo/test_corpus.cc tests/topo/shared.h
tests_topo_test_corpus_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_corpus_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_nccl_rules
tests_topo_test_nccl_rules_SOURCES = tests/topo/test_nccl_rules.cc tests/topo/nccl_file.h
tests_topo_test_nccl_rules_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_nccl_rules_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_nccl_xml
tests_topo_test_nccl_xml_SOURCES = tests/topo/test_nccl_xml.cc tests/topo/nccl_file.h
tests_topo_test_nccl_xml_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_nccl_xml_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_pair
tests_topo_test_pair_SOURCES = tests/topo/test_pair.cc tests/topo/nccl_file.h
tests_topo_test_pair_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_pair_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_nccl_detect
tests_topo_test_nccl_detect_SOURCES = tests/topo/test_nccl_detect.cc tests/topo/nccl_file.h
tests_topo_test_nccl_detect_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_nccl_detect_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_nics
tests_topo_test_nics_SOURCES = tests/topo/test_nics.cc
tests_topo_test_nics_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_nics_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_nccl_machine
tests_topo_test_nccl_machine_SOURCES = tests/topo/test_nccl_machine.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_nccl_machine_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_nccl_machine_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_cli
tests_topo_test_cli_SOURCES = tests/topo/test_cli.cc tests/topo/cli.h tests/topo/shared.h tests/support/completed.h
tests_topo_test_cli_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_topo_test_cli_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD) libpvn-core.la $(JANSSON_LIBS)

dist_noinst_DATA += tests/topo/schema_check.py
PVN_TESTS += tests/topo/test_json
tests_topo_test_json_SOURCES = tests/topo/test_json.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_json_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_topo_test_json_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD) $(JANSSON_LIBS)

PVN_TESTS += tests/topo/test_inputs
tests_topo_test_inputs_SOURCES = tests/topo/test_inputs.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_inputs_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_inputs_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD)

# A libpci that the command loads. -rpath makes libtool build a shared object; nothing is installed.
check_LTLIBRARIES += tests/topo/libpci_double.la
tests_topo_libpci_double_la_SOURCES = tests/topo/libpci_double.c
tests_topo_libpci_double_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default
tests_topo_libpci_double_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere

PVN_TESTS += tests/topo/test_odd
tests_topo_test_odd_SOURCES = tests/topo/test_odd.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_odd_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_odd_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_answers
tests_topo_test_answers_SOURCES = tests/topo/test_answers.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_answers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_answers_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/topo/test_layout
tests_topo_test_layout_SOURCES = tests/topo/test_layout.cc
tests_topo_test_layout_CPPFLAGS = $(TEST_CPPFLAGS)
tests_topo_test_layout_LDADD = libpvntopotest.la libpvntopotool.la $(TEST_LDADD)
EXTRA_tests_topo_test_layout_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/fuzz/fuzz_input
tests_fuzz_fuzz_input_SOURCES = tests/fuzz/fuzz_input.c tests/fuzz/replay.cc
tests_fuzz_fuzz_input_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"input\" \
    -DPVN_FUZZ_DEFAULT_RUNS=3000
tests_fuzz_fuzz_input_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/fuzz/fuzz_nccl_xml
tests_fuzz_fuzz_nccl_xml_SOURCES = tests/fuzz/fuzz_nccl_xml.c tests/fuzz/replay.cc
tests_fuzz_fuzz_nccl_xml_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"nccl_xml\"
tests_fuzz_fuzz_nccl_xml_LDADD = $(TOPO_TOOL_LDADD)

PVN_TESTS += tests/topo/test_round
tests_topo_test_round_SOURCES = tests/topo/test_round.cc tests/topo/cli.h tests/topo/shared.h
tests_topo_test_round_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_topo_test_round_LDADD = libpvntopotest.la $(TOPO_TOOL_LDADD) $(JANSSON_LIBS)
