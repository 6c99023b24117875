# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# Tests without a second thread. ThreadSanitizer's tree leaves them out, because it can find nothing there.
PVN_TESTS += tests/unit/test_version
tests_unit_test_version_SOURCES = tests/unit/test_version.cc
tests_unit_test_version_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_version_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_wire
tests_unit_test_wire_SOURCES = tests/unit/test_wire.cc
tests_unit_test_wire_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_wire_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_err
tests_unit_test_err_SOURCES = tests/unit/test_err.cc
tests_unit_test_err_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_err_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_hints
tests_unit_test_hints_SOURCES = tests/unit/test_hints.cc
tests_unit_test_hints_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_hints_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_param
tests_unit_test_param_SOURCES = tests/unit/test_param.cc
tests_unit_test_param_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_param_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_addr
tests_unit_test_addr_SOURCES = tests/unit/test_addr.cc
tests_unit_test_addr_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_addr_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_iface
tests_unit_test_iface_SOURCES = tests/unit/test_iface.cc
tests_unit_test_iface_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_iface_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_sockopt
tests_unit_test_sockopt_SOURCES = tests/unit/test_sockopt.cc
tests_unit_test_sockopt_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_sockopt_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_sock
tests_unit_test_sock_SOURCES = tests/unit/test_sock.cc
tests_unit_test_sock_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_sock_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_handshake
tests_unit_test_handshake_SOURCES = tests/unit/test_handshake.cc tests/support/memlane.c \
    tests/support/memlane.h
tests_unit_test_handshake_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_handshake_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_engine_flush
tests_unit_test_engine_flush_SOURCES = tests/unit/test_engine_flush.cc
tests_unit_test_engine_flush_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_engine_flush_LDADD = tests/support/libengine-calls.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_engine_plan
tests_unit_test_engine_plan_SOURCES = tests/unit/test_engine_plan.cc
tests_unit_test_engine_plan_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_engine_plan_LDADD = tests/support/libengine-calls.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/rdma/test_gid
tests_rdma_test_gid_SOURCES = tests/rdma/test_gid.cc
tests_rdma_test_gid_CPPFLAGS = $(TEST_CPPFLAGS)
tests_rdma_test_gid_LDADD = libpvn-rdma.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_iface_netns
tests_unit_test_iface_netns_SOURCES = tests/unit/test_iface_netns.cc
tests_unit_test_iface_netns_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_iface_netns_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_tcp_transport
tests_unit_test_tcp_transport_SOURCES = tests/unit/test_tcp_transport.cc
tests_unit_test_tcp_transport_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_tcp_transport_LDADD = libpvn-tcp.la libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_key
tests_unit_test_key_SOURCES = tests/unit/test_key.cc tests/support/key_file.h
tests_unit_test_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_key_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_key_param
tests_unit_test_key_param_SOURCES = tests/unit/test_key_param.cc tests/support/key_file.h
tests_unit_test_key_param_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_key_param_LDADD = libpvn-core.la $(TEST_LDADD)

if HAVE_OPENSSL
PVN_TESTS += tests/unit/test_handshake_key
tests_unit_test_handshake_key_SOURCES = tests/unit/test_handshake_key.cc tests/fail/raw_peer.h tests/support/key_file.h \
    tests/support/memlane.c tests/support/memlane.h
tests_unit_test_handshake_key_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_handshake_key_LDADD = libpvn-core.la $(TEST_LDADD)

PVN_TESTS += tests/unit/test_seal
tests_unit_test_seal_SOURCES = tests/unit/test_seal.cc tests/unit/seal_ends.h
tests_unit_test_seal_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_seal_LDADD = libpvn-core.la $(TEST_LDADD) -lssl -lcrypto
endif

PVN_TESTS += tests/unit/test_copy_in_order
tests_unit_test_copy_in_order_SOURCES = tests/unit/test_copy_in_order.cc
tests_unit_test_copy_in_order_CPPFLAGS = $(TEST_CPPFLAGS)
tests_unit_test_copy_in_order_LDADD = libpvn-core.la $(TEST_LDADD)
