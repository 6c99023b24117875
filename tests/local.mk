# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/: every test program registers itself in PVN_TESTS, every script test (tests/.../NAME.sh, found
# in the source tree) in PVN_SCRIPT_TESTS; `make check` builds the programs and tests/run-all runs both
# and adds up the counts.
PVN_TESTS =
PVN_SCRIPT_TESTS =
TEST_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests $(CUDA_CPPFLAGS) $(GTEST_CFLAGS)
# GoogleTest, compiled once for all C++ of the tests with the flags that they have. A compiler that cannot use
# the file (no gcc, other optimisation) reads the header itself, by the -I of the source tree.
EXTRA_DIST += tests/support/pch.hh tests/packaging/verdict.sh tests/support/verdict.sh tests/support/mutant.sh tests/support/circles.py \
    tests/packaging/conda.py tests/packaging/container.py tests/packaging/requirements.txt
if PCH
TEST_PCH = tests/support/pch.hh.gch
AM_CXXFLAGS += -include tests/support/pch.hh -fpch-preprocess
# Configured again is compiled again: a file made with other flags would be passed over in silence.
$(TEST_PCH): tests/support/pch.hh config.status
	$(AM_V_GEN)$(MKDIR_P) tests/support && \
	    $(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(TEST_CPPFLAGS) $(CPPFLAGS) $(PVN_CXXFLAGS) $(CXXFLAGS) \
	    -MD -MP -MF tests/support/pch.d -x c++-header -o $@ $(srcdir)/tests/support/pch.hh
-include tests/support/pch.d
CLEANFILES += $(TEST_PCH) tests/support/pch.d
endif
TEST_LDADD = $(GTEST_LIBS)

if HAVE_GTEST
# First what takes longest, so that it does not run on by itself at the end (run-all begins with the scripts). ThreadSanitizer has nothing to say of
# programs that have one thread: what stands under !SANITIZE_THREAD, here and in the files included, makes none
# (neither the plugin nor pvn-topo does; softverbs, chaosproxy and the old blocking calls in netdrv_v4.c do).
if !SANITIZE_THREAD
include $(srcdir)/tests/sim/local.mk
endif
include $(srcdir)/tests/rdma/local.mk
include $(srcdir)/tests/unit/local.mk
include $(srcdir)/tests/abi/local.mk
include $(srcdir)/tests/fail/local.mk
include $(srcdir)/tests/tcp/local.mk
include $(srcdir)/tests/softverbs/local.mk
include $(srcdir)/tests/perf/local.mk
if !SANITIZE_THREAD
include $(srcdir)/tests/unit/one_thread.mk
include $(srcdir)/tests/topo/local.mk
include $(srcdir)/tests/topo/nccl.mk
include $(srcdir)/tests/fuzz/local.mk
endif
endif
include $(srcdir)/tests/gpu/local.mk

# Tests of the source and the commands, whatever the tree was compiled with.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/lint.sh tests/support/test_circles.sh tests/support/test_commands.sh tests/support/test_configure.sh \
    tests/packaging/packages.sh tests/packaging/release.sh tests/packaging/files.sh tests/packaging/documents.sh
include $(srcdir)/tests/docs/local.mk
endif
include $(srcdir)/tests/monitoring/local.mk
include $(srcdir)/tests/nccl/local.mk
include $(srcdir)/tests/launch/local.mk

include $(srcdir)/tests/vm/local.mk

check_PROGRAMS += $(PVN_TESTS)
dist_noinst_SCRIPTS += tests/run-all $(PVN_SCRIPT_TESTS)

# All that `make check` needs, without running it. A make of its own, so that no test is compiled before the
# precompiled header is there.
check-build: $(TEST_PCH)
	$(MAKE) $(AM_MAKEFLAGS) check-parts

check-parts: $(check_PROGRAMS) $(check_LTLIBRARIES) all-am

# Warnings of the compiler and the linker about the tests, for where none of them runs: all is compiled but the C++,
# of which the source is checked and one program made. One after the other: `all` is a make of its own, and two of them
# would write the same object files.
check-source: all
	$(MAKE) $(AM_MAKEFLAGS) $(check_LTLIBRARIES) tests/unit/test_version
	$(MAKE) $(AM_MAKEFLAGS) CXX='$(CXX) -fsyntax-only' CXXLD=true check-parts

check-local: check-build
	$(srcdir)/tests/run-all $(abs_builddir) $(PVN_TESTS) $(PVN_SCRIPT_TESTS)

.PHONY: check-build check-parts check-source sim-mutant mutant-object plugin-mutant memcache-mutant

clean-local:
	-rm -rf test-logs
