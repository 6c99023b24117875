/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The matrices of pvn-perf mesh as a table and as JSON. */
#include "config.h"

#include <math.h>

#include "perf/results/mesh_groups.h"
#include "perf/results/mesh_view.h"

#define TABLE_MAX 20 /* limit of ranks for a matrix on a terminal */
#define SAID_MAX  12 /* sentences printed; JSON has all */

static size_t cell(const struct pvn_mesh_view *v, int from, int to)
{
    return (size_t)from * (size_t)v->n + (size_t)to;
}

static void put_cell(FILE *f, const struct pvn_mesh_panel *p, int from, int to)
{
    double v = p->m.value[from * p->m.n + to];

    if (isnan(v))
        fprintf(f, " %9s", "-");
    else if (v < 0)
        fprintf(f, " %9s", "FAILED");
    else
        fprintf(f, " %8.*f%c", p->m.less_is_better ? 2 : 1, v,
                pvn_mesh_is_slow(&p->m, from, to)       ? '*'
                : pvn_mesh_is_unsteady(&p->m, from, to) ? '~'
                                                        : ' ');
}

static void put_table(const struct pvn_report *rep, const struct pvn_mesh_view *v,
                      const struct pvn_mesh_panel *p)
{
    FILE *f = rep->text;
    char size[24];

    fprintf(f, "\n%s: %s, %s, %s; a row sends, a column receives%s; * slow, ~ slow in part\n",
            rep->o->plugin[v->plugin].name, p->test, p->unit, pvn_report_size(p->bytes, size),
            p->m.less_is_better ? "; half a round trip that the row begins" : "");
    if (v->n > TABLE_MAX && !rep->o->verbose) {
        fprintf(f, "%d x %d paths: --json, --csv and --plot have them, --verbose prints them\n",
                v->n, v->n);
        return;
    }
    fprintf(f, "%-28s", "");
    for (int to = 0; to < v->n; to++)
        fprintf(f, " %8d ", to);
    fputc('\n', f);
    for (int from = 0; from < v->n; from++) {
        fprintf(f, "%4d %-23.23s", from, v->names.rank[from]);
        for (int to = 0; to < v->n; to++)
            put_cell(f, p, from, to);
        fputc('\n', f);
    }
}

static void put_median(const struct pvn_report *rep, const struct pvn_mesh_panel *p)
{
    const char *where[] = {p->m.groups ? "between hosts of a group" : "between hosts",
                           "within a host"};

    for (int i = 0; i < 2; i++) {
        if (!isnan(p->m.median[i]))
            fprintf(rep->text, "%s: median %s: %.2f %s\n", p->test, where[i], p->m.median[i],
                    p->unit);
    }
}

void pvn_mesh_print(const struct pvn_report *rep)
{
    for (int k = 0; k < rep->o->nplugins; k++) {
        struct pvn_mesh_view v;

        if (pvn_mesh_view_make(&v, rep, k))
            continue;
        for (int i = 0; i < 2; i++) {
            const struct pvn_mesh_panel *p = &v.panel[i];

            if (!p->any)
                continue;
            put_table(rep, &v, p);
            put_median(rep, p);
            for (int s = 0; s < p->nsaid && s < SAID_MAX; s++)
                fprintf(rep->text, "%s: %s\n", p->test, p->said[s]);
            if (p->nsaid > SAID_MAX)
                fprintf(rep->text, "%s: and %d more like these (--json has all)\n", p->test,
                        p->nsaid - SAID_MAX);
        }
        pvn_mesh_view_free(&v);
    }
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isnan(v) || v < 0 ? json_null() : json_real(v);
}

static json_t *matrix_json(const struct pvn_mesh_view *v, const double *value)
{
    json_t *rows = json_array();

    for (int from = 0; from < v->n; from++) {
        json_t *row = json_array();

        for (int to = 0; to < v->n; to++)
            json_array_append_new(row, number(value[cell(v, from, to)]));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* One end as JSON: a host, a rank, or the hosts of a group. */
static json_t *end_json(const struct pvn_mesh_view *v, const struct pvn_mesh_panel *p,
                        const struct pvn_mesh_finding *f, int which)
{
    char names[8192];

    if (f->kind != PVN_MESH_GROUPS)
        return json_string(f->hosts ? v->names.host[which] : v->names.rank[which]);
    pvn_mesh_group_names(&p->m, &v->names, which, names, sizeof(names));
    return json_string(names);
}

static json_t *findings_json(const struct pvn_mesh_view *v, const struct pvn_mesh_panel *p)
{
    static const char *const kind[] = {"sends", "receives", "path", "groups"};
    json_t *list = json_array();

    for (int i = 0; i < p->nfind; i++) {
        const struct pvn_mesh_finding *f = &p->find[i];
        json_t *j = json_pack("{ss si si si}", "kind", kind[f->kind], "slow", f->slow, "of", f->of,
                              "failed", f->failed);

        json_object_set_new(j, "who", end_json(v, p, f, f->who));
        json_object_set_new(j, "to",
                            f->kind >= PVN_MESH_PATH ? end_json(v, p, f, f->to) : json_null());
        json_object_set_new(j, "ratio", json_real(f->ratio));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *panel_json(const struct pvn_mesh_view *v, const struct pvn_mesh_panel *p)
{
    json_t *said, *j;

    if (!p->any)
        return json_null();
    said = json_array();
    for (int i = 0; i < p->nsaid; i++)
        json_array_append_new(said, json_string(p->said[i]));
    j = json_pack("{ss sI sf so}", "unit", p->m.less_is_better ? "us" : "MBps", "bytes",
                  (json_int_t)p->bytes, "slow_below", p->m.slow, "verdict", said);
    json_object_set_new(j, "median_between_hosts", number(p->m.median[0]));
    json_object_set_new(j, "median_within_host", number(p->m.median[1]));
    json_object_set_new(j, "matrix", matrix_json(v, p->m.value));
    json_object_set_new(j, "best", matrix_json(v, p->m.best));
    json_object_set_new(j, "ratio", matrix_json(v, p->m.ratio));
    json_object_set_new(j, "findings", findings_json(v, p));
    return j;
}

static json_t *failures_json(const struct pvn_report *rep, int plugin)
{
    json_t *list = json_array();

    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];

        if (row->kind == PVN_ROW_PATH_FAILED && row->plugin == plugin)
            json_array_append_new(list, json_pack("{s[ii] si ss}", "ranks", row->u.failed.a,
                                                  row->u.failed.b, "repeat", row->repeat, "why",
                                                  row->u.failed.why));
    }
    return list;
}

json_t *pvn_mesh_json(const struct pvn_report *rep)
{
    json_t *list = json_array();

    for (int k = 0; k < rep->o->nplugins; k++) {
        struct pvn_mesh_view v;
        json_t *names = json_array(), *j;

        if (pvn_mesh_view_make(&v, rep, k)) {
            json_decref(names);
            continue;
        }
        for (int i = 0; i < v.n; i++)
            json_array_append_new(names, json_string(v.names.rank[i]));
        j = json_pack("{ss so}", "plugin", rep->o->plugin[k].name, "ranks", names);
        json_object_set_new(j, "latency", panel_json(&v, &v.panel[0]));
        json_object_set_new(j, "bandwidth", panel_json(&v, &v.panel[1]));
        json_object_set_new(j, "failures", failures_json(rep, k));
        json_array_append_new(list, j);
        pvn_mesh_view_free(&v);
    }
    return list;
}
