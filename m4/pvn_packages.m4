dnl SPDX-FileCopyrightText: the nccl-net-pvrdma authors
dnl SPDX-License-Identifier: Apache-2.0
# Header probes. The plugin loads libibverbs, libnl, libssl and libcuda at run time, so only their headers are
# needed here; a missing one ends configure with the name of the package to install.

AC_DEFUN([PVN_CHECK_VERBS], [
  AC_CHECK_HEADER([infiniband/verbs.h], [pvn_verbs_summary=yes],
    [AC_MSG_ERROR([infiniband/verbs.h not found: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel])])
  AC_CHECK_DECL([IBV_ACCESS_RELAXED_ORDERING], [],
    [AC_MSG_ERROR([infiniband/verbs.h is of an rdma-core before version 28: build on a newer system (Ubuntu 20.04, Debian 11, RHEL 9), or install the wheel (README.md)])],
    [[#include <infiniband/verbs.h>]])
])

AC_DEFUN([PVN_CHECK_NL], [
  PKG_CHECK_MODULES([NL], [libnl-3.0 libnl-route-3.0], [],
    [AC_MSG_ERROR([libnl headers not found: install libnl-3-dev and libnl-route-3-dev, or libnl3-devel])])
])

# OpenSSL 3: a key (NCCL_PVRDMA_KEY_FILE) needs it. A build without it refuses a key, with the remedy.
AC_DEFUN([PVN_CHECK_OPENSSL], [
  AC_ARG_WITH([openssl],
    [AS_HELP_STRING([--without-openssl], [build without OpenSSL 3's headers: a key (NCCL_PVRDMA_KEY_FILE) is then refused])],
    [], [with_openssl=yes])
  pvn_openssl_summary=no
  AS_IF([test "x$with_openssl" != xno], [
    AC_CACHE_CHECK([for the headers of OpenSSL 3], [pvn_cv_openssl], [
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#if OPENSSL_VERSION_NUMBER < 0x30000000L
#error older
#endif]])], [pvn_cv_openssl=yes], [pvn_cv_openssl=no])])
    AS_IF([test "x$pvn_cv_openssl" != xyes],
      [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <openssl/ssl.h>
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
#error newer
#endif]])],
        [AC_MSG_ERROR([the headers here are of an OpenSSL before version 3: configure with --without-openssl, and a key (NCCL_PVRDMA_KEY_FILE) is refused, or build on a system with OpenSSL 3 (Debian 12, Ubuntu 22.04, RHEL 9)])])
       AC_MSG_ERROR([openssl/ssl.h of OpenSSL 3 not found: install libssl-dev (Debian, Ubuntu) or openssl-devel, or configure with --without-openssl])])
    AC_CACHE_CHECK([for linux/tls.h with TLS 1.3], [pvn_cv_linux_tls], [
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <linux/tls.h>
#ifndef TLS_1_3_VERSION
#error older
#endif]])], [pvn_cv_linux_tls=yes], [pvn_cv_linux_tls=no])])
    AS_IF([test "x$pvn_cv_linux_tls" != xyes],
      [AC_MSG_ERROR([linux/tls.h of Linux 5.1 or later not found: install a newer linux-libc-dev (Debian, Ubuntu) or kernel-headers, or configure with --without-openssl])])
    AC_DEFINE([HAVE_OPENSSL], [1], [Define to 1 if the headers of OpenSSL 3 are there.])
    pvn_openssl_summary=yes
  ])
  AM_CONDITIONAL([HAVE_OPENSSL], [test "x$pvn_openssl_summary" = xyes])
])

# The CUDA Toolkit's cuda.h, if there is one: the tests compare our own declarations with it.
AC_DEFUN([PVN_CHECK_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda=DIR], [CUDA Toolkit root @<:@/usr/local/cuda if present@:>@])],
    [pvn_cuda_dir=$withval], [pvn_cuda_dir=/usr/local/cuda])
  CUDA_CPPFLAGS=
  pvn_cuda_summary=no
  AS_IF([test "x$pvn_cuda_dir" != xno && test -r "$pvn_cuda_dir/include/cuda.h"],
    [CUDA_CPPFLAGS="-I$pvn_cuda_dir/include"; pvn_cuda_summary=yes])
  AC_SUBST([CUDA_CPPFLAGS])
  AM_CONDITIONAL([HAVE_CUDA_H], [test "x$pvn_cuda_summary" = xyes])
  # The double of the runtime (tests/nccl) is one of version 13's.
  AM_CONDITIONAL([HAVE_CUDART_H],
    [grep -q 'CUDART_VERSION *13' "$pvn_cuda_dir/include/cuda_runtime_api.h" 2>/dev/null])
])

# What only the command line tools link: the plugin itself never needs them.
AC_DEFUN([PVN_CHECK_TOOLS], [
  AC_ARG_ENABLE([tools],
    [AS_HELP_STRING([--disable-tools], [build the plugin alone, without pvn-perf and pvn-topo (and no tests)])],
    [], [enable_tools=yes])
  AS_IF([test "x$enable_tools" != xno], [
    PKG_CHECK_MODULES([EXPAT], [expat], [],
      [AC_MSG_ERROR([expat not found: install libexpat1-dev or expat-devel, or configure with --disable-tools])])
    PKG_CHECK_MODULES([JANSSON], [jansson], [],
      [AC_MSG_ERROR([jansson not found: install libjansson-dev or jansson-devel, or configure with --disable-tools])])
    # Its library is loaded at run time.
    AC_CHECK_HEADER([pci/pci.h], [],
      [AC_MSG_ERROR([pci/pci.h not found: install libpci-dev or pciutils-devel, or configure with --disable-tools])])
  ])
  AM_CONDITIONAL([TOOLS], [test "x$enable_tools" != xno])
])

# NCCL before 2.11 looks for libnccl-net.so and for nothing else.
AC_DEFUN([PVN_ARG_LINK], [
  AC_ARG_ENABLE([libnccl-net-link],
    [AS_HELP_STRING([--enable-libnccl-net-link], [install the link libnccl-net.so, the only name that NCCL before 2.11 looks for])],
    [], [enable_libnccl_net_link=no])
  AM_CONDITIONAL([LIBNCCL_NET_LINK], [test "x$enable_libnccl_net_link" != xno])
])

# The project has no public address of its own, so none is made up: who distributes it names theirs.
AC_DEFUN([PVN_ARG_BUGURL], [
  AC_ARG_WITH([bugurl],
    [AS_HELP_STRING([--with-bugurl=URL], [where to find this package and report faults, for the pkg-config file (default: no line)])],
    [], [with_bugurl=no])
  PVN_PC_URL=
  AS_CASE([$with_bugurl], [no], [], [yes], [AC_MSG_ERROR([--with-bugurl needs a URL])], [PVN_PC_URL="URL: $with_bugurl"])
  AC_SUBST([PVN_PC_URL])
  AM_SUBST_NOTMAKE([PVN_PC_URL])
])

AC_DEFUN([PVN_CHECK_GTEST], [
  PKG_CHECK_MODULES([GTEST], [gtest_main], [pvn_gtest_summary=yes], [pvn_gtest_summary="no (make check needs libgtest-dev)"])
  AS_IF([test "x$enable_tools" = xno], [pvn_gtest_summary="no (the tests need the tools)"])
  AM_CONDITIONAL([HAVE_GTEST], [test "x$pvn_gtest_summary" = xyes])
  AC_ARG_ENABLE([pch],
    [AS_HELP_STRING([--disable-pch], [do not precompile GoogleTest for the tests (default: gcc does)])],
    [], [enable_pch=yes])
  # clang refuses, instead of passing over, a precompiled header made with other flags.
  AS_IF([test "x$enable_pch" = xyes && test "x$pvn_gtest_summary" = xyes],
    [AC_LANG_PUSH([C++])
     AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#if !defined(__GNUC__) || defined(__clang__)
#error not gcc
#endif]])], [], [enable_pch=no])
     AC_LANG_POP([C++])],
    [enable_pch=no])
  AM_CONDITIONAL([PCH], [test "x$enable_pch" = xyes])
])
