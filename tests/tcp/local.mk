# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests of the TCP lane under the engine, over loopback sockets
PVN_TESTS += tests/tcp/test_tcp_lane
tests_tcp_test_tcp_lane_SOURCES = tests/tcp/test_tcp_lane.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_lane_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_lane_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/tcp/test_tcp_kept
tests_tcp_test_tcp_kept_SOURCES = tests/tcp/test_tcp_kept.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_kept_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_kept_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of reads of large messages
PVN_TESTS += tests/tcp/test_tcp_read
tests_tcp_test_tcp_read_SOURCES = tests/tcp/test_tcp_read.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_read_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_read_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of a sender that closes
PVN_TESTS += tests/tcp/test_tcp_end
tests_tcp_test_tcp_end_SOURCES = tests/tcp/test_tcp_end.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_end_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_end_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of clear-to-send
PVN_TESTS += tests/tcp/test_tcp_cts
tests_tcp_test_tcp_cts_SOURCES = tests/tcp/test_tcp_cts.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_cts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_cts_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of lanes with a misbehaving proxy between the ends
PVN_TESTS += tests/tcp/test_lane_chaos
tests_tcp_test_lane_chaos_SOURCES = tests/tcp/test_lane_chaos.cc tests/tcp/lane_pair.h \
    tests/support/chaosproxy.cc tests/support/chaosproxy.h
tests_tcp_test_lane_chaos_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_lane_chaos_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of lanes with worker threads
PVN_TESTS += tests/tcp/test_tcp_workers
tests_tcp_test_tcp_workers_SOURCES = tests/tcp/test_tcp_workers.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_workers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_workers_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Counted by callgrind.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/tcp/idle_instructions.sh
# Paths that lose large packets are tested under AddressSanitizer by tests/fail/test_failover_paths.cc and tests/rdma/failover.sh,
# the move to other links and back by link_loss.sh.
PVN_SCRIPT_TESTS += tests/tcp/large_packets.sh tests/tcp/lossy_path.sh
endif

if !SANITIZE_THREAD
PVN_SCRIPT_TESTS += tests/tcp/routes.sh tests/tcp/link_loss.sh
PVN_SCRIPT_TESTS += tests/tcp/key.sh

# Tests of chunks that are sent without a copy
PVN_TESTS += tests/tcp/test_tcp_zerocopy
tests_tcp_test_tcp_zerocopy_SOURCES = tests/tcp/test_tcp_zerocopy.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_zerocopy_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_zerocopy_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Tests of the choice between a copy and none
PVN_TESTS += tests/tcp/test_tcp_trial
tests_tcp_test_tcp_trial_SOURCES = tests/tcp/test_tcp_trial.cc tests/tcp/lane_pair.h
tests_tcp_test_tcp_trial_CPPFLAGS = $(TEST_CPPFLAGS)
tests_tcp_test_tcp_trial_LDADD = tests/support/libengine-calls.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)
endif
