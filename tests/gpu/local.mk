# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/: the programs that a machine with a GPU runs (run, bundle and what they call), and the unit tests of the
# code for GPU memory. The unit tests need no GPU, because they load the double of libcuda.so.1 in tests/support.

# The double has the soname of the real library, so that it can be found as that is. The second and third double lack
# entry points: those that an old driver lacks, and one that every driver has.
FAKECUDA_LDFLAGS = $(AM_LDFLAGS) -shared -rpath /nowhere -version-info 1:0:0
check_LTLIBRARIES += tests/support/libcuda.la tests/support/libcuda-old.la tests/support/libcuda-broken.la
tests_support_libcuda_la_SOURCES = tests/support/fakecuda.c tests/support/fakecuda_ctl.c \
    tests/support/fakecuda_app.c tests/support/fakecuda_host.c tests/support/fakecuda.h tests/support/fakecuda_priv.h
tests_support_libcuda_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
tests_support_libcuda_la_LDFLAGS = $(FAKECUDA_LDFLAGS)
tests_support_libcuda_old_la_SOURCES = $(tests_support_libcuda_la_SOURCES)
tests_support_libcuda_old_la_CPPFLAGS = $(tests_support_libcuda_la_CPPFLAGS) -DFAKECUDA_OLD
tests_support_libcuda_old_la_LDFLAGS = $(FAKECUDA_LDFLAGS)
tests_support_libcuda_broken_la_SOURCES = $(tests_support_libcuda_la_SOURCES)
tests_support_libcuda_broken_la_CPPFLAGS = $(tests_support_libcuda_la_CPPFLAGS) -DFAKECUDA_BROKEN
tests_support_libcuda_broken_la_LDFLAGS = $(FAKECUDA_LDFLAGS)

# A double of NCCL's calls between processes, on top of the driver's double, to test nccl_check itself
check_LTLIBRARIES += tests/support/libfakenccl.la
tests_support_libfakenccl_la_SOURCES = tests/support/fakenccl.c tests/support/fakenccl_net.c \
    tests/support/fakenccl.h
tests_support_libfakenccl_la_LIBADD = libpvn-netdrv.la
tests_support_libfakenccl_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
tests_support_libfakenccl_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere

if HAVE_GTEST
PVN_TESTS += tests/unit/test_cuda_shim
tests_unit_test_cuda_shim_SOURCES = tests/unit/test_cuda_shim.cc tests/support/fakecuda_fixture.h
tests_unit_test_cuda_shim_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_cuda_shim_LDADD = libpvn-core.la $(TEST_LDADD)
EXTRA_tests_unit_test_cuda_shim_DEPENDENCIES = tests/support/libcuda.la tests/support/libcuda-old.la \
    tests/support/libcuda-broken.la

if !SANITIZE_THREAD
PVN_TESTS += tests/unit/test_gpumem
tests_unit_test_gpumem_SOURCES = tests/unit/test_gpumem.cc tests/support/fakecuda_fixture.h
tests_unit_test_gpumem_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_gpumem_LDADD = libpvn-core.la $(TEST_LDADD)
EXTRA_tests_unit_test_gpumem_DEPENDENCIES = tests/support/libcuda.la

PVN_TESTS += tests/unit/test_cuda_abi
tests_unit_test_cuda_abi_SOURCES = tests/unit/test_cuda_abi.cc tests/support/same_shape.h
tests_unit_test_cuda_abi_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_cuda_abi_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/unit/test_nccl_abi
tests_unit_test_nccl_abi_SOURCES = tests/unit/test_nccl_abi.cc tests/unit/test_nccl_values.cc tests/nccl/values.h \
    tests/support/same_shape.h
tests_unit_test_nccl_abi_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_nccl_abi_LDADD = $(TEST_LDADD)
endif
endif

check_PROGRAMS += tests/gpu/nccl_check tests/gpu/staging tests/gpu/lost_lane
tests_gpu_lost_lane_SOURCES = tests/gpu/lost_lane.c tests/gpu/lost_lane.h tests/gpu/lost_lane_api.h \
    tests/gpu/lost_lane_gpu.c tests/gpu/lost_lane_gpu.h tests/gpu/lost_lane_net.c
tests_gpu_lost_lane_LDADD = libpvn-netdrv.la
tests_gpu_lost_lane_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
tests_gpu_staging_SOURCES = tests/gpu/staging.c tests/gpu/staging_api.h tests/gpu/staging_net.c \
    tests/gpu/staging_net.h
tests_gpu_staging_LDADD = libpvn-netdrv.la
tests_gpu_staging_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
tests_gpu_nccl_check_SOURCES = tests/gpu/nccl_check.c tests/gpu/nccl_modes.c tests/gpu/nccl_rank.c \
    tests/gpu/nccl_rank.h tests/gpu/nccl_api.h
tests_gpu_nccl_check_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests

# The bare machine has no sanitizer library. tests/gpu/run is a script. The plugin's code for GPU memory has tests of
# its own under AddressSanitizer (test_gpumem, test_cuda_shim, test_rdma_gpu, test_plugin_gpu, test_plugin_gpu_tcp),
# and so has nccl_check below.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/gpu/rehearsal.sh tests/gpu/test_run.sh
endif
# ThreadSanitizer finds nothing in single-threaded programs.
if !SANITIZE_THREAD
PVN_SCRIPT_TESTS += tests/gpu/test_nccl_check.sh
endif

EXTRA_DIST += plugin/USERS.md tests/gpu/README.md tests/gpu/run tests/gpu/bundle tests/gpu/ranks.py tests/gpu/models.py tests/gpu/ddp.py \
    tests/gpu/fsdp.py tests/gpu/hvd.py
