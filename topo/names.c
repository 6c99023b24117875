/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Texts for the model's enumerations, and link speeds. */
#include "topo/pvn_topo.h"

const char *pvn_smi_class_name(enum pvn_smi_class c)
{
    static const char *const names[] = {
        [PVN_SMI_SELF] = "X",    [PVN_SMI_PIX] = "PIX",   [PVN_SMI_PXB] = "PXB",
        [PVN_SMI_PHB] = "PHB",   [PVN_SMI_NODE] = "NODE", [PVN_SMI_SYS] = "SYS",
        [PVN_SMI_UNKNOWN] = "?",
    };

    return names[c];
}

const char *pvn_trust_text(enum pvn_trust t)
{
    static const char *const names[] = {
        [PVN_TRUST_MEASURED] = "read from the machine",
        [PVN_TRUST_PRESENTED] = "as the hypervisor presents it",
        [PVN_TRUST_HIDDEN] = "hidden by the hypervisor",
        [PVN_TRUST_HINTED] = "from hints or the host's dump",
    };

    return names[t];
}

const char *pvn_pci_kind_name(enum pvn_pci_kind k)
{
    static const char *const names[] = {
        [PVN_PCI_UNKNOWN] = "unknown",
        [PVN_PCI_ENDPOINT] = "endpoint",
        [PVN_PCI_HOST_BRIDGE] = "host bridge",
        [PVN_PCI_ROOT_PORT] = "root port",
        [PVN_PCI_SWITCH_UP] = "switch upstream port",
        [PVN_PCI_SWITCH_DOWN] = "switch downstream port",
        [PVN_PCI_BRIDGE] = "PCI bridge",
    };

    return names[k];
}

const char *pvn_hypervisor_name(enum pvn_hypervisor hv)
{
    static const char *const names[] = {
        [PVN_HV_UNKNOWN] = "unknown", [PVN_HV_NONE] = "none",           [PVN_HV_VMWARE] = "VMware",
        [PVN_HV_KVM] = "KVM",         [PVN_HV_HYPERV] = "Hyper-V",      [PVN_HV_XEN] = "Xen",
        [PVN_HV_NITRO] = "AWS Nitro", [PVN_HV_GOOGLE] = "Google Cloud", [PVN_HV_OTHER] = "other",
    };

    return names[hv];
}

const char *pvn_level_name(enum pvn_level level)
{
    static const char *const names[] = {
        [PVN_LEVEL_OK] = "OK",
        [PVN_LEVEL_WARN] = "WARN",
        [PVN_LEVEL_FAIL] = "FAIL",
        [PVN_LEVEL_UNKNOWN] = "UNKNOWN",
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

const char *pvn_link_speed_name(int speed_mts)
{
    for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++) {
        if (generations[i].mts == speed_mts) {
            return generations[i].name;
        }
    }
    return "unknown";
}

int pvn_link_mbytes(int speed_mts, int width)
{
    if (speed_mts <= 0 || width < 0 || width > 32) {
        return PVN_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++) {
        if (generations[i].mts == speed_mts) {
            return (int)((long long)speed_mts * width * generations[i].coding / 8000);
        }
    }
    return PVN_UNKNOWN;
}
