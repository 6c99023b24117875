/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The XML of hwloc (lstopo machine.xml), versions 1 to 3: bridges and devices nested as they are,
 * the NUMA node of what is around them, names of interfaces, the link as one product of speed and
 * width. Attributes: hwloc's hwloc2.dtd and its documentation of the XML format. */
#include <ctype.h>
#include <errno.h>
#include <expat.h>
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
};

/* An element that is open. */
struct level {
    int fn;      /* the function it is or is in, -1 outside the PCI tree */
    int node;    /* NUMA node, NO_NODE when it spans several */
    bool os_dev; /* an interface or RDMA device, whose infos are being read */
    bool rdma;
    char root[PVN_TOPO_NAME_MAX]; /* of the host bridge around it, "" outside */
    char name[PVN_TOPO_NAME_MAX];
    char state[32];
};

struct hwloc {
    XML_Parser parser;
    struct pvn_topo_synth synth;
    struct level open[MAX_DEPTH];
    int depth;
    int version; /* major, of <topology>; 1 where there is none */
    int hosts;   /* host bridges so far */
    char vendor[64], model_name[128], product[128], sys_vendor[128];
    int family, model;
    char text[160]; /* why parsing was stopped */
};

static const char *attr(const char **attrs, const char *key)
{
    for (int i = 0; attrs[i]; i += 2) {
        if (strcmp(attrs[i], key) == 0)
            return attrs[i + 1];
    }
    return NULL;
}

static void stop(struct hwloc *h, const char *why)
{
    if (h->text[0] == '\0')
        snprintf(h->text, sizeof(h->text), "%s", why);
    XML_StopParser(h->parser, XML_FALSE);
}

/* The one bit of "0x00000002" or "0x00000001,0x00000000" (32 bits each, highest first); NO_NODE for
 * none or several. */
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

/* GB/s of one lane after the encoding's loss, as hwloc computes it. */
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
                return;
            }
        }
    }
}

static void add_function(struct hwloc *h, struct level *now, const struct level *up,
                         const char **attrs, const char *busid)
{
    const char *type = attr(attrs, "pci_type"), *bridge = attr(attrs, "bridge_pci");
    unsigned class = 0, vendor = 0, device = 0, subvendor = 0, subdevice = 0, secondary = 0,
             last = 0;
    uint32_t domain;
    uint8_t bus, dev, fn;
    if (pvn_topo_bdf_parse(busid, &domain, &bus, &dev, &fn) != 0) {
        stop(h, "a pci_busid that is no PCI address");
        return;
    }
    for (int i = 0; i < h->synth.n_fns; i++) {
        const struct pvn_topo_synth_fn *f = &h->synth.fns[i];
        if (f->domain == domain && f->bus == bus && f->dev == dev && f->fn == fn) {
            now->fn = i; /* old versions of hwloc repeat one; the first place counts */
            return;
        }
    }
    int at = pvn_topo_synth_add(&h->synth, domain, bus, dev, fn);
    if (at < 0) {
        stop(h, "more PCI functions than one machine has");
        return;
    }
    struct pvn_topo_synth_fn *f = &h->synth.fns[at];
    int got = type ? sscanf(type, "%4x [%4x:%4x] [%4x:%4x]", &class, &vendor, &device, &subvendor,
                            &subdevice)
                   : 0;
    /* %4x takes "-1" as well: the mask keeps 16 bits of that. */
    f->class_code = got >= 1 ? (int)(class & 0xffff) << 8 : PVN_TOPO_UNKNOWN;
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
    now->fn = at;
}

/* Numbers of 1 and 2; 3 has bits. */
static void open_os_dev(struct hwloc *h, struct level *now, const char **attrs)
{
    const char *type = attr(attrs, "osdev_type"), *name = attr(attrs, "name");
    int number = type ? atoi(type) : 0;
    bool rdma = h->version >= 3 ? number & 32 : number == 3;
    bool net = h->version >= 3 ? number & 16 : number == 2;
    if (!name || now->fn < 0 || (!rdma && !net))
        return;
    now->os_dev = true;
    now->rdma = rdma;
    snprintf(now->name, sizeof(now->name), "%s", name);
}

/* Root buses are distinguished by their number in the file: hwloc does not name them all. */
static void open_host_bridge(struct hwloc *h, struct level *now)
{
    snprintf(now->root, sizeof(now->root), "pci%04x:%02x", 0x4000 + h->hosts / 256, h->hosts % 256);
    h->hosts++;
}

static void open_object(struct hwloc *h, struct level *now, const struct level *up,
                        const char **attrs)
{
    const char *type = attr(attrs, "type"), *set = attr(attrs, "nodeset");
    const char *busid = attr(attrs, "pci_busid"), *number = attr(attrs, "os_index");
    char path[64];
    if (set && !busid)
        now->node = only_bit(set);
    if (type && strcmp(type, "NUMANode") == 0 && number && atoi(number) >= 0 &&
        atoi(number) < PVN_TOPO_MAX_NUMAS) {
        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", atoi(number));
        pvn_topo_synth_file(&h->synth, path, "\n");
    }
    if (busid)
        add_function(h, now, up, attrs, busid);
    else if (type && strcmp(type, "Bridge") == 0)
        open_host_bridge(h, now);
    else if (type && strcmp(type, "OSDev") == 0)
        open_os_dev(h, now, attrs);
}

static void take_info(struct hwloc *h, struct level *up, const char *name, const char *value)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } texts[] = {
        {"CPUVendor", h->vendor, sizeof(h->vendor)},
        {"CPUModel", h->model_name, sizeof(h->model_name)},
        {"DMIProductName", h->product, sizeof(h->product)},
        {"DMISysVendor", h->sys_vendor, sizeof(h->sys_vendor)},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i].name) == 0 && texts[i].to[0] == '\0')
            snprintf(texts[i].to, texts[i].size, "%s", value);
    }
    if (strcmp(name, "CPUFamilyNumber") == 0)
        h->family = atoi(value);
    else if (strcmp(name, "CPUModelNumber") == 0)
        h->model = atoi(value);
    else if (strcmp(name, "Port1State") == 0 && up->rdma)
        snprintf(up->state, sizeof(up->state), "%d: %s\n", atoi(value),
                 atoi(value) == 4 ? "ACTIVE" : "DOWN");
}

static void XMLCALL on_start(void *user, const char *element, const char **attrs)
{
    struct hwloc *h = user;
    static const struct level outside = {.fn = -1, .node = NO_NODE};
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
    now->os_dev = now->rdma = false;
    now->state[0] = now->name[0] = '\0';
    if (strcmp(element, "topology") == 0)
        h->version = attr(attrs, "version") ? atoi(attr(attrs, "version")) : 1;
    else if (strcmp(element, "object") == 0)
        open_object(h, now, &up, attrs);
    else if (strcmp(element, "info") == 0 && attr(attrs, "name") && attr(attrs, "value"))
        take_info(h, &h->open[h->depth - 2], attr(attrs, "name"), attr(attrs, "value"));
}

static void XMLCALL on_end(void *user, const char *element)
{
    struct hwloc *h = user;
    (void)element;
    if (h->depth == 0)
        return;
    const struct level *now = &h->open[--h->depth];
    if (now->os_dev)
        pvn_topo_synth_dev(&h->synth, now->fn, now->rdma, now->name, now->state);
}

static void put_machine(struct hwloc *h)
{
    if (h->vendor[0])
        pvn_topo_synth_file(&h->synth, "/proc/cpuinfo",
                            "processor\t: 0\nvendor_id\t: %s\ncpu family\t: %d\nmodel\t\t: %d\n"
                            "model name\t: %s\n",
                            h->vendor, h->family, h->model, h->model_name);
    if (h->product[0])
        pvn_topo_synth_file(&h->synth, "/sys/class/dmi/id/product_name", "%s\n", h->product);
    if (h->sys_vendor[0])
        pvn_topo_synth_file(&h->synth, "/sys/class/dmi/id/sys_vendor", "%s\n", h->sys_vendor);
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
    XML_ParserFree(h->parser);
    pvn_topo_synth_free(&h->synth);
    free(h);
    return code;
}
