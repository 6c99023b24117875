/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A libpci whose list has one device: what it answers shows that pvn-topo loaded it. */
#include <pci/pci.h>
#include <stdio.h>

struct pci_access *pci_alloc(void)
{
    static struct pci_access access;
    return &access;
}

/* Calls back as the real one does when it looks in other places than its list. */
char *pci_lookup_name(struct pci_access *access, char *buf, int size, int flags, ...)
{
    access->debug("looking\n");
    access->warning("looked\n");
    if (!(flags & PCI_LOOKUP_DEVICE) || !(flags & PCI_LOOKUP_NO_NUMBERS))
        access->error("unexpected flags");
    snprintf(buf, (size_t)size, "a device of the double");
    return buf;
}
