/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The name of a PCI function: from libpci's list (pci.ids), or its numbers. libpci is loaded at the
 * first lookup, so pvn-topo runs where it is not installed, for example in a container or from a
 * wheel. */
#include "topo/tool/base/tool.h"

#include <dlfcn.h>
#include <pci/pci.h>
#include <stdarg.h>
#include <stdlib.h>

/* libpci reports through these pointers and does not check them for NULL. The first function must
 * not return. */
static void pci_fatal(char *format, ...) __attribute__((noreturn));

static void pci_fatal(char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("pvn-topo: device names: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(TOOL_INPUT);
}

static void pci_quiet(char *format, ...)
{
    (void)format;
}

/* The part of libpci that is used; access is NULL if libpci is not available. */
struct pci_lib {
    bool tried;
    struct pci_access *access;
    __typeof__(pci_lookup_name) *lookup;
};

/* Loads libpci, which stays loaded until the program ends. Does not call pci_init, which looks for
 * devices and ends the program if there is no bus. */
static const struct pci_lib *pci_lib(void)
{
    static struct pci_lib lib;
    if (lib.tried)
        return &lib;
    lib.tried = true;
    void *so = dlopen("libpci.so.3", RTLD_NOW | RTLD_LOCAL);
    __typeof__(pci_alloc) *alloc = so ? (__typeof__(pci_alloc) *)dlsym(so, "pci_alloc") : NULL;
    lib.lookup = so ? (__typeof__(pci_lookup_name) *)dlsym(so, "pci_lookup_name") : NULL;
    if (alloc && lib.lookup && (lib.access = alloc())) {
        lib.access->error = pci_fatal;
        lib.access->warning = lib.access->debug = pci_quiet;
    }
    return &lib;
}

const char *tool_pci_what(const struct tool *t, int pci, char *buf, size_t len)
{
    const struct pvn_topo_pci *f = &t->topo->pci[pci];
    char *name = NULL;
    buf[0] = '\0';
    if (f->vendor == PVN_TOPO_UNKNOWN || f->device == PVN_TOPO_UNKNOWN)
        return buf;
    /* Names only from local files; never from the network. */
    if (t->names && pci_lib()->access)
        name = pci_lib()->lookup(pci_lib()->access, buf, (int)len,
                                 PCI_LOOKUP_DEVICE | PCI_LOOKUP_NO_NUMBERS, f->vendor, f->device);
    if (!name || name[0] == '\0')
        snprintf(buf, len, "%04x:%04x", (unsigned)f->vendor, (unsigned)f->device);
    return buf;
}
