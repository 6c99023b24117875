# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The engine on a simulated network.
PVN_TESTS += tests/sim/test_engine_sim
tests_sim_test_engine_sim_SOURCES = tests/sim/test_engine_sim.cc tests/sim/world.cc tests/sim/shares.h tests/sim/totals.h tests/sim/world.h \
    tests/support/engine_calls.c tests/support/engine_calls.h
tests_sim_test_engine_sim_CPPFLAGS = $(TEST_CPPFLAGS)
# The test runs a hundred thousand worlds, so it is optimised.
tests_sim_test_engine_sim_CXXFLAGS = $(AM_CXXFLAGS) -O2
tests_sim_test_engine_sim_CFLAGS = $(AM_CFLAGS)
tests_sim_test_engine_sim_LDADD = libpvn-core.la $(TEST_LDADD)

# Mutations that the simulation has to notice (mutations.sh). Each build replaces one file by a modified copy. An object
# that is linked first replaces the archive's member.
if !SANITIZE
PVN_SCRIPT_TESTS += tests/sim/mutations.sh
endif
sim-mutant: tests/sim/test_engine_sim$(EXEEXT)
	objects="$(tests_sim_test_engine_sim_OBJECTS)"; \
	case $(MUTANT_SOURCE) in \
	*/engine_calls.c) objects=`echo $$objects | sed 's/[^ ]*engine_calls\.o//'`; \
	    $(COMPILE) -iquote $(MUTANT_FIRST) $(TEST_CPPFLAGS) -O2 -w -c -o $(MUTANT).o $(MUTANT_SOURCE) ;; \
	*.c) $(COMPILE) -O2 -w -c -o $(MUTANT).o $(MUTANT_SOURCE) ;; \
	*) objects=`echo $$objects | sed 's/[^ ]*-world\.o//'`; \
	    $(CXXCOMPILE) $(TEST_CPPFLAGS) -O2 -w -c -o $(MUTANT).o $(MUTANT_SOURCE) ;; \
	esac && $(CXXLD) $(AM_CXXFLAGS) $(CXXFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -o $(MUTANT) $(MUTANT).o $$objects \
	    .libs/libpvn-core.a $(TEST_LDADD) $(LIBS)
