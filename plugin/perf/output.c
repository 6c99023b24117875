/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The report as JSON and as CSV. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "perf/report.h"

static const char *mode_name(const struct pvn_perf_opts *o)
{
    return o->mode == PVN_PERF_P2P ? "p2p" : o->mode == PVN_PERF_RING ? "ring" : "scale";
}

static json_t *result_json(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_result *r = &row->u.result;
    json_t *j =
        json_pack("{ss ss ss si si si si si si sI sI}", "plugin", rep->o->plugin[row->plugin].name,
                  "test", r->test, "item", r->item, "abi", row->abi, "repeat", row->repeat, "ranks",
                  r->ranks, "channels", r->channels, "depth", r->depth, "group", r->group, "bytes",
                  (json_int_t)r->bytes, "iterations", (json_int_t)r->iters);

    if (!j)
        return NULL;
    json_object_set_new(j, "time_us", json_real(r->time_us));
    if (strcmp(r->test, "latency") == 0) {
        json_object_set_new(j, "min_us", json_real(r->min_us));
        json_object_set_new(j, "p99_us", json_real(r->p99_us));
    } else {
        json_object_set_new(j, "algbw_MBps", json_real(r->algbw));
        json_object_set_new(j, "busbw_MBps", json_real(r->busbw));
        json_object_set_new(j, "cpu_s_per_GB", json_real(r->cpu));
    }
    if (r->rate > 0)
        json_object_set_new(j, "messages_per_s", json_real(r->rate));
    if (strcmp(r->test, "idle") == 0)
        json_object_set_new(j, "rss_KiB_per_comm", json_real(r->rss));
    json_object_set_new(j, "checked", json_boolean(r->errors >= 0));
    if (r->errors >= 0)
        json_object_set_new(j, "errors", json_integer(r->errors));
    return j;
}

static json_t *device_json(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_device *d = &row->u.device;
    char guid[24];

    snprintf(guid, sizeof(guid), "0x%016llx", (unsigned long long)d->guid);
    return json_pack("{ss si ss ss si ss ss ss si si sf si si si}", "plugin",
                     rep->o->plugin[row->plugin].name, "rank", d->rank, "host", d->host, "netns",
                     d->netns, "dev", d->dev, "name", d->name, "pci", d->pci, "guid", guid,
                     "speed_Mbps", d->speed, "port", d->port, "latency_us", (double)d->latency,
                     "max_recvs", d->max_recvs, "max_comms", d->max_comms, "ptr_support",
                     d->ptr_support);
}

static json_t *doorbells_json(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_doorbells *b = &row->u.doorbells.sum;

    return json_pack("{ss si si sI sI sI sI sf}", "plugin", rep->o->plugin[row->plugin].name,
                     "repeat", row->repeat, "ranks", row->u.doorbells.ranks, "messages",
                     (json_int_t)b->msgs, "post_send", (json_int_t)b->send, "post_recv",
                     (json_int_t)b->recv, "empty_polls", (json_int_t)b->empty, "per_message",
                     pvn_report_per_message(b));
}

static json_t *summary_json(const struct pvn_report *rep)
{
    json_t *list = json_array();
    int n;
    struct pvn_summary *sum = pvn_report_summary(rep, &n);

    for (int i = 0; sum && i < n; i++) {
        const struct pvn_summary *s = &sum[i];
        int is_time = pvn_report_is_time(&s->key);

        json_array_append_new(list, json_pack("{ss ss ss si sI si ss sf sf sf sf sf}", "plugin",
                                              rep->o->plugin[s->plugin].name, "test", s->key.test,
                                              "item", s->key.item, "ranks", s->key.ranks, "bytes",
                                              (json_int_t)s->key.bytes, "repeats", s->n, "unit",
                                              is_time ? "us" : "MBps", "median", s->median, "min",
                                              s->low, "max", s->high, "cpu_s_per_GB", s->cpu,
                                              "messages_per_s", s->rate));
    }
    free(sum);
    return list;
}

int pvn_report_json(const struct pvn_report *rep, FILE *f, int status)
{
    json_t *root =
        json_pack("{ss ss ss sb si}", "tool", "pvn-perf", "version", pvn_version(), "mode",
                  mode_name(rep->o), "ok", status == PVN_PERF_OK, "status", status);
    json_t *devices = json_array(), *results = json_array(), *doorbells = json_array();
    int rc;

    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];

        if (row->kind == PVN_ROW_RESULT)
            json_array_append_new(results, result_json(rep, row));
        else if (row->kind == PVN_ROW_DOORBELLS)
            json_array_append_new(doorbells, doorbells_json(rep, row));
        else
            json_array_append_new(devices, device_json(rep, row));
    }
    json_object_set_new(root, "preset", json_string(rep->o->preset));
    json_object_set_new(root, "devices", devices);
    json_object_set_new(root, "results", results);
    json_object_set_new(root, "doorbells", doorbells);
    json_object_set_new(root, "summary", summary_json(rep));
    rc = root ? json_dumpf(root, f, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : -1;
    json_decref(root);
    if (!rc && fputc('\n', f) == EOF)
        rc = -1;
    return rc ? -EIO : 0;
}

int pvn_report_csv(const struct pvn_report *rep, FILE *f)
{
    fputs("plugin,abi,repeat,test,item,ranks,channels,depth,group,bytes,iterations,time_us,min_us,"
          "p99_us,algbw_MBps,busbw_MBps,messages_per_s,cpu_s_per_GB,rss_KiB_per_comm,errors,"
          "doorbells_per_message\n",
          f);
    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];
        const struct pvn_row_result *r = &row->u.result;

        if (row->kind == PVN_ROW_DOORBELLS)
            fprintf(f, "%s,%d,%d,doorbells,,%d,,,,,%llu,,,,,,,,,,%.4f\n",
                    rep->o->plugin[row->plugin].name, row->abi, row->repeat, row->u.doorbells.ranks,
                    (unsigned long long)row->u.doorbells.sum.msgs,
                    pvn_report_per_message(&row->u.doorbells.sum));
        if (row->kind != PVN_ROW_RESULT)
            continue;
        fprintf(
            f,
            "%s,%d,%d,%s,%s,%d,%d,%d,%d,%llu,%llu,%.3f,%.3f,%.3f,%.3f,%.3f,%.1f,%.5f,%.2f,%lld,\n",
            rep->o->plugin[row->plugin].name, row->abi, row->repeat, r->test, r->item, r->ranks,
            r->channels, r->depth, r->group, (unsigned long long)r->bytes,
            (unsigned long long)r->iters, r->time_us, r->min_us, r->p99_us, r->algbw, r->busbw,
            r->rate, r->cpu, r->rss, (long long)r->errors);
    }
    return ferror(f) ? -EIO : 0;
}
