/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The hints file: its parser, and its effect on the model. The format is in pvn_topo.h. */
#include "topo/capture/edit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

enum {
    TEXT_MAX = 1 << 20,
    WORDS_MAX = 12,
    SWITCHES_MAX = 255, /* bus numbers of the invented domain */
    PORTS_MAX = 29 * 8, /* downstream ports of one switch: devices 1 to 29, eight functions each */
};

struct parser {
    struct pvn_topo_hints *h;
    const char *name;
    int line;
    struct pvn_topo_err *err;
    char *word[WORDS_MAX];
    int nwords;
    bool seen_header;
};

static int fail_at_line(struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int fail_at_line(struct parser *p, const char *format, ...)
{
    va_list args;
    int used = snprintf(p->err->text, sizeof(p->err->text), "%.200s:%d: ", p->name, p->line);

    va_start(args, format);
    vsnprintf(p->err->text + used, sizeof(p->err->text) - (size_t)used, format, args);
    va_end(args);
    pvn_topo_clean_text(p->err->text);
    return -EINVAL;
}

static int fail_nomem(struct pvn_topo_err *err)
{
    snprintf(err->text, sizeof(err->text), "out of memory");
    return -ENOMEM;
}

/* Splits the line in place. A word may be in double quotes. */
static int split_words(struct parser *p, char *line)
{
    p->nwords = 0;
    for (;;) {
        char end = ' ';

        while (*line == ' ' || *line == '\t' || *line == '\r')
            line++;
        if (*line == '\0' || *line == '#')
            return 0;
        if (p->nwords == WORDS_MAX)
            return fail_at_line(p, "the line has more than %d words", WORDS_MAX);
        if (*line == '"') {
            end = '"';
            line++;
        }
        p->word[p->nwords++] = line;
        while (*line != '\0' && *line != end &&
               !(end == ' ' && (*line == '\t' || *line == '\r' || *line == '#')))
            line++;
        if (*line == '\0' && end == '"')
            return fail_at_line(p, "a double quote (\") is not closed");
        if (*line == '#') {
            *line = '\0';
            return 0;
        }
        if (*line != '\0')
            *line++ = '\0';
    }
}

static int find_switch(const struct pvn_topo_hints *h, const char *name)
{
    for (int i = 0; i < h->nswitches; i++)
        if (strcmp(h->switches[i].name, name) == 0)
            return i;
    return -1;
}

static int parse_in(struct parser *p, const char *value, int *in)
{
    *in = find_switch(p->h, value);
    if (*in < 0)
        return fail_at_line(p, "no switch \"%s\" is defined above this line", value);
    return 0;
}

static int parse_node(struct parser *p, const char *value, int *node)
{
    if (!pvn_topo_parse_int(value, 10, 0, 65535, node))
        return fail_at_line(p, "node \"%s\": expected a number from 0 to 65535", value);
    return 0;
}

static int parse_speed(struct parser *p, const char *value, int *mts)
{
    static const int known[] = {2500, 5000, 8000, 16000, 32000, 64000};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(value, pvn_topo_link_speed_name(known[i])) == 0) {
            *mts = known[i];
            return 0;
        }
    }
    return fail_at_line(
        p,
        "speed \"%s\": expected one of \"2.5 GT/s PCIe\", \"5.0 ...\", \"8.0 ...\", \"16.0 ...\", "
        "\"32.0 ...\", \"64.0 GT/s PCIe\"",
        value);
}

static int parse_width(struct parser *p, const char *value, int *width)
{
    if (!pvn_topo_parse_int(value, 10, 1, 32, width) || (*width & (*width - 1)) != 0)
        return fail_at_line(p, "width \"%s\": expected 1, 2, 4, 8, 16 or 32", value);
    return 0;
}

static int switch_option(struct parser *p, struct pvn_topo_hint_switch *s, const char *key,
                         const char *value)
{
    if (strcmp(key, "in") == 0)
        return parse_in(p, value, &s->in);
    if (strcmp(key, "node") == 0)
        return parse_node(p, value, &s->node);
    if (strcmp(key, "speed") == 0)
        return parse_speed(p, value, &s->speed_mts);
    if (strcmp(key, "width") == 0)
        return parse_width(p, value, &s->width);
    return fail_at_line(
        p,
        "\"%s\" is not an option of a switch; these are \"in\", \"node\", \"speed\" and "
        "\"width\"",
        key);
}

static int parse_switch(struct parser *p)
{
    struct pvn_topo_hint_switch s = {.line = p->line,
                                     .in = -1,
                                     .node = PVN_TOPO_UNKNOWN,
                                     .speed_mts = PVN_TOPO_UNKNOWN,
                                     .width = PVN_TOPO_UNKNOWN};
    struct pvn_topo_hint_switch *slot;

    if (strlen(p->word[1]) >= sizeof(s.name))
        return fail_at_line(p, "the name \"%s\" of a switch is too long", p->word[1]);
    if (find_switch(p->h, p->word[1]) >= 0)
        return fail_at_line(p, "switch \"%s\" is already defined", p->word[1]);
    if (p->h->nswitches == SWITCHES_MAX)
        return fail_at_line(p, "the file has more than %d switches", SWITCHES_MAX);
    pvn_topo_copy_text(s.name, sizeof(s.name), p->word[1]);
    for (int i = 2; i < p->nwords; i += 2) {
        int rc = switch_option(p, &s, p->word[i], p->word[i + 1]);

        if (rc != 0)
            return rc;
    }
    if (s.in >= 0 && s.node != PVN_TOPO_UNKNOWN && p->h->switches[s.in].node != PVN_TOPO_UNKNOWN &&
        p->h->switches[s.in].node != s.node) {
        return fail_at_line(
            p, "switch \"%s\" is on node %d, but the switch that it is in is on node %d", s.name,
            s.node, p->h->switches[s.in].node);
    }
    if (s.in >= 0 && s.node == PVN_TOPO_UNKNOWN)
        s.node = p->h->switches[s.in].node;
    slot = pvn_topo_array_add((void **)&p->h->switches, &p->h->nswitches, sizeof(*slot));
    if (!slot)
        return fail_nomem(p->err);
    *slot = s;
    return 0;
}

static int device_option(struct parser *p, struct pvn_topo_hint_device *d, const char *key,
                         const char *value)
{
    uint32_t domain;
    uint8_t bus, dev, fn;

    if (strcmp(key, "in") == 0)
        return parse_in(p, value, &d->in);
    if (strcmp(key, "node") == 0)
        return parse_node(p, value, &d->node);
    if (strcmp(key, "host") == 0) {
        if (pvn_topo_bdf_parse(value, &domain, &bus, &dev, &fn) != 0)
            return fail_at_line(p, "\"%s\" is not a PCI address (DDDD:BB:DD.F)", value);
        pvn_topo_bdf_format(d->host, domain, bus, dev, fn);
        return 0;
    }
    return fail_at_line(
        p, "\"%s\" is not an option of a device; these are \"in\", \"node\" and \"host\"", key);
}

static int parse_device(struct parser *p)
{
    struct pvn_topo_hint_device d = {.line = p->line, .in = -1, .node = PVN_TOPO_UNKNOWN};
    struct pvn_topo_hint_device *slot;

    if (strlen(p->word[1]) >= sizeof(d.name))
        return fail_at_line(p, "the name \"%s\" of a device is too long", p->word[1]);
    pvn_topo_copy_text(d.name, sizeof(d.name), p->word[1]);
    for (int i = 2; i < p->nwords; i += 2) {
        int rc = device_option(p, &d, p->word[i], p->word[i + 1]);

        if (rc != 0)
            return rc;
    }
    if (d.in < 0 && d.node == PVN_TOPO_UNKNOWN && d.host[0] == '\0') {
        return fail_at_line(
            p, "device \"%s\" has no place: add \"in SWITCH\", \"node N\" or \"host ADDRESS\"",
            d.name);
    }
    slot = pvn_topo_array_add((void **)&p->h->devices, &p->h->ndevices, sizeof(*slot));
    if (!slot)
        return fail_nomem(p->err);
    *slot = d;
    return 0;
}

static int parse_line(struct parser *p, char *line)
{
    int rc = split_words(p, line);

    if (rc != 0 || p->nwords == 0)
        return rc;
    if (!p->seen_header) {
        if (p->nwords != 2 || strcmp(p->word[0], "pvn-topo-hints") != 0)
            return fail_at_line(p, "a hints file starts with the line \"pvn-topo-hints 1\"");
        if (strcmp(p->word[1], "1") != 0) {
            return fail_at_line(p, "version \"%s\" is not supported: this program reads version 1",
                                p->word[1]);
        }
        p->seen_header = true;
        return 0;
    }
    if (strcmp(p->word[0], "switch") != 0 && strcmp(p->word[0], "device") != 0) {
        return fail_at_line(p, "\"%s\": expected \"switch\" or \"device\" at the start of the line",
                            p->word[0]);
    }
    if (p->nwords < 2)
        return fail_at_line(p, "expected a name after \"%s\"", p->word[0]);
    if (p->nwords % 2 != 0)
        return fail_at_line(p, "\"%s\" needs a value", p->word[p->nwords - 1]);
    return p->word[0][0] == 's' ? parse_switch(p) : parse_device(p);
}

int pvn_topo_hints_parse(struct pvn_topo_hints *h, const char *text, size_t len, const char *name,
                         struct pvn_topo_err *err)
{
    struct parser p = {.h = h, .name = name, .err = err};
    char *copy, *line;
    int rc = 0;

    *h = (struct pvn_topo_hints){0};
    if (len > TEXT_MAX) {
        p.line = 1;
        return fail_at_line(&p, "the file has %zu bytes; a hints file has at most %d", len,
                            TEXT_MAX);
    }
    copy = malloc(len + 1);
    if (!copy)
        return fail_nomem(err);
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (memchr(copy, '\0', len)) {
        p.line = 1;
        rc = fail_at_line(&p, "the file holds zero bytes, so it is not a text file");
    }
    for (line = copy; rc == 0 && line;) {
        char *end = strchr(line, '\n');

        if (end)
            *end++ = '\0';
        p.line++;
        rc = parse_line(&p, line);
        line = end;
    }
    if (rc == 0 && !p.seen_header) {
        p.line = 1;
        rc = fail_at_line(&p, "a hints file starts with the line \"pvn-topo-hints 1\"");
    }
    free(copy);
    return rc;
}

void pvn_topo_hints_free(struct pvn_topo_hints *h)
{
    free(h->switches);
    free(h->devices);
    *h = (struct pvn_topo_hints){0};
}

int pvn_topo_hints_find(const struct pvn_topo *t, const char *name)
{
    int i = pvn_topo_find_pci(t, name);

    if (i >= 0)
        return i;
    i = pvn_topo_find_rdma(t, name);
    if (i >= 0)
        return t->rdmas[i].pci;
    i = pvn_topo_find_net(t, name);
    return i >= 0 ? t->nets[i].pci : -1;
}

/* ---- applying the file to the model */

struct applied {
    int up; /* the upstream port */
    int root;
    int ports; /* downstream ports in use */
};

struct apply {
    struct pvn_topo_edit edit;
    const struct pvn_topo_hints *h;
    uint32_t domain;
    struct applied *sw;
};

/* Allocates the next downstream port of the switch. Device numbers 1 to 29 are below the switch, 30
 * is the port above. */
static int new_port(struct apply *a, int sw)
{
    int n = a->sw[sw].ports++;

    return pvn_topo_edit_add_bridge(&a->edit, a->domain, sw + 1, 1 + n % 29, n / 29,
                                    PVN_TOPO_PCI_SWITCH_DOWN, a->sw[sw].up, a->sw[sw].root,
                                    a->h->switches[sw].node, NULL);
}

static int apply_switch(struct apply *a, int i)
{
    const struct pvn_topo_hint_switch *s = &a->h->switches[i];
    struct pvn_topo_pci_link stated, *link = NULL;
    char name[PVN_TOPO_NAME_MAX + 8];
    int above, up;

    if (s->speed_mts != PVN_TOPO_UNKNOWN || s->width != PVN_TOPO_UNKNOWN) {
        stated = pvn_topo_edit_link(s->speed_mts != PVN_TOPO_UNKNOWN ? s->speed_mts : 16000,
                                    s->width != PVN_TOPO_UNKNOWN ? s->width : 16);
        link = &stated;
    }
    if (s->in >= 0) {
        above = new_port(a, s->in);
        a->sw[i].root = a->sw[s->in].root;
    } else {
        snprintf(name, sizeof(name), "hint:%s", s->name);
        a->sw[i].root =
            pvn_topo_edit_add_root(&a->edit, name, a->domain, (uint8_t)(i + 1), s->node);
        if (a->sw[i].root < 0)
            return a->sw[i].root;
        above = pvn_topo_edit_add_bridge(&a->edit, a->domain, i + 1, 30, 0, PVN_TOPO_PCI_ROOT_PORT,
                                         -1, a->sw[i].root, s->node, link);
    }
    if (above < 0)
        return above;
    up = pvn_topo_edit_add_bridge(&a->edit, a->domain, i + 1, 0, 0, PVN_TOPO_PCI_SWITCH_UP, above,
                                  a->sw[i].root, s->node, link);
    a->sw[i].up = up;
    return up < 0 ? up : 0;
}

static int apply_device(struct apply *a, const struct pvn_topo_hint_device *d, struct parser *where)
{
    int pci = pvn_topo_hints_find(a->edit.t, d->name);
    int node = d->node, port;

    where->line = d->line;
    if (d->host[0] != '\0')
        return fail_at_line(where, "\"host\" needs the host's tree: give it with --host");
    if (pci < 0) {
        return fail_at_line(
            where,
            "device \"%s\" is not in this machine; name it by its PCI address, interface "
            "or RDMA device",
            d->name);
    }
    if ((a->edit.pci[pci].flags & (PVN_TOPO_PCI_MOVED | PVN_TOPO_PCI_NUMA_HINTED)) != 0) {
        return fail_at_line(where, "device \"%s\" (%s) was already placed by an earlier line",
                            d->name, a->edit.pci[pci].bdf);
    }
    if (a->edit.pci[pci].class_code >> 8 == 0x0604)
        return fail_at_line(where, "device \"%s\" is a bridge; place the devices below it",
                            d->name);
    if (d->in >= 0) {
        if (a->sw[d->in].ports == PORTS_MAX) {
            return fail_at_line(where, "switch \"%s\" has more than %d devices",
                                a->h->switches[d->in].name, PORTS_MAX);
        }
        if (node != PVN_TOPO_UNKNOWN && a->h->switches[d->in].node != PVN_TOPO_UNKNOWN &&
            node != a->h->switches[d->in].node) {
            return fail_at_line(where, "device \"%s\" is on node %d, but its switch on node %d",
                                d->name, node, a->h->switches[d->in].node);
        }
        node = node != PVN_TOPO_UNKNOWN ? node : a->h->switches[d->in].node;
        port = new_port(a, d->in);
        if (port < 0)
            return port;
        pvn_topo_edit_move_slot(&a->edit, pci, port, a->sw[d->in].root);
    }
    if (node != PVN_TOPO_UNKNOWN)
        pvn_topo_edit_set_numa(&a->edit, pci, node);
    return 0;
}

int pvn_topo_apply_hints(struct pvn_topo *topo, const char *text, size_t len, const char *name,
                         struct pvn_topo_err *err)
{
    struct parser where = {.name = name, .err = err};
    struct apply a = {0};
    struct pvn_topo_hints h;
    int rc = pvn_topo_hints_parse(&h, text, len, name, err);

    if (rc != 0)
        goto out;
    a.h = &h;
    a.sw = calloc((size_t)h.nswitches + 1, sizeof(*a.sw));
    if (!a.sw || pvn_topo_edit_begin(&a.edit, topo) != 0) {
        rc = fail_nomem(err);
        goto out;
    }
    a.domain = pvn_topo_edit_free_domain(&a.edit, 0xffff);
    for (int i = 0; rc == 0 && i < h.nswitches; i++) {
        where.line = h.switches[i].line;
        if (h.switches[i].in >= 0 && a.sw[h.switches[i].in].ports == PORTS_MAX) {
            rc = fail_at_line(&where, "switch \"%s\" has more than %d devices",
                              h.switches[h.switches[i].in].name, PORTS_MAX);
        } else {
            rc = apply_switch(&a, i);
        }
    }
    for (int i = 0; rc == 0 && i < h.ndevices; i++)
        rc = apply_device(&a, &h.devices[i], &where);
    if (rc == 0) {
        pvn_topo_edit_commit(&a.edit, PVN_TOPO_MERGED_HINTS);
    } else {
        if (rc == -ENOMEM)
            fail_nomem(err);
        pvn_topo_edit_abort(&a.edit);
    }
out:
    free(a.sw);
    pvn_topo_hints_free(&h);
    return rc;
}
