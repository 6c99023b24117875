/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Recognises a guest and its hypervisor: first by DMI (which names the maker), then by devices that
 * only one hypervisor has, then by the CPU's hypervisor bit, which does not say which hypervisor it
 * is. */
#include "topo/reader.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct sign {
    enum pvn_topo_hypervisor hv;
    const char *vendor;  /* start of DMI sys_vendor, or NULL */
    const char *product; /* somewhere in DMI product_name, or NULL */
    bool bare; /* a cloud that rents bare machines under this DMI, too; their CPU has no hypervisor
                * bit */
};

/* Texts as the hypervisors write them; the list follows systemd's detect-virt (src/basic/virt.c)
 * and the makers' documentation. */
static const struct sign signs[] = {
    {PVN_TOPO_HV_VMWARE, "VMware", NULL, false},
    {PVN_TOPO_HV_VMWARE, NULL, "VMware", false},
    {PVN_TOPO_HV_HYPERV, "Microsoft Corporation", "Virtual Machine", false},
    {PVN_TOPO_HV_NITRO, "Amazon EC2", NULL, true},
    {PVN_TOPO_HV_GOOGLE, "Google", "Google Compute Engine", true},
    {PVN_TOPO_HV_XEN, "Xen", NULL, false},
    {PVN_TOPO_HV_KVM, "QEMU", NULL, false},
    {PVN_TOPO_HV_KVM, NULL, "KVM", false},
    {PVN_TOPO_HV_KVM, "Red Hat", "OpenStack", false},
    {PVN_TOPO_HV_KVM, "OpenStack Foundation", NULL, true},
    {PVN_TOPO_HV_KVM, "Alibaba Cloud", NULL, true},
    {PVN_TOPO_HV_KVM, "DigitalOcean", NULL, true},
    {PVN_TOPO_HV_OTHER, "innotek", "VirtualBox", false},
    {PVN_TOPO_HV_OTHER, "Parallels", NULL, false},
    {PVN_TOPO_HV_OTHER, "Apple Virtualization", NULL, false},
};

static bool starts(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

static bool by_dmi(struct pvn_topo_guest *g)
{
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
        const struct sign *s = &signs[i];

        if ((s->vendor && !starts(g->sys_vendor, s->vendor)) ||
            (s->product && !strstr(g->product_name, s->product)))
            continue;
        if ((s->bare && g->cpu_flag == PVN_TOPO_TRI_NO) ||
            (s->hv == PVN_TOPO_HV_NITRO && strstr(g->product_name, ".metal")))
            continue;
        g->hypervisor = s->hv;
        snprintf(g->evidence, sizeof(g->evidence), "DMI: %.100s, %.100s", g->sys_vendor,
                 g->product_name);
        return true;
    }
    return false;
}

static bool by_devices(struct pvn_topo *t)
{
    for (int i = 0; i < t->npci; i++) {
        const struct pvn_topo_pci *p = &t->pci[i];
        enum pvn_topo_hypervisor hv = PVN_TOPO_HV_UNKNOWN;

        if (p->vendor == 0x15ad &&
            (p->device == 0x0740 || p->device == 0x07a0 || p->device == 0x0790))
            hv = PVN_TOPO_HV_VMWARE; /* VMCI, root port, PCI bridge */
        else if (p->vendor == 0x1af4 || (p->vendor == 0x1b36 && p->class_code >> 8 != 0x0300))
            hv = PVN_TOPO_HV_KVM; /* virtio; QEMU's own bridges */
        else if (p->vendor == 0x5853)
            hv = PVN_TOPO_HV_XEN;
        else if (p->path && strstr(p->path, "/VMBUS:"))
            hv = PVN_TOPO_HV_HYPERV;
        /* SmartNICs offer virtio functions on bare metal, too, so virtio counts only with the CPU's
         * hypervisor bit or, on a processor without this bit (arm64), if DMI names no maker. */
        if (hv == PVN_TOPO_HV_UNKNOWN ||
            (hv == PVN_TOPO_HV_KVM && t->guest.cpu_flag == PVN_TOPO_TRI_NO) ||
            (p->vendor == 0x1af4 && t->guest.cpu_flag == PVN_TOPO_TRI_UNKNOWN &&
             t->guest.sys_vendor[0] != '\0'))
            continue;
        t->guest.hypervisor = hv;
        snprintf(t->guest.evidence, sizeof(t->guest.evidence), "PCI function %s is %04x:%04x",
                 p->bdf, (unsigned)p->vendor & 0xffff, (unsigned)p->device & 0xffff);
        return true;
    }
    return false;
}

void pvn_topo_recognise_guest(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;
    struct pvn_topo_guest *g = &t->guest;
    char type[32] = "";
    ssize_t got = pvn_topo_fs_read(r->fs, "/sys/hypervisor/type", type, sizeof(type) - 1);

    type[got > 0 ? got : 0] = '\0';
    if (by_dmi(g) || by_devices(t))
        return;
    if (starts(type, "xen")) {
        g->hypervisor = PVN_TOPO_HV_XEN;
        snprintf(g->evidence, sizeof(g->evidence), "/sys/hypervisor/type is xen");
    } else if (g->cpu_flag == PVN_TOPO_TRI_YES) {
        g->hypervisor = PVN_TOPO_HV_OTHER;
        snprintf(g->evidence, sizeof(g->evidence), "the CPU shows the hypervisor bit");
    } else if (g->cpu_flag == PVN_TOPO_TRI_NO) {
        g->hypervisor = PVN_TOPO_HV_NONE;
        snprintf(g->evidence, sizeof(g->evidence), "the CPU shows no hypervisor bit");
    } else if (g->sys_vendor[0] != '\0') {
        g->hypervisor = PVN_TOPO_HV_NONE;
        snprintf(g->evidence, sizeof(g->evidence), "DMI (%.100s, %.100s) names no hypervisor",
                 g->sys_vendor, g->product_name);
    }
}
