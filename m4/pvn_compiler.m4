dnl SPDX-FileCopyrightText: the nccl-net-pvrdma authors
dnl SPDX-License-Identifier: Apache-2.0
# PVN_CHECK_COMPILER: C11 and C++17, and the warnings this project is kept clean of. They go into
# PVN_CFLAGS and PVN_CXXFLAGS; CFLAGS and CXXFLAGS stay the user's.
AC_DEFUN([PVN_CHECK_COMPILER], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat compiler warnings as errors (for developers)])],
    [], [enable_werror=no])
  pvn_warn="-Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla -Wno-unused-parameter"
  AS_IF([test "x$enable_werror" = xyes], [pvn_warn="$pvn_warn -Werror"])
  PVN_CFLAGS="-std=gnu11 -fvisibility=hidden $pvn_warn -Wstrict-prototypes -Wmissing-prototypes"
  PVN_CXXFLAGS="-std=gnu++17 $pvn_warn"
  AC_SUBST([PVN_CFLAGS])
  AC_SUBST([PVN_CXXFLAGS])
  # Addresses of functions are resolved at load time and read-only from then on: no instruction of the data path more.
  PVN_LDFLAGS="-Wl,-z,relro -Wl,-z,now"
  AC_MSG_CHECKING([whether the linker takes $PVN_LDFLAGS])
  pvn_save_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS $PVN_LDFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])], [AC_MSG_RESULT([no]); PVN_LDFLAGS=])
  LDFLAGS=$pvn_save_LDFLAGS
  AC_SUBST([PVN_LDFLAGS])
  AC_SEARCH_LIBS([dlopen], [dl])
  AC_SEARCH_LIBS([pthread_create], [pthread])
])

# PVN_TRY_HARD(VARIABLE, FLAGS, [PROLOGUE], [LINKER FLAGS]): adds FLAGS to VARIABLE if a program can be made with them, and sets
# pvn_taken. It has an array on its stack, so that it needs what a stack protector needs; a warning is a refusal.
AC_DEFUN([PVN_TRY_HARD], [
  AC_MSG_CHECKING([whether $CC takes $2])
  pvn_save_CFLAGS=$CFLAGS
  pvn_save_LDFLAGS=$LDFLAGS
  CFLAGS="$2 -Werror $CFLAGS"
  LDFLAGS="$4 $LDFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <string.h>
$3]], [[volatile char text[64] = ""; return text[1];]])],
    [AC_MSG_RESULT([yes]); pvn_taken=yes; $1="$$1${$1:+ }$2"], [AC_MSG_RESULT([no]); pvn_taken=no])
  CFLAGS=$pvn_save_CFLAGS
  LDFLAGS=$pvn_save_LDFLAGS
])

# PVN_CHECK_HARDENING: what distributions switch on beyond the linker's options above. A tree with sanitizers goes without, since
# they check the same and more. Each flag is one that this compiler takes, and CFLAGS come after all of them.
#   PVN_HARD_CFLAGS   for all C but
#   PVN_DATA_CFLAGS   the files that every message passes through, which go without -fstack-protector-strong and -fcf-protection.
#                     With gcc 12.2 those cost 3.8 and 1.5 % of the instructions of a message of 8 bytes over RDMA, one at a time, and
#                     3.1 and 2.0 % of eight in flight. These files are plugin/engine, those of plugin/abi, and what plugin/comm,
#                     net-tcp and net-pvrdma have in libpvn-*-data.la.
#   PVN_PIE_CFLAGS, PVN_PIE_LDFLAGS   for the tools, whose other objects are those of the shared object
AC_DEFUN([PVN_CHECK_HARDENING], [
  AC_REQUIRE([PVN_CHECK_COMPILER])
  AC_REQUIRE([PVN_CHECK_SANITIZE])
  AC_ARG_ENABLE([hardening],
    [AS_HELP_STRING([--disable-hardening],
      [no stack protector, fortified functions, -fcf-protection, -fstack-clash-protection and PIE but those of CFLAGS and of the compiler itself (default in a tree with sanitizers)])],
    [], [AS_IF([test "x$enable_sanitize" = xno], [enable_hardening=yes], [enable_hardening=no])])
  pvn_hard_both= pvn_hard_slow= pvn_hard_not=
  PVN_PIE_CFLAGS= PVN_PIE_LDFLAGS=
  AS_IF([test "x$enable_hardening" != xno], [
    # Level 3 knows sizes that are computed at run time. A level that CFLAGS, CPPFLAGS or the compiler set stays.
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifdef _FORTIFY_SOURCE
#error it has a level
#endif]], [])],
      [PVN_TRY_HARD([pvn_hard_both], [-D_FORTIFY_SOURCE=3], [#if !defined __OPTIMIZE__ || __USE_FORTIFY_LEVEL < 3
#error no such level
#endif])
       AS_IF([test $pvn_taken = no], [PVN_TRY_HARD([pvn_hard_both], [-D_FORTIFY_SOURCE=2], [#ifndef __OPTIMIZE__
#error it needs optimization
#endif])])])
    PVN_TRY_HARD([pvn_hard_both], [-fstack-clash-protection])
    PVN_TRY_HARD([pvn_hard_slow], [-fstack-protector-strong])
    AS_IF([test $pvn_taken = yes], [pvn_hard_not="$pvn_hard_not -fno-stack-protector"])
    PVN_TRY_HARD([pvn_hard_slow], [-fcf-protection])
    AS_IF([test $pvn_taken = yes], [pvn_hard_not="$pvn_hard_not -fcf-protection=none"])
    PVN_TRY_HARD([PVN_PIE_CFLAGS], [-fPIE], [], [-pie])
    AS_IF([test $pvn_taken = yes], [PVN_PIE_LDFLAGS=-pie])
  ])
  pvn_hardening_summary="$pvn_hard_both $pvn_hard_slow $PVN_PIE_LDFLAGS"
  AS_IF([test "x$pvn_hardening_summary" = "x  "], [pvn_hardening_summary=no])
  PVN_HARD_CFLAGS="$pvn_hard_both $pvn_hard_slow"
  PVN_DATA_CFLAGS="$pvn_hard_both$pvn_hard_not"
  AC_SUBST([PVN_HARD_CFLAGS])
  AC_SUBST([PVN_DATA_CFLAGS])
  AC_SUBST([PVN_PIE_CFLAGS])
  AC_SUBST([PVN_PIE_LDFLAGS])
])

# PVN_PROG_CC_FOR_BUILD: the compiler of a program that runs while the plugin is built (plugin/docs/pages). It is CC, unless
# that makes programs for another machine.
AC_DEFUN([PVN_PROG_CC_FOR_BUILD], [
  AC_REQUIRE([AC_PROG_CC])
  AC_ARG_VAR([CC_FOR_BUILD], [C compiler for programs that run during the build])
  AS_IF([test -n "$CC_FOR_BUILD"], [],
    [test "x$cross_compiling" != xyes], [CC_FOR_BUILD=$CC],
    [AC_CHECK_PROGS([CC_FOR_BUILD], [gcc cc clang])
     AS_IF([test -z "$CC_FOR_BUILD"],
       [AC_MSG_ERROR([no C compiler for this machine, whose programs run during the build: set CC_FOR_BUILD])])])
])

# PVN_CHECK_SANITIZE: --enable-sanitize=address,undefined or =thread, and --enable-coverage.
AC_DEFUN([PVN_CHECK_SANITIZE], [
  AC_ARG_ENABLE([sanitize],
    [AS_HELP_STRING([--enable-sanitize=LIST], [build with these sanitizers, e.g. address,undefined])],
    [], [enable_sanitize=no])
  pvn_sanitize_summary=$enable_sanitize
  PVN_SAN_FLAGS=
  AS_IF([test "x$enable_sanitize" != xno],
    [PVN_SAN_FLAGS="-fsanitize=$enable_sanitize -fno-omit-frame-pointer -fno-sanitize-recover=all"])
  AC_ARG_ENABLE([coverage],
    [AS_HELP_STRING([--enable-coverage], [build with gcov instrumentation])],
    [], [enable_coverage=no])
  pvn_coverage_summary=$enable_coverage
  PVN_CXXFLAGS="$PVN_CXXFLAGS $PVN_SAN_FLAGS"
  # Coverage of the tests themselves is of no interest, and counting it doubles the time of compiling them.
  AS_IF([test "x$enable_coverage" = xyes], [PVN_SAN_FLAGS="$PVN_SAN_FLAGS --coverage"])
  PVN_CFLAGS="$PVN_CFLAGS $PVN_SAN_FLAGS"
  AC_SUBST([PVN_SAN_FLAGS])
  AM_CONDITIONAL([SANITIZE], [test "x$enable_sanitize" != xno])
  AM_CONDITIONAL([SANITIZE_THREAD], [test "x$enable_sanitize" = xthread])
])
