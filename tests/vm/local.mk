# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/vm/: tests of real kernel verbs in small virtual machines; README.md describes them.
#   check-vm         the tests that boot guests, alone (--enable-vm-tests puts them into check)
#   verbs/           test programs of libibverbs for the guests, and for any device at hand
#   pvrdma-device/   pvstand.so, the host side of QEMU's PVRDMA device, which is preloaded into QEMU

VM_HELPERS = tests/vm/verbs/pvtest tests/vm/verbs/rcfault tests/vm/verbs/verbsprobe \
    tests/vm/pvrdma-device/pvstand-ctl tests/vm/tsc-khz
VM_BOOTS = tests/vm/run-soft-roce.sh tests/vm/run-pvrdma.sh tests/vm/run-tls.sh
check_PROGRAMS += $(VM_HELPERS)

tests_vm_verbs_rcfault_SOURCES = tests/vm/verbs/rcfault.c tests/vm/verbs/side.c \
    tests/vm/verbs/side.h
tests_vm_verbs_rcfault_LDADD = -libverbs
tests_vm_verbs_verbsprobe_SOURCES = tests/vm/verbs/verbsprobe.c tests/vm/verbs/side.c \
    tests/vm/verbs/side.h
tests_vm_verbs_verbsprobe_LDADD = -libverbs
tests_vm_verbs_pvtest_SOURCES = tests/vm/verbs/pvtest.c tests/vm/verbs/side.c \
    tests/vm/verbs/side.h
tests_vm_verbs_pvtest_LDADD = -libverbs

# QEMU is built without sanitizers, so it cannot load a library that is built with them.
if !SANITIZE
check_LTLIBRARIES += tests/vm/pvrdma-device/pvstand.la
tests_vm_pvrdma_device_pvstand_la_SOURCES = tests/vm/pvrdma-device/pvstand.h \
    tests/vm/pvrdma-device/pvstand.c tests/vm/pvrdma-device/control.c \
    tests/vm/pvrdma-device/data.c tests/vm/pvrdma-device/divert.c \
    tests/vm/pvrdma-device/fabric.c tests/vm/pvrdma-device/hooks.c \
    tests/vm/pvrdma-device/mux.c tests/vm/pvrdma-device/verbs.c
tests_vm_pvrdma_device_pvstand_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared \
    -rpath $(abs_builddir)
endif
tests_vm_tsc_khz_SOURCES = tests/vm/tsc-khz.c
tests_vm_pvrdma_device_pvstand_ctl_SOURCES = tests/vm/pvrdma-device/pvstand-ctl.c

VM_PARTS = tests/softverbs/libsoftverbs.la
if !SANITIZE
VM_PARTS += tests/vm/pvrdma-device/pvstand.la
endif
if HAVE_GTEST
VM_PARTS += tests/vm/verbs/doorbell_test tests/rdma/test_rdma_lane tests/unit/test_seal_kernel \
    tests/tcp/test_tcp_lane tests/tcp/test_tcp_cts tests/tcp/test_tcp_workers tests/tcp/test_lane_chaos
check_PROGRAMS += tests/vm/verbs/doorbell_test
tests_vm_verbs_doorbell_test_SOURCES = tests/vm/verbs/doorbell_test.cc tests/rdma/lane_pair.h
tests_vm_verbs_doorbell_test_CPPFLAGS = $(TEST_CPPFLAGS)
tests_vm_verbs_doorbell_test_LDADD = tests/support/libengine-calls.la libpvn-rdma.la libpvn-core.la $(TEST_LDADD)
endif

PVN_SCRIPT_TESTS += tests/vm/run-softverbs.sh
if VM_TESTS
PVN_SCRIPT_TESTS += $(VM_BOOTS)
endif

check-vm: $(VM_HELPERS) $(VM_PARTS) all
	$(srcdir)/tests/run-all $(abs_builddir) $(VM_BOOTS)

EXTRA_DIST += $(VM_BOOTS) tests/vm/README.md tests/vm/extract-kernel tests/vm/guest-init \
    tests/vm/guest-perf tests/vm/guest-results tests/vm/in-guest tests/vm/jobs tests/vm/lib.sh tests/vm/make-initrd \
    tests/vm/setup tests/vm/pvrdma-device/build-module tests/vm/verbs/verbsprobe.pvrdma \
    tests/vm/verbs/verbsprobe.rxe tests/vm/verbs/softverbs-differs tests/bench/rdma.sh tests/bench/scale.sh
.PHONY: check-vm
