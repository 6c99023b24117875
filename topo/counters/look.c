/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads snapshots of adapters' counters and compares two of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/counters/counters.h"
#include "topo/reader.h"

struct reading {
    struct pvn_topo_fs *fs;
    const struct pvn_topo *t;
    const char *const *names;
    int nnames;
    const struct pvn_topo_ethtool *ethtool;
    struct pvn_topo_look *out;
};

/* ---- one device ---- */

/* Finds the counter of this name, or adds one with value 0; NULL if memory is short. */
static struct pvn_topo_counter *
counter_of(struct pvn_topo_counted *c, const struct pvn_topo_counter_info *info, const char *name)
{
    const char *shown = strchr(info->name, '*') ? info->name : name;
    struct pvn_topo_counter *made;

    for (int i = 0; i < c->n; i++)
        if (c->counters[i].info == info && strcmp(c->counters[i].name, shown) == 0)
            return &c->counters[i];
    made = pvn_topo_array_add((void **)&c->counters, &c->n, sizeof(*made));
    if (made) {
        made->info = info;
        pvn_topo_copy_text(made->name, sizeof(made->name), shown);
    }
    return made;
}

static int add_value(struct pvn_topo_counted *c, enum pvn_topo_counter_source source,
                     const char *name, uint64_t value)
{
    const struct pvn_topo_counter_info *info = pvn_topo_counter_find(source, name);
    struct pvn_topo_counter *counter = info ? counter_of(c, info, name) : NULL;

    if (counter)
        counter->value += value;
    return info && !counter ? -ENOMEM : 0;
}

/* Reads the decimal number in a file. Old kernels write "N/A" if the port does not count. */
static bool read_number(struct pvn_topo_fs *fs, const char *dir, const char *name, uint64_t *value)
{
    char text[32], *end;
    ssize_t got = pvn_topo_fs_read_at(fs, dir, name, text, sizeof(text) - 1);

    text[got > 0 ? got : 0] = '\0';
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || *end == '\n');
}

/* Reads the files of a directory that the table knows. */
static int read_dir(const struct reading *r, const char *path, enum pvn_topo_counter_source source,
                    struct pvn_topo_counted *c)
{
    char real[PVN_TOPO_FS_PATH_MAX];
    struct pvn_topo_fs_names files;
    int rc = pvn_topo_fs_resolve(r->fs, path, real);

    rc = rc != 0 ? rc : pvn_topo_fs_list(r->fs, real, &files);
    if (rc != 0)
        return rc == -ENOMEM ? rc : 0; /* the device has none of this kind */
    pvn_topo_fs_enter(r->fs, real);
    for (int i = 0; rc == 0 && i < files.n; i++) {
        uint64_t value;

        if (pvn_topo_counter_find(source, files.name[i]) &&
            read_number(r->fs, real, files.name[i], &value))
            rc = add_value(c, source, files.name[i], value);
    }
    pvn_topo_fs_names_free(&files);
    return rc;
}

static int each_stat(void *ctx, const char *name, uint64_t value)
{
    return add_value(ctx, PVN_TOPO_COUNTER_ETHTOOL, name, value);
}

static int read_port(const struct reading *r, struct pvn_topo_counted *c)
{
    const struct pvn_topo_rdma *dev = &r->t->rdmas[c->rdma];
    char path[256];
    int num = dev->ports[c->port].num, before, rc;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/counters", dev->name, num);
    rc = read_dir(r, path, PVN_TOPO_COUNTER_PORT, c);
    before = c->n;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/hw_counters", dev->name, num);
    rc = rc != 0 ? rc : read_dir(r, path, PVN_TOPO_COUNTER_HW, c);
    if (rc == 0 && c->n == before && dev->nports == 1) {
        /* Some drivers count per device only. With one port, the device's counters are the
         * port's. */
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/hw_counters", dev->name);
        rc = read_dir(r, path, PVN_TOPO_COUNTER_HW, c);
    }
    return rc;
}

static int read_interface(const struct reading *r, struct pvn_topo_counted *c)
{
    const char *name = r->t->nets[c->net].name;
    char path[256];
    int rc;

    snprintf(path, sizeof(path), "/sys/class/net/%s/statistics", name);
    rc = read_dir(r, path, PVN_TOPO_COUNTER_NET, c);
    if (rc == 0 && r->ethtool)
        rc = pvn_topo_ethtool_stats(r->ethtool, name, each_stat, c);
    return rc == -ENOMEM ? rc : 0;
}

/* ---- which devices ---- */

static bool named(const struct reading *r, const char *name)
{
    for (int i = 0; i < r->nnames; i++)
        if (strcmp(r->names[i], name) == 0)
            return true;
    return false;
}

static bool port_chosen(const struct reading *r, int rdma, int port)
{
    const struct pvn_topo_rdma *dev = &r->t->rdmas[rdma];
    char name[PVN_TOPO_NAME_MAX + 16];

    snprintf(name, sizeof(name), "%s:%d", dev->name, dev->ports[port].num);
    return r->nnames == 0 || named(r, dev->name) || named(r, name);
}

static bool is_of_port(const struct reading *r, int net)
{
    for (int i = 0; i < r->t->nrdmas; i++) {
        for (int p = 0; p < r->t->rdmas[i].nports; p++)
            if (r->t->rdmas[i].ports[p].netdev == net && port_chosen(r, i, p))
                return true;
    }
    return false;
}

static bool net_chosen(const struct reading *r, int index)
{
    const struct pvn_topo_net *net = &r->t->nets[index];

    if (is_of_port(r, index))
        return true;
    if (r->nnames == 0)
        return net->pci >= 0;
    if (named(r, net->name) || (net->master >= 0 && named(r, r->t->nets[net->master].name)))
        return true;
    for (int i = 0; i < r->t->nnets; i++)
        if (r->t->nets[i].lower == index && named(r, r->t->nets[i].name))
            return true;
    return false;
}

static int add_device(const struct reading *r, int rdma, int port, int net)
{
    struct pvn_topo_counted *c = pvn_topo_array_add((void **)&r->out->list, &r->out->n, sizeof(*c));

    if (!c)
        return -ENOMEM;
    *c = (struct pvn_topo_counted){.rdma = rdma, .port = port, .net = net};
    return rdma >= 0 ? read_port(r, c) : read_interface(r, c);
}

int pvn_topo_look_read(struct pvn_topo_fs *fs, const struct pvn_topo *topo,
                       const char *const *names, int nnames, const struct pvn_topo_ethtool *ethtool,
                       struct pvn_topo_look *out)
{
    const struct reading r = {fs, topo, names, nnames, ethtool, out};
    int rc = 0;

    *out = (struct pvn_topo_look){0};
    for (int i = 0; i < topo->nrdmas; i++) {
        for (int p = 0; rc == 0 && p < topo->rdmas[i].nports; p++)
            if (port_chosen(&r, i, p))
                rc = add_device(&r, i, p, topo->rdmas[i].ports[p].netdev);
    }
    for (int i = 0; rc == 0 && i < topo->nnets; i++)
        if (net_chosen(&r, i))
            rc = add_device(&r, -1, -1, i);
    if (rc != 0)
        pvn_topo_look_free(out);
    return rc;
}

void pvn_topo_look_free(struct pvn_topo_look *look)
{
    for (int i = 0; i < look->n; i++)
        free(look->list[i].counters);
    free(look->list);
    *look = (struct pvn_topo_look){0};
}

int pvn_topo_look_counters(const struct pvn_topo_look *look)
{
    int n = 0;

    for (int i = 0; i < look->n; i++)
        n += look->list[i].n;
    return n;
}

const char *pvn_topo_counted_name(const struct pvn_topo *topo, const struct pvn_topo_counted *c,
                                  char *buf, size_t cap)
{
    if (c->rdma >= 0) {
        snprintf(buf, cap, "%.50s port %d", topo->rdmas[c->rdma].name,
                 topo->rdmas[c->rdma].ports[c->port].num);
    } else {
        snprintf(buf, cap, "%s", topo->nets[c->net].name);
    }
    return buf;
}

uint64_t pvn_topo_look_growth(const struct pvn_topo_look *first, const struct pvn_topo_look *second,
                              int counted, int counter)
{
    const struct pvn_topo_counted *now = &second->list[counted];
    const struct pvn_topo_counter *c = &now->counters[counter];

    for (int i = 0; i < first->n; i++) {
        const struct pvn_topo_counted *then = &first->list[i];

        if (then->rdma != now->rdma || then->port != now->port || then->net != now->net)
            continue;
        for (int k = 0; k < then->n; k++)
            if (then->counters[k].info == c->info && strcmp(then->counters[k].name, c->name) == 0)
                return c->value > then->counters[k].value ? c->value - then->counters[k].value : 0;
    }
    return 0;
}
