/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reader of hwloc's XML (lstopo machine.xml), versions 1 to 3. It takes the nesting of bridges and
 * devices, the NUMA nodes around them with their CPUs, names, addresses and ports of interfaces and
 * RDMA devices, names of GPUs, and the link as one product of speed and width. Links between GPUs
 * are not read; a note says so. Attributes: hwloc's hwloc2.dtd and its documentation of the XML
 * format. */
#define _GNU_SOURCE 1
#include <ctype.h>
#include <errno.h>
#include <expat.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/nccl/xml_position.h"
#include "topo/reader.h"

enum {
    MAX_DEPTH = 256,
    NO_NODE = -1,
    MAX_CPU_WORDS = 512, /* of 32 CPUs each */
};

/* An element that is open. */
struct level {
    int fn;                       /* this function or the one around it, -1 outside the PCI tree */
    int node;                     /* NUMA node, NO_NODE when it spans several */
    int dev;                      /* interface or RDMA device whose infos are being read, else -1 */
    bool os_dev;                  /* any device of the operating system */
    uint64_t cpus;                /* hash of its own cpuset, 0 without one */
    uint64_t memory;              /* hash of the cpuset of the first node that is its memory */
    char root[PVN_TOPO_NAME_MAX]; /* root bus of the host bridge around it, "" outside */
};

/* The name that the driver gives a GPU, which sysfs does not have. */
struct gpu_name {
    int fn;
    char bdf[PVN_TOPO_BDF_MAX];
    char model[PVN_TOPO_TEXT_MAX], uuid[64];
};

struct hwloc {
    XML_Parser parser;
    struct pvn_topo_synth synth;
    struct level open[MAX_DEPTH];
    int depth;
    int version; /* major version in <topology>; 1 if it has none */
    int hosts;   /* host bridges so far */
    int cpus, packages;
    int unbridged;        /* functions outside every bridge */
    int nodes, all_nodes; /* nodes shown, and all nodes of the machine */
    bool hidden;          /* the machine has more CPUs than the file shows */
    char vendor[64], model_name[128], product[128], sys_vendor[128], arch[32], implementer[32];
    char matrices[128]; /* names of tables of the links between GPUs */
    char foreign[128];  /* devices of fabrics without verbs */
    struct gpu_name *gpus;
    int n_gpus;
    int family, model;
    char text[160]; /* why parsing was stopped */
};

static const char *attr(const char **attrs, const char *key)
{
    for (int i = 0; attrs[i]; i += 2)
        if (strcmp(attrs[i], key) == 0)
            return attrs[i + 1];
    return NULL;
}

static void stop(struct hwloc *h, const char *why)
{
    if (h->text[0] == '\0')
        snprintf(h->text, sizeof(h->text), "%s", why);
    XML_StopParser(h->parser, XML_FALSE);
}

/* The number of the only set bit of "0x00000002" or "0x00000001,0x00000000" (32 bits each, highest
 * first); NO_NODE for none or several. */
static int only_bit(const char *set)
{
    int words = 1, found = NO_NODE;
    for (const char *p = set; *p; p++)
        words += *p == ',';
    for (const char *p = set; words > 0 && words < 64; words--) {
        unsigned long bits = strtoul(p, NULL, 16);
        if (bits & (bits - 1) || (bits && found != NO_NODE) || bits > 0xffffffffUL)
            return NO_NODE;
        if (bits)
            found = (words - 1) * 32 + __builtin_ctzl(bits);
        p = strchr(p, ',');
        if (!p)
            break;
        p++;
    }
    return found;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037ULL;
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ULL;
    return text ? hash : 0;
}

/* Appends ", WORD" unless the list has the word or no room. */
static void add_word(char *list, size_t size, const char *word)
{
    size_t used = strlen(list);
    if (!strstr(list, word) && used + strlen(word) + 3 < size)
        snprintf(list + used, size - used, "%s%s", used ? ", " : "", word);
}

/* Reads the words of "0x0000000f,,0x00000001", highest first; words of zero may be empty. Returns
 * their number, or 0 for an infinite set or one with more CPUs than any kernel supports. */
static int words_of(const char *set, uint32_t *words)
{
    int n = 0;
    if (!set || strstr(set, "..."))
        return 0;
    for (const char *p = set; p; p = strchr(p, ','), p += p != NULL) {
        if (n == MAX_CPU_WORDS)
            return 0;
        words[n++] = *p == ',' ? 0 : (uint32_t)strtoul(p, NULL, 16);
    }
    return n;
}

static int bits_of(const char *set)
{
    uint32_t words[MAX_CPU_WORDS];
    int n = words_of(set, words), bits = 0;
    for (int i = 0; i < n; i++)
        bits += __builtin_popcount(words[i]);
    return bits;
}

/* A node's CPUs in both forms that the kernel gives: "0000000f,00000001" and "0,32-35". */
static void put_cpus(struct hwloc *h, int node, const char *set)
{
    char path[64], *map = NULL, *list = NULL;
    size_t map_len, list_len;
    uint32_t words[MAX_CPU_WORDS];
    int n = words_of(set, words), first = -1;
    FILE *m = open_memstream(&map, &map_len), *l = open_memstream(&list, &list_len);
    for (int i = 0; m && i < n; i++)
        fprintf(m, "%s%08x", i > 0 ? "," : "", words[i]);
    for (int cpu = 0; l && cpu <= n * 32; cpu++) {
        bool in = cpu < n * 32 && words[n - 1 - cpu / 32] >> cpu % 32 & 1;
        if (in && first < 0)
            first = cpu;
        if (in || first < 0)
            continue;
        fprintf(l, ftell(l) > 0 ? ",%d" : "%d", first);
        if (first < cpu - 1)
            fprintf(l, "-%d", cpu - 1);
        first = -1;
    }
    if (!m || fclose(m) != 0 || !l || fclose(l) != 0) {
        h->synth.err = -ENOMEM;
    } else {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
        pvn_topo_synth_bytes(&h->synth, path, list, list_len);
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpumap", node);
        if (n > 0)
            pvn_topo_synth_bytes(&h->synth, path, map, map_len);
    }
    free(map);
    free(list);
}

/* Finds the link for a bandwidth. The table has GB/s of one lane after encoding, as hwloc computes
 * it. */
static void set_link(struct pvn_topo_synth_fn *f, const char *text)
{
    static const struct {
        int mts;
        double lane;
    } speeds[] = {{2500, 0.25},
                  {5000, 0.5},
                  {8000, 8.0 / 8 * 128 / 130},
                  {16000, 2 * 128.0 / 130},
                  {32000, 4 * 128.0 / 130},
                  {64000, 8 * 242.0 / 256}};
    double have = text ? strtod(text, NULL) : 0;
    for (size_t i = 0; have > 0.1 && i < sizeof(speeds) / sizeof(speeds[0]); i++) {
        for (int width = 1; width <= 16; width *= 2) {
            double error = have / (speeds[i].lane * width) - 1;
            if (error > -0.02 && error < 0.02) {
                f->speed_mts = f->speed_max_mts = speeds[i].mts;
                f->width = f->width_max = width;
                f->link_now = true;
                return;
            }
        }
    }
}

static void add_function(struct hwloc *h, struct level *now, const struct level *up,
                         const char **attrs, const char *busid)
{
    const char *type = attr(attrs, "pci_type"), *bridge = attr(attrs, "bridge_pci");
    unsigned class = 0, vendor = 0, device = 0, subvendor = 0, subdevice = 0, revision = 0,
             interface = 0, secondary = 0, last = 0;
    uint32_t domain;
    uint8_t bus, dev, fn;
    if (pvn_topo_bdf_parse(busid, &domain, &bus, &dev, &fn) != 0) {
        stop(h, "a pci_busid that is no PCI address");
        return;
    }
    for (int i = 0; i < h->synth.n_fns; i++) {
        const struct pvn_topo_synth_fn *f = &h->synth.fns[i];
        if (f->domain == domain && f->bus == bus && f->dev == dev && f->fn == fn) {
            now->fn = i; /* old versions of hwloc list a function twice; the first place counts */
            return;
        }
    }
    int at = pvn_topo_synth_add(&h->synth, domain, bus, dev, fn);
    if (at < 0) {
        stop(h, "more PCI functions than one machine has");
        return;
    }
    struct pvn_topo_synth_fn *f = &h->synth.fns[at];
    int got = type ? sscanf(type, "%4x [%4x:%4x] [%4x:%4x] %2x %2x", &class, &vendor, &device,
                            &subvendor, &subdevice, &revision, &interface)
                   : 0;
    /* %4x also accepts "-1"; the mask keeps 16 bits. */
    f->class_code = got >= 1 ? (int)((class & 0xffff) << 8 | (interface & 0xff)) : PVN_TOPO_UNKNOWN;
    f->revision = got >= 6 ? (int)(revision & 0xff) : PVN_TOPO_UNKNOWN;
    f->vendor = got >= 3 ? (int)(vendor & 0xffff) : PVN_TOPO_UNKNOWN;
    f->device = got >= 3 ? (int)(device & 0xffff) : PVN_TOPO_UNKNOWN;
    f->subvendor = got >= 5 ? (int)(subvendor & 0xffff) : PVN_TOPO_UNKNOWN;
    f->subdevice = got >= 5 ? (int)(subdevice & 0xffff) : PVN_TOPO_UNKNOWN;
    f->numa = now->node;
    f->up = up->fn;
    snprintf(f->root, sizeof(f->root), "%s", up->root);
    if (bridge && sscanf(bridge, "%*x:[%2x-%2x]", &secondary, &last) == 2 && secondary > 0) {
        f->secondary = (int)secondary;
        f->subordinate = (int)last;
    }
    set_link(f, attr(attrs, "pci_link_speed"));
    h->unbridged += up->root[0] == '\0' && up->fn < 0;
    now->fn = at;
}

/* True for BXI and Slingshot, which hwloc shows as fabrics (in version 2 as RDMA devices) but which
 * have no verbs. */
static bool is_foreign(const char *name)
{
    return (strncmp(name, "bxi", 3) == 0 || strncmp(name, "cxi", 3) == 0) &&
           isdigit((unsigned char)name[3]);
}

/* Opens a device of the operating system. Versions 1 and 2 have numbers as types, version 3 has
 * bits. */
static void open_os_dev(struct hwloc *h, struct level *now, const char **attrs)
{
    const char *type = attr(attrs, "osdev_type"), *name = attr(attrs, "name");
    int number = type ? atoi(type) : 0;
    bool rdma = h->version >= 3 ? number & 32 : number == 3;
    bool net = h->version >= 3 ? number & 16 : number == 2;
    now->os_dev = true;
    if (!name || now->fn < 0 || (!rdma && !net))
        return;
    if (is_foreign(name))
        add_word(h->foreign, sizeof(h->foreign), name);
    else
        now->dev = pvn_topo_synth_dev(&h->synth, now->fn, rdma, name);
}

/* Opens a host bridge. Root buses get numbers in the order of the file, because hwloc does not name
 * them all. */
static void open_host_bridge(struct hwloc *h, struct level *now)
{
    snprintf(now->root, sizeof(now->root), "pci%04x:%02x", 0x4000 + h->hosts / 256, h->hosts % 256);
    h->hosts++;
}

/* Opens a NUMA node. In version 1 a node contains the objects near it. In later versions it hangs
 * on the object whose CPUs it serves, beside other memory near the same object (HBM, a GPU's
 * memory). The first such node is then the one of those CPUs and of the devices, as in the
 * kernel. */
static void open_node(struct hwloc *h, struct level *now, const char **attrs)
{
    const char *number = attr(attrs, "os_index"), *set = attr(attrs, "cpuset");
    const char *subtype = attr(attrs, "subtype");
    struct level *up = h->depth > 1 ? &h->open[h->depth - 2] : NULL;
    int id = number ? atoi(number) : -1;
    if (id < 0 || id >= PVN_TOPO_MAX_NUMAS)
        return;
    h->nodes++;
    bool memory = h->version >= 2 && up && (up->memory != 0 && up->memory == now->cpus);
    if (subtype && strcmp(subtype, "GPUMemory") == 0)
        memory = true;
    put_cpus(h, id, memory ? "0x0" : set);
    if (h->version < 2 || !up || memory)
        return;
    if (now->cpus != 0 && up->memory == 0 && now->cpus == up->cpus) {
        up->memory = now->cpus;
        up->node = id;
    }
}

static void open_object(struct hwloc *h, struct level *now, const struct level *up,
                        const char **attrs)
{
    const char *type = attr(attrs, "type"), *set = attr(attrs, "nodeset");
    const char *busid = attr(attrs, "pci_busid");
    if (!type)
        return;
    now->cpus = hash_of(attr(attrs, "cpuset"));
    if (set && !busid)
        now->node = only_bit(set);
    if (h->depth == 2) {
        h->all_nodes = bits_of(attr(attrs, "complete_nodeset"));
        h->hidden =
            now->cpus != hash_of(attr(attrs, "complete_cpuset")) && attr(attrs, "complete_cpuset");
    }
    h->cpus += strcmp(type, "PU") == 0;
    h->packages += strcmp(type, "Package") == 0 || strcmp(type, "Socket") == 0;
    if (strcmp(type, "NUMANode") == 0)
        open_node(h, now, attrs);
    if (busid)
        add_function(h, now, up, attrs, busid);
    else if (strcmp(type, "Bridge") == 0)
        open_host_bridge(h, now);
    else if (strcmp(type, "OSDev") == 0)
        open_os_dev(h, now, attrs);
}

/* Takes "Port2State" and similar infos as files of the port. False if this is another name. */
static bool take_port(struct hwloc *h, const struct level *up, const char *name, const char *value)
{
    static const char *const states[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    char file[PVN_TOPO_NAME_MAX], text[32];
    unsigned port, gid;
    int used = 0, state = atoi(value);
    if (sscanf(name, "Port%3u%n", &port, &used) != 1 || port == 0 || port > PVN_TOPO_MAX_RDMA_PORTS)
        return false;
    name += used;
    if (strcmp(name, "State") == 0 && state >= 0 && state < 6) {
        snprintf(file, sizeof(file), "ports/%u/state", port);
        snprintf(text, sizeof(text), "%d: %s", state, states[state]);
        pvn_topo_synth_attr(&h->synth, up->dev, file, text);
    } else if (strcmp(name, "LID") == 0) {
        unsigned long lid = strtoul(value, NULL, 16);
        snprintf(file, sizeof(file), "ports/%u/lid", port);
        pvn_topo_synth_attr(&h->synth, up->dev, file, value);
        /* Ethernet has no LID, and InfiniBand has none without a subnet manager. */
        snprintf(file, sizeof(file), "ports/%u/link_layer", port);
        if (lid > 0 && lid < 0xffff)
            pvn_topo_synth_attr(&h->synth, up->dev, file, "InfiniBand");
    } else if (sscanf(name, "GID%4u", &gid) == 1 && gid < PVN_TOPO_MAX_GIDS) {
        snprintf(file, sizeof(file), "ports/%u/gids/%u", port, gid);
        pvn_topo_synth_attr(&h->synth, up->dev, file, value);
    }
    return true;
}

/* Takes an info of an interface or RDMA device. */
static void take_dev_info(struct hwloc *h, const struct level *up, const char *name,
                          const char *value)
{
    enum { IPOIB_ADDRESS = 20 * 3 - 1 };
    char text[32];
    bool rdma = h->synth.devs[up->dev].rdma;
    if (rdma && strcmp(name, "NodeGUID") == 0)
        pvn_topo_synth_attr(&h->synth, up->dev, "node_guid", value);
    else if (rdma && strcmp(name, "SysImageGUID") == 0)
        pvn_topo_synth_attr(&h->synth, up->dev, "sys_image_guid", value);
    else if (rdma)
        take_port(h, up, name, value);
    else if (strcmp(name, "Address") == 0) {
        h->synth.devs[up->dev].ipoib = strlen(value) == IPOIB_ADDRESS;
        pvn_topo_synth_attr(&h->synth, up->dev, "address", value);
    } else if (strcmp(name, "Port") == 0 && atoi(value) > 0) {
        snprintf(text, sizeof(text), "%d", atoi(value) - 1);
        pvn_topo_synth_attr(&h->synth, up->dev, "dev_port", text);
    }
}

/* Takes an info of a GPU. Several devices of the driver stand for one GPU. */
static void take_gpu_info(struct hwloc *h, const struct level *up, const char *name,
                          const char *value)
{
    bool model = strcmp(name, "GPUModel") == 0, uuid = strcmp(name, "NVIDIAUUID") == 0;
    struct gpu_name *g = NULL;
    if (up->fn < 0 || (!model && !uuid))
        return;
    if (h->n_gpus > 0 && h->gpus[h->n_gpus - 1].fn == up->fn)
        g = &h->gpus[h->n_gpus - 1];
    else
        g = pvn_topo_array_add((void **)&h->gpus, &h->n_gpus, sizeof(*h->gpus));
    if (!g) {
        h->synth.err = -ENOMEM;
        return;
    }
    const struct pvn_topo_synth_fn *f = &h->synth.fns[up->fn];
    g->fn = up->fn;
    pvn_topo_bdf_format(g->bdf, f->domain, f->bus, f->dev, f->fn);
    snprintf(model ? g->model : g->uuid, model ? sizeof(g->model) : sizeof(g->uuid), "%s", value);
}

static void take_info(struct hwloc *h, const struct level *up, const char *name, const char *value)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {
        {"CPUVendor", h->vendor, sizeof(h->vendor)},
        {"CPUModel", h->model_name, sizeof(h->model_name)},
        {"CPUImplementer", h->implementer, sizeof(h->implementer)},
        {"Architecture", h->arch, sizeof(h->arch)},
        {"DMIProductName", h->product, sizeof(h->product)},
        {"DMISysVendor", h->sys_vendor, sizeof(h->sys_vendor)},
    };
    if (up->dev >= 0) {
        take_dev_info(h, up, name, value);
        return;
    }
    if (up->os_dev) {
        take_gpu_info(h, up, name, value);
        return;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(name, texts[i].name) == 0 && texts[i].to[0] == '\0')
            snprintf(texts[i].to, texts[i].size, "%s", value);
    if (strcmp(name, "CPUFamilyNumber") == 0)
        h->family = atoi(value);
    else if (strcmp(name, "CPUModelNumber") == 0)
        h->model = atoi(value);
}

/* Takes a table of version 2 or 3. Distances between NUMA nodes are used nowhere, so their tables
 * are ignored. */
static void take_matrix(struct hwloc *h, const char **attrs)
{
    const char *name = attr(attrs, "name");
    if (name && (strncmp(name, "NVLink", 6) == 0 || strncmp(name, "XGMI", 4) == 0 ||
                 strncmp(name, "XeLink", 6) == 0))
        add_word(h->matrices, sizeof(h->matrices), name);
}

static void XMLCALL on_start(void *user, const char *element, const char **attrs)
{
    struct hwloc *h = user;
    static const struct level outside = {.fn = -1, .node = NO_NODE, .dev = -1};
    struct level up = h->depth > 0 ? h->open[h->depth - 1] : outside;
    if (h->depth == MAX_DEPTH) {
        stop(h, "nested deeper than any machine");
        return;
    }
    if (h->depth == 0 && strcmp(element, "topology") != 0) {
        stop(h, "the outermost element is not <topology>");
        return;
    }
    struct level *now = &h->open[h->depth++];
    *now = up;
    now->os_dev = false;
    now->dev = -1;
    now->cpus = now->memory = 0;
    if (strcmp(element, "topology") == 0)
        h->version = attr(attrs, "version") ? atoi(attr(attrs, "version")) : 1;
    else if (strcmp(element, "object") == 0)
        open_object(h, now, &up, attrs);
    else if (strcmp(element, "info") == 0 && attr(attrs, "name") && attr(attrs, "value"))
        take_info(h, &h->open[h->depth - 2], attr(attrs, "name"), attr(attrs, "value"));
    else if (strncmp(element, "distances2", 10) == 0)
        take_matrix(h, attrs);
}

static void XMLCALL on_end(void *user, const char *element)
{
    struct hwloc *h = user;
    (void)element;
    h->depth -= h->depth > 0;
}

/* Writes the lines of /proc/cpuinfo that show the architecture. */
static void put_cpu(const struct hwloc *h, FILE *out)
{
    for (int i = 0; i < h->cpus; i++) {
        fprintf(out, "processor\t: %d\n", i);
        if (i < h->packages)
            fprintf(out, "physical id\t: %d\n", i);
    }
    if (h->implementer[0] || strncmp(h->arch, "aarch64", 7) == 0)
        fprintf(out, "CPU implementer\t: %s\nmodel name\t: %s\n", h->implementer, h->model_name);
    else if (strncmp(h->model_name, "POWER", 5) == 0)
        fprintf(out, "cpu\t\t: %s\n", h->model_name);
    else if (h->vendor[0] || strcmp(h->arch, "x86_64") == 0)
        fprintf(out, "vendor_id\t: %s\n", h->vendor);
    if (h->vendor[0])
        fprintf(out, "cpu family\t: %d\nmodel\t\t: %d\n", h->family, h->model);
    if (h->model_name[0])
        fprintf(out, "model name\t: %s\n", h->model_name);
}

static void put_machine(struct hwloc *h)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (out)
        put_cpu(h, out);
    if (!out || fclose(out) != 0)
        h->synth.err = -ENOMEM;
    else if (len > 0)
        pvn_topo_synth_bytes(&h->synth, "/proc/cpuinfo", text, len);
    free(text);
    if (h->product[0])
        pvn_topo_synth_file(&h->synth, "/sys/class/dmi/id/product_name", "%s\n", h->product);
    if (h->sys_vendor[0])
        pvn_topo_synth_file(&h->synth, "/sys/class/dmi/id/sys_vendor", "%s\n", h->sys_vendor);
}

/* Adds notes on information in the file that is not read, and on information that the file
 * lacks. */
static void leave_notes(const struct hwloc *h, struct pvn_topo *topo)
{
    struct pvn_topo_reader r = {.topo = topo};
    static const char where[] = "hwloc's XML";
    bool links = false;
    for (int i = 0; i < topo->npci; i++)
        links |= (topo->pci[i].flags & PVN_TOPO_PCI_LINK_NOW) != 0;
    if (links)
        pvn_topo_leave_note(
            &r, where,
            "it has each link's bandwidth at that moment: the speed and width shown "
            "are two that make it, and the most that a link can is unknown");
    if (h->matrices[0])
        pvn_topo_leave_note(&r, where,
                            "its tables of the links between GPUs (%s) are not read: GPUs are "
                            "placed by PCI alone",
                            h->matrices);
    if (h->foreign[0])
        pvn_topo_leave_note(&r, where,
                            "%s: a fabric without verbs, which is neither an RDMA device nor an "
                            "interface",
                            h->foreign);
    if (h->unbridged > 0)
        pvn_topo_leave_note(&r, where,
                            "%d PCI functions lie below no bridge: the bridges were left out when "
                            "it was written, and how far functions are apart is unknown (lstopo "
                            "--whole-io keeps them)",
                            h->unbridged);
    if (h->hidden || h->nodes < h->all_nodes)
        pvn_topo_leave_note(
            &r, where,
            "it leaves out CPUs or NUMA nodes that are offline, or that the process "
            "which wrote it may not use: a device near them has no node (lstopo "
            "--disallowed shows them)");
}

static void name_gpus(const struct hwloc *h, struct pvn_topo *topo)
{
    for (int i = 0; i < h->n_gpus; i++) {
        const struct gpu_name *from = &h->gpus[i];
        int at = pvn_topo_gpu_of_pci(topo, pvn_topo_find_pci(topo, from->bdf));
        if (at < 0)
            continue;
        struct pvn_topo_gpu *gpu = &topo->gpus[at];
        snprintf(gpu->model, sizeof(gpu->model), "%s", from->model);
        snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", from->uuid);
        pvn_topo_clean_text(gpu->model);
        pvn_topo_clean_text(gpu->uuid);
    }
}

int pvn_topo_load_hwloc(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err)
{
    struct hwloc *h = calloc(1, sizeof(*h));
    int code = -EINVAL;
    *topo = NULL;
    if (!h || !(h->parser = XML_ParserCreate(NULL))) {
        free(h);
        snprintf(err->text, sizeof(err->text), "%.200s: out of memory", name);
        return -ENOMEM;
    }
    XML_SetUserData(h->parser, h);
    XML_SetElementHandler(h->parser, on_start, on_end);
    enum XML_Status status = XML_Parse(h->parser, text, (int)len, 1);
    if (status != XML_STATUS_OK)
        snprintf(err->text, sizeof(err->text), "%.200s:%d: hwloc's XML: %s", name,
                 pvn_topo_xml_line(h->parser),
                 h->text[0] ? h->text : XML_ErrorString(XML_GetErrorCode(h->parser)));
    else if (h->synth.n_fns == 0)
        snprintf(err->text, sizeof(err->text),
                 "%.200s: hwloc's XML without a single PCI function; write it with lstopo "
                 "--whole-io",
                 name);
    else {
        put_machine(h);
        code = pvn_topo_synth_load(&h->synth, name, topo, err);
    }
    if (code == 0) {
        name_gpus(h, *topo);
        leave_notes(h, *topo);
    }
    XML_ParserFree(h->parser);
    pvn_topo_synth_free(&h->synth);
    free(h->gpus);
    free(h);
    return code;
}
