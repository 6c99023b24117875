/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/results/mesh_view.h"
#include "perf/results/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Finds each rank's first device; *n of them are known. malloc'ed; NULL if *n is 0 or memory is
 * short. */
static const struct pvn_row_device **find_devices(const struct pvn_report *rep, int plugin, int *n)
{
    const struct pvn_row_device **of = calloc((size_t)rep->nrows + 1, sizeof(*of));

    *n = 0;
    for (int i = 0; of && i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];

        /* Devices are reported in the order of the ranks. */
        if (row->kind == PVN_ROW_DEVICE && row->plugin == plugin && row->u.device.rank == *n)
            of[(*n)++] = &row->u.device;
    }
    return of;
}

/* True if two ranks are on one host. A network namespace counts as a host. */
static bool same_host(const struct pvn_row_device *a, const struct pvn_row_device *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->netns, b->netns) == 0;
}

static void name_ranks(struct pvn_mesh_view *v, const struct pvn_row_device *const *device)
{
    for (int i = 0; i < v->n; i++) {
        const struct pvn_row_device *d = device[i];
        const char *where = d->netns[0] ? d->netns : d->host;
        int host = -1, shared = 0;

        for (int k = 0; k < v->n; k++) {
            if (!same_host(d, device[k]))
                continue;
            host = host < 0 && k < i ? v->host[k] : host;
            shared += k != i;
        }
        v->host[i] = host < 0 ? v->hosts++ : host;
        snprintf(v->names.host[v->host[i]], sizeof(*v->names.host), "%s %s",
                 d->netns[0] ? "namespace" : "host", where);
        if (!shared)
            snprintf(v->names.rank[i], sizeof(*v->names.rank), "%s", v->names.host[v->host[i]]);
        else
            snprintf(v->names.rank[i], sizeof(*v->names.rank), "rank %d on %s", i, where);
    }
}

/* Fills a panel with medians over the repeats. A failed repeat outweighs the others. */
static int fill(struct pvn_mesh_panel *p, const struct pvn_mesh_view *v,
                const struct pvn_report *rep)
{
    size_t all = (size_t)v->n * (size_t)v->n, repeats = (size_t)rep->o->repeat;
    double *seen = calloc(all * repeats + 1, sizeof(*seen));
    int *count = calloc(all + 1, sizeof(*count));

    for (size_t c = 0; c < all; c++)
        p->m.best[c] = NAN; /* fmin and fmax ignore NaN */
    for (int i = 0; seen && count && i < rep->nrows; i++) {
        const struct pvn_row_result *r = &rep->row[i].u.result;
        size_t c = (size_t)r->from * (size_t)v->n + (size_t)r->to;

        if (rep->row[i].kind != PVN_ROW_RESULT || rep->row[i].plugin != v->plugin ||
            strcmp(r->test, p->test) != 0 || (size_t)count[c] == repeats)
            continue;
        seen[c * repeats + (size_t)count[c]++] = pvn_report_value(r);
        if (r->best > 0)
            p->m.best[c] =
                p->m.less_is_better ? fmin(r->best, p->m.best[c]) : fmax(r->best, p->m.best[c]);
        p->bytes = r->bytes;
        p->any = true;
    }
    for (size_t c = 0; seen && count && c < all; c++) {
        qsort(&seen[c * repeats], (size_t)count[c], sizeof(*seen), pvn_by_double);
        p->m.value[c] = count[c] ? seen[c * repeats + (size_t)count[c] / 2] : NAN;
    }
    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row_failed *f = &rep->row[i].u.failed;

        if (rep->row[i].kind != PVN_ROW_PATH_FAILED || rep->row[i].plugin != v->plugin)
            continue;
        p->m.value[(size_t)f->a * (size_t)v->n + (size_t)f->b] = PVN_MESH_FAILED;
        p->m.value[(size_t)f->b * (size_t)v->n + (size_t)f->a] = PVN_MESH_FAILED;
        p->any = true;
    }
    free(count);
    free(seen);
    return seen && count ? 0 : -ENOMEM;
}

static int conclude(struct pvn_mesh_panel *p, const struct pvn_mesh_names *names)
{
    int rc = pvn_mesh_ratios(&p->m);

    if (rc)
        return rc;
    p->nfind = pvn_mesh_find(&p->m, &p->find);
    p->said = calloc((size_t)(p->nfind > 0 ? p->nfind : 1) + 1, sizeof(*p->said));
    if (p->nfind < 0 || !p->said)
        return -ENOMEM;
    for (int i = 0; i < p->nfind; i++) {
        const struct pvn_mesh_finding *also = pvn_mesh_other(p->find, p->nfind, i);
        bool apart = also && (also->failed == also->slow) != (p->find[i].failed == p->find[i].slow);

        if (!also || apart || also > &p->find[i])
            pvn_mesh_sentence(&p->m, names, &p->find[i], also, p->said[p->nsaid++], PVN_MESH_SAID);
    }
    if (!p->nfind)
        pvn_mesh_alike(&p->m, names, p->said[p->nsaid++], PVN_MESH_SAID);
    p->nsaid += pvn_mesh_unsteady(&p->m, p->said[p->nsaid], PVN_MESH_SAID);
    return 0;
}

static int make_panel(struct pvn_mesh_panel *p, const struct pvn_mesh_view *v,
                      const struct pvn_report *rep, bool latency)
{
    size_t all = (size_t)v->n * (size_t)v->n;
    int rc;

    p->test = latency ? "latency" : "bandwidth";
    p->unit = latency ? "us" : "MB/s";
    p->bytes = rep->o->size[latency ? 0 : rep->o->nsizes - 1];
    p->m.n = v->n;
    p->m.host = v->host;
    p->m.less_is_better = latency;
    p->m.slow = latency ? PVN_MESH_SLOW_TIME : PVN_MESH_SLOW_BW;
    p->m.value = calloc(all, sizeof(double));
    p->m.best = calloc(all, sizeof(double));
    p->m.ratio = calloc(all, sizeof(double));
    p->m.group = calloc((size_t)v->n, sizeof(int));
    if (!p->m.value || !p->m.best || !p->m.ratio || !p->m.group)
        return -ENOMEM;
    if (!(latency ? rep->o->latency : rep->o->bandwidth))
        return 0;
    rc = fill(p, v, rep);
    return rc ? rc : conclude(p, &v->names);
}

int pvn_mesh_view_make(struct pvn_mesh_view *v, const struct pvn_report *rep, int plugin)
{
    const struct pvn_row_device **device;
    int rc = 0;

    memset(v, 0, sizeof(*v));
    v->plugin = plugin;
    device = find_devices(rep, plugin, &v->n);
    if (!v->n) {
        free(device);
        return -ENOENT;
    }
    v->host = calloc((size_t)v->n, sizeof(*v->host));
    v->names.rank = calloc((size_t)v->n, sizeof(*v->names.rank));
    v->names.host = calloc((size_t)v->n, sizeof(*v->names.host));
    if (!v->host || !v->names.rank || !v->names.host)
        rc = -ENOMEM;
    else
        name_ranks(v, device);
    free(device);
    for (int i = 0; i < 2 && !rc; i++)
        rc = make_panel(&v->panel[i], v, rep, i == 0);
    if (rc)
        pvn_mesh_view_free(v);
    return rc;
}

void pvn_mesh_view_free(struct pvn_mesh_view *v)
{
    for (int i = 0; i < 2; i++) {
        free(v->panel[i].m.value);
        free(v->panel[i].m.best);
        free(v->panel[i].m.ratio);
        free(v->panel[i].m.group);
        free(v->panel[i].find);
        free(v->panel[i].said);
    }
    free(v->host);
    free(v->names.rank);
    free(v->names.host);
}
