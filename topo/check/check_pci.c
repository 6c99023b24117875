/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Checks on links and bridges: speed and width, ACS, IOMMU, ATS, relaxed ordering, payload size. */
#include "topo/check/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char need_root[] =
    "run again as root: without it the kernel shows only the first 64 bytes of config space";

static int smaller(int a, int b)
{
    if (a == PVN_TOPO_UNKNOWN || b == PVN_TOPO_UNKNOWN)
        return a == PVN_TOPO_UNKNOWN ? b : a;
    return a < b ? a : b;
}

/* The maximum speed and width of the link between a function and the port above it. */
static void link_limit(const struct pvn_topo *t, const struct pvn_topo_pci *p, int *speed,
                       int *width)
{
    const struct pvn_topo_pci_link *up = p->seen_parent >= 0 ? &t->pci[p->seen_parent].link : NULL;

    *speed = p->link.speed_max_mts;
    *width = p->link.width_max;
    if (up) {
        *speed = smaller(*speed, up->speed_max_mts);
        *width = smaller(*width, up->width_max);
    }
}

static bool is_gpu(const struct pvn_topo *t, int i)
{
    return pvn_topo_gpu_of_pci(t, i) >= 0;
}

static void check_link(struct pvn_topo_check_run *run, int i)
{
    const struct pvn_topo_pci *p = &run->t->pci[i];
    int speed_max, width_max, speed = p->link.speed_mts, width = p->link.width;

    link_limit(run->t, p, &speed_max, &width_max);
    if (speed == PVN_TOPO_UNKNOWN || speed_max == PVN_TOPO_UNKNOWN || width == PVN_TOPO_UNKNOWN ||
        width_max == PVN_TOPO_UNKNOWN || (p->flags & PVN_TOPO_PCI_LINK_NOW) != 0) {
        pvn_topo_check_row(
            run, "link", PVN_TOPO_LEVEL_UNKNOWN, p->bdf, "", "sysfs does not show the link's %s",
            speed == PVN_TOPO_UNKNOWN || width == PVN_TOPO_UNKNOWN ? "present speed and width"
                                                                   : "maximum speed and width");
    } else if (width == 0 && pvn_topo_is_guest(run->t)) {
        pvn_topo_check_row(run, "link", PVN_TOPO_LEVEL_UNKNOWN, p->bdf, "",
                           "the hypervisor shows no width of the link");
    } else if (width == 0) {
        pvn_topo_check_row(run, "link", PVN_TOPO_LEVEL_WARN, p->bdf,
                           "reseat the card or look at the slot's power and the kernel log",
                           "the link is down (width 0)");
    } else if (width < width_max) {
        pvn_topo_check_row(
            run, "link", PVN_TOPO_LEVEL_WARN, p->bdf,
            "reseat the card or riser, check the slot's wiring and the BIOS bifurcation; NCCL "
            "assumes a NIC's maximum, so it does not notice",
            "trained at x%d of x%d (%s of %s): %d of %d MB/s", width, width_max,
            pvn_topo_link_speed_name(speed), pvn_topo_link_speed_name(speed_max),
            pvn_topo_link_mbytes(speed, width), pvn_topo_link_mbytes(speed_max, width_max));
    } else if (speed < speed_max && is_gpu(run->t, i)) {
        pvn_topo_check_row(
            run, "link", PVN_TOPO_LEVEL_OK, p->bdf, "",
            "x%d, %s now of %s: a GPU lowers its speed while idle; look again under load", width,
            pvn_topo_link_speed_name(speed), pvn_topo_link_speed_name(speed_max));
    } else if (speed < speed_max) {
        pvn_topo_check_row(
            run, "link", PVN_TOPO_LEVEL_WARN, p->bdf,
            "check the slot's speed in the BIOS and the card's seating; NCCL assumes a NIC's "
            "maximum, so it does not notice",
            "trained at %s of %s, x%d: %d of %d MB/s", pvn_topo_link_speed_name(speed),
            pvn_topo_link_speed_name(speed_max), width, pvn_topo_link_mbytes(speed, width),
            pvn_topo_link_mbytes(speed_max, width_max));
    } else {
        pvn_topo_check_row(run, "link", PVN_TOPO_LEVEL_OK, p->bdf, "",
                           "%s x%d, the most both ends can%s", pvn_topo_link_speed_name(speed),
                           width, pvn_topo_is_guest(run->t) ? " (as the hypervisor shows it)" : "");
    }
}

static void mark_up(const struct pvn_topo *t, int i, bool *marks)
{
    for (; i >= 0 && !marks[i]; i = t->pci[i].seen_parent)
        marks[i] = true;
}

/* Marks the GPUs, the NICs and all functions above them. marks has npci elements, all false. */
static void mark_traffic(const struct pvn_topo *t, bool *marks)
{
    for (int i = 0; i < t->ngpus; i++)
        mark_up(t, t->gpus[i].pci, marks);
    for (int i = 0; i < t->nrdmas; i++)
        mark_up(t, t->rdmas[i].pci, marks);
    for (int i = 0; i < t->nnets; i++)
        mark_up(t, t->nets[i].pci, marks);
}

/* True for the first function of a slot. All functions of a device share its link, so one row is
 * enough. */
static bool speaks_for_slot(const struct pvn_topo *t, int i)
{
    const struct pvn_topo_pci *p = &t->pci[i];

    return i == 0 || t->pci[i - 1].domain != p->domain || t->pci[i - 1].bus != p->bus ||
           t->pci[i - 1].dev != p->dev;
}

static bool has_link(const struct pvn_topo_pci *p)
{
    return p->link.speed_max_text[0] != '\0' || p->link.width != PVN_TOPO_UNKNOWN ||
           p->config.pcie == PVN_TOPO_CAP_PRESENT;
}

void pvn_topo_check_links(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;
    bool *marks = calloc((size_t)t->npci + 1, sizeof(*marks));

    if (!marks) {
        run->rc = -ENOMEM;
        return;
    }
    mark_traffic(t, marks);
    for (int i = 0; i < t->npci; i++) {
        const struct pvn_topo_pci *p = &t->pci[i];

        /* Skip ports, whose link is that of the device below, and virtual functions, which have no
         * link of their own. */
        if ((p->flags & (PVN_TOPO_PCI_INVENTED | PVN_TOPO_PCI_GAP)) != 0 || p->physfn >= 0 ||
            p->kind == PVN_TOPO_PCI_ROOT_PORT || p->kind == PVN_TOPO_PCI_SWITCH_DOWN ||
            p->kind == PVN_TOPO_PCI_BRIDGE || p->kind == PVN_TOPO_PCI_HOST_BRIDGE ||
            !speaks_for_slot(t, i))
            continue;
        if (marks[i] && (has_link(p) || p->seen_parent >= 0))
            check_link(run, i);
    }
    free(marks);
}

/* True if a capability's state cannot be read, with the reason and a remedy as texts. */
static bool cannot_read(const struct pvn_topo_pci *p, enum pvn_topo_cap cap, const char **why,
                        const char **remedy)
{
    *why = *remedy = "";
    switch (cap) {
    case PVN_TOPO_CAP_UNKNOWN:
        *why = "there is no config space to read";
        return true;
    case PVN_TOPO_CAP_NOT_READABLE:
        if (p->config.bytes < 256) {
            *why = "config space is not readable without root";
            *remedy = need_root;
        } else {
            *why = "extended config space is not reachable";
            *remedy = "run as root; in a guest or behind an old bridge it may not exist at all";
        }
        return true;
    default:
        return false;
    }
}

/* The function with the settings of function i: for a virtual function its physical function,
 * because some register fields of a VF read as zero (PCI Express Base Specification 6.0 section
 * 9.3.5.4). */
static const struct pvn_topo_pci *with_settings(const struct pvn_topo *t, int i)
{
    return &t->pci[t->pci[i].physfn >= 0 ? t->pci[i].physfn : i];
}

static void relaxed_ordering_off(struct pvn_topo_check_run *run, const struct pvn_topo_rdma *dev,
                                 const struct pvn_topo_pci *p)
{
    if (pvn_topo_is_guest(run->t)) {
        pvn_topo_check_row(run, "relaxed-ordering", PVN_TOPO_LEVEL_UNKNOWN, dev->name,
                           "look at the physical function on the host (lspci -vvv, RlxdOrd)",
                           "%s shows it as off, but in a guest the host's setting counts", p->bdf);
        return;
    }
    pvn_topo_check_row(
        run, "relaxed-ordering", PVN_TOPO_LEVEL_WARN, dev->name,
        "switch it on in the BIOS or with setpci (DevCtl bit 4); NCCL and the plugin then use it "
        "by default (NCCL_PVRDMA_RELAXED_ORDERING)",
        "%s may not set the attribute (DevCtl bit 4 is off); on many servers that costs "
        "bandwidth",
        p->bdf);
}

void pvn_topo_check_relaxed_ordering(struct pvn_topo_check_run *run)
{
    const struct pvn_topo *t = run->t;

    for (int i = 0; i < t->nrdmas; i++) {
        const struct pvn_topo_rdma *dev = &t->rdmas[i];
        const char *why, *remedy;
        const struct pvn_topo_pci *p;

        if (dev->kind != PVN_TOPO_RDMA_HW)
            continue; /* for a paravirtual device the host's function decides */
        p = with_settings(t, dev->pci);
        if (cannot_read(p, p->config.pcie, &why, &remedy)) {
            pvn_topo_check_row(run, "relaxed-ordering", PVN_TOPO_LEVEL_UNKNOWN, dev->name, remedy,
                               "%s", why);
        } else if (p->config.pcie == PVN_TOPO_CAP_ABSENT) {
            pvn_topo_check_row(run, "relaxed-ordering", PVN_TOPO_LEVEL_UNKNOWN, dev->name, "",
                               "%s shows no PCI Express capability", p->bdf);
        } else if (p->config.relaxed_ordering) {
            pvn_topo_check_row(run, "relaxed-ordering", PVN_TOPO_LEVEL_OK, dev->name, "",
                               "allowed to %s (DevCtl)", p->bdf);
        } else {
            relaxed_ordering_off(run, dev, p);
        }
    }
}

/* True for a port that redirects peer traffic up to the root complex. */
static bool redirects(const struct pvn_topo_pci *p)
{
    return p->config.acs == PVN_TOPO_CAP_PRESENT &&
           (p->config.acs_ctl & (PVN_TOPO_ACS_RR | PVN_TOPO_ACS_CR)) != 0;
}

static bool is_downstream(const struct pvn_topo_pci *p)
{
    return p->kind == PVN_TOPO_PCI_SWITCH_DOWN || p->kind == PVN_TOPO_PCI_ROOT_PORT;
}

/* Finds the first port between from and common (not included): if `readable`, one that redirects
 * peer traffic, else one whose ACS state cannot be read. -1 if there is none. */
static int find_port(const struct pvn_topo *t, int from, int common, bool readable)
{
    for (int i = t->pci[from].parent; i >= 0 && i != common; i = t->pci[i].parent) {
        const struct pvn_topo_pci *p = &t->pci[i];
        const char *why, *remedy;

        if (!is_downstream(p))
            continue;
        if (readable ? redirects(p) : cannot_read(p, p->config.acs, &why, &remedy))
            return i;
    }
    return -1;
}

static bool ats_on(const struct pvn_topo_pci *p)
{
    return p->config.ats == PVN_TOPO_CAP_PRESENT && p->config.ats_enabled;
}

static void acs_redirected(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair,
                           const char *subject, const struct pvn_topo_pci *port)
{
    const struct pvn_topo *t = run->t;
    bool direct = (port->config.acs_ctl & PVN_TOPO_ACS_DT) != 0;

    if (direct && (ats_on(&t->pci[pair->gpu]) || ats_on(&t->pci[pair->nic]))) {
        pvn_topo_check_row(
            run, "acs", PVN_TOPO_LEVEL_OK, subject, "",
            "port %s redirects peer requests, but lets translated ones (ATS) go straight",
            port->bdf);
        return;
    }
    pvn_topo_check_row(
        run, "acs", PVN_TOPO_LEVEL_WARN, subject,
        "on bare metal switch ACS off in the BIOS or clear the bits with setpci; on a "
        "virtualisation host keep it, and set direct translated P2P together with ATS on the "
        "NIC",
        "port %s redirects peer traffic to the root complex (ACSCtl 0x%02x:%s%s%s), so the "
        "switch that the pair shares is not used",
        port->bdf, port->config.acs_ctl,
        (port->config.acs_ctl & PVN_TOPO_ACS_RR) != 0 ? " ReqRedir" : "",
        (port->config.acs_ctl & PVN_TOPO_ACS_CR) != 0 ? " CmpltRedir" : "",
        (port->config.acs_ctl & PVN_TOPO_ACS_UF) != 0 ? " UpstreamFwd" : "");
}

/* The NICs of VMware and of virtio are software on the host, so they never access peer memory.
 * True: a row was added that says so. */
static bool has_no_peer_access(struct pvn_topo_check_run *run, const char *id, const char *subject,
                               const struct pvn_topo_pci *nic)
{
    if (nic->vendor != 0x15ad && nic->vendor != 0x1af4)
        return false;
    pvn_topo_check_row(run, id, PVN_TOPO_LEVEL_OK, subject, "",
                       "not needed: a paravirtual NIC reaches no GPU memory");
    return true;
}

void pvn_topo_check_acs(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair)
{
    const struct pvn_topo *t = run->t;
    const char *why, *remedy;
    struct pvn_topo_distance d;
    char subject[64];
    int port;

    pvn_topo_check_pair_name(t, pair, subject, sizeof(subject));
    if (has_no_peer_access(run, "acs", subject, &t->pci[pair->nic]))
        return;
    pvn_topo_find_distance(t, pair->gpu, pair->nic, &d);
    if (d.trust == PVN_TOPO_TRUST_HIDDEN || d.trust == PVN_TOPO_TRUST_HINTED) {
        pvn_topo_check_row(
            run, "acs", PVN_TOPO_LEVEL_UNKNOWN, subject,
            "look at the real switches on the host (lspci -vvv, ACSCtl)",
            "the switches between them are the host's; a guest cannot read their ACS bits");
        return;
    }
    if (d.common < 0) {
        pvn_topo_check_row(
            run, "acs", d.seen == PVN_TOPO_SMI_UNKNOWN ? PVN_TOPO_LEVEL_UNKNOWN : PVN_TOPO_LEVEL_OK,
            subject, "", "they share no switch (%s), so ACS does not change the path",
            pvn_topo_smi_class_name(d.seen));
        return;
    }
    port = find_port(t, pair->gpu, d.common, true);
    port = port >= 0 ? port : find_port(t, pair->nic, d.common, true);
    if (port >= 0) {
        acs_redirected(run, pair, subject, &t->pci[port]);
        return;
    }
    port = find_port(t, pair->gpu, d.common, false);
    port = port >= 0 ? port : find_port(t, pair->nic, d.common, false);
    if (port >= 0) {
        cannot_read(&t->pci[port], t->pci[port].config.acs, &why, &remedy);
        pvn_topo_check_row(run, "acs", PVN_TOPO_LEVEL_UNKNOWN, subject, remedy, "port %s: %s",
                           t->pci[port].bdf, why);
        return;
    }
    pvn_topo_check_row(run, "acs", PVN_TOPO_LEVEL_OK, subject, "",
                       "no port between them redirects peer traffic");
}

static bool cmdline_has(const struct pvn_topo *t, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = strstr(t->cmdline, word); at; at = strstr(at + n, word))
        if ((at == t->cmdline || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

/* YES if an IOMMU translates the accesses of this function; UNKNOWN if the machine does not report
 * it. */
static enum pvn_topo_tri iommu_translates(const struct pvn_topo *t, int pci)
{
    const struct pvn_topo_pci *p = &t->pci[pci];

    for (int i = 0; p->iommu_group >= 0 && i < t->niommu_groups; i++) {
        if (t->iommu_groups[i].id == p->iommu_group && t->iommu_groups[i].type[0] != '\0') {
            return strcmp(t->iommu_groups[i].type, "identity") == 0 ? PVN_TOPO_TRI_NO
                                                                    : PVN_TOPO_TRI_YES;
        }
    }
    if (cmdline_has(t, "iommu=pt") || cmdline_has(t, "iommu=off") ||
        cmdline_has(t, "intel_iommu=off") || cmdline_has(t, "amd_iommu=off"))
        return PVN_TOPO_TRI_NO;
    if (t->iommu.present == PVN_TOPO_TRI_NO || t->iommu.ngroups == 0 || p->iommu_group == -1)
        return PVN_TOPO_TRI_NO;
    return PVN_TOPO_TRI_UNKNOWN;
}

void pvn_topo_check_iommu(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair)
{
    const struct pvn_topo *t = run->t;
    enum pvn_topo_tri gpu = iommu_translates(t, pair->gpu), nic = iommu_translates(t, pair->nic);
    char subject[64];

    pvn_topo_check_pair_name(t, pair, subject, sizeof(subject));
    if (has_no_peer_access(run, "iommu", subject, &t->pci[pair->nic]))
        return;
    if (gpu == PVN_TOPO_TRI_YES || nic == PVN_TOPO_TRI_YES) {
        pvn_topo_check_row(
            run, "iommu", PVN_TOPO_LEVEL_WARN, subject,
            "boot with iommu=pt (or intel_iommu=off / amd_iommu=off) unless the machine hosts "
            "virtual machines; with them, use ATS",
            "the IOMMU translates for %s (%s), which sends peer traffic through the root "
            "complex",
            t->pci[nic == PVN_TOPO_TRI_YES ? pair->nic : pair->gpu].bdf,
            t->iommu.names[0] != '\0' ? t->iommu.names : "IOMMU group in DMA mode");
    } else if (gpu == PVN_TOPO_TRI_UNKNOWN || nic == PVN_TOPO_TRI_UNKNOWN) {
        pvn_topo_check_row(run, "iommu", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
                           "the mode of the IOMMU group is not shown by this kernel");
    } else if (pvn_topo_is_guest(t)) {
        pvn_topo_check_row(run, "iommu", PVN_TOPO_LEVEL_OK, subject, "",
                           "no translation inside the guest (the host's IOMMU is always there for "
                           "passthrough devices)");
    } else {
        bool in_group = t->pci[pair->nic].iommu_group >= 0 || t->pci[pair->gpu].iommu_group >= 0;

        pvn_topo_check_row(run, "iommu", PVN_TOPO_LEVEL_OK, subject, "", "%s",
                           t->iommu.present == PVN_TOPO_TRI_YES || in_group
                               ? "the IOMMU passes addresses through"
                               : "no IOMMU is in use");
    }
}

void pvn_topo_check_ats(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair)
{
    const struct pvn_topo *t = run->t;
    const struct pvn_topo_pci *nic = &t->pci[pair->nic];
    enum pvn_topo_tri translated =
        pvn_topo_is_guest(t) ? PVN_TOPO_TRI_YES : iommu_translates(t, pair->nic);
    const char *why, *remedy;
    char subject[64];

    pvn_topo_check_pair_name(t, pair, subject, sizeof(subject));
    if (has_no_peer_access(run, "ats", subject, nic))
        return;
    if (translated == PVN_TOPO_TRI_NO) {
        pvn_topo_check_row(run, "ats", PVN_TOPO_LEVEL_OK, subject, "",
                           "not needed: nothing translates the NIC's addresses");
    } else if (cannot_read(nic, nic->config.ats, &why, &remedy)) {
        pvn_topo_check_row(run, "ats", PVN_TOPO_LEVEL_UNKNOWN, subject, remedy, "of the NIC: %s",
                           why);
    } else if (ats_on(nic)) {
        pvn_topo_check_row(run, "ats", PVN_TOPO_LEVEL_OK, subject, "", "on for %s", nic->bdf);
    } else if (translated == PVN_TOPO_TRI_UNKNOWN) {
        pvn_topo_check_row(
            run, "ats", PVN_TOPO_LEVEL_UNKNOWN, subject, "",
            "%s for %s; whether it is needed depends on the IOMMU, whose mode is not shown",
            nic->config.ats == PVN_TOPO_CAP_PRESENT ? "off" : "not offered", nic->bdf);
    } else {
        pvn_topo_check_row(
            run, "ats", PVN_TOPO_LEVEL_WARN, subject,
            "mlxconfig -d DEVICE set ATS_ENABLED=true, then restart the host; the switches on the "
            "path need direct translated P2P (ACS) as well",
            "%s for %s, so each peer access is translated at the root complex",
            nic->config.ats == PVN_TOPO_CAP_PRESENT ? "off" : "not offered", nic->bdf);
    }
}

/* Finds the smallest payload in use and the largest that all functions on the path from `from` to
 * stop support. */
static void payload_range(const struct pvn_topo *t, int from, int stop, int *used, int *able)
{
    for (int i = from; i >= 0; i = t->pci[i].parent) {
        const struct pvn_topo_pci_config *c = &with_settings(t, i)->config;

        if (c->pcie == PVN_TOPO_CAP_PRESENT) {
            *used = smaller(*used, c->mps);
            *able = smaller(*able, c->mps_max);
        }
        if (i == stop)
            break;
    }
}

void pvn_topo_check_payload(struct pvn_topo_check_run *run, const struct pvn_topo_check_pair *pair)
{
    const struct pvn_topo *t = run->t;
    int used = PVN_TOPO_UNKNOWN, able = PVN_TOPO_UNKNOWN;
    struct pvn_topo_distance d;
    char subject[64];

    pvn_topo_check_pair_name(t, pair, subject, sizeof(subject));
    pvn_topo_find_distance(t, pair->gpu, pair->nic, &d);
    payload_range(t, pair->gpu, d.common, &used, &able);
    payload_range(t, pair->nic, d.common, &used, &able);
    if (used == PVN_TOPO_UNKNOWN) {
        pvn_topo_check_row(run, "payload", PVN_TOPO_LEVEL_UNKNOWN, subject,
                           t->pci[pair->nic].config.bytes == 64 ? need_root : "",
                           "the max payload size on the path cannot be read");
    } else if (used < able) {
        pvn_topo_check_row(run, "payload", PVN_TOPO_LEVEL_WARN, subject,
                           "set it in the BIOS or boot with pci=pcie_bus_perf",
                           "max payload size %d bytes, but all on the path support %d", used, able);
    } else {
        pvn_topo_check_row(run, "payload", PVN_TOPO_LEVEL_OK, subject, "",
                           "max payload size %d bytes", used);
    }
}
