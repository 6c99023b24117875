/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The text of lspci -vv (better -vvnn -D, and as root): one block of lines for each function. Text
 * around the blocks, such as a shell prompt or a page that quotes them, is passed over. Field names:
 * pciutils 3.x, ls-caps.c and ls-ecaps.c. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/reader.h"

struct acs {
    bool denied;       /* lspci was not root */
    bool verbose;      /* the block has capabilities at all */
    int cap, ctl, ats; /* PVN_TOPO_UNKNOWN: no such line */
};

struct lspci {
    struct pvn_topo_synth synth;
    struct acs *acs; /* parallel to the functions */
    int n_acs;
    int now; /* the function whose block this is, -1 between blocks */
};

/* lspci without -n and -nn prints the words of pci.ids. */
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

static int class_of(const char *text, size_t len)
{
    unsigned number;
    int used = 0;
    /* "VGA compatible controller [0300]", or with -n "0300". */
    if (len >= 6 && text[len - 1] == ']' && sscanf(text + len - 6, "[%4x]", &number) == 1)
        return (int)number << 8;
    if (len == 4 && sscanf(text, "%4x%n", &number, &used) == 1 && used == 4)
        return (int)number << 8;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strlen(classes[i].words) == len && strncmp(text, classes[i].words, len) == 0)
            return classes[i].class_code;
    }
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
            return; /* the same function again: the first block counts */
    }
    if (!colon)
        return;
    int at = pvn_topo_synth_add(&l->synth, domain, bus, dev, fn);
    struct acs *acs =
        at < 0 ? NULL : pvn_topo_array_add((void **)&l->acs, &l->n_acs, sizeof(*l->acs));
    if (!acs) {
        l->synth.err = at < 0 ? at : -ENOMEM;
        return;
    }
    *acs = (struct acs){.cap = PVN_TOPO_UNKNOWN, .ctl = PVN_TOPO_UNKNOWN, .ats = PVN_TOPO_UNKNOWN};
    struct pvn_topo_synth_fn *f = &l->synth.fns[at];
    l->now = at;
    f->class_code = class_of(rest, (size_t)(colon - rest));
    rest = colon + 2;
    if (ids_of(rest, &f->vendor, &f->device))
        return;
    for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++) {
        if (strncmp(rest, vendors[i].words, strlen(vendors[i].words)) == 0)
            f->vendor = vendors[i].vendor;
    }
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

static void field(struct lspci *l, const char *line)
{
    struct pvn_topo_synth_fn *f = &l->synth.fns[l->now];
    struct acs *acs = &l->acs[l->now];
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
    } else if ((v = after(line, "Kernel driver in use:")))
        snprintf(f->driver, sizeof(f->driver), "%.*s",
                 (int)strspn(v, "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-."),
                 v);
    else if ((v = after(line, "IOMMU group:")) && sscanf(v, "%d", &a) == 1 && a >= 0)
        f->iommu_group = a;
    else if ((v = after(line, "Subsystem:")))
        ids_of(v, &f->subvendor, &f->subdevice);
    else if ((v = after(line, "LnkCap:")))
        link_of(v, &f->speed_max_mts, &f->width_max);
    else if ((v = after(line, "LnkSta:")))
        link_of(v, &f->speed_mts, &f->width);
    else if ((v = after(line, "ACSCap:")))
        acs->cap = acs_bits(v);
    else if ((v = after(line, "ACSCtl:")))
        acs->ctl = acs_bits(v);
    else if ((v = after(line, "ATSCtl:")))
        acs->ats = strstr(v, "Enable+") != NULL;
    else if ((v = after(line, "Capabilities:"))) {
        acs->verbose = true;
        acs->denied |= strstr(v, "<access denied>") != NULL;
    }
}

static void take_line(struct lspci *l, char *line)
{
    char bdf[PVN_TOPO_BDF_MAX + 1];
    uint32_t domain;
    uint8_t bus, dev, fn;
    line[strcspn(line, "\r")] = '\0';
    if (line[0] == ' ' || line[0] == '\t') {
        if (l->now >= 0)
            field(l, line + strspn(line, " \t"));
        return;
    }
    size_t n = strcspn(line, " \t");
    l->now = -1;
    if (n == 0 || n >= sizeof(bdf) || line[n] == '\0')
        return;
    memcpy(bdf, line, n);
    bdf[n] = '\0';
    if (pvn_topo_bdf_parse(bdf, &domain, &bus, &dev, &fn) == 0)
        begin(l, line + n + strspn(line + n, " \t"), domain, bus, dev, fn);
}

/* What config space holds cannot be written as files, so it goes into the finished model. */
static void put_config(const struct lspci *l, const struct pvn_topo_synth_fn *fns, int n,
                       struct pvn_topo *topo)
{
    for (int i = 0; i < n; i++) {
        const struct acs *acs = &l->acs[i];
        int at = pvn_topo_find_pci_addr(topo, fns[i].domain, fns[i].bus, fns[i].dev, fns[i].fn);
        if (at < 0 || !acs->verbose)
            continue;
        struct pvn_topo_pci_config *c = &topo->pci[at].config;
        bool have = acs->cap != PVN_TOPO_UNKNOWN && acs->ctl != PVN_TOPO_UNKNOWN;
        c->acs = have          ? PVN_TOPO_CAP_PRESENT
                 : acs->denied ? PVN_TOPO_CAP_NOT_READABLE
                               : PVN_TOPO_CAP_ABSENT;
        c->acs_cap = (uint16_t)(have ? acs->cap : 0);
        c->acs_ctl = (uint16_t)(have ? acs->ctl : 0);
        c->ats = acs->ats != PVN_TOPO_UNKNOWN ? PVN_TOPO_CAP_PRESENT
                 : acs->denied                ? PVN_TOPO_CAP_NOT_READABLE
                                              : PVN_TOPO_CAP_ABSENT;
        c->ats_enabled = acs->ats == 1;
    }
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
    int n = l.n_acs;
    struct pvn_topo_synth_fn *fns = malloc(((size_t)n + 1) * sizeof(*fns));
    if (fns && n > 0)
        memcpy(fns, l.synth.fns, (size_t)n * sizeof(*fns));
    if (!fns)
        l.synth.err = -ENOMEM;
    code = pvn_topo_synth_load(&l.synth, name, topo, err);
    if (code == 0)
        put_config(&l, fns, n, *topo);
    free(fns);
    free(l.acs);
    return code;
}
