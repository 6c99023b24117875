# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/softverbs: a stand-in for libibverbs.so.1, which the code under test loads by dlopen
#   libsoftverbs.la   tests/softverbs/.libs/libsoftverbs.so, see README.md
#   libsvpartial.la, libsvancient.la   stand-ins that are unusable on purpose
dist_noinst_DATA += tests/softverbs/README.md tests/softverbs/softverbs.map \
    tests/softverbs/partial.map tests/softverbs/ancient.map

check_LTLIBRARIES += tests/softverbs/libsoftverbs.la
tests_softverbs_libsoftverbs_la_SOURCES = \
    tests/softverbs/softverbs.h tests/softverbs/sv_int.h tests/softverbs/sv_config.c \
    tests/softverbs/sv_ctl.c tests/softverbs/sv_cuda.c tests/softverbs/sv_dev.c tests/softverbs/sv_fault.c tests/softverbs/sv_fork.c \
    tests/softverbs/sv_link.c tests/softverbs/sv_main.c tests/softverbs/sv_misc.c \
    tests/softverbs/sv_mr.c tests/softverbs/sv_obj.c tests/softverbs/sv_provider.c tests/softverbs/sv_qp.c \
    tests/softverbs/sv_relaxed.c tests/softverbs/sv_req.c tests/softverbs/sv_resp.c tests/softverbs/sv_sysfs.c
# An -rpath makes libtool build a shared object of a check_ library; nothing is installed there.
tests_softverbs_libsoftverbs_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere \
    -Wl,-soname,libibverbs.so.1 -Wl,--version-script=$(srcdir)/tests/softverbs/softverbs.map
EXTRA_tests_softverbs_libsoftverbs_la_DEPENDENCIES = $(srcdir)/tests/softverbs/softverbs.map

SV_BROKEN_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
check_LTLIBRARIES += tests/softverbs/libsvpartial.la tests/softverbs/libsvancient.la
tests_softverbs_libsvpartial_la_SOURCES = tests/softverbs/sv_broken.c
tests_softverbs_libsvpartial_la_LDFLAGS = $(SV_BROKEN_LDFLAGS) \
    -Wl,--version-script=$(srcdir)/tests/softverbs/partial.map
tests_softverbs_libsvancient_la_SOURCES = tests/softverbs/sv_broken.c
tests_softverbs_libsvancient_la_LDFLAGS = $(SV_BROKEN_LDFLAGS) \
    -Wl,--version-script=$(srcdir)/tests/softverbs/ancient.map

SOFTVERBS_TEST_CPPFLAGS = $(TEST_CPPFLAGS)
PVN_TESTS += tests/softverbs/rc_test
tests_softverbs_rc_test_SOURCES = tests/softverbs/rc_test.cc tests/softverbs/fixture.h
tests_softverbs_rc_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_rc_test_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/softverbs/fault_test
tests_softverbs_fault_test_SOURCES = tests/softverbs/fault_test.cc tests/softverbs/fixture.h tests/support/signals.h
tests_softverbs_fault_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_fault_test_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/softverbs/process_test
tests_softverbs_process_test_SOURCES = tests/softverbs/process_test.cc tests/softverbs/fixture.h
tests_softverbs_process_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_process_test_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/softverbs/device_test
tests_softverbs_device_test_SOURCES = tests/softverbs/device_test.cc tests/softverbs/fixture.h
tests_softverbs_device_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_device_test_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/softverbs/cuda_test
tests_softverbs_cuda_test_SOURCES = tests/softverbs/cuda_test.cc tests/softverbs/fixture.h \
    tests/support/fakecuda_fixture.h
tests_softverbs_cuda_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_cuda_test_LDADD = libpvn-core.la $(TEST_LDADD)
EXTRA_tests_softverbs_cuda_test_DEPENDENCIES = tests/support/libcuda.la tests/softverbs/libsoftverbs.la

PVN_TESTS += tests/softverbs/objects_test
tests_softverbs_objects_test_SOURCES = tests/softverbs/objects_test.cc tests/softverbs/fixture.h
tests_softverbs_objects_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_objects_test_LDADD = $(TEST_LDADD)

PVN_TESTS += tests/softverbs/hca_test
tests_softverbs_hca_test_SOURCES = tests/softverbs/hca_test.cc tests/softverbs/fixture.h
tests_softverbs_hca_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_hca_test_LDADD = libpvn-rdma.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/softverbs/scale_test
tests_softverbs_scale_test_SOURCES = tests/softverbs/scale_test.cc tests/softverbs/fixture.h
tests_softverbs_scale_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_scale_test_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/softverbs/relaxed_test
tests_softverbs_relaxed_test_SOURCES = tests/softverbs/relaxed_test.cc tests/softverbs/fixture.h
tests_softverbs_relaxed_test_CPPFLAGS = $(SOFTVERBS_TEST_CPPFLAGS)
tests_softverbs_relaxed_test_LDADD = $(TEST_LDADD)
