# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/: every local.mk adds its test programs to PVN_TESTS, and its script tests (tests/.../NAME.sh, in the source
# tree) to PVN_SCRIPT_TESTS. `make check` builds the programs. tests/run-all runs both kinds and adds up the counts.
PVN_TESTS =
PVN_SCRIPT_TESTS =
TEST_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests $(CUDA_CPPFLAGS) $(GTEST_CFLAGS)
# GoogleTest is precompiled once for all C++ tests, with their flags. A compiler that cannot use the file (not gcc, or
# other optimisation) reads the header itself, through the -I of the source tree.
EXTRA_DIST += tests/support/pch.hh tests/packaging/verdict.sh tests/support/verdict.sh tests/support/mutant.sh tests/support/circles.py \
    tests/packaging/conda.py tests/packaging/container.py tests/packaging/requirements.txt
if PCH
TEST_PCH = tests/support/pch.hh.gch
AM_CXXFLAGS += -include tests/support/pch.hh -fpch-preprocess
# The header is compiled again after each configure, because the compiler silently ignores one made with other flags.
$(TEST_PCH): tests/support/pch.hh config.status
	$(AM_V_GEN)$(MKDIR_P) tests/support && \
	    $(CXX) $(DEFS) $(DEFAULT_INCLUDES) $(INCLUDES) $(TEST_CPPFLAGS) $(CPPFLAGS) $(PVN_CXXFLAGS) $(CXXFLAGS) \
	    -MD -MP -MF tests/support/pch.d -x c++-header -o $@ $(srcdir)/tests/support/pch.hh
-include tests/support/pch.d
CLEANFILES += $(TEST_PCH) tests/support/pch.d
endif
TEST_LDADD = $(GTEST_LIBS)

if HAVE_GTEST
# The longest tests come first, so that none of them runs alone at the end (run-all starts with the scripts).
# Programs under !SANITIZE_THREAD, here and in the included files, have one thread, where ThreadSanitizer finds nothing.
# Threads are created by the plugin's workers and helpers (pvn_thread_start), softverbs, chaosproxy and the old blocking
# calls in netdrv_v4.c.
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

# These tests of the source and the commands do not depend on how the tree was compiled.
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

# Builds all that `make check` needs, without running it. A second make does it, so that no test is compiled before the
# precompiled header exists.
check-build: $(TEST_PCH)
	$(MAKE) $(AM_MAKEFLAGS) check-parts

check-parts: $(check_PROGRAMS) $(check_LTLIBRARIES) all-am

# Shows the warnings of compiler and linker about the tests where none of them runs. C is compiled. C++ is only checked,
# except one program, which is built. The steps run one after the other, because `all` is a make of its own, and two at
# a time would write the same object files.
check-source: all
	$(MAKE) $(AM_MAKEFLAGS) $(check_LTLIBRARIES) tests/unit/test_version
	$(MAKE) $(AM_MAKEFLAGS) CXX='$(CXX) -fsyntax-only' CXXLD=true check-parts

check-local: check-build
	$(srcdir)/tests/run-all $(abs_builddir) $(PVN_TESTS) $(PVN_SCRIPT_TESTS)

.PHONY: check-build check-parts check-source sim-mutant mutant-object plugin-mutant memcache-mutant

clean-local:
	-rm -rf test-logs
