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
