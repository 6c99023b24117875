/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// For a program that comes before the C library in the plugin's calls (linked with -export-dynamic): the library's function.
#ifndef TESTS_SUPPORT_NEXT_SYMBOL_H
#define TESTS_SUPPORT_NEXT_SYMBOL_H

#include <dlfcn.h>

template <typename F> F next_symbol(const char *name)
{
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

#endif
