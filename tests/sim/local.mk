# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# The engine against a simulated network.
PVN_TESTS += tests/sim/test_engine_sim
tests_sim_test_engine_sim_SOURCES = tests/sim/test_engine_sim.cc tests/sim/world.cc tests/sim/world.h \
    tests/support/hot.c tests/support/hot.h
tests_sim_test_engine_sim_CPPFLAGS = $(TEST_CPPFLAGS)
# A hundred thousand worlds: here the run is what takes the time.
tests_sim_test_engine_sim_CXXFLAGS = $(AM_CXXFLAGS) -O2
tests_sim_test_engine_sim_CFLAGS = $(AM_CFLAGS)
tests_sim_test_engine_sim_LDADD = libpvn-core.la $(TEST_LDADD)
