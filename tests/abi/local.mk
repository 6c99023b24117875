# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/abi/: the built plugin through every version of NCCL's interface.
PVN_TESTS += tests/abi/test_transfer
tests_abi_test_transfer_SOURCES = tests/abi/test_transfer.cc tests/abi/nccl_side.h
tests_abi_test_transfer_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_transfer_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_contracts
tests_abi_test_contracts_SOURCES = tests/abi/test_contracts.cc tests/abi/nccl_side.h tests/softverbs/fixture.h
tests_abi_test_contracts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_contracts_LDADD = libpvn-netdrv.la $(TEST_LDADD)
EXTRA_tests_abi_test_contracts_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/abi/test_process
tests_abi_test_process_SOURCES = tests/abi/test_process.cc tests/abi/nccl_side.h
tests_abi_test_process_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_process_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_many
tests_abi_test_many_SOURCES = tests/abi/test_many.cc tests/abi/nccl_side.h
tests_abi_test_many_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_many_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_workers
tests_abi_test_workers_SOURCES = tests/abi/test_workers.cc tests/abi/nccl_side.h
tests_abi_test_workers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_workers_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_revoke
tests_abi_test_revoke_SOURCES = tests/abi/test_revoke.cc tests/abi/nccl_side.h tests/support/key_file.h
tests_abi_test_revoke_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_revoke_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_peers
tests_abi_test_peers_SOURCES = tests/abi/test_peers.cc tests/abi/nccl_side.h tests/abi/orphan.h
tests_abi_test_peers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_peers_LDADD = libpvn-netdrv.la $(TEST_LDADD)

# A library with the symbol that makes it a profiler of NCCL. Some of the tests load it.
check_LTLIBRARIES += tests/abi/profiler.la
tests_abi_profiler_la_SOURCES = tests/abi/profiler.c
tests_abi_profiler_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
PVN_TESTS += tests/abi/test_profile
tests_abi_test_profile_SOURCES = tests/abi/test_profile.cc tests/abi/nccl_side.h tests/softverbs/fixture.h
tests_abi_test_profile_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_profile_LDADD = libpvn-netdrv.la $(TEST_LDADD)
EXTRA_tests_abi_test_profile_DEPENDENCIES = tests/abi/profiler.la tests/softverbs/libsoftverbs.la

# The program's send and recv replace those of the C library, for the plugin, too.
if !SANITIZE_THREAD
PVN_TESTS += tests/abi/test_zero_copy
tests_abi_test_zero_copy_SOURCES = tests/abi/test_zero_copy.cc tests/abi/nccl_side.h
tests_abi_test_zero_copy_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_zero_copy_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_abi_test_zero_copy_LDADD = libpvn-netdrv.la $(TEST_LDADD)

PVN_TESTS += tests/abi/test_finalize_beside
tests_abi_test_finalize_beside_SOURCES = tests/abi/test_finalize_beside.cc tests/abi/nccl_side.h
tests_abi_test_finalize_beside_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_finalize_beside_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_abi_test_finalize_beside_LDADD = libpvn-netdrv.la $(TEST_LDADD)
endif

PVN_TESTS += tests/abi/test_set_up_counts
tests_abi_test_set_up_counts_SOURCES = tests/abi/test_set_up_counts.cc tests/abi/nccl_side.h
tests_abi_test_set_up_counts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_set_up_counts_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_abi_test_set_up_counts_LDADD = libpvn-netdrv.la $(TEST_LDADD)

# Children forked before their parent has a thread, and a failover, on a kernel that does not wipe pages in a child.
PVN_TESTS += tests/abi/test_old_kernel
tests_abi_test_old_kernel_SOURCES = tests/support/old_kernel.cc tests/abi/test_peers.cc tests/abi/test_failover.cc tests/abi/threads.h \
    tests/abi/nccl_side.h tests/abi/orphan.h tests/softverbs/fixture.h
tests_abi_test_old_kernel_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_old_kernel_LDFLAGS = $(AM_LDFLAGS) -export-dynamic
tests_abi_test_old_kernel_LDADD = libpvn-netdrv.la $(TEST_LDADD)
EXTRA_tests_abi_test_old_kernel_DEPENDENCIES = tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/abi/test_failover tests/abi/test_failback
tests_abi_test_failover_SOURCES = tests/abi/test_failover.cc tests/abi/threads.h tests/abi/nccl_side.h tests/softverbs/fixture.h
tests_abi_test_failover_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_failover_LDADD = libpvn-netdrv.la $(TEST_LDADD)
EXTRA_tests_abi_test_failover_DEPENDENCIES = tests/softverbs/libsoftverbs.la
tests_abi_test_failback_SOURCES = tests/abi/test_failback.cc tests/abi/threads.h tests/abi/nccl_side.h tests/softverbs/fixture.h
tests_abi_test_failback_CPPFLAGS = $(TEST_CPPFLAGS)
tests_abi_test_failback_LDADD = libpvn-netdrv.la $(TEST_LDADD)
EXTRA_tests_abi_test_failback_DEPENDENCIES = tests/softverbs/libsoftverbs.la

# The test runs other processes, which ThreadSanitizer does not see.
if !SANITIZE_THREAD
PVN_TESTS += tests/abi/test_stat
tests_abi_test_stat_SOURCES = tests/abi/test_stat.cc tests/abi/nccl_side.h
tests_abi_test_stat_CPPFLAGS = $(TEST_CPPFLAGS) -I$(srcdir) $(JANSSON_CFLAGS)
tests_abi_test_stat_LDADD = libpvn-netdrv.la $(TEST_LDADD) $(JANSSON_LIBS)
endif
