/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Finds the C library's function behind one of the same name in the program. The plugin calls the
// program's function because it is first in symbol lookup (linked with -export-dynamic).
#ifndef TESTS_SUPPORT_NEXT_SYMBOL_H
#define TESTS_SUPPORT_NEXT_SYMBOL_H

#include <dlfcn.h>

template <typename F> F next_symbol(const char *name)
{
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

#endif
