# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# tests/nccl/: a double of the CUDA runtime on which a real NCCL runs without a GPU (README.md). The parts that need
# no NCCL are tested here. tests/nccl/run compiles the rest against the NCCL that it is given.
EXTRA_DIST += tests/nccl/README.md tests/nccl/run tests/nccl/failover.sh tests/nccl/cudart.map tests/nccl/mktopo.py \
    tests/nccl/libcuda.cc tests/nccl/nvml.c tests/nccl/one_version.c tests/nccl/player.cc tests/nccl/profiler.cc tests/nccl/double.sh tests/nccl/drive.h tests/nccl/drive.cc tests/nccl/drive_coll.cc \
    tests/nccl/drive_life.cc tests/support/reset_tcp.py

if HAVE_GTEST
PVN_TESTS += tests/nccl/test_cudart
tests_nccl_test_cudart_SOURCES = tests/nccl/test_cudart.cc
tests_nccl_test_cudart_CPPFLAGS = $(TEST_CPPFLAGS)
tests_nccl_test_cudart_LDADD = $(TEST_LDADD)
if HAVE_CUDART_H
# The soname is that of the real library.
check_LTLIBRARIES += tests/nccl/libcudart.la tests/nccl/libtestplayer.la
tests_nccl_libcudart_la_SOURCES = tests/nccl/cudart.h tests/nccl/player.h tests/nccl/cudart_device.cc \
    tests/nccl/cudart_memory.cc tests/nccl/cudart_stream.cc
tests_nccl_libcudart_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests $(CUDA_CPPFLAGS)
tests_nccl_libcudart_la_LDFLAGS = $(AM_LDFLAGS) -shared -rpath /nowhere -version-info 13:0:0 \
    -Wl,--version-script=$(srcdir)/tests/nccl/cudart.map
tests_nccl_libtestplayer_la_SOURCES = tests/nccl/test_player.cc tests/nccl/player.h
tests_nccl_libtestplayer_la_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
tests_nccl_libtestplayer_la_LDFLAGS = $(AM_LDFLAGS) -module -avoid-version -shared -rpath /nowhere
tests_nccl_test_cudart_CPPFLAGS += -DPVN_HAVE_CUDART
tests_nccl_test_cudart_LDADD += tests/nccl/libcudart.la
EXTRA_tests_nccl_test_cudart_DEPENDENCIES = tests/nccl/libtestplayer.la
endif
endif
