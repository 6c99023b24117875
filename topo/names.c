/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Texts for the model's enumerations, and link speeds. */
#include "topo/pvn_topo.h"

const char *pvn_topo_smi_class_name(enum pvn_topo_smi_class c)
{
    static const char *const names[] = {
        [PVN_TOPO_SMI_SELF] = "X",    [PVN_TOPO_SMI_PIX] = "PIX",   [PVN_TOPO_SMI_PXB] = "PXB",
        [PVN_TOPO_SMI_PHB] = "PHB",   [PVN_TOPO_SMI_NODE] = "NODE", [PVN_TOPO_SMI_SYS] = "SYS",
        [PVN_TOPO_SMI_UNKNOWN] = "?",
    };

    return names[c];
}

const char *pvn_topo_trust_text(enum pvn_topo_trust t)
{
    static const char *const names[] = {
        [PVN_TOPO_TRUST_MEASURED] = "read from the machine",
        [PVN_TOPO_TRUST_PRESENTED] = "as the hypervisor presents it",
        [PVN_TOPO_TRUST_HIDDEN] = "hidden by the hypervisor",
        [PVN_TOPO_TRUST_HINTED] = "from hints or the host's dump",
    };

    return names[t];
}

const char *pvn_topo_pci_kind_name(enum pvn_topo_pci_kind k)
{
    static const char *const names[] = {
        [PVN_TOPO_PCI_UNKNOWN] = "unknown",
        [PVN_TOPO_PCI_ENDPOINT] = "endpoint",
        [PVN_TOPO_PCI_HOST_BRIDGE] = "host bridge",
        [PVN_TOPO_PCI_ROOT_PORT] = "root port",
        [PVN_TOPO_PCI_SWITCH_UP] = "switch upstream port",
        [PVN_TOPO_PCI_SWITCH_DOWN] = "switch downstream port",
        [PVN_TOPO_PCI_BRIDGE] = "PCI bridge",
    };

    return names[k];
}

const char *pvn_topo_hypervisor_name(enum pvn_topo_hypervisor hv)
{
    static const char *const names[] = {
        [PVN_TOPO_HV_UNKNOWN] = "unknown", [PVN_TOPO_HV_NONE] = "none",
        [PVN_TOPO_HV_VMWARE] = "VMware",   [PVN_TOPO_HV_KVM] = "KVM",
        [PVN_TOPO_HV_HYPERV] = "Hyper-V",  [PVN_TOPO_HV_XEN] = "Xen",
        [PVN_TOPO_HV_NITRO] = "AWS Nitro", [PVN_TOPO_HV_GOOGLE] = "Google Cloud",
        [PVN_TOPO_HV_OTHER] = "other",
    };

    return names[hv];
}

const char *pvn_topo_level_name(enum pvn_topo_level level)
{
    static const char *const names[] = {
        [PVN_TOPO_LEVEL_OK] = "OK",
        [PVN_TOPO_LEVEL_WARN] = "WARN",
        [PVN_TOPO_LEVEL_FAIL] = "FAIL",
        [PVN_TOPO_LEVEL_UNKNOWN] = "UNKNOWN",
    };

    return names[level];
}

/* The generations of the PCI Express Base Specification: transfer rate, the text of the kernel's
 * pci_speed_string (drivers/pci/probe.c), and how many of 1000 bits carry data. */
static const struct {
    int mts;
    const char *name;
    int coding;
} generations[] = {
    {2500, "2.5 GT/s PCIe", 800},   {5000, "5.0 GT/s PCIe", 800},   {8000, "8.0 GT/s PCIe", 985},
    {16000, "16.0 GT/s PCIe", 985}, {32000, "32.0 GT/s PCIe", 985}, {64000, "64.0 GT/s PCIe", 1000},
};

const char *pvn_topo_link_speed_name(int speed_mts)
{
    for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]); i++)
        if (generations[i].mts == speed_mts)
            return generations[i].name;
    return "unknown";
}

int pvn_topo_link_mbytes(int speed_mts, int width)
{
    if (speed_mts <= 0 || width < 0 || width > 32)
        return PVN_TOPO_UNKNOWN;
    for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]); i++)
        if (generations[i].mts == speed_mts)
            return (int)((long long)speed_mts * width * generations[i].coding / 8000);
    return PVN_TOPO_UNKNOWN;
}
