/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Remedies on the host of a guest, chosen by the findings. The settings follow the makers'
 * documents: VMware (vSphere device groups, virtual machine PCI passthrough options, CPU topology
 * of vSphere 8), NVIDIA (GPU Operator, AI Enterprise VM guides, NCCL documentation). */
#include <stdio.h>
#include <string.h>

#include "topo/pvn_topo.h"

struct find {
    const struct pvn_topo *t;
    struct pvn_topo_remedy *out;
    int max, n;
};

static void add_remedy(struct find *f, const char *id, const char *where, const char *text,
                       const char *why)
{
    if (f->n < f->max) {
        struct pvn_topo_remedy *r = &f->out[f->n];

        *r = (struct pvn_topo_remedy){.id = id, .where = where, .text = text};
        snprintf(r->why, sizeof(r->why), "%s", why);
    }
    f->n++;
}

/* True if a NIC is passed through whole or as a virtual function. */
static bool has_real_nic(const struct pvn_topo *t)
{
    for (int i = 0; i < t->nrdmas; i++)
        if (t->rdmas[i].kind == PVN_TOPO_RDMA_HW)
            return true;
    return false;
}

static bool numa_unknown(const struct pvn_topo *t)
{
    for (int i = 0; i < t->ngpus; i++)
        if (t->pci[t->gpus[i].pci].numa < 0)
            return true;
    for (int i = 0; i < t->nrdmas; i++)
        if (t->rdmas[i].pci >= 0 && t->pci[t->rdmas[i].pci].numa < 0)
            return true;
    return false;
}

static void vmware(struct find *f, bool real_nic)
{
    if (f->t->ngpus > 0 && real_nic) {
        add_remedy(
            f, "device-group", "host",
            "put the GPU and the NIC that share a switch into one vSphere device group, and give "
            "the VM the group: the two then always come together",
            "a guest cannot see which NIC is near which GPU; the group makes it certain");
    }
    if (f->t->ngpus > 1 || (f->t->ngpus > 0 && real_nic)) {
        add_remedy(
            f, "allow-p2p", "host",
            "VM options: pciPassthru.allowP2P = TRUE, pciPassthru.RelaxACSforP2P = TRUE, "
            "pciPassthru.use64bitMMIO = TRUE, pciPassthru.64bitMMIOSizeGB large enough for all "
            "GPUs",
            "passthrough devices reach each other's memory only with these; reports of no effect "
            "across root ports exist, so measure");
    }
    if (numa_unknown(f->t)) {
        add_remedy(
            f, "vnuma", "host",
            "vSphere 8: in the VM's CPU topology set cores per socket by hand and assign each "
            "device to a NUMA node; keep CPU hot-add off",
            "some numa_node is -1, which NCCL takes for a CPU of its own");
    }
    if (f->t->npvrdma > 0 && f->t->ngpus > 0) {
        add_remedy(
            f, "real-nic", "host",
            "pass a RoCE NIC through (DirectPath I/O) or give an SR-IOV virtual function in place "
            "of, or beside, PVRDMA",
            "PVRDMA registers host memory only, so GPU data is copied");
    }
}

static void kvm(struct find *f, bool real_nic)
{
    if (f->t->ngpus > 0 && real_nic) {
        add_remedy(
            f, "pcie-switch", "host",
            "QEMU: put GPU and NIC below one x3130-upstream/xio3130-downstream pair, on a pxb-pcie "
            "with numa_node for each host node; set speed and width (x-speed, x-width) on the "
            "ports",
            "the guest shows a flat tree; like this it shows the host's");
    } else if (numa_unknown(f->t)) {
        add_remedy(f, "pxb-numa", "host", "QEMU: attach the devices to a pxb-pcie with numa_node",
                   "some numa_node is -1, which NCCL takes for a CPU of its own");
    }
}

/* True if the host belongs to a cloud provider, so the user cannot change it. */
static bool is_cloud(const struct pvn_topo *t)
{
    return t->guest.hypervisor == PVN_TOPO_HV_HYPERV || t->guest.hypervisor == PVN_TOPO_HV_NITRO ||
           t->guest.hypervisor == PVN_TOPO_HV_GOOGLE;
}

int pvn_topo_guest_remedies(const struct pvn_topo *topo, struct pvn_topo_remedy *out, int max)
{
    struct find f = {topo, out, max, 0};
    bool real_nic = has_real_nic(topo), hidden = pvn_topo_layout_hidden(topo);

    if (!pvn_topo_is_guest(topo))
        return 0;
    if (hidden && is_cloud(topo)) {
        add_remedy(
            &f, "cloud-file", "guest",
            "NCCL_TOPO_FILE with the provider's file for this size of VM (Azure: azhpc-images has "
            "them; AWS: the aws-ofi-nccl plugin brings its own), or hints from its documentation",
            "the host belongs to the provider, who knows the layout and publishes it");
    } else if (hidden && topo->merged == 0) {
        add_remedy(
            &f, "hints", "guest",
            "write the layout down: pvn-topo with a hints file, or with the host's dump (pvn-topo "
            "gather on a KVM host, esxcli hardware pci list on ESXi)",
            "pairing and NCCL_TOPO_FILE can then be right; the path of the data stays as it is");
    }
    if (topo->guest.hypervisor == PVN_TOPO_HV_VMWARE)
        vmware(&f, real_nic);
    else if (topo->guest.hypervisor == PVN_TOPO_HV_KVM)
        kvm(&f, real_nic && hidden);
    if (topo->ngpus > 0 && real_nic && !is_cloud(topo)) {
        add_remedy(
            &f, "ats", "host",
            "NIC: mlxconfig -d DEVICE set ATS_ENABLED=true and a restart of the host; on the "
            "bridges between GPU and NIC set ACS direct translated P2P",
            "with the host's IOMMU on, only translated requests go straight from NIC to GPU");
    }
    if (hidden && real_nic) {
        add_remedy(
            &f, "topo-check", "guest", "NVIDIA module option NVreg_GrdmaPciTopoCheckOverride=1",
            "the NVIDIA driver refuses GPUDirect when it sees no shared bridge, and a guest shows "
            "none");
        add_remedy(
            &f, "gdr-level", "guest",
            "NCCL_TOPO_FILE with the true layout, or NCCL_NET_GDR_LEVEL=PHB after a measurement",
            "NCCL refuses GPUDirect beyond PXB, and everything in a flat guest is PHB");
    }
    return f.n;
}
