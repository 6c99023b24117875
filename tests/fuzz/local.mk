# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Fuzz targets, run on their corpus and on mutations of it (see fuzz.h). A new target needs fuzz_NAME.c, a corpus in
# corpus/NAME, and lines like those below.
dist_noinst_DATA += tests/fuzz/fuzz.h tests/fuzz/corpus
dist_noinst_SCRIPTS += tests/fuzz/libfuzzer

PVN_TESTS += tests/fuzz/fuzz_param
tests_fuzz_fuzz_param_SOURCES = tests/fuzz/fuzz_param.c tests/fuzz/replay.cc
tests_fuzz_fuzz_param_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"param\"
tests_fuzz_fuzz_param_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_addr
tests_fuzz_fuzz_addr_SOURCES = tests/fuzz/fuzz_addr.c tests/fuzz/replay.cc
tests_fuzz_fuzz_addr_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"addr\"
tests_fuzz_fuzz_addr_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_ifname
tests_fuzz_fuzz_ifname_SOURCES = tests/fuzz/fuzz_ifname.c tests/fuzz/replay.cc
tests_fuzz_fuzz_ifname_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"ifname\"
tests_fuzz_fuzz_ifname_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

dist_noinst_DATA += tests/fuzz/hex.h
PVN_TESTS += tests/fuzz/fuzz_wire
tests_fuzz_fuzz_wire_SOURCES = tests/fuzz/fuzz_wire.c tests/fuzz/replay.cc
tests_fuzz_fuzz_wire_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"wire\"
tests_fuzz_fuzz_wire_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_handshake
tests_fuzz_fuzz_handshake_SOURCES = tests/fuzz/fuzz_handshake.c tests/fuzz/replay.cc \
    tests/support/memlane.c tests/support/memlane.h
tests_fuzz_fuzz_handshake_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"handshake\"
tests_fuzz_fuzz_handshake_LDADD = libpvn-core.la $(TEST_LDADD)

if HAVE_OPENSSL
PVN_TESTS += tests/fuzz/fuzz_seal
tests_fuzz_fuzz_seal_SOURCES = tests/fuzz/fuzz_seal.c tests/fuzz/replay.cc
tests_fuzz_fuzz_seal_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"seal\" -DPVN_FUZZ_DEFAULT_RUNS=3000
tests_fuzz_fuzz_seal_LDADD = libpvn-core.la $(TEST_LDADD) -lssl -lcrypto
endif

PVN_TESTS += tests/fuzz/fuzz_sysfs
tests_fuzz_fuzz_sysfs_SOURCES = tests/fuzz/fuzz_sysfs.c tests/fuzz/replay.cc
tests_fuzz_fuzz_sysfs_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"sysfs\" \
    -DPVN_FUZZ_DEFAULT_RUNS=3000
tests_fuzz_fuzz_sysfs_LDADD = libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_hints
tests_fuzz_fuzz_hints_SOURCES = tests/fuzz/fuzz_hints.c tests/fuzz/replay.cc
tests_fuzz_fuzz_hints_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"hints\"
tests_fuzz_fuzz_hints_LDADD = libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_esxcli
tests_fuzz_fuzz_esxcli_SOURCES = tests/fuzz/fuzz_esxcli.c tests/fuzz/replay.cc
tests_fuzz_fuzz_esxcli_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"esxcli\"
tests_fuzz_fuzz_esxcli_LDADD = libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_pciconfig
tests_fuzz_fuzz_pciconfig_SOURCES = tests/fuzz/fuzz_pciconfig.c tests/fuzz/replay.cc
tests_fuzz_fuzz_pciconfig_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"pciconfig\"
tests_fuzz_fuzz_pciconfig_LDADD = libpvntopotool.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_stats
tests_fuzz_fuzz_stats_SOURCES = tests/fuzz/fuzz_stats.c tests/fuzz/replay.cc
tests_fuzz_fuzz_stats_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"stats\" \
    -DPVN_FUZZ_DEFAULT_RUNS=3000
tests_fuzz_fuzz_stats_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_failover
tests_fuzz_fuzz_failover_SOURCES = tests/fuzz/fuzz_failover.c tests/fuzz/replay.cc
tests_fuzz_fuzz_failover_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"failover\"
tests_fuzz_fuzz_failover_LDADD = tests/support/libengine-calls.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_serve
tests_fuzz_fuzz_serve_SOURCES = tests/fuzz/fuzz_serve.c tests/fuzz/replay.cc
tests_fuzz_fuzz_serve_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"serve\"
tests_fuzz_fuzz_serve_LDADD = libpvn-perf.la $(TEST_LDADD)

PVN_TESTS += tests/fuzz/fuzz_tcp
tests_fuzz_fuzz_tcp_SOURCES = tests/fuzz/fuzz_tcp.c tests/fuzz/replay.cc
tests_fuzz_fuzz_tcp_CPPFLAGS = $(TEST_CPPFLAGS) -DPVN_FUZZ_TARGET=\"tcp\"
tests_fuzz_fuzz_tcp_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)
