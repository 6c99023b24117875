# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests of the RDMA lane on softverbs
PVN_TESTS += tests/rdma/test_rdma_lane
tests_rdma_test_rdma_lane_SOURCES = tests/rdma/test_rdma_lane.cc tests/rdma/test_rdma_lane_faults.cc \
    tests/rdma/test_rdma_copy.cc tests/rdma/test_rdma_lane_peer.cc tests/rdma/test_rdma_ordering.cc tests/rdma/test_rdma_overdue.cc tests/rdma/test_rdma_paths.cc tests/rdma/lane_pair.h tests/rdma/lane_traffic.h \
    tests/rdma/wrap.c tests/rdma/wrap.h
tests_rdma_test_rdma_lane_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_rdma_lane_LDADD = tests/support/libengine-calls.la libpvn-rdma.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/rdma/test_rdma_gpu
tests_rdma_test_rdma_gpu_SOURCES = tests/rdma/test_rdma_gpu.cc tests/rdma/lane_pair.h tests/support/fakecuda_fixture.h
tests_rdma_test_rdma_gpu_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_rdma_gpu_LDADD = tests/support/libengine-calls.la libpvn-rdma.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_rdma_gpu_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la

# Tests of the whole plugin over softverbs
PVN_TESTS += tests/rdma/test_plugin_gpu
tests_rdma_test_plugin_gpu_SOURCES = tests/rdma/test_plugin_gpu.cc tests/rdma/plugin_gpu.h tests/abi/nccl_side.h tests/softverbs/fixture.h \
    tests/support/fakecuda_fixture.h
tests_rdma_test_plugin_gpu_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_gpu_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_gpu_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la
PVN_TESTS += tests/rdma/test_plugin_gpu_tcp
tests_rdma_test_plugin_gpu_tcp_SOURCES = tests/rdma/test_plugin_gpu_tcp.cc tests/rdma/plugin_gpu.h tests/abi/nccl_side.h tests/softverbs/fixture.h \
    tests/support/fakecuda_fixture.h
tests_rdma_test_plugin_gpu_tcp_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_gpu_tcp_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_gpu_tcp_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la
# Tests with one plugin thread per process, which ThreadSanitizer's tree leaves out. It has test_plugin_rdma and
# tests/abi/test_failover instead, which run several threads, and both ends of a comm, in one process.
if !SANITIZE_THREAD
PVN_TESTS += tests/rdma/test_plugin_orphan
tests_rdma_test_plugin_orphan_SOURCES = tests/rdma/test_plugin_orphan.cc tests/rdma/plugin_route.h tests/abi/orphan.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_orphan_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_orphan_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_orphan_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_SCRIPT_TESTS += tests/rdma/run-plugin.sh tests/rdma/pairs.sh tests/rdma/asleep.sh tests/rdma/broken_paths.sh tests/rdma/key_failover.sh tests/rdma/control_loss.sh tests/rdma/failback.sh tests/rdma/failover.sh tests/rdma/failover_faults.sh
endif

# One end of a comm, for asleep.sh.
check_PROGRAMS += tests/support/sleeper
tests_support_sleeper_SOURCES = tests/support/sleeper.c
tests_support_sleeper_LDADD = libpvn-netdrv.la

# Counted by callgrind.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/rdma/instructions.sh
endif

PVN_TESTS += tests/rdma/test_plugin_rdma
tests_rdma_test_plugin_rdma_SOURCES = tests/rdma/test_plugin_rdma.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_rdma_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_rdma_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_rdma_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_close
tests_rdma_test_plugin_close_SOURCES = tests/rdma/test_plugin_close.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_close_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_close_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_close_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_gids
tests_rdma_test_plugin_gids_SOURCES = tests/rdma/test_plugin_gids.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_gids_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_gids_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_gids_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_lost
tests_rdma_test_plugin_lost_SOURCES = tests/rdma/test_plugin_lost.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h tests/support/chaosproxy.cc tests/support/chaosproxy.h tests/support/handle_proxy.h
tests_rdma_test_plugin_lost_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_lost_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_lost_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_blocked
tests_rdma_test_plugin_blocked_SOURCES = tests/rdma/test_plugin_blocked.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_blocked_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_blocked_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_blocked_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_commands
tests_rdma_test_plugin_commands_SOURCES = tests/rdma/test_plugin_commands.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h tests/support/signals.h
tests_rdma_test_plugin_commands_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_commands_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_commands_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_args
tests_rdma_test_plugin_args_SOURCES = tests/rdma/test_plugin_args.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_args_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_args_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_args_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_counts
tests_rdma_test_plugin_counts_SOURCES = tests/rdma/test_plugin_counts.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_counts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_counts_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_counts_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_lanes
tests_rdma_test_plugin_lanes_SOURCES = tests/rdma/test_plugin_lanes.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_lanes_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_lanes_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_lanes_DEPENDENCIES = tests/softverbs/libsoftverbs.la

if HAVE_OPENSSL
PVN_TESTS += tests/rdma/test_plugin_key
tests_rdma_test_plugin_key_SOURCES = tests/rdma/test_plugin_key.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h tests/support/key_file.h
tests_rdma_test_plugin_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_key_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_key_DEPENDENCIES = tests/softverbs/libsoftverbs.la
endif

# It reads a buffer while the plugin writes it, as a GPU does.
if !SANITIZE_THREAD
PVN_TESTS += tests/rdma/test_plugin_polled
tests_rdma_test_plugin_polled_SOURCES = tests/rdma/test_plugin_polled.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h tests/support/key_file.h
tests_rdma_test_plugin_polled_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_polled_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_polled_DEPENDENCIES = tests/softverbs/libsoftverbs.la
endif

# The program that tests/bench/instructions.sh runs under callgrind.
check_PROGRAMS += tests/bench/messages
tests_bench_messages_SOURCES = tests/bench/messages.c
tests_bench_messages_LDADD = libpvn-netdrv.la
# The one that tests/bench/peer_rdma.sh runs to set up many comms.
check_PROGRAMS += tests/bench/many_comms
tests_bench_many_comms_SOURCES = tests/bench/many_comms.c
tests_bench_many_comms_LDADD = libpvn-netdrv.la
dist_noinst_DATA += tests/rdma/softverbs_command.py tests/rdma/failover_random.py tests/rdma/soak.py
dist_noinst_DATA += tests/bench/instructions.sh tests/bench/instructions.awk tests/bench/failover.sh tests/bench/nccl.sh \
    tests/bench/peer_rdma.sh tests/bench/peer_faults.sh tests/bench/peer_faults.awk tests/bench/at_once.awk

# This test counts memory by a malloc of its own, as the sanitizers do. Its sysconf and posix_memalign come before
# those of the C library, for the plugin, too.
if !SANITIZE
PVN_TESTS += tests/rdma/test_plugin_pages
tests_rdma_test_plugin_pages_SOURCES = tests/rdma/test_plugin_pages.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h
tests_rdma_test_plugin_pages_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_pages_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_rdma_test_plugin_pages_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_pages_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_memory
tests_rdma_test_plugin_memory_SOURCES = tests/rdma/test_plugin_memory.cc tests/rdma/plugin_route.h tests/abi/nccl_side.h \
    tests/softverbs/fixture.h tests/support/count_memory.c tests/support/count_memory.h
tests_rdma_test_plugin_memory_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_memory_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_memory_DEPENDENCIES = tests/softverbs/libsoftverbs.la
endif
PVN_TESTS += tests/rdma/test_plugin_ordering
tests_rdma_test_plugin_ordering_SOURCES = tests/rdma/test_plugin_ordering.cc tests/rdma/plugin_gpu.h tests/abi/nccl_side.h tests/softverbs/fixture.h \
    tests/support/fakecuda_fixture.h
tests_rdma_test_plugin_ordering_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_ordering_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_ordering_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/rdma/test_plugin_calls
tests_rdma_test_plugin_calls_SOURCES = tests/rdma/test_plugin_calls.cc tests/rdma/plugin_route.h tests/abi/life.h \
    tests/abi/nccl_side.h tests/softverbs/fixture.h
tests_rdma_test_plugin_calls_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_plugin_calls_LDADD = libpvn-netdrv.la libpvn-core.la $(TEST_LDADD)
EXTRA_tests_rdma_test_plugin_calls_DEPENDENCIES = tests/softverbs/libsoftverbs.la
