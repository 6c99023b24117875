# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/fail/: the plugin against peers and a system that misbehave.
PVN_TESTS += tests/fail/test_handshake
tests_fail_test_handshake_SOURCES = tests/fail/test_handshake.cc tests/fail/raw_comm.h tests/fail/raw_peer.h
tests_fail_test_handshake_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_handshake_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/fail/test_dial
tests_fail_test_dial_SOURCES = tests/fail/test_dial.cc
tests_fail_test_dial_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_dial_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)

if HAVE_OPENSSL
PVN_TESTS += tests/fail/test_forged
tests_fail_test_forged_SOURCES = tests/fail/test_forged.cc tests/support/key_file.h
tests_fail_test_forged_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_forged_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
endif

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
tests_fail_test_failover_peer_SOURCES = tests/fail/test_failover_peer.cc tests/fail/test_failover_close.cc tests/fail/test_failover_control.cc \
    tests/fail/test_failover_kept.cc \
    tests/fail/test_failover_paths.cc tests/fail/test_failover_switch.cc tests/fail/failover_peer.h tests/fail/raw_comm.h tests/fail/raw_peer.h
tests_fail_test_failover_peer_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_failover_peer_LDADD = libpvn-netdrv.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Its lives are processes that mostly wait. ThreadSanitizer's tree has the same calls in test_failover and test_plugin_rdma.
if !SANITIZE_THREAD
PVN_TESTS += tests/fail/test_control_cuts
tests_fail_test_control_cuts_SOURCES = tests/fail/test_control_cuts.cc tests/fail/control_life.h tests/fail/cutter.h \
    tests/abi/nccl_side.h tests/rdma/plugin_route.h tests/softverbs/fixture.h tests/support/chaosproxy.cc tests/support/chaosproxy.h \
    tests/support/handle_proxy.h
tests_fail_test_control_cuts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_control_cuts_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_fail_test_control_cuts_DEPENDENCIES = tests/softverbs/libsoftverbs.la
endif

# The program comes between the plugin and the C library, as the sanitizers do.
if !SANITIZE
PVN_TESTS += tests/fail/test_reset
tests_fail_test_reset_SOURCES = tests/fail/test_reset.cc tests/fail/failover_peer.h tests/fail/raw_comm.h tests/fail/raw_peer.h
tests_fail_test_reset_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_reset_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_fail_test_reset_LDADD = libpvn-netdrv.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)
endif

if !SANITIZE
PVN_TESTS += tests/fail/test_calls
tests_fail_test_calls_SOURCES = tests/fail/test_calls.cc tests/abi/life.h tests/abi/nccl_side.h
tests_fail_test_calls_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_calls_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_fail_test_calls_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
endif

# The program stops processes in namespaces. Other tests cover what the sanitizers could see of them.
if !SANITIZE
PVN_TESTS += tests/fail/test_late_rank
tests_fail_test_late_rank_SOURCES = tests/fail/test_late_rank.cc tests/fail/late_rank.h
tests_fail_test_late_rank_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_late_rank_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
endif

PVN_TESTS += tests/fail/test_listener
tests_fail_test_listener_SOURCES = tests/fail/test_listener.cc tests/fail/failover_peer.h tests/fail/raw_comm.h \
    tests/fail/raw_peer.h
tests_fail_test_listener_CPPFLAGS = $(TEST_CPPFLAGS)
tests_fail_test_listener_LDADD = libpvn-netdrv.la libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

# Mutations that these tests have to notice (mutations.sh). An object that is linked first replaces the archive's
# member.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/fail/mutations.sh
endif
mutant-object:
	$(COMPILE) -fPIC -O0 -w -c -o $(MUTANT).o $(MUTANT_SOURCE)

plugin-mutant: mutant-object libnccl-net-pvrdma.la
	objects=`echo "$(libnccl_net_pvrdma_la_OBJECTS)" | sed 's,\([^ /]*\)\.lo,.libs/\1.o,g'`; \
	$(CCLD) $(AM_CFLAGS) $(CFLAGS) -shared -Wl,--strip-debug $(LDFLAGS) -Wl,--version-script=$(srcdir)/plugin/libnccl-net-pvrdma.map \
	    -Wl,-z,defs -o $(MUTANT) $(MUTANT).o $$objects -Wl,--start-group .libs/libpvn-rdma.a .libs/libpvn-tcp.a .libs/libpvn-core.a \
	    -Wl,--end-group $(LIBS)

memcache-mutant: mutant-object tests/unit/test_memcache$(EXEEXT)
	$(CXXLD) $(AM_CXXFLAGS) $(CXXFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -o $(MUTANT) $(MUTANT).o $(tests_unit_test_memcache_OBJECTS) \
	    .libs/libpvn-core.a $(TEST_LDADD) $(LIBS)
