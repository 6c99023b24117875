/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A test double of libpci. Its names of devices differ from libpci's own, so output that has one shows that pvn-topo
 * loaded it. */
#include <pci/pci.h>
#include <stdio.h>

struct pci_access *pci_alloc(void)
{
    static struct pci_access access;
    return &access;
}

/* Calls the log functions, as libpci does if it searches elsewhere than in its list of names. */
char *pci_lookup_name(struct pci_access *access, char *buf, int size, int flags, ...)
{
    access->debug("looking\n");
    access->warning("looked\n");
    if (!(flags & PCI_LOOKUP_DEVICE) || !(flags & PCI_LOOKUP_NO_NUMBERS))
        access->error("unexpected flags");
    snprintf(buf, (size_t)size, "a device of the double");
    return buf;
}
