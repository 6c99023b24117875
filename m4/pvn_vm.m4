dnl SPDX-FileCopyrightText: the nccl-net-pvrdma authors
dnl SPDX-License-Identifier: Apache-2.0
# PVN_ARG_VM: --enable-vm-tests puts the tests that boot virtual machines (tests/vm) into `make check`.
# They are built in any case, and `make check-vm` runs them alone.
AC_DEFUN([PVN_ARG_VM], [
  AC_ARG_ENABLE([vm-tests],
    [AS_HELP_STRING([--enable-vm-tests], [run the virtual machine tests in make check (minutes)])],
    [], [enable_vm_tests=no])
  AM_CONDITIONAL([VM_TESTS], [test "x$enable_vm_tests" = xyes])
])
