# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/fail/: the plugin against peers and a system that misbehave.
PVN_TESTS += tests/fail/test_handshake
tests_fail_test_handshake_SOURCES = tests/fail/test_handshake.cc tests/fail/raw_peer.h
tests_fail_test_handshake_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_handshake_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)

if !SANITIZE_THREAD
PVN_TESTS += tests/fail/test_limits
tests_fail_test_limits_SOURCES = tests/fail/test_limits.cc tests/fail/raw_peer.h
tests_fail_test_limits_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_limits_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
endif

PVN_TESTS += tests/fail/test_faults
tests_fail_test_faults_SOURCES = tests/fail/test_faults.cc tests/fail/raw_comm.h tests/fail/raw_peer.h
tests_fail_test_faults_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_faults_LDADD = libpvn-netdrv.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fail/test_failover_peer
tests_fail_test_failover_peer_SOURCES = tests/fail/test_failover_peer.cc tests/fail/raw_comm.h tests/fail/raw_peer.h
tests_fail_test_failover_peer_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_failover_peer_LDADD = libpvn-netdrv.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)
