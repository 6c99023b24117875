/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* From NCCL's document to its graph: nodes, links, bandwidths, Broadcom flattening
 * (NCCL 2.30 src/graph/topo.cc ncclTopoGetSystemFromXml). */
#include "topo/nccl/nccl_graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOC_BW 5000.0f

/* NCCL's arrays hold this many nodes of each kind (graph.h NCCL_TOPO_MAX_NODES): 256 up to 2.27,
 * then 576, and 640 in 2.30, for the networks of many hosts that share NVLink. No machine has more
 * than 256 GPUs. The limit matters because later steps take at least quadratic time. */
#define MAX_OF_A_KIND 640
#define MAX_GPUS      256

/* The kinds of pci nodes: prefix match, in this order (topo.cc kvDictPciClass). */
static int class_kind(const char *class)
{
    static const struct {
        const char *prefix;
        int kind;
    } dict[] = {
        {"0x060400", PVN_TOPO_NN_PCI}, {"0x080100", PVN_TOPO_NN_PCI}, {"0x068000", PVN_TOPO_NN_NVS},
        {"0x068001", PVN_TOPO_NN_CPU}, {"0x03", PVN_TOPO_NN_GPU},     {"0x02", PVN_TOPO_NN_NIC},
    };
    for (size_t i = 0; i < sizeof(dict) / sizeof(dict[0]); i++)
        if (strncmp(class, dict[i].prefix, strlen(dict[i].prefix)) == 0)
            return dict[i].kind;
    return PVN_TOPO_NN_PCI;
}

float pvn_topo_npci_bw(const char *speed, const char *width, bool *speed_known, bool *width_known)
{
    /* In 100 Mb/s per lane; prefix match in this order, gen3 when
     * nothing matches (kvDictPciGen). */
    static const struct {
        const char *prefix;
        int speed;
    } dict[] = {
        {"2.5 GT/s", 15},        {"5 GT/s", 30},          {"8 GT/s", 60},
        {"16 GT/s", 120},        {"32 GT/s", 240},        {"2.5 GT/s PCIe", 15},
        {"5.0 GT/s PCIe", 30},   {"8.0 GT/s PCIe", 60},   {"16.0 GT/s PCIe", 120},
        {"32.0 GT/s PCIe", 240}, {"64.0 GT/s PCIe", 480},
    };
    long lanes = width ? strtol(width, NULL, 0) : 0;
    int per_lane = 60;
    bool found = false;
    for (size_t i = 0; speed && !found && i < sizeof(dict) / sizeof(dict[0]); i++) {
        if (strncmp(speed, dict[i].prefix, strlen(dict[i].prefix)) == 0) {
            per_lane = dict[i].speed;
            found = true;
        }
    }
    if (speed_known)
        *speed_known = found;
    if (width_known)
        *width_known = lanes != 0;
    if (lanes == 0)
        lanes = 16;
    return (float)((double)lanes * per_lane / 80.0);
}

/* The digits of a bus id as one number, punctuation dropped, up to 16 of them (utils.cc). */
uint64_t pvn_topo_nbusid_number(const char *busid)
{
    char hex[17];
    int n = 0;
    for (const char *p = busid; *p && n < 16; p++) {
        if (*p == '.' || *p == ':')
            continue;
        if (!strchr("0123456789abcdefABCDEF", *p))
            break;
        hex[n++] = *p;
    }
    hex[n] = '\0';
    return n ? strtoull(hex, NULL, 16) : 0;
}

static float nvlink_bw(int sm)
{
    return sm >= 100  ? 40.1f
           : sm >= 90 ? 20.6f
           : sm == 86 ? 12.0f
           : sm >= 80 ? 20.0f
           : sm >= 70 ? 20.0f
           : sm >= 60 ? 18.0f
                      : 20.0f;
}

static float inter_cpu_bw(const struct pvn_topo_nnode *cpu)
{
    if (cpu->cpu.arch == PVN_TOPO_NARCH_POWER)
        return 32.0f;
    if (cpu->cpu.arch == PVN_TOPO_NARCH_ARM)
        return 6.0f;
    if (cpu->cpu.arch != PVN_TOPO_NARCH_X86)
        return LOC_BW;
    int family = cpu->cpu.family, model = cpu->cpu.model;
    switch (cpu->cpu.vendor) {
    case PVN_TOPO_NCPU_INTEL:
        if (family != 6)
            return 6.0f;
        return model >= 0xCF ? 40.0f : model >= 0x8F ? 22.0f : model >= 0x55 ? 10.0f : 6.0f;
    case PVN_TOPO_NCPU_AMD:
        return 16.0f;
    case PVN_TOPO_NCPU_ZHAOXIN:
        return family == 7 && model == 0x5B ? 9.0f : 6.0f;
    default:
        return LOC_BW;
    }
}

static int add_node(struct pvn_topo_ntree *t, enum pvn_topo_nnode_kind kind, int up,
                    const struct pvn_topo_ndoc_node *doc)
{
    if ((t->n_nodes & (t->n_nodes - 1)) == 0) {
        size_t room = t->n_nodes ? 2 * (size_t)t->n_nodes : 1;
        struct pvn_topo_nnode *more = realloc(t->nodes, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        t->nodes = more;
    }
    struct pvn_topo_nnode *node = &t->nodes[t->n_nodes];
    memset(node, 0, sizeof(*node));
    node->kind = kind;
    node->up = up;
    node->doc = doc;
    return t->n_nodes++;
}

/* Adds bandwidth to a link, or creates the link. Links stay sorted by falling bandwidth, as in
 * NCCL, because the order decides between equally good paths. */
static int add_link(struct pvn_topo_ntree *t, int from, int to, enum pvn_topo_nlink_kind kind,
                    float bw)
{
    struct pvn_topo_nnode *node = &t->nodes[from];
    int i = 0;
    while (i < node->n_links && (node->links[i].to != to || node->links[i].kind != kind))
        i++;
    if (i == node->n_links) {
        if ((i & (i - 1)) == 0) {
            struct pvn_topo_nlink *more =
                realloc(node->links, (i ? 2 * (size_t)i : 1) * sizeof(*more));
            if (!more)
                return -ENOMEM;
            node->links = more;
        }
        node->links[node->n_links++] = (struct pvn_topo_nlink){.kind = kind, .to = to};
    }
    struct pvn_topo_nlink link = node->links[i];
    link.bw += bw;
    for (; i > 0 && node->links[i - 1].bw < link.bw; i--)
        node->links[i] = node->links[i - 1];
    node->links[i] = link;
    return 0;
}

static int connect_both(struct pvn_topo_ntree *t, int a, int b, enum pvn_topo_nlink_kind kind,
                        float bw)
{
    return add_link(t, a, b, kind, bw) < 0 || add_link(t, b, a, kind, bw) < 0 ? -ENOMEM : 0;
}

static void set_busid(struct pvn_topo_nnode *node, const struct pvn_topo_ndoc_node *pci)
{
    const char *text = pvn_topo_ndoc_get(pci, "busid");
    snprintf(node->busid, sizeof(node->busid), "%s", text ? text : "");
}

static uint64_t pci_ids(const struct pvn_topo_ndoc_node *pci)
{
    return ((uint64_t)pvn_topo_ndoc_get_int(pci, "vendor", 0) << 48) +
           ((uint64_t)pvn_topo_ndoc_get_int(pci, "device", 0) << 32) +
           ((uint64_t)pvn_topo_ndoc_get_int(pci, "subsystem_vendor", 0) << 16) +
           (uint64_t)pvn_topo_ndoc_get_int(pci, "subsystem_device", 0);
}

/* Finds the net of that name and number that the NIC already has from another cpu: its node, or -1.
 * A tree with more nets than NCCL holds is refused at the end, so nothing is looked up in it. */
static int other_copy(const struct pvn_topo_ntree *t, int nic, const struct pvn_topo_ndoc_node *xml)
{
    const char *name = pvn_topo_ndoc_get(xml, "name");
    int dev = (int)pvn_topo_ndoc_get_int(xml, "dev", 0);
    for (int i = 0; name && t->n_net_list <= MAX_OF_A_KIND && i < t->n_net_list; i++) {
        const struct pvn_topo_nnode *net = &t->nodes[t->net_list[i]];
        if (net->up == nic && net->doc->parent != xml->parent && net->net.dev == dev &&
            strcmp(net->net.name, name) == 0)
            return t->net_list[i];
    }
    return -1;
}

static int list_net(struct pvn_topo_ntree *t, int net)
{
    if ((t->n_net_list & (t->n_net_list - 1)) == 0) {
        size_t room = t->n_net_list ? 2 * (size_t)t->n_net_list : 1;
        int *more = realloc(t->net_list, room * sizeof(*more));
        if (!more)
            return -ENOMEM;
        t->net_list = more;
    }
    t->net_list[t->n_net_list++] = net;
    return 0;
}

static int add_net(struct pvn_topo_ntree *t, int nic, const struct pvn_topo_ndoc_node *xml)
{
    /* A net without a number is not in the plugin's list; gin- and rma-only devices are no networks
     * here. */
    if (!pvn_topo_ndoc_get(xml, "dev") || pvn_topo_ndoc_get_int(xml, "net", 1) == 0)
        return 0;
    int copy = other_copy(t, nic, xml);
    if (copy >= 0)
        return list_net(t, copy);
    int at = add_node(t, PVN_TOPO_NN_NET, nic, xml);
    if (at >= 0 && list_net(t, at) < 0)
        return -ENOMEM;
    if (at < 0)
        return at;
    struct pvn_topo_nnode *net = &t->nodes[at];
    const char *name = pvn_topo_ndoc_get(xml, "name"), *guid = pvn_topo_ndoc_get(xml, "guid");
    long speed = pvn_topo_ndoc_get_int(xml, "speed", 0);
    net->net.name = name ? name : "";
    net->net.dev = (int)pvn_topo_ndoc_get_int(xml, "dev", 0);
    net->net.port = (int)pvn_topo_ndoc_get_int(xml, "port", 0);
    net->net.has_guid = guid;
    net->net.guid = guid ? strtoull(guid, NULL, 16) : (uint64_t)net->net.dev;
    net->net.speed =
        speed <= 0 || speed > INT32_MAX ? (speed <= 0 ? 10000 : INT32_MAX) : (int)speed;
    net->net.gdr = (int)pvn_topo_ndoc_get_int(xml, "gdr", -1);
    net->net.rail = (int)pvn_topo_ndoc_get_int(xml, "rail", -1);
    net->up_bw = (float)(net->net.speed / 8000.0);
    return connect_both(t, nic, at, PVN_TOPO_NL_NET, net->up_bw);
}

static int add_nets(struct pvn_topo_ntree *t, int nic, const struct pvn_topo_ndoc_node *xml)
{
    for (int i = 0; i < xml->n_subs; i++) {
        if (pvn_topo_ndoc_is(xml->subs[i], "net")) {
            int err = add_net(t, nic, xml->subs[i]);
            if (err < 0)
                return err;
        }
    }
    return 0;
}

static int cpu_above(const struct pvn_topo_ntree *t, int node)
{
    while (node >= 0 && t->nodes[node].kind != PVN_TOPO_NN_CPU)
        node = t->nodes[node].up;
    return node;
}

bool pvn_topo_ngraph_same_host(const struct pvn_topo_ntree *t, int a, int b)
{
    int cpu_a = cpu_above(t, a), cpu_b = cpu_above(t, b);
    const char *x = cpu_a < 0 ? NULL : pvn_topo_ndoc_get(t->nodes[cpu_a].doc, "host_hash");
    const char *y = cpu_b < 0 ? NULL : pvn_topo_ndoc_get(t->nodes[cpu_b].doc, "host_hash");
    return strcmp(x ? x : "", y ? y : "") == 0;
}

/* Finds a node of that kind and bus id on the host of node `from`. */
static int find_node(const struct pvn_topo_ntree *t, enum pvn_topo_nnode_kind kind, uint64_t number,
                     int from)
{
    for (int i = 0; i < t->n_nodes; i++)
        if (t->nodes[i].kind == kind && pvn_topo_nbusid_number(t->nodes[i].busid) == number &&
            pvn_topo_ngraph_same_host(t, i, from))
            return i;
    return -1;
}

/* Adds a <gpu>: the device once, and a node for each rank on it. */
static int add_gpu(struct pvn_topo_ntree *t, int up, const struct pvn_topo_ndoc_node *pci,
                   const struct pvn_topo_ndoc_node *xml, float bw)
{
    int dev = -1;
    for (int i = 0; i < t->n_nodes && dev < 0; i++)
        if (t->nodes[i].kind == PVN_TOPO_NN_DEV && t->nodes[i].doc == pci)
            dev = i;
    if (dev < 0) {
        dev = add_node(t, PVN_TOPO_NN_DEV, up, pci);
        if (dev < 0 || connect_both(t, dev, up, PVN_TOPO_NL_PCI, bw) < 0)
            return -ENOMEM;
        set_busid(&t->nodes[dev], pci);
        t->nodes[dev].ids = pci_ids(pci);
        t->nodes[dev].up_bw = bw;
        t->nodes[dev].gpu.sm = (int)pvn_topo_ndoc_get_int(xml, "sm", 0);
        t->nodes[dev].gpu.dev = (int)pvn_topo_ndoc_get_int(xml, "dev", 0);
    }
    int at = add_node(t, PVN_TOPO_NN_GPU, dev, xml);
    if (at < 0)
        return at;
    struct pvn_topo_nnode *gpu = &t->nodes[at];
    set_busid(gpu, pci);
    gpu->gpu.dev = (int)pvn_topo_ndoc_get_int(xml, "dev", 0);
    gpu->gpu.sm = (int)pvn_topo_ndoc_get_int(xml, "sm", 0);
    gpu->gpu.gdr = (int)pvn_topo_ndoc_get_int(xml, "gdr", -1);
    gpu->gpu.mlopart = (int)pvn_topo_ndoc_get_int(xml, "mlopart", -1);
    gpu->up_bw = LOC_BW;
    return connect_both(t, dev, at, PVN_TOPO_NL_LOC, LOC_BW);
}

static int add_pci(struct pvn_topo_ntree *t, int up, const struct pvn_topo_ndoc_node *xml,
                   int level);

static int add_switch(struct pvn_topo_ntree *t, int up, const struct pvn_topo_ndoc_node *xml,
                      float bw, int level)
{
    int at = add_node(t, PVN_TOPO_NN_PCI, up, xml);
    if (at < 0)
        return at;
    set_busid(&t->nodes[at], xml);
    t->nodes[at].ids = pci_ids(xml);
    t->nodes[at].up_bw = bw;
    for (int i = 0; i < xml->n_subs; i++) {
        int err =
            pvn_topo_ndoc_is(xml->subs[i], "pci") ? add_pci(t, at, xml->subs[i], level + 1) : 0;
        if (err < 0)
            return err;
    }
    return connect_both(t, at, up, PVN_TOPO_NL_PCI, bw);
}

/* Adds a NIC. A pci with a nic in it is a NIC, and nothing else below it is visited. Up to 2.23
 * NCCL dropped the function digit here, so that the ports of a card shared one NIC node. Since 2.24
 * only equal bus ids of a host share a node, wherever they are, and so do all nics directly below
 * cpus, because NCCL_TOPO_ID masks the NUMA node that topo.h NCCL_TOPO_LOCAL_NIC_ID puts into the
 * number. Path types are the same in both versions. */
static int add_nic(struct pvn_topo_ntree *t, int up, const struct pvn_topo_ndoc_node *pci,
                   const struct pvn_topo_ndoc_node *xml, float bw)
{
    const char *busid = pci ? pvn_topo_ndoc_get(pci, "busid") : "";
    uint64_t number = pvn_topo_nbusid_number(busid ? busid : "");
    int at = -1;
    for (int i = 0; i < t->n_nodes && at < 0; i++)
        if (t->nodes[i].kind == PVN_TOPO_NN_NIC && pvn_topo_ngraph_same_host(t, i, up) &&
            pvn_topo_nbusid_number(t->nodes[i].busid) == number &&
            (t->nodes[i].busid[0] == '\0') == (!pci))
            at = i;
    bool fresh = at < 0;
    if (fresh && (at = add_node(t, PVN_TOPO_NN_NIC, up, pci ? pci : xml)) < 0)
        return at;
    if (fresh && pci) {
        set_busid(&t->nodes[at], pci);
        t->nodes[at].ids = pci_ids(pci);
    }
    if (fresh)
        t->nodes[at].up_bw = bw;
    if (add_nets(t, at, xml) < 0)
        return -ENOMEM;
    return fresh ? connect_both(t, at, up, PVN_TOPO_NL_PCI, bw) : 0;
}

static int add_pci(struct pvn_topo_ntree *t, int up, const struct pvn_topo_ndoc_node *xml,
                   int level)
{
    const char *class = pvn_topo_ndoc_get(xml, "class");
    /* Without a class NCCL stops unless sysfs has one. A pci with children can only be a bridge. */
    int kind = class ? class_kind(class) : PVN_TOPO_NN_PCI;
    float bw = pvn_topo_npci_bw(pvn_topo_ndoc_get(xml, "link_speed"),
                                pvn_topo_ndoc_get(xml, "link_width"), NULL, NULL);
    bool gpu = false;
    if (level > PVN_TOPO_NDOC_MAX_DEPTH)
        return -EINVAL;
    for (int i = 0; i < xml->n_subs; i++) {
        if (!pvn_topo_ndoc_is(xml->subs[i], "gpu"))
            continue;
        if (!pvn_topo_ndoc_get(xml->subs[i], "rank"))
            return 0; /* a GPU that the job does not use ends this branch */
        int err = add_gpu(t, up, xml, xml->subs[i], bw);
        if (err < 0)
            return err;
        gpu = true;
    }
    const struct pvn_topo_ndoc_node *nic = pvn_topo_ndoc_sub(xml, "nic");
    if (nic)
        return add_nic(t, up, xml, nic, bw);
    return kind == PVN_TOPO_NN_PCI && !gpu ? add_switch(t, up, xml, bw, level) : 0;
}

static int add_cpu(struct pvn_topo_ntree *t, const struct pvn_topo_ndoc_node *xml)
{
    const char *arch = pvn_topo_ndoc_get(xml, "arch"), *vendor = pvn_topo_ndoc_get(xml, "vendor");
    int at = add_node(t, PVN_TOPO_NN_CPU, -1, xml);
    if (at < 0)
        return at;
    struct pvn_topo_nnode *cpu = &t->nodes[at];
    cpu->cpu.numa = (int)pvn_topo_ndoc_get_int(xml, "numaid", -1);
    cpu->cpu.arch = !arch                             ? PVN_TOPO_NARCH_UNKNOWN
                    : strncmp(arch, "x86_64", 6) == 0 ? PVN_TOPO_NARCH_X86
                    : strncmp(arch, "arm64", 5) == 0  ? PVN_TOPO_NARCH_ARM
                    : strncmp(arch, "ppc64", 5) == 0  ? PVN_TOPO_NARCH_POWER
                                                      : PVN_TOPO_NARCH_UNKNOWN;
    cpu->cpu.vendor = !vendor                                    ? PVN_TOPO_NCPU_UNKNOWN
                      : strncmp(vendor, "GenuineIntel", 12) == 0 ? PVN_TOPO_NCPU_INTEL
                      : strncmp(vendor, "AuthenticAMD", 12) == 0 ? PVN_TOPO_NCPU_AMD
                      : strncmp(vendor, "CentaurHauls", 12) == 0 ? PVN_TOPO_NCPU_ZHAOXIN
                      : strncmp(vendor, "  Shanghai  ", 12) == 0 ? PVN_TOPO_NCPU_ZHAOXIN
                                                                 : PVN_TOPO_NCPU_UNKNOWN;
    cpu->cpu.family = (int)pvn_topo_ndoc_get_int(xml, "familyid", 0);
    cpu->cpu.model = (int)pvn_topo_ndoc_get_int(xml, "modelid", 0);
    cpu->cpu.inter_bw = inter_cpu_bw(cpu);
    for (int i = 0; i < xml->n_subs; i++) {
        const struct pvn_topo_ndoc_node *sub = xml->subs[i];
        int err = 0;
        if (pvn_topo_ndoc_is(sub, "pci"))
            err = add_pci(t, at, sub, 1);
        else if (pvn_topo_ndoc_is(sub, "nic"))
            err = add_nic(t, at, NULL, sub, LOC_BW);
        if (err < 0)
            return err;
    }
    return 0;
}

int pvn_topo_ntree_numa(const struct pvn_topo_ntree *tree, int node)
{
    while (node >= 0 && tree->nodes[node].kind != PVN_TOPO_NN_CPU)
        node = tree->nodes[node].up;
    return node < 0 ? -2 : tree->nodes[node].cpu.numa;
}

static int fabric(struct pvn_topo_ntree *t)
{
    for (int i = 0; i < t->n_nodes; i++)
        if (t->nodes[i].kind == PVN_TOPO_NN_NVS)
            return i;
    return add_node(t, PVN_TOPO_NN_NVS, -1, NULL);
}

static int add_nvlink(struct pvn_topo_ntree *t, int dev, const struct pvn_topo_ndoc_node *xml)
{
    const char *class = pvn_topo_ndoc_get(xml, "tclass"),
               *target = pvn_topo_ndoc_get(xml, "target");
    float bw = (float)pvn_topo_ndoc_get_int(xml, "count", 1) * nvlink_bw(t->nodes[dev].gpu.sm);
    int kind = class_kind(class ? class : "0x068000");
    int to;
    if (kind == PVN_TOPO_NN_GPU) {
        /* Each end describes its own direction, so this makes one link, not two. */
        to = find_node(t, PVN_TOPO_NN_DEV, pvn_topo_nbusid_number(target ? target : ""), dev);
        return to >= 0 && to != dev ? add_link(t, dev, to, PVN_TOPO_NL_NVL, bw) : 0;
    }
    to = kind == PVN_TOPO_NN_CPU ? cpu_above(t, dev) : fabric(t);
    if (to == -ENOMEM)
        return to;
    return to >= 0 ? connect_both(t, dev, to, PVN_TOPO_NL_NVL, bw) : 0;
}

/* Second pass, after every device exists: NVLink, C2C and the virtual links of Broadcom
 * switches. */
static int add_side_links(struct pvn_topo_ntree *t)
{
    for (int i = 0, n = t->n_nodes; i < n; i++) {
        int kind = t->nodes[i].kind;
        const struct pvn_topo_ndoc_node *doc = t->nodes[i].doc;
        if (kind == PVN_TOPO_NN_DEV)
            doc = pvn_topo_ndoc_sub(doc, "gpu"); /* further ranks on the device repeat its links */
        else if (kind != PVN_TOPO_NN_PCI)
            continue;
        for (int s = 0; s < doc->n_subs; s++) {
            const struct pvn_topo_ndoc_node *sub = doc->subs[s];
            int err = 0;
            if (pvn_topo_ndoc_is(sub, "nvlink") || pvn_topo_ndoc_is(sub, "xgmi")) {
                err = add_nvlink(t, i, sub);
            } else if (pvn_topo_ndoc_is(sub, "c2c") && cpu_above(t, i) >= 0) {
                float bw = (float)((double)pvn_topo_ndoc_get_int(sub, "bw", 0) *
                                   pvn_topo_ndoc_get_int(sub, "count", 0) / 1000.0);
                err = connect_both(t, i, cpu_above(t, i), PVN_TOPO_NL_C2C, bw);
            } else if (pvn_topo_ndoc_is(sub, "pcilink")) {
                const char *target = pvn_topo_ndoc_get(sub, "target");
                int to =
                    find_node(t, PVN_TOPO_NN_PCI, pvn_topo_nbusid_number(target ? target : ""), i);
                if (to >= 0 && to != i)
                    err = add_link(t, i, to, PVN_TOPO_NL_LOC, LOC_BW);
            }
            if (err < 0)
                return err;
        }
    }
    return 0;
}

static int broadcom_gen(uint64_t ids, unsigned level)
{
    uint64_t key = ids & ~UINT64_C(0xfff);
    if (key == UINT64_C(0x1000c0101000a000))
        return 4;
    return key == (UINT64_C(0x1000c03010000000) | (uint64_t)level << 12) ? 5 : 0;
}

static void drop_link(struct pvn_topo_nnode *node, int at)
{
    memmove(node->links + at, node->links + at + 1,
            (size_t)(node->n_links - at - 1) * sizeof(node->links[0]));
    node->n_links--;
}

/* Moves everything below the sub-switch to its parent. The emptied node stays in the array, linked
 * to nothing, so that indices remain valid; NCCL removes it. */
static int fold(struct pvn_topo_ntree *t, int top, int sub)
{
    for (int l = 0; l < t->nodes[sub].n_links; l++) {
        struct pvn_topo_nlink down = t->nodes[sub].links[l];
        if (down.to == top)
            continue;
        struct pvn_topo_nnode *below = &t->nodes[down.to];
        for (int r = 0; r < below->n_links; r++) {
            if (below->links[r].to == sub) {
                below->links[r].to = top;
                break;
            }
        }
        if (below->up == sub)
            below->up = top;
        struct pvn_topo_nnode *node = &t->nodes[top];
        if ((node->n_links & (node->n_links - 1)) == 0) {
            struct pvn_topo_nlink *more = realloc(
                node->links, (node->n_links ? 2 * (size_t)node->n_links : 1) * sizeof(*more));
            if (!more)
                return -ENOMEM;
            node->links = more;
        }
        node->links[node->n_links++] = down;
    }
    t->nodes[sub].n_links = 0;
    t->nodes[sub].up = -1;
    t->nodes[top].flattened++;
    return 0;
}

/* Flattens Broadcom's switches, which appear as two levels although every port has full bandwidth
 * to every other. NCCL makes one node of them, once for each node that it meets in order (topo.cc
 * ncclTopoFlattenBcmSwitches). It does not visit the folded sub-switches again, but it does visit
 * the switches below them. */
static int flatten(struct pvn_topo_ntree *t)
{
    for (int s = 0; s < t->n_nodes; s++) {
        int gen = t->nodes[s].kind == PVN_TOPO_NN_PCI && t->nodes[s].n_links > 0
                      ? broadcom_gen(t->nodes[s].ids, 0)
                      : 0;
        if (gen == 0)
            continue;
        int *subs = calloc((size_t)t->nodes[s].n_links, sizeof(*subs));
        int n = 0, err = 0;
        if (!subs)
            return -ENOMEM;
        for (int l = 0; l < t->nodes[s].n_links; l++) {
            int to = t->nodes[s].links[l].to;
            if (t->nodes[to].kind != PVN_TOPO_NN_PCI || broadcom_gen(t->nodes[to].ids, 1) != gen)
                continue;
            subs[n++] = to;
            drop_link(&t->nodes[s], l--);
        }
        for (int i = 0; i < n && err == 0; i++)
            err = fold(t, s, subs[i]);
        free(subs);
        if (err < 0)
            return err;
        t->nodes[s].ids |= 0xffff;
    }
    return 0;
}

static int connect_cpus(struct pvn_topo_ntree *t)
{
    for (int a = 0; a < t->n_nodes; a++) {
        for (int b = 0; b < t->n_nodes && t->nodes[a].kind == PVN_TOPO_NN_CPU; b++)
            if (a != b && t->nodes[b].kind == PVN_TOPO_NN_CPU &&
                pvn_topo_ngraph_same_host(t, a, b) &&
                add_link(t, a, b, PVN_TOPO_NL_SYS, t->nodes[a].cpu.inter_bw) < 0)
                return -ENOMEM;
    }
    return 0;
}

static int *list_kind(const struct pvn_topo_ntree *t, enum pvn_topo_nnode_kind kind, int *count)
{
    int *list = calloc((size_t)t->n_nodes + 1, sizeof(*list));
    *count = 0;
    for (int i = 0; list && i < t->n_nodes; i++)
        if (t->nodes[i].kind == kind)
            list[(*count)++] = i;
    return list;
}

/* Makes the nodes in net_list indices into nets. */
static void number_net_list(struct pvn_topo_ntree *t)
{
    for (int i = 0; i < t->n_net_list; i++) {
        int net = 0;
        while (t->nets[net] != t->net_list[i])
            net++;
        t->net_list[i] = net;
    }
}

int pvn_topo_ngraph_build(struct pvn_topo_ntree *t, char *why, size_t why_len)
{
    const struct pvn_topo_ndoc_node *system = pvn_topo_ndoc_find(t->doc, "system", NULL, NULL);
    int err = 0;
    if (!system) {
        snprintf(why, why_len, "the document has no <system>");
        return -EINVAL;
    }
    for (int i = 0; i < system->n_subs && err == 0; i++)
        if (pvn_topo_ndoc_is(system->subs[i], "cpu"))
            err = add_cpu(t, system->subs[i]);
    if (err == 0)
        err = add_side_links(t);
    if (err == 0)
        err = flatten(t);
    if (err == 0)
        err = connect_cpus(t);
    if (err < 0) {
        snprintf(why, why_len, "%s", err == -ENOMEM ? "out of memory" : "the tree is too deep");
        return err;
    }
    t->gpus = list_kind(t, PVN_TOPO_NN_GPU, &t->n_gpus);
    t->nets = list_kind(t, PVN_TOPO_NN_NET, &t->n_nets);
    t->cpus = list_kind(t, PVN_TOPO_NN_CPU, &t->n_cpus);
    if (!t->gpus || !t->nets || !t->cpus) {
        snprintf(why, why_len, "out of memory");
        return -ENOMEM;
    }
    if (t->n_gpus > MAX_GPUS || t->n_net_list > MAX_OF_A_KIND || t->n_cpus > MAX_OF_A_KIND) {
        snprintf(why, why_len,
                 "%d GPUs, %d networks, %d NUMA nodes: NCCL holds %d of each (from 2.28 on more "
                 "networks, up to %d)",
                 t->n_gpus, t->n_net_list, t->n_cpus, MAX_GPUS, MAX_OF_A_KIND);
        return -EINVAL;
    }
    number_net_list(t);
    return 0;
}
