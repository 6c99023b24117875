/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A library that exports one version of NCCL's interface to the plugin. NCCL takes the newest
 * version that it finds, so an older one is tested by this library. It is compiled once for each
 * version, with PVN_TABLE=ncclNetPlugin_vN, and finds the plugin as NCCL does, by
 * LD_LIBRARY_PATH. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

/* A table is a structure of pointers. The largest one so far has 22. */
__attribute__((visibility("default"))) void *PVN_TABLE[64];

static void refuse(const char *what)
{
    fprintf(stderr, "one_version: %s: %s\n", TEXT(PVN_TABLE), what);
    abort();
}

__attribute__((constructor)) static void take_the_table(void)
{
    void *plugin = dlopen("libnccl-net-pvrdma.so", RTLD_NOW | RTLD_LOCAL);
    const void *table = plugin ? dlsym(plugin, TEXT(PVN_TABLE)) : NULL;
    const ElfW(Sym) *symbol = NULL;
    Dl_info info;

    if (!table)
        refuse(dlerror());
    if (!dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        refuse("its size is not known");
    if (symbol->st_size == 0 || symbol->st_size > sizeof(PVN_TABLE))
        refuse("it has an unexpected size");
    memcpy(PVN_TABLE, table, symbol->st_size);
}
