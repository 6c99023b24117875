/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/nccl_detect.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/nccl/nccl_xml.h"

struct detect {
    const struct pvn_topo_ndetect *in;
    const struct pvn_topo *topo;
    struct pvn_topo_ndoc *doc;
    struct pvn_topo_ndoc_node *system;
    /* children are sorted by bus id, as while NCCL builds one rank's document; later ones are
     * appended */
    bool sorted;
};

/* True for "DDDD:BB:DD.F" and nothing longer. A path component of any other form ends NCCL's
 * walk. */
static bool is_busid(const char *text)
{
    static const char shape[] = "xxxx:xx:xx.x";
    if (strlen(text) != sizeof(shape) - 1)
        return false;
    for (size_t i = 0; shape[i]; i++)
        if (shape[i] == 'x' ? !isxdigit((unsigned char)text[i]) : text[i] != shape[i])
            return false;
    return true;
}

static int set_hex(struct pvn_topo_ndoc_node *node, const char *key, int value)
{
    char text[24];
    if (value == PVN_TOPO_UNKNOWN)
        return 0;
    snprintf(text, sizeof(text), "0x%04x", (unsigned)value);
    return pvn_topo_ndoc_set_if_unset(node, key, text);
}

/* The smaller of the function's and the port's maximum speed, as text. A text without a number
 * counts as infinite, so that the other one is used. */
static const char *slower(const struct pvn_topo_pci *pci, const struct pvn_topo_pci *port)
{
    const char *mine = pci->link.speed_max_text, *theirs = port ? port->link.speed_max_text : "";
    float a = 1e9f, b = 1e9f;
    sscanf(mine, "%f GT/s", &a);
    sscanf(theirs, "%f GT/s", &b);
    return b < a ? theirs : mine;
}

static int lanes(int width)
{
    return width == PVN_TOPO_UNKNOWN ? 0 : width;
}

/* True for an emulated port, whose link does not describe the hardware: a hypervisor's, VMware's
 * root port and QEMU's ports (Red Hat's ids) wherever they appear. A port of hints or of a host's
 * tree does describe the hardware. */
static bool emulated(const struct pvn_topo *topo, const struct pvn_topo_pci *port)
{
    if (port->flags & PVN_TOPO_PCI_INVENTED)
        return false;
    return pvn_topo_is_guest(topo) || port->vendor == 0x1b36 ||
           (port->vendor == 0x15ad && port->device == 0x07a0);
}

/* A GPU's link speed. NCCL takes NVML's present speed after a job has woken the link (xml.cc
 * link_speed); sysfs shows an idle GPU's lower speed, 2.5 GT/s. So this takes the maximum that both
 * ends support. Exceptions are a passthrough GPU below an emulated port, which runs as fast as the
 * hardware, and a GPU that already runs faster than its port claims. */
static const char *gpu_speed(const struct pvn_topo *topo, const struct pvn_topo_pci *pci,
                             const struct pvn_topo_pci *port)
{
    const struct pvn_topo_pci_link *l = &pci->link;
    if (port && l->speed_max_mts != PVN_TOPO_UNKNOWN &&
        l->speed_max_mts > port->link.speed_max_mts && emulated(topo, port))
        return l->speed_max_text;
    if (port && l->speed_mts != PVN_TOPO_UNKNOWN && l->speed_mts > port->link.speed_max_mts)
        return l->speed_text;
    return slower(pci, port);
}

static int set_link(const struct pvn_topo *topo, struct pvn_topo_ndoc_node *node,
                    const struct pvn_topo_pci *pci, const struct pvn_topo_pci *port, bool gpu)
{
    /* 255, the kernel's value for an unknown width, is a number to NCCL (xml.cc link_width). */
    int mine = lanes(pci->link.width_max_read),
        theirs = port ? lanes(port->link.width_max_read) : 0;
    int width = mine < theirs ? mine : theirs;
    const char *speed = slower(pci, port);
    if (gpu) {
        /* These stand for NVML's answers. Without them NCCL writes "16.0 GT/s" and 16 (xml.cc). */
        width = lanes(pci->link.width) > 0 ? pci->link.width : 16;
        speed = gpu_speed(topo, pci, port);
        if (speed[0] == '\0')
            speed = "16.0 GT/s";
    }
    if (pvn_topo_ndoc_set_if_unset(node, "link_speed", speed) < 0)
        return -ENOMEM;
    return pvn_topo_ndoc_get(node, "link_width") ? 0
                                                 : pvn_topo_ndoc_set_int(node, "link_width", width);
}

/* Adds links between Broadcom switches. NCCL looks for them if the vendor is 0x1000 (xml.cc,
 * os/linux.cc ncclOsGetBcmLinks). */
static int add_switch_links(struct detect *d, struct pvn_topo_ndoc_node *node, int index)
{
    const char *vendor = pvn_topo_ndoc_get(node, "vendor");
    if (!vendor || strcmp(vendor, "0x1000") != 0)
        return 0;
    for (int i = 0; i < d->topo->nswitch_links; i++) {
        const struct pvn_topo_switch_link *link = &d->topo->switch_links[i];
        const char *target = d->topo->pci[link->to].bdf;
        if (link->from != index || pvn_topo_ndoc_sub_kv(node, "pcilink", "target", target))
            continue;
        struct pvn_topo_ndoc_node *sub = pvn_topo_ndoc_add(d->doc, node, "pcilink");
        if (!sub || pvn_topo_ndoc_set(sub, "target", target) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int set_pci_attrs(struct detect *d, struct pvn_topo_ndoc_node *node, int index)
{
    const struct pvn_topo_pci *pci = &d->topo->pci[index];
    const struct pvn_topo_pci *port = pci->parent >= 0 ? &d->topo->pci[pci->parent] : NULL;
    bool gpu = pvn_topo_gpu_of_pci(d->topo, index) >= 0;
    char class[16];
    if (pci->class_code != PVN_TOPO_UNKNOWN) {
        /* Only here sysfs overrules the file. */
        snprintf(class, sizeof(class), "0x%06x", (unsigned)pci->class_code);
        if (pvn_topo_ndoc_set(node, "class", class) < 0)
            return -ENOMEM;
    }
    if (set_hex(node, "vendor", pci->vendor) < 0 || set_hex(node, "device", pci->device) < 0 ||
        set_hex(node, "subsystem_vendor", pci->subvendor) < 0 ||
        set_hex(node, "subsystem_device", pci->subdevice) < 0)
        return -ENOMEM;
    if (add_switch_links(d, node, index) < 0)
        return -ENOMEM;
    return set_link(d->topo, node, pci, port, gpu);
}

/* CPUID's family as NCCL computes it: base plus extended family times 16, whereas the kernel adds
 * the two. Zen 3, family 25, is 175 to NCCL. */
static long nccl_family(int family)
{
    return family >= 15 ? 15 + ((long)(family - 15) << 4) : family;
}

/* A CPU map that fits into a value. A map of more than 896 CPUs is written without leading zeros in
 * it and in each word, which NCCL's reader of masks does not need. NULL if it is still too long or
 * names CPUs beyond NCCL's 1024: without the attribute, NCCL looks the map up itself. */
static const char *affinity_of(const char *map, char out[PVN_TOPO_NCCL_XML_VALUE + 1])
{
    size_t used = 0, words = 0;
    if (strlen(map) <= PVN_TOPO_NCCL_XML_VALUE)
        return map;
    for (const char *word = map, *end; *word; word = *end ? end + 1 : end) {
        end = word + strcspn(word, ",");
        const char *digits = word + strspn(word, "0");
        if (digits >= end && words == 0 && *end)
            continue;
        if (digits >= end)
            digits = end - 1;
        size_t len = (size_t)(end - digits);
        if (++words > 32 || used + (words > 1) + len > PVN_TOPO_NCCL_XML_VALUE)
            return NULL;
        used += (size_t)snprintf(out + used, PVN_TOPO_NCCL_XML_VALUE + 1 - used, "%s%.*s",
                                 words > 1 ? "," : "", (int)len, digits);
    }
    return out;
}

static int set_cpu_attrs(struct detect *d, struct pvn_topo_ndoc_node *node)
{
    static const char *const arch[] = {[PVN_TOPO_ARCH_X86_64] = "x86_64",
                                       [PVN_TOPO_ARCH_ARM64] = "arm64",
                                       [PVN_TOPO_ARCH_PPC64] = "ppc64"};
    const struct pvn_topo_cpu *cpu = &d->topo->cpu;
    const char *numa_text = pvn_topo_ndoc_get(node, "numaid");
    int numa = pvn_topo_find_numa(d->topo, (int)strtol(numa_text ? numa_text : "", NULL, 0));
    /* A node -1 or "" has no cpumap of its own. NCCL parses the number of nodeN with strtoul, so -1
     * finds no file and "" finds node 0. */
    char fits[PVN_TOPO_NCCL_XML_VALUE + 1];
    const char *affinity = numa >= 0 ? affinity_of(d->topo->numas[numa].cpumap, fits) : "";
    if (affinity && pvn_topo_ndoc_set_if_unset(node, "affinity", affinity) < 0)
        return -ENOMEM;
    if (cpu->arch <= PVN_TOPO_ARCH_UNKNOWN || cpu->arch > PVN_TOPO_ARCH_PPC64)
        return 0;
    if (pvn_topo_ndoc_set_if_unset(node, "arch", arch[cpu->arch]) < 0)
        return -ENOMEM;
    if (cpu->arch != PVN_TOPO_ARCH_X86_64 || cpu->vendor[0] == '\0')
        return 0;
    if (pvn_topo_ndoc_set_if_unset(node, "vendor", cpu->vendor) < 0)
        return -ENOMEM;
    if (pvn_topo_ndoc_get(node, "familyid") || cpu->family == PVN_TOPO_UNKNOWN)
        return 0;
    if (pvn_topo_ndoc_set_int(node, "familyid", nccl_family(cpu->family)) < 0)
        return -ENOMEM;
    return cpu->model == PVN_TOPO_UNKNOWN ? 0 : pvn_topo_ndoc_set_int(node, "modelid", cpu->model);
}

static struct pvn_topo_ndoc_node *cpu_node(struct detect *d, const char *numa)
{
    struct pvn_topo_ndoc_node *cpu = pvn_topo_ndoc_sub_kv(d->system, "cpu", "numaid", numa);
    if (!cpu) {
        cpu = pvn_topo_ndoc_add(d->doc, d->system, "cpu");
        if (!cpu || pvn_topo_ndoc_set(cpu, "numaid", numa) < 0)
            return NULL;
    }
    return set_cpu_attrs(d, cpu) < 0 ? NULL : cpu;
}

/* The text of numa_node. A node from a hint or a host's tree replaces it, because the topology file
 * will state that node. */
static const char *numa_text(const struct pvn_topo_pci *pci, char *buf, size_t len)
{
    if (!(pci->flags & PVN_TOPO_PCI_NUMA_HINTED))
        return pci->numa_text;
    snprintf(buf, len, "%d", pci->numa);
    return buf;
}

static int attach(struct detect *d, struct pvn_topo_ndoc_node *parent,
                  struct pvn_topo_ndoc_node *node)
{
    int at = parent->n_subs;
    const char *mine = pvn_topo_ndoc_get(node, "busid");
    for (int i = 0; d->sorted && i < parent->n_subs; i++) {
        const char *other = pvn_topo_ndoc_get(parent->subs[i], "busid");
        if (other && strcmp(mine, other) < 0) {
            at = i;
            break;
        }
    }
    return pvn_topo_ndoc_attach(parent, node, at);
}

/* True if NCCL finds the function. NCCL looks it up by a 12-character name, so it finds none with a
 * longer domain, and the node stays without attributes on a cpu -1. */
static bool is_found(const struct pvn_topo_pci *pci)
{
    return is_busid(pci->bdf) && !(pci->flags & PVN_TOPO_PCI_NO_PATH);
}

static int set_no_link(struct pvn_topo_ndoc_node *node)
{
    return pvn_topo_ndoc_set_if_unset(node, "link_speed", "") < 0 ||
                   pvn_topo_ndoc_set_if_unset(node, "link_width", "") < 0
               ? -ENOMEM
               : 0;
}

/* Completes the elements that a file has above a function, up to its cpu: NCCL continues with the
 * parent that the file gives (xml.cc ncclTopoGetXmlFromSys, its end). */
static int complete_above(struct detect *d, struct pvn_topo_ndoc_node *node)
{
    for (int level = 0; node && level <= PVN_TOPO_NDOC_MAX_DEPTH; node = node->parent, level++) {
        if (pvn_topo_ndoc_is(node, "cpu"))
            return set_cpu_attrs(d, node);
        const char *busid = pvn_topo_ndoc_get(node, "busid");
        int index = busid && pvn_topo_ndoc_is(node, "pci") ? pvn_topo_find_pci(d->topo, busid) : -1;
        if (!pvn_topo_ndoc_is(node, "pci"))
            return 0;
        if ((index >= 0 && is_found(&d->topo->pci[index]) ? set_pci_attrs(d, node, index)
                                                          : set_no_link(node)) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Makes the pci node of a function and everything above it. NCCL goes up two components of the
 * sysfs path at a time, so root ports and a switch's downstream ports never appear. */
static struct pvn_topo_ndoc_node *pci_node(struct detect *d, int index, int level)
{
    const struct pvn_topo_pci *pci = &d->topo->pci[index];
    struct pvn_topo_ndoc_node *node = pvn_topo_ndoc_find(d->doc, "pci", "busid", pci->bdf), *above;
    char numa[16];

    if (level > PVN_TOPO_NDOC_MAX_DEPTH)
        return NULL;
    if (!node) {
        node = pvn_topo_ndoc_add(d->doc, NULL, "pci");
        if (!node || pvn_topo_ndoc_set(node, "busid", pci->bdf) < 0)
            return NULL;
    }
    bool found = is_found(pci);
    if (found && set_pci_attrs(d, node, index) < 0)
        return NULL;
    if (node->parent)
        return complete_above(d, node->parent) < 0 ? NULL : node;
    int up = pci->parent, upper = up >= 0 ? d->topo->pci[up].parent : -1;
    if (!found) {
        if (set_no_link(node) < 0)
            return NULL;
        above = cpu_node(d, "-1");
    } else if (up < 0 || !is_busid(d->topo->pci[up].bdf) || upper < 0 ||
               !is_busid(d->topo->pci[upper].bdf)) {
        above = cpu_node(d, numa_text(pci, numa, sizeof(numa)));
    } else {
        above = pci_node(d, upper, level + 1);
    }
    return !above || attach(d, above, node) < 0 ? NULL : node;
}

/* True if the GPU has the driver that makes it visible to CUDA. */
static bool on_nvidia(const struct pvn_topo *topo, int gpu)
{
    return strcmp(topo->pci[topo->gpus[gpu].pci].driver, "nvidia") == 0;
}

static bool is_listed(const struct pvn_topo *topo, int gpu)
{
    return topo->gpus[gpu].listed == PVN_TOPO_TRI_YES;
}

static bool any_nvidia(const struct pvn_topo *topo, bool (*is)(const struct pvn_topo *, int))
{
    for (int i = 0; i < topo->ngpus; i++)
        if (topo->gpus[i].kind == PVN_TOPO_GPU_NVIDIA && is(topo, i))
            return true;
    return false;
}

enum pvn_topo_gpu_use pvn_topo_ndoc_gpu_use(const struct pvn_topo *topo, int gpu)
{
    const struct pvn_topo_pci *pci = &topo->pci[topo->gpus[gpu].pci];
    if (pci->physfn >= 0 && !pvn_topo_is_guest(topo))
        return PVN_TOPO_GPU_FOR_GUESTS;
    if (topo->gpus[gpu].kind != PVN_TOPO_GPU_NVIDIA)
        return PVN_TOPO_GPU_USED;
    if (!on_nvidia(topo, gpu) && any_nvidia(topo, on_nvidia)) {
        if (pci->driver[0] != '\0')
            return PVN_TOPO_GPU_OTHER_DRIVER;
        /* A description may name the drivers of some functions only. */
        if (pci->driver_bound == PVN_TOPO_TRI_NO)
            return PVN_TOPO_GPU_NO_DRIVER;
    }
    return topo->gpus[gpu].listed == PVN_TOPO_TRI_NO && any_nvidia(topo, is_listed)
               ? PVN_TOPO_GPU_NOT_LISTED
               : PVN_TOPO_GPU_USED;
}

/* Fills list (room for topo->ngpus) with the GPUs that a job on this machine would use, as indices
 * into topo->gpus in bus-id order, and returns their number. They are used (pvn_topo_ndoc_gpu_use)
 * and of one kind: NVIDIA's if the machine has any, else AMD's, else accelerators, else Intel's. */
static int list_gpus(const struct pvn_topo *topo, int *list)
{
    static const enum pvn_topo_gpu_kind order[] = {PVN_TOPO_GPU_NVIDIA, PVN_TOPO_GPU_AMD,
                                                   PVN_TOPO_GPU_ACCEL, PVN_TOPO_GPU_INTEL};
    int n = 0;
    for (size_t k = 0; n == 0 && k < sizeof(order) / sizeof(order[0]); k++) {
        for (int i = 0; i < topo->ngpus; i++) {
            int at = n;
            if (topo->gpus[i].kind != order[k] ||
                pvn_topo_ndoc_gpu_use(topo, i) != PVN_TOPO_GPU_USED)
                continue;
            for (; at > 0 && topo->gpus[list[at - 1]].pci > topo->gpus[i].pci; at--)
                list[at] = list[at - 1];
            list[at] = i;
            n++;
        }
    }
    return n;
}

static int add_gpu(struct detect *d, int gpu, int number)
{
    char text[16];
    int pci = d->topo->gpus[gpu].pci;
    struct pvn_topo_ndoc_node *node = pci_node(d, pci, 0), *sub;
    if (!node || pvn_topo_ndoc_set_if_unset(node, "class", "0x03") < 0)
        return -ENOMEM;
    sub = pvn_topo_ndoc_sub(node, "gpu");
    if (!sub) {
        if (!(sub = pvn_topo_ndoc_add(d->doc, node, "gpu")))
            return -ENOMEM;
        sub->added = d->in->file;
    }
    snprintf(text, sizeof(text), "%d", number);
    return pvn_topo_ndoc_set_if_unset(sub, "dev", text) < 0 ||
                   pvn_topo_ndoc_set(sub, "rank", text) < 0 ||
                   pvn_topo_ndoc_set(sub, "keep", "1") < 0
               ? -ENOMEM
               : 0;
}

static int set_net_attrs(struct detect *d, struct pvn_topo_ndoc_node *net, int dev)
{
    const struct pvn_topo_nic *nic = &d->in->nics->list[dev];
    char guid[24], number[16];
    snprintf(guid, sizeof(guid), "0x%llx", (unsigned long long)nic->guid);
    if (pvn_topo_ndoc_set_int(net, "dev", dev) < 0 || pvn_topo_ndoc_set(net, "keep", "1") < 0)
        return -ENOMEM;
    snprintf(number, sizeof(number), "%d", nic->speed_mbps);
    if (pvn_topo_ndoc_set_if_unset(net, "speed", number) < 0)
        return -ENOMEM;
    snprintf(number, sizeof(number), "%d", nic->port);
    if (pvn_topo_ndoc_set_if_unset(net, "port", number) < 0 ||
        pvn_topo_ndoc_set_if_unset(net, "guid", guid) < 0)
        return -ENOMEM;
    snprintf(number, sizeof(number), "%d", nic->rail);
    if (nic->rail >= 0 && pvn_topo_ndoc_set_if_unset(net, "rail", number) < 0)
        return -ENOMEM;
    int gdr = nic->pvrdma ? 0 : nic->gdr >= 0 ? nic->gdr : d->in->net_gdr;
    snprintf(number, sizeof(number), "%d", gdr);
    return gdr >= 0 ? pvn_topo_ndoc_set_if_unset(net, "gdr", number) : 0;
}

static int put_net(struct detect *d, struct pvn_topo_ndoc_node *above, int dev)
{
    const char *name = d->in->nics->list[dev].name;
    struct pvn_topo_ndoc_node *sub = pvn_topo_ndoc_sub(above, "nic"), *net;
    if (!sub) {
        if (!(sub = pvn_topo_ndoc_add(d->doc, above, "nic")))
            return -ENOMEM;
        sub->added = d->in->file;
    }
    if (pvn_topo_ndoc_sub_kv(sub, "net", "name", name))
        return 0;
    net = pvn_topo_ndoc_add(d->doc, sub, "net");
    if (!net || pvn_topo_ndoc_set(net, "name", name) < 0)
        return -ENOMEM;
    net->added = d->in->file;
    return set_net_attrs(d, net, dev);
}

static bool has_path(const struct pvn_topo_nic *nic)
{
    return nic->pci >= 0 && nic->pci_path;
}

static int add_net(struct detect *d, int dev)
{
    const struct pvn_topo_nic *nic = &d->in->nics->list[dev];
    /* The name is the key: NCCL uses a net of that name where it is in the file. */
    struct pvn_topo_ndoc_node *net = pvn_topo_ndoc_find(d->doc, "net", "name", nic->name), *above;
    if (net)
        return set_net_attrs(d, net, dev);
    if (has_path(nic)) {
        above = pci_node(d, nic->pci, 0);
        if (!above || pvn_topo_ndoc_set_if_unset(above, "class", "0x02") < 0)
            return -ENOMEM;
    } else {
        above = pvn_topo_ndoc_find(d->doc, "cpu", NULL, NULL);
        if (!above && !(above = cpu_node(d, "0")))
            return -ENOMEM;
    }
    return put_net(d, above, dev);
}

/* Adds the nets without a path again, below the cpu of a later rank's GPU. NCCL puts them on the
 * first cpu of each rank's own document, which is that one, and the fusion of the documents
 * compares nets only below the same cpu (xml.cc xmlTopoFuseXmlRecursive). A file's cpus come first
 * in every rank's document, and so do its nets. */
static int repeat_nets(struct detect *d, int gpu)
{
    const char *busid = d->topo->pci[d->topo->gpus[gpu].pci].bdf;
    struct pvn_topo_ndoc_node *cpu = pvn_topo_ndoc_find(d->doc, "pci", "busid", busid);
    while (cpu && !pvn_topo_ndoc_is(cpu, "cpu"))
        cpu = cpu->parent;
    for (int i = 0; cpu && i < d->in->nics->n; i++) {
        const struct pvn_topo_nic *nic = &d->in->nics->list[i];
        bool in_file = d->in->file && pvn_topo_ndoc_find(d->in->file, "net", "name", nic->name);
        if (!has_path(nic) && !in_file && put_net(d, cpu, i) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Removes nodes that the job does not use, switches and cpus included. GPUs and nets that only the
 * file knows have no keep mark. True if the job uses the node or one below it. */
static bool trim(struct pvn_topo_ndoc_node *node, int level)
{
    if (pvn_topo_ndoc_is(node, "gpu") || pvn_topo_ndoc_is(node, "net"))
        return pvn_topo_ndoc_get_int(node, "keep", 0) == 1;
    bool keep = false;
    for (int i = 0; level <= PVN_TOPO_NDOC_MAX_DEPTH && i < node->n_subs; i++) {
        if (trim(node->subs[i], level + 1)) {
            keep = true;
        } else if (pvn_topo_ndoc_is(node->subs[i], "pci") ||
                   pvn_topo_ndoc_is(node->subs[i], "cpu") ||
                   pvn_topo_ndoc_is(node->subs[i], "nic") ||
                   pvn_topo_ndoc_is(node->subs[i], "net")) {
            memmove(node->subs + i, node->subs + i + 1,
                    (size_t)(node->n_subs - i - 1) * sizeof(node->subs[0]));
            node->n_subs--;
            i--;
        }
    }
    return keep;
}

int pvn_topo_ndoc_detect(const struct pvn_topo_ndetect *in, struct pvn_topo_ndoc **doc, char *why,
                         size_t why_len)
{
    struct detect d = {.in = in, .topo = in->topo, .sorted = true};
    int *gpus = calloc((size_t)in->topo->ngpus + 1, sizeof(*gpus));
    *doc = NULL;
    if (!gpus)
        goto no_memory;
    int n_gpus = list_gpus(in->topo, gpus);
    d.doc = in->file ? pvn_topo_ndoc_clone(in->file) : pvn_topo_ndoc_new();
    if (!d.doc)
        goto no_memory;
    d.system = pvn_topo_ndoc_find(d.doc, "system", NULL, NULL);
    if (!d.system) {
        /* AMD's RCCL reads version 2 only, and NCCL version 1 only. */
        d.doc->rccl = n_gpus > 0 && in->topo->gpus[gpus[0]].kind == PVN_TOPO_GPU_AMD;
        d.system = pvn_topo_ndoc_add(d.doc, NULL, "system");
        if (!d.system || pvn_topo_ndoc_set(d.system, "version", d.doc->rccl ? "2" : "1") < 0)
            goto no_memory;
    }
    /* Rank 0's GPU is first, then all nets. The other ranks' documents are fused in after them. */
    if (n_gpus > 0 && add_gpu(&d, gpus[0], 0) < 0)
        goto no_memory;
    for (int i = 0; i < in->nics->n; i++)
        if (add_net(&d, i) < 0)
            goto no_memory;
    d.sorted = false;
    bool cpu_in_file = in->file && pvn_topo_ndoc_find(in->file, "cpu", NULL, NULL);
    for (int i = 1; i < n_gpus; i++)
        if (add_gpu(&d, gpus[i], i) < 0 || (!cpu_in_file && repeat_nets(&d, gpus[i]) < 0))
            goto no_memory;
    trim(d.system, 0);
    free(gpus);
    *doc = d.doc;
    return 0;
no_memory:
    free(gpus);
    pvn_topo_ndoc_free(d.doc);
    snprintf(why, why_len, "out of memory, or a PCI tree more than %d bridges deep",
             PVN_TOPO_NDOC_MAX_DEPTH);
    return -ENOMEM;
}

static void drop_subs(struct pvn_topo_ndoc_node *node, const char *name)
{
    int kept = 0;
    for (int i = 0; i < node->n_subs; i++)
        if (!pvn_topo_ndoc_is(node->subs[i], name))
            node->subs[kept++] = node->subs[i];
    node->n_subs = kept;
}

static bool of_file(const struct pvn_topo_ndoc_node *node)
{
    return node->line > 0 && !node->added;
}

/* Keeps the names of NICs that a file has directly on a cpu: no function stands for them, so only
 * the name shows the place, and NCCL finds the rest. NCCL also puts a NIC that it found without a
 * function on the first cpu. */
static void keep_places(struct pvn_topo_ndoc_node *cpu)
{
    int kept = 0;
    for (int i = 0; i < cpu->n_subs; i++) {
        struct pvn_topo_ndoc_node *nic = cpu->subs[i];
        int nets = 0;
        for (int n = 0; pvn_topo_ndoc_is(nic, "nic") && n < nic->n_subs; n++) {
            if (!of_file(nic->subs[n]))
                continue;
            pvn_topo_ndoc_keep_only(nic->subs[n], "name");
            nic->subs[nets++] = nic->subs[n];
        }
        if (!pvn_topo_ndoc_is(nic, "nic")) {
            cpu->subs[kept++] = nic;
        } else if (nets > 0) {
            nic->n_subs = nets;
            cpu->subs[kept++] = nic;
        }
    }
    cpu->n_subs = kept;
}

int pvn_topo_ndoc_make_topo_file(struct pvn_topo_ndoc *doc)
{
    for (int i = 0; i < doc->n_nodes; i++) {
        struct pvn_topo_ndoc_node *node = doc->nodes[i];
        const char *busid = pvn_topo_ndoc_get(node, "busid");
        if (pvn_topo_ndoc_is(node, "cpu"))
            keep_places(node);
        if (!pvn_topo_ndoc_is(node, "pci"))
            continue;
        drop_subs(node, "gpu");
        drop_subs(node, "nic");
        /* A node with functions below it must be a bridge, or NCCL would ignore these. */
        const char *class = pvn_topo_ndoc_get(node, "class");
        if (class && pvn_topo_ndoc_sub(node, "pci") &&
            (strncmp(class, "0x02", 4) == 0 || pvn_topo_ndoc_gpu_class(doc, class)) &&
            pvn_topo_ndoc_set(node, "class", "0x060400") < 0)
            return -ENOMEM;
        const char *speed = pvn_topo_ndoc_get(node, "link_speed"),
                   *width = pvn_topo_ndoc_get(node, "link_width");
        bool invented = busid && strncmp(busid, "ffff:", 5) == 0;
        if (invented && (!speed || speed[0] == '\0') &&
            pvn_topo_ndoc_set(node, "link_speed", "16.0 GT/s PCIe") < 0)
            return -ENOMEM;
        if (invented && (!width || strtol(width, NULL, 0) == 0) &&
            pvn_topo_ndoc_set(node, "link_width", "16") < 0)
            return -ENOMEM;
        if (invented && pvn_topo_ndoc_set_if_unset(node, "class", "0x060400") < 0)
            return -ENOMEM;
    }
    return 0;
}
