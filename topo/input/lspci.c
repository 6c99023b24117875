/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reader of the text of lspci -vv (better -vvnn -D, and as root): one block of lines for each
 * function. Text around the blocks is skipped, and so are a shell's prompt and the marks of a quote
 * before the address. Field names: pciutils 3.x, ls-caps.c and ls-ecaps.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/reader.h"

struct caps {
    bool denied;       /* lspci was not root */
    bool verbose;      /* the block has capabilities */
    int cap, ctl, ats; /* PVN_TOPO_UNKNOWN: no such line */
    int port_type, mps, mps_max, mrrs, relaxed;
};

struct lspci {
    struct pvn_topo_synth synth;
    struct caps *caps; /* parallel to the functions */
    int n_caps;
    int now; /* the function of the current block, -1 between blocks */
};

/* Class names of pci.ids, which lspci prints without -n and -nn. */
static const struct {
    const char *words;
    int class_code;
} classes[] = {
    {"Host bridge", 0x060000},
    {"PCI bridge", 0x060400},
    {"VGA compatible controller", 0x030000},
    {"3D controller", 0x030200},
    {"Display controller", 0x038000},
    {"Processing accelerators", 0x120000},
    {"Co-processor", 0x0b4000},
    {"Ethernet controller", 0x020000},
    {"Infiniband controller", 0x020700},
    {"InfiniBand controller", 0x020700},
    {"Fabric controller", 0x020800},
    {"Network controller", 0x028000},
};

static const struct {
    const char *words;
    int vendor;
} vendors[] = {
    {"NVIDIA", 0x10de},
    {"Mellanox", 0x15b3},
    {"Advanced Micro Devices, Inc. [AMD/ATI]", 0x1002},
    {"Advanced Micro Devices, Inc. [AMD]", 0x1022},
    {"Intel", 0x8086},
    {"VMware", 0x15ad},
    {"Amazon", 0x1d0f},
    {"PLX", 0x10b5},
    {"PMC-Sierra", 0x11f8},
    {"Microsemi", 0x11f8},
    {"Red Hat", 0x1af4},
};

/* Types in an Express capability. Only those of bridges matter; the class identifies the rest. */
static const struct {
    const char *words;
    int type;
} port_types[] = {
    {"Root Port", 4},          {"Upstream Port", 5},         {"Downstream Port", 6},
    {"PCI-Express to PCI", 7}, {"to PCI-Express Bridge", 8}, {"Endpoint", 0},
};

static int class_of(const char *text, size_t len)
{
    unsigned number;
    int used = 0;
    /* "VGA compatible controller [0300]", or with -n "0300". */
    if (len >= 6 && text[len - 1] == ']' && sscanf(text + len - 6, "[%4x]", &number) == 1)
        return (int)number << 8;
    if (len == 4 && sscanf(text, "%4x%n", &number, &used) == 1 && used == 4)
        return (int)number << 8;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strlen(classes[i].words) == len && strncmp(text, classes[i].words, len) == 0)
            return classes[i].class_code;
    return PVN_TOPO_UNKNOWN;
}

/* "... [10de:2330]" (the last one), or with -n "10de:2330" at the start. */
static bool ids_of(const char *text, int *vendor, int *device)
{
    unsigned v, d;
    bool found = false;
    int used = 0;
    if (sscanf(text, "%4x:%4x%n", &v, &d, &used) == 2 && used == 9)
        found = true;
    for (const char *at = text; !found && (at = strchr(at, '[')); at++)
        found = sscanf(at, "[%4x:%4x]%n", &v, &d, &used) == 2 && used == 11;
    if (found) {
        *vendor = (int)v;
        *device = (int)d;
    }
    return found;
}

static void begin(struct lspci *l, const char *rest, uint32_t domain, int bus, int dev, int fn)
{
    const char *colon = strstr(rest, ": ");
    l->now = -1;
    for (int i = 0; i < l->synth.n_fns; i++) {
        const struct pvn_topo_synth_fn *f = &l->synth.fns[i];
        if (f->domain == domain && f->bus == bus && f->dev == dev && f->fn == fn)
            return; /* a repeated function: the first block counts */
    }
    if (!colon)
        return;
    int at = pvn_topo_synth_add(&l->synth, domain, bus, dev, fn);
    struct caps *caps =
        at < 0 ? NULL : pvn_topo_array_add((void **)&l->caps, &l->n_caps, sizeof(*l->caps));
    if (!caps) {
        l->synth.err = at < 0 ? at : -ENOMEM;
        return;
    }
    *caps = (struct caps){.cap = PVN_TOPO_UNKNOWN,
                          .ctl = PVN_TOPO_UNKNOWN,
                          .ats = PVN_TOPO_UNKNOWN,
                          .port_type = PVN_TOPO_UNKNOWN,
                          .mps = PVN_TOPO_UNKNOWN,
                          .mps_max = PVN_TOPO_UNKNOWN,
                          .mrrs = PVN_TOPO_UNKNOWN,
                          .relaxed = PVN_TOPO_UNKNOWN};
    struct pvn_topo_synth_fn *f = &l->synth.fns[at];
    l->now = at;
    f->class_code = class_of(rest, (size_t)(colon - rest));
    rest = colon + 2;
    if (ids_of(rest, &f->vendor, &f->device))
        return;
    for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
        if (strncmp(rest, vendors[i].words, strlen(vendors[i].words)) == 0)
            f->vendor = vendors[i].vendor;
}

/* "Speed 16GT/s (downgraded), Width x16". */
static void link_of(const char *text, int *mts, int *width)
{
    const char *speed = strstr(text, "Speed "), *lanes = strstr(text, "Width x");
    double gt;
    int n;
    if (speed && sscanf(speed, "Speed %lfGT/s", &gt) == 1 && gt > 0 && gt < 1000)
        *mts = (int)(gt * 1000);
    if (lanes && sscanf(lanes, "Width x%d", &n) == 1 && n >= 0 && n <= 32)
        *width = n;
}

/* "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-". */
static int acs_bits(const char *text)
{
    static const struct {
        const char *name;
        int bit;
    } bits[] = {
        {"SrcValid+", PVN_TOPO_ACS_SV},    {"TransBlk+", PVN_TOPO_ACS_TB},
        {"ReqRedir+", PVN_TOPO_ACS_RR},    {"CmpltRedir+", PVN_TOPO_ACS_CR},
        {"UpstreamFwd+", PVN_TOPO_ACS_UF}, {"EgressCtrl+", PVN_TOPO_ACS_EC},
        {"DirectTrans+", PVN_TOPO_ACS_DT},
    };
    int value = 0;
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
        value |= strstr(text, bits[i].name) ? bits[i].bit : 0;
    return value;
}

static const char *after(const char *line, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0)
        return NULL;
    return line + n + strspn(line + n, " \t");
}

static void capability_of(struct caps *caps, const char *text)
{
    const char *express = strstr(text, "Express");
    caps->verbose = true;
    caps->denied |= strstr(text, "<access denied>") != NULL;
    for (size_t i = 0; express && i < sizeof(port_types) / sizeof(port_types[0]); i++)
        if (caps->port_type == PVN_TOPO_UNKNOWN && strstr(express, port_types[i].words))
            caps->port_type = port_types[i].type;
}

static bool is_payload(int bytes)
{
    return bytes >= 128 && bytes <= 4096 && (bytes & (bytes - 1)) == 0;
}

/* Reads DevCap and DevCtl, whose continuation lines have no name. */
static void express_of(struct caps *caps, const char *line)
{
    const char *v;
    int a, b;
    if ((v = after(line, "DevCap:")) && sscanf(v, "MaxPayload %d bytes", &a) == 1 && is_payload(a))
        caps->mps_max = a;
    else if ((v = after(line, "RlxdOrd")) && (*v == '+' || *v == '-'))
        caps->relaxed = *v == '+';
    else if ((v = after(line, "MaxPayload")) && is_payload(a = (int)strtol(v, NULL, 10)) &&
             sscanf(v, "%*d bytes, MaxReadReq %d bytes", &b) == 1 && is_payload(b)) {
        caps->mps = a;
        caps->mrrs = b;
    }
}

static void field(struct lspci *l, const char *line)
{
    struct pvn_topo_synth_fn *f = &l->synth.fns[l->now];
    struct caps *caps = &l->caps[l->now];
    const char *v;
    unsigned secondary, subordinate;
    int a;
    if ((v = after(line, "NUMA node:")) && sscanf(v, "%d", &a) == 1 && a >= -1 && a < 65536)
        f->numa = a;
    else if ((v = after(line, "Bus: primary=")) &&
             sscanf(v, "%*x, secondary=%x, subordinate=%x", &secondary, &subordinate) == 2 &&
             secondary > 0 && secondary < 256 && subordinate < 256) {
        f->secondary = (int)secondary;
        f->subordinate = (int)subordinate;
    } else if ((v = after(line, "Kernel driver in use:"))) {
        l->synth.drivers = true;
        snprintf(f->driver, sizeof(f->driver), "%.*s",
                 (int)strspn(v, "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-."),
                 v);
    } else if ((v = after(line, "IOMMU group:")) && sscanf(v, "%d", &a) == 1 && a >= 0)
        f->iommu_group = a;
    else if ((v = after(line, "Subsystem:")))
        ids_of(v, &f->subvendor, &f->subdevice);
    else if ((v = after(line, "LnkCap:")))
        link_of(v, &f->speed_max_mts, &f->width_max);
    else if ((v = after(line, "LnkSta:")))
        link_of(v, &f->speed_mts, &f->width);
    else if ((v = after(line, "ACSCap:")))
        caps->cap = acs_bits(v);
    else if ((v = after(line, "ACSCtl:")))
        caps->ctl = acs_bits(v);
    else if ((v = after(line, "ATSCtl:")))
        caps->ats = strstr(v, "Enable+") != NULL;
    else if ((v = after(line, "Capabilities:")))
        capability_of(caps, v);
    else
        express_of(caps, line);
}

/* Begins a block at an address followed by a class. As the first word of a line any class will do,
 * elsewhere it must be one that only lspci prints. False if this line begins no block. */
static bool take_address(struct lspci *l, const char *word, bool first)
{
    char bdf[PVN_TOPO_BDF_MAX + 1];
    uint32_t domain;
    uint8_t bus, dev, fn;
    size_t n = strcspn(word, " \t");
    if (n == 0 || n >= sizeof(bdf) || word[n] == '\0')
        return false;
    memcpy(bdf, word, n);
    bdf[n] = '\0';
    if (pvn_topo_bdf_parse(bdf, &domain, &bus, &dev, &fn) != 0)
        return false;
    const char *rest = word + n + strspn(word + n, " \t"), *colon = strstr(rest, ": ");
    if (!first && (!colon || class_of(rest, (size_t)(colon - rest)) == PVN_TOPO_UNKNOWN))
        return false;
    begin(l, rest, domain, bus, dev, fn);
    return true;
}

static void take_line(struct lspci *l, char *line)
{
    line[strcspn(line, "\r")] = '\0';
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3;
    const char *quoted = line;
    while (*quoted == '>' || *quoted == '|')
        quoted += quoted[1] == ' ' ? 2 : 1;
    if (take_address(l, quoted + strspn(quoted, " \t"), true))
        return;
    for (const char *at = quoted; (at = strpbrk(at, " \t")) && at[1]; at++)
        if (take_address(l, at + 1, false))
            return;
    if (quoted[0] != ' ' && quoted[0] != '\t')
        l->now = -1;
    else if (l->now >= 0)
        field(l, quoted + strspn(quoted, " \t"));
}

/* Puts facts of config space into the finished model, because they cannot be written as files. */
static void put_config(const struct lspci *l, const struct pvn_topo_synth_fn *fns, int n,
                       struct pvn_topo *topo)
{
    for (int i = 0; i < n; i++) {
        const struct caps *caps = &l->caps[i];
        int at = pvn_topo_find_pci_addr(topo, fns[i].domain, fns[i].bus, fns[i].dev, fns[i].fn);
        if (at < 0 || !caps->verbose)
            continue;
        struct pvn_topo_pci_config *c = &topo->pci[at].config;
        bool have = caps->cap != PVN_TOPO_UNKNOWN && caps->ctl != PVN_TOPO_UNKNOWN;
        c->acs = have           ? PVN_TOPO_CAP_PRESENT
                 : caps->denied ? PVN_TOPO_CAP_NOT_READABLE
                                : PVN_TOPO_CAP_ABSENT;
        c->acs_cap = (uint16_t)(have ? caps->cap : 0);
        c->acs_ctl = (uint16_t)(have ? caps->ctl : 0);
        c->ats = caps->ats != PVN_TOPO_UNKNOWN ? PVN_TOPO_CAP_PRESENT
                 : caps->denied                ? PVN_TOPO_CAP_NOT_READABLE
                                               : PVN_TOPO_CAP_ABSENT;
        c->ats_enabled = caps->ats == 1;
        /* Only an endpoint's settings matter, and -v does not print them. */
        if (caps->port_type > 0 || (caps->port_type == 0 && caps->relaxed != PVN_TOPO_UNKNOWN)) {
            c->pcie = PVN_TOPO_CAP_PRESENT;
            c->port_type = caps->port_type;
            c->relaxed_ordering = caps->relaxed == 1;
            c->mps = caps->mps;
            c->mps_max = caps->mps_max;
            c->mrrs = caps->mrrs;
            c->lnk_speed_mts = c->lnk_width = PVN_TOPO_UNKNOWN; /* kept as sysfs shows them */
        }
    }
    pvn_topo_pci_kinds(topo);
}

int pvn_topo_load_lspci(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err)
{
    struct lspci l = {.now = -1};
    char *copy = malloc(len + 1), *next;
    int code = -ENOMEM;
    *topo = NULL;
    if (!copy) {
        snprintf(err->text, sizeof(err->text), "%.200s: out of memory", name);
        return code;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (char *line = copy; line && l.synth.err == 0; line = next) {
        if ((next = strchr(line, '\n')))
            *next++ = '\0';
        take_line(&l, line);
    }
    free(copy);
    if (l.synth.err == 0 && l.synth.n_fns == 0) {
        snprintf(err->text, sizeof(err->text),
                 "%.200s: no PCI function in this text; lspci -D -vvnn as root prints most", name);
        pvn_topo_synth_free(&l.synth);
        return -EINVAL;
    }
    pvn_topo_synth_name_nics(&l.synth);
    int n = l.n_caps;
    struct pvn_topo_synth_fn *fns = malloc(((size_t)n + 1) * sizeof(*fns));
    if (fns && n > 0)
        memcpy(fns, l.synth.fns, (size_t)n * sizeof(*fns));
    if (!fns)
        l.synth.err = -ENOMEM;
    code = pvn_topo_synth_load(&l.synth, name, topo, err);
    if (code == 0)
        put_config(&l, fns, n, *topo);
    free(fns);
    free(l.caps);
    return code;
}
