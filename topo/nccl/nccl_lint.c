/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Mistakes in a file meant for NCCL_TOPO_FILE. There is one function per element; each finding
 * names the value and the correct form. Rules: NCCL 2.30 src/graph/xml.cc and topo.cc; for AMD's
 * GPUs the same files of RCCL 2.18 to 2.28. */
#include "topo/nccl/nccl_xml.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/nccl/lost.h"
#include "topo/nccl/nccl_tree.h"

/* Far above any network device of today (8 x 400 Gb/s), and far below a speed given in bits. */
#define ABSURD_MBPS 6400000L

/* A pci link below this in GB/s is slower than any real GPU, NIC or switch port of the last 15
 * years. */
#define SLOW_LINK 1.0f

struct rules {
    struct pvn_topo_lint *lint;
    const struct pvn_topo_ndoc *doc;
    const char *reader; /* "NCCL", or "RCCL" */
    int err;
};

#define SAY(r, level, rule, node, remedy, ...)                                                     \
    ((r)->err |=                                                                                   \
     pvn_topo_lint_add((r)->lint, (level), (rule), (node)->line,                                   \
                       (node)->parent ? (node)->parent->line : 0, (remedy), __VA_ARGS__))

static bool has_sub(const struct pvn_topo_ndoc_node *node, const char *name)
{
    return pvn_topo_ndoc_sub(node, name);
}

/* True for invented bus ids, which no machine has, so that sysfs cannot fill gaps. */
static bool invented(const char *busid)
{
    return strncasecmp(busid, "ffff", 4) == 0;
}

static void lint_busid(struct rules *r, const struct pvn_topo_ndoc_node *pci, const char *busid)
{
    static const char shape[] = "xxxx:xx:xx.x";
    bool good = strlen(busid) == sizeof(shape) - 1, upper = false;
    for (size_t i = 0; good && shape[i]; i++) {
        good = shape[i] == 'x' ? isxdigit((unsigned char)busid[i]) != 0 : busid[i] == shape[i];
        upper |= isupper((unsigned char)busid[i]) != 0;
    }
    if (!good)
        SAY(r, PVN_TOPO_LINT_WARN, "bus-id-form", pci,
            "write DDDD:BB:DD.F with exactly four domain digits; longer domains cannot be used",
            "busid=\"%.40s\": %s looks devices up by twelve characters and will not find this "
            "one",
            busid, r->reader);
    else if (upper)
        SAY(r, PVN_TOPO_LINT_WARN, "bus-id-case", pci, "write bus ids in lower case",
            "busid=\"%s\": %s compares with lower-case ids, so it never matches and the device "
            "is added a second time",
            busid, r->reader);
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *other = r->doc->nodes[i];
        const char *theirs =
            pvn_topo_ndoc_is(other, "pci") ? pvn_topo_ndoc_get(other, "busid") : NULL;
        if (other == pci)
            break;
        if (theirs && strcasecmp(theirs, busid) == 0 &&
            strcmp(pvn_topo_lint_host(other), pvn_topo_lint_host(pci)) == 0) {
            SAY(r, PVN_TOPO_LINT_WARN, "bus-id-repeated", pci,
                "keep the one at the device's real place; only the first is ever found",
                "busid=\"%s\" is also used in line %d", busid, other->line);
            break;
        }
    }
}

static const char *slow_remedy(const struct pvn_topo_ndoc_node *pci, const char *speed,
                               const char *width)
{
    bool bridge = has_sub(pci, "pci"),
         emulated = strncmp(speed, "2.5", 3) == 0 && strtol(width, NULL, 0) == 1;
    if (bridge && emulated)
        return "an emulated switch reports 2.5 GT/s x1 whatever it is: write the link of the "
               "hardware";
    if (bridge)
        return "write the link of the hardware: the smaller of the switch's and its port's LnkCap "
               "in lspci -vv";
    return "write the most that the device can do (LnkCap in lspci -vv), or leave both out: they "
           "are then taken from sysfs";
}

static void lint_link(struct rules *r, const struct pvn_topo_ndoc_node *pci, const char *busid)
{
    const char *speed = pvn_topo_ndoc_get(pci, "link_speed"),
               *width = pvn_topo_ndoc_get(pci, "link_width");
    bool known, wide;
    float bw = pvn_topo_npci_bw(speed, width, &known, &wide);
    if (invented(busid) && (!speed || !width)) {
        SAY(r, PVN_TOPO_LINT_WARN, "invented-link", pci,
            "give every invented bridge link_speed=\"16.0 GT/s PCIe\" link_width=\"16\" or what it "
            "is",
            "%s has no %s%s%s, and no sysfs entry to take it from: %s counts 12 GB/s", busid,
            speed ? "" : "link_speed", !speed && !width ? " and no " : "",
            width ? "" : "link_width", r->reader);
        return;
    }
    if (speed && !known)
        SAY(r, speed[0] ? PVN_TOPO_LINT_WARN : PVN_TOPO_LINT_NOTE, "link-speed", pci,
            "write \"2.5 GT/s PCIe\", \"5.0 GT/s PCIe\", \"8.0 GT/s PCIe\", \"16.0 GT/s PCIe\", "
            "\"32.0 GT/s PCIe\" or \"64.0 GT/s PCIe\"",
            "link_speed=\"%.40s\" of %.20s is not in %s's list: it counts as 8 GT/s", speed, busid,
            r->reader);
    if (width && !wide)
        SAY(r, PVN_TOPO_LINT_NOTE, "link-width", pci, "write the number of lanes",
            "link_width=\"%.20s\" of %.20s counts as 16", width, busid);
    /* The range check reports a width that no link has. */
    if (speed && width && bw < SLOW_LINK && bw > 0)
        SAY(r, PVN_TOPO_LINT_WARN, "slow-link", pci, slow_remedy(pci, speed, width),
            "%s at %.30s x%.10s caps every path through it at %.2f GB/s", busid, speed, width,
            (double)bw);
}

static void lint_pci(struct rules *r, const struct pvn_topo_ndoc_node *pci)
{
    const char *busid = pvn_topo_ndoc_get(pci, "busid"), *class = pvn_topo_ndoc_get(pci, "class");
    bool gpu = has_sub(pci, "gpu"), nic = has_sub(pci, "nic"), below = has_sub(pci, "pci");
    lint_busid(r, pci, busid);
    lint_link(r, pci, busid);
    if (!class && invented(busid))
        SAY(r, PVN_TOPO_LINT_ERROR, "class-missing", pci, "write class=\"0x060400\" for a bridge",
            "%s has no class and no sysfs entry: %s stops with an internal error", busid,
            r->reader);
    char lost[300];
    if (pvn_topo_ndoc_lost(pci, lost, sizeof(lost)) > 0)
        SAY(r, PVN_TOPO_LINT_ERROR, "nic-in-bridge", pci,
            "put the nic into a pci of its own below the bridge (pvn-topo --xml-full dump does)",
            "%s holds a <nic>, so %s takes it for a NIC and never visits the rest of it: %.240s",
            busid, r->reader, lost);
    else if (nic && (below || (class && strncmp(class, "0x0604", 6) == 0)))
        SAY(r, PVN_TOPO_LINT_WARN, "nic-in-bridge", pci,
            "put the nic into a pci of its own below the bridge",
            "%s is a bridge with a <nic> in it: %s takes it for a NIC and ignores everything "
            "else below "
            "it",
            busid, r->reader);
    if (nic && gpu)
        SAY(r, PVN_TOPO_LINT_WARN, "gpu-beside-nic", pci, "give the GPU and the NIC a pci each",
            "%s holds a <gpu> and a <nic>: the GPU is lost (before %s 2.28) or both share one "
            "bus id",
            busid, r->reader);
    bool display = pvn_topo_ndoc_gpu_class(r->doc, class);
    if (gpu && class && !display && r->doc->rccl)
        SAY(r, PVN_TOPO_LINT_WARN, "gpu-class", pci,
            "write the class of a display device, 0x030000, or of an accelerator, 0x120000",
            "%s holds a <gpu> but has class=\"%.20s\", which is no GPU to RCCL: versions that know "
            "several ranks on a GPU lose it",
            busid, class);
    else if (gpu && class && !display)
        SAY(r, PVN_TOPO_LINT_ERROR, "gpu-class", pci,
            "write the class of a display device, 0x030200",
            "%s holds a <gpu> but has class=\"%.20s\", which is no GPU to NCCL", busid, class);
    if (below && class && (display || strncmp(class, "0x02", 4) == 0))
        SAY(r, PVN_TOPO_LINT_WARN, "leaf-with-children", pci,
            "write class=\"0x060400\" for a bridge",
            "%s has children but class=\"%.20s\" of a device: %s ignores what is below", busid,
            class, r->reader);
}

static void lint_cpu(struct rules *r, const struct pvn_topo_ndoc_node *cpu)
{
    const char *numa = pvn_topo_ndoc_get(cpu, "numaid"), *arch = pvn_topo_ndoc_get(cpu, "arch");
    const char *vendor = pvn_topo_ndoc_get(cpu, "vendor"),
               *hash = pvn_topo_ndoc_get(cpu, "host_hash");
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *other = r->doc->nodes[i];
        const char *their_hash = pvn_topo_ndoc_get(other, "host_hash");
        if (other == cpu)
            break;
        if (pvn_topo_ndoc_is(other, "cpu") &&
            strcmp(pvn_topo_ndoc_get(other, "numaid"), numa) == 0 &&
            strcmp(hash ? hash : "", their_hash ? their_hash : "") == 0)
            SAY(r, PVN_TOPO_LINT_WARN, "numaid-repeated", cpu,
                "put both cpus' contents into one cpu",
                "numaid=\"%.20s\" is also used in line %d: one NUMA node becomes two to %s", numa,
                other->line, r->reader);
    }
    char *end;
    long number = strtol(numa, &end, 0);
    if (*end || end == numa)
        SAY(r, PVN_TOPO_LINT_WARN, "numaid-form", cpu, "write the number of the NUMA node",
            "numaid=\"%.20s\" is not a number", numa);
    else if (number == -1)
        SAY(r, PVN_TOPO_LINT_NOTE, "numaid-unknown", cpu,
            "if the devices' NUMA node is known, write it; otherwise leave them all at -1",
            "numaid=\"%.20s\": %s makes a NUMA node of its own, SYS away from all others", numa,
            r->reader);
    if (arch && vendor && strcmp(arch, "x86_64") == 0 && strcmp(vendor, "GenuineIntel") != 0 &&
        strcmp(vendor, "AuthenticAMD") != 0 && strcmp(vendor, "CentaurHauls") != 0 &&
        strcmp(vendor, "  Shanghai  ") != 0)
        SAY(r, PVN_TOPO_LINT_WARN, "cpu-vendor", cpu,
            "write GenuineIntel or AuthenticAMD, or leave vendor out: it is then read from the "
            "CPU",
            "vendor=\"%.40s\" is not known to %s: links between NUMA nodes count as free", vendor,
            r->reader);
}

static void lint_net(struct rules *r, const struct pvn_topo_ndoc_node *net)
{
    const char *name = pvn_topo_ndoc_get(net, "name"), *text = pvn_topo_ndoc_get(net, "speed");
    long speed = pvn_topo_ndoc_get_int(net, "speed", 1);
    if (speed > INT_MAX)
        SAY(r, PVN_TOPO_LINT_WARN, "absurd-speed", net, "speed is in Mb/s: 100000 for 100 Gb/s",
            "net \"%.40s\" has speed=\"%.40s\", which does not fit %s's 32 bits", name, text,
            r->reader);
    else if (speed > ABSURD_MBPS)
        SAY(r, PVN_TOPO_LINT_WARN, "absurd-speed", net, "speed is in Mb/s: 100000 for 100 Gb/s",
            "net \"%.40s\" has speed=\"%.20s\", which %s takes as %ld GB/s", name, text, r->reader,
            speed / 8000);
    else if (speed <= 0)
        SAY(r, PVN_TOPO_LINT_NOTE, "no-speed", net, "write the speed in Mb/s, or leave it out",
            "net \"%.40s\" has speed=\"%.20s\", which counts as 10 Gb/s", name, text);
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *other = r->doc->nodes[i];
        if (other == net)
            break;
        if (pvn_topo_ndoc_is(other, "net") && strcmp(pvn_topo_ndoc_get(other, "name"), name) == 0 &&
            strcmp(pvn_topo_lint_host(other), pvn_topo_lint_host(net)) == 0) {
            SAY(r, PVN_TOPO_LINT_WARN, "net-repeated", net,
                "the name is the key by which the plugin's device is found: keep one",
                "net \"%.40s\" is also in line %d", name, other->line);
            break;
        }
    }
    if (net->parent && net->parent->parent && pvn_topo_ndoc_is(net->parent->parent, "cpu"))
        SAY(r, PVN_TOPO_LINT_NOTE, "net-on-cpu", net,
            "put it into a pci with the NIC's bus id if it has one",
            "net \"%.40s\" hangs on the cpu itself, with a link of 5000 GB/s", name);
}

/* Finds the pci of that bus id on the host of node, or NULL. */
static const struct pvn_topo_ndoc_node *pci_of(const struct rules *r, const char *busid,
                                               const struct pvn_topo_ndoc_node *node)
{
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *pci = r->doc->nodes[i];
        if (pvn_topo_ndoc_is(pci, "pci") &&
            strcasecmp(pvn_topo_ndoc_get(pci, "busid"), busid) == 0 &&
            strcmp(pvn_topo_lint_host(pci), pvn_topo_lint_host(node)) == 0)
            return pci;
    }
    return NULL;
}

/* True if holder has an element of that name that leads to busid. */
static bool leads_to(const struct pvn_topo_ndoc_node *holder, const char *name, const char *busid)
{
    for (int i = 0; i < holder->n_subs; i++) {
        const char *target = pvn_topo_ndoc_is(holder->subs[i], name)
                                 ? pvn_topo_ndoc_get(holder->subs[i], "target")
                                 : NULL;
        if (target && strcasecmp(target, busid) == 0)
            return true;
    }
    return false;
}

/* Reports a link that only one end states. Each end states its own direction, and each path needs
 * both (paths.cc ncclTopoSetPaths). own is the pci that has the link, other the pci at its end. */
static void lint_one_way(struct rules *r, const struct pvn_topo_ndoc_node *link,
                         const struct pvn_topo_ndoc_node *own,
                         const struct pvn_topo_ndoc_node *other)
{
    const char *busid = pvn_topo_ndoc_get(own, "busid");
    bool back = leads_to(other, link->name, busid);
    for (int i = 0; i < other->n_subs; i++)
        back |=
            pvn_topo_ndoc_is(other->subs[i], "gpu") && leads_to(other->subs[i], link->name, busid);
    if (!back)
        SAY(r, PVN_TOPO_LINT_ERROR, "one-way-link", link,
            "write the link into both of its ends, or into none: it is then detected",
            "<%s target=\"%.40s\"> in %.20s, but none leads back: %s does not start (\"Failed to "
            "find reverse path\")",
            link->name, pvn_topo_ndoc_get(other, "busid"), busid, r->reader);
}

static void lint_pcilink(struct rules *r, const struct pvn_topo_ndoc_node *link)
{
    const struct pvn_topo_ndoc_node *own = link->parent, *other;
    other = own ? pci_of(r, pvn_topo_ndoc_get(link, "target"), own) : NULL;
    /* A link to another kind of function is dropped. */
    if (other && other != own && !has_sub(other, "gpu") && !has_sub(other, "nic"))
        lint_one_way(r, link, own, other);
}

static void lint_nvlink(struct rules *r, const struct pvn_topo_ndoc_node *link)
{
    const char *target = pvn_topo_ndoc_get(link, "target"),
               *class = pvn_topo_ndoc_get(link, "tclass");
    if (pvn_topo_ndoc_gpu_class(r->doc, class) &&
        !pvn_topo_ndoc_find(r->doc, "pci", "busid", target))
        SAY(r, PVN_TOPO_LINT_WARN, "nvlink-target", link, "write the bus id of a GPU of this file",
            "<%s target=\"%.40s\"> leads to no pci of this file: %s drops the link", link->name,
            target, r->reader);
    const char *own =
        link->parent->parent ? pvn_topo_ndoc_get(link->parent->parent, "busid") : NULL;
    if (own && strcasecmp(own, target) == 0)
        SAY(r, PVN_TOPO_LINT_WARN, "nvlink-target", link,
            "write the bus id of the GPU at its other end",
            "<%s target=\"%.40s\"> leads to the GPU it is in: %s drops the link", link->name,
            target, r->reader);
    const struct pvn_topo_ndoc_node *other =
        own && pvn_topo_ndoc_gpu_class(r->doc, class) ? pci_of(r, target, link) : NULL;
    if (other && other != link->parent->parent && has_sub(other, "gpu"))
        lint_one_way(r, link, link->parent->parent, other);
}

static void lint_node(struct rules *r, const struct pvn_topo_ndoc_node *node)
{
    if (node->n_attrs > PVN_TOPO_NCCL_XML_ATTRS)
        SAY(r, PVN_TOPO_LINT_WARN, "attributes", node,
            "remove attributes that its reader does not know",
            "<%s> has %d attributes: %s reads %d and ignores the rest", node->name, node->n_attrs,
            r->reader, PVN_TOPO_NCCL_XML_ATTRS);
    for (int a = 0; a < node->n_attrs; a++) {
        size_t len = strlen(node->attrs[a].value);
        if (len > PVN_TOPO_NCCL_XML_VALUE)
            SAY(r, PVN_TOPO_LINT_ERROR, "value-length", node, "shorten it",
                "%.40s of <%s> has %zu characters: %s takes %d", node->attrs[a].key, node->name,
                len, r->reader, PVN_TOPO_NCCL_XML_VALUE);
        if (strchr(node->attrs[a].value, '<') || strchr(node->attrs[a].value, '&'))
            SAY(r, PVN_TOPO_LINT_WARN, "entity", node, "write the value without < and &",
                "%.40s of <%s> was written with an XML entity, which %s takes literally",
                node->attrs[a].key, node->name, r->reader);
    }
    const struct pvn_topo_nreader *reader = r->lint->reader;
    if (node->n_subs > reader->subs)
        SAY(r, PVN_TOPO_LINT_ERROR, "children", node, "divide them among several elements",
            "<%s> has %d children: %s takes %d", node->name, node->n_subs, r->reader, reader->subs);
    else if (node->n_subs > reader->old_subs)
        SAY(r, PVN_TOPO_LINT_NOTE, "children", node, reader->old_remedy, "<%s> has %d children: %s",
            node->name, node->n_subs, reader->old_text);
}

static void lint_tags(struct rules *r)
{
    const struct pvn_topo_ndoc_node *first = NULL;
    bool rank = true;
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = r->doc->nodes[i];
        /* A net with only a name states its place, but no properties. */
        if (!pvn_topo_ndoc_is(node, "gpu") &&
            (!pvn_topo_ndoc_is(node, "net") || node->n_attrs == 1))
            continue;
        if (!first)
            first = node;
        if (pvn_topo_ndoc_is(node, "gpu") && !pvn_topo_ndoc_get(node, "rank"))
            rank = false;
    }
    if (first)
        SAY(r, PVN_TOPO_LINT_NOTE, "gpu-net-tags", first,
            "leave <gpu> and <nic> out of an NCCL_TOPO_FILE: pci and cpu are enough",
            "<%s>: what a file says about GPUs and networks wins over what %s finds, right or "
            "wrong%s",
            first->name, r->reader, rank ? "" : "; a <gpu> without rank ends its branch");
}

/* Reports more nodes of a kind than the reader's graph holds. A job's graph has all nodes on the
 * paths to its GPUs and networks. */
static void lint_kinds(struct rules *r, const struct pvn_topo_ndoc_node *system)
{
    static const char *const names[] = {"GPUs", "PCI switches", "NICs", "NUMA nodes"};
    int count[4] = {0}, most = r->lint->reader->kind;
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = r->doc->nodes[i];
        if (pvn_topo_ndoc_is(node, "cpu"))
            count[3]++;
        if (!pvn_topo_ndoc_is(node, "pci"))
            continue;
        bool gpu = has_sub(node, "gpu"), nic = has_sub(node, "nic");
        count[0] += gpu;
        count[1] += !gpu && !nic && has_sub(node, "pci");
        count[2] += nic;
    }
    for (int i = 0; i < 4; i++) {
        if (count[i] > most)
            SAY(r, PVN_TOPO_LINT_WARN, "kinds", system, "leave out what the job does not use",
                "%d %s: %s holds %d, and stops where a job uses more", count[i], names[i],
                r->reader, most);
    }
}

static void lint_size(struct rules *r, const struct pvn_topo_ndoc_node *system)
{
    const struct pvn_topo_nreader *reader = r->lint->reader;
    int n = r->doc->n_nodes;
    if (n > reader->nodes)
        SAY(r, PVN_TOPO_LINT_ERROR, "nodes", system, reader->nodes_remedy,
            "%d elements: %s holds %d and stops at the next", n, r->reader, reader->nodes);
    else if (n > reader->nodes - 32)
        SAY(r, PVN_TOPO_LINT_WARN, "nodes", system, reader->nodes_remedy,
            "%d elements of %d: %s still has to add this rank's GPU, its links and all networks", n,
            reader->nodes, r->reader);
    else if (n > reader->old_nodes)
        SAY(r, PVN_TOPO_LINT_NOTE, "nodes", system, reader->old_remedy, "%d elements: %s", n,
            reader->old_text);
}

/* Reports GPUs that do not fit the file's version. NCCL and RCCL refuse the other's version, so
 * such a file is of no use to either. */
static void lint_version(struct rules *r, const struct pvn_topo_ndoc_node *system)
{
    for (int i = 0; i < r->doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = r->doc->nodes[i];
        const char *vendor = pvn_topo_ndoc_get(node, "vendor");
        bool pci = pvn_topo_ndoc_is(node, "pci");
        if (r->doc->rccl && pci && vendor && strcasecmp(vendor, "0x10de") == 0 &&
            pvn_topo_ndoc_gpu_class(r->doc, pvn_topo_ndoc_get(node, "class"))) {
            SAY(r, PVN_TOPO_LINT_ERROR, "version", system, "write version=\"1\" for NCCL",
                "<system version=\"2\"> is for AMD's RCCL, but %.20s in line %d is NVIDIA's: NCCL "
                "refuses the file",
                pvn_topo_ndoc_get(node, "busid"), node->line);
            return;
        }
        if (!r->doc->rccl && pvn_topo_ndoc_is(node, "gpu") && pvn_topo_ndoc_get(node, "gcn")) {
            SAY(r, PVN_TOPO_LINT_ERROR, "version", system, "write version=\"2\" for RCCL",
                "<system version=\"1\"> is for NCCL, but the <gpu> in line %d has a gcn, so it is "
                "AMD's: RCCL refuses the file",
                node->line);
            return;
        }
    }
}

/* Reports ignored elements. Those of one name in parents of one name count as one mistake. */
static void lint_ignored(struct rules *r)
{
    const int most = sizeof(r->doc->ignored) / sizeof(r->doc->ignored[0]);
    for (int i = 0; i < r->doc->n_ignored && i < most; i++) {
        int first = 0;
        while (strcmp(r->doc->ignored[first].name, r->doc->ignored[i].name) != 0 ||
               strcmp(r->doc->ignored[first].parent, r->doc->ignored[i].parent) != 0)
            first++;
        r->err |= pvn_topo_lint_add(
            r->lint, PVN_TOPO_LINT_WARN, "ignored-element", r->doc->ignored[i].line,
            r->doc->ignored[first].line,
            "check its name and its place: system > cpu > pci > pci, gpu, nic > net",
            "<%s> inside <%s> is ignored by %s with everything in it", r->doc->ignored[i].name,
            r->doc->ignored[i].parent, r->reader);
    }
}

static const char *parse_remedy(int code, size_t len, const struct pvn_topo_xml_error *err)
{
    if (err->kind == PVN_TOPO_XML_GRAPHS)
        return "give it to NCCL_GRAPH_FILE; as NCCL_TOPO_FILE it is silently ignored";
    if (err->kind == PVN_TOPO_XML_OTHER)
        return "give a file whose outermost element is <system>, as NCCL_TOPO_DUMP_FILE and "
               "pvn-topo --xml dump write it";
    if (code == -EFBIG)
        return "give the description of one machine; NCCL holds 256 elements, RCCL 8192";
    if (len == 0)
        return "write one with pvn-topo --xml dump, or leave NCCL_TOPO_FILE unset";
    return "correct that place; nothing behind it was looked at";
}

int pvn_topo_nccl_lint(const char *text, size_t len, struct pvn_topo_lint *lint)
{
    struct rules r = {.lint = lint};
    struct pvn_topo_xml_error err;
    struct pvn_topo_ndoc *doc = NULL;
    int code = pvn_topo_nccl_xml_parse(text, len, &doc, &err);
    *lint = (struct pvn_topo_lint){.reader = pvn_topo_nreader_of(err.rccl)};
    if (code == -ENOMEM)
        return code;
    pvn_topo_lint_scan(text, len, lint);
    if (code < 0)
        return pvn_topo_lint_add(lint, PVN_TOPO_LINT_ERROR,
                                 err.kind == PVN_TOPO_XML_GRAPHS ? "graph-file" : "parse", err.line,
                                 0, parse_remedy(code, len, &err), "%s", err.text);
    r.doc = doc;
    r.reader = lint->reader->name;
    const struct pvn_topo_ndoc_node *system = pvn_topo_ndoc_find(doc, "system", NULL, NULL);
    lint_version(&r, system);
    lint_size(&r, system);
    lint_kinds(&r, system);
    for (int i = 0; i < doc->n_nodes; i++) {
        const struct pvn_topo_ndoc_node *node = doc->nodes[i];
        lint_node(&r, node);
        if (pvn_topo_ndoc_is(node, "pci"))
            lint_pci(&r, node);
        else if (pvn_topo_ndoc_is(node, "cpu"))
            lint_cpu(&r, node);
        else if (pvn_topo_ndoc_is(node, "net"))
            lint_net(&r, node);
        else if (pvn_topo_ndoc_is(node, "nvlink") || pvn_topo_ndoc_is(node, "xgmi"))
            lint_nvlink(&r, node);
        else if (pvn_topo_ndoc_is(node, "pcilink"))
            lint_pcilink(&r, node);
    }
    lint_ignored(&r);
    lint_tags(&r);
    r.err |= pvn_topo_lint_numbers(doc, lint);
    r.err |= pvn_topo_lint_whole(doc, lint);
    pvn_topo_ndoc_free(doc);
    pvn_topo_lint_fold(lint);
    return r.err ? -ENOMEM : 0;
}
