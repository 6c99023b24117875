/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The report as JSON and as CSV. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/param.h"
#include "base/version.h"
#include "perf/results/mesh_view.h"
#include "perf/rank/messages.h"
#include "perf/options/opts_table.h"
#include "perf/results/report.h"
#include "tools/boot.h"

#define OWN_NAME "pvrdma" /* the name that this project's plugin reports */

static const char *mode_name(const struct pvn_perf_opts *o)
{
    return pvn_perf_options.modes[o->mode].name;
}

static json_t *real_or_null(bool known, double v)
{
    return known ? json_real(v) : json_null();
}

/* A text as JSON. Arguments, paths and parameters may hold any byte; JSON allows only UTF-8. */
static json_t *any_text(const char *s)
{
    json_t *j = json_string(s);
    char *clean = j ? NULL : strdup(s);

    if (!clean)
        return j ? j : json_null();
    for (char *p = clean; *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    j = json_string(clean);
    free(clean);
    return j;
}

static json_t *text_or_null(const char *s)
{
    return s[0] ? any_text(s) : json_null();
}

/* The histogram of a result, from the rows of bins after it. */
static json_t *histogram_json(const struct pvn_report *rep, const struct pvn_row *row)
{
    json_t *list = json_array();

    while (++row < rep->row + rep->nrows && row->kind == PVN_ROW_BINS) {
        for (int i = 0; i < row->u.bins.n; i++) {
            double low, high;

            pvn_report_bin(row->u.bins.bin[i].bin, &low, &high);
            json_array_append_new(list, json_pack("{sf sf sI}", "from_us", low, "to_us", high,
                                                  "count", (json_int_t)row->u.bins.bin[i].count));
        }
    }
    return list;
}

static json_t *result_json(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_result *r = &row->u.result;
    bool latency = strcmp(r->test, "latency") == 0, idle = strcmp(r->test, "idle") == 0;
    char via[24];
    json_t *j =
        json_pack("{ss ss ss si si si si si si sI sI}", "plugin", rep->o->plugin[row->plugin].name,
                  "test", r->test, "item", r->item, "abi", row->abi, "repeat", row->repeat, "ranks",
                  r->ranks, "channels", r->channels, "depth", r->depth, "group", r->group, "bytes",
                  (json_int_t)r->bytes, "iterations", (json_int_t)r->iters);

    if (!j)
        return NULL;
    json_object_set_new(j, "memory", json_string(pvn_memory_name((enum pvn_perf_memory)r->memory)));
    json_object_set_new(j, "memory_how", text_or_null(r->memory_how));
    json_object_set_new(j, "via", text_or_null(pvn_via_text(r->via, via, sizeof(via))));
    json_object_set_new(j, "lanes", text_or_null(r->lanes));
    json_object_set_new(j, "time_us", json_real(r->time_us));
    if (latency) {
        json_object_set_new(j, "min_us", json_real(r->min_us));
        json_object_set_new(j, "p50_us", json_real(r->time_us));
        json_object_set_new(j, "p90_us", json_real(r->p90_us));
        json_object_set_new(j, "p99_us", json_real(r->p99_us));
        json_object_set_new(j, "p999_us", json_real(r->p999_us));
        json_object_set_new(j, "max_us", json_real(r->max_us));
        json_object_set_new(j, "histogram", histogram_json(rep, row));
    }
    if (pvn_report_has_bandwidth(r)) {
        json_object_set_new(j, "algbw_MBps", json_real(r->algbw));
        json_object_set_new(j, "busbw_MBps", real_or_null(pvn_report_has_busbw(r), r->busbw));
        json_object_set_new(j, "algbw_Gbps", json_real(pvn_report_gbps(r->algbw)));
        json_object_set_new(j, "busbw_Gbps",
                            real_or_null(pvn_report_has_busbw(r), pvn_report_gbps(r->busbw)));
        json_object_set_new(j, "cpu_s_per_GB", real_or_null(pvn_report_has_cpu(r), r->cpu));
    }
    if (strcmp(r->test, "soak") == 0) {
        json_object_set_new(j, "messages", json_integer((json_int_t)r->got_messages));
        json_object_set_new(j, "message_bytes", json_integer((json_int_t)r->got_bytes));
        json_object_set_new(j, "failovers", json_integer((json_int_t)r->failovers));
        json_object_set_new(j, "failbacks", json_integer((json_int_t)r->failbacks));
    }
    if (r->from != r->to) {
        json_object_set_new(j, "from", json_integer(r->from));
        json_object_set_new(j, "to", json_integer(r->to));
    }
    if (r->rate > 0)
        json_object_set_new(j, "messages_per_s", json_real(r->rate));
    if (idle || r->rss > 0)
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
        const char *what = pvn_report_is_time(&s->key)     ? "time"
                           : pvn_report_has_busbw(&s->key) ? "busbw"
                                                           : "algbw";
        char via[24];
        json_t *j = json_pack(
            "{ss ss ss si sI si ss ss sf sf sf}", "plugin", rep->o->plugin[s->plugin].name, "test",
            s->key.test, "item", s->key.item, "ranks", s->key.ranks, "bytes",
            (json_int_t)s->key.bytes, "repeats", s->n, "value", what, "unit",
            what[0] == 't' ? "us" : "MBps", "median", s->median, "min", s->low, "max", s->high);

        json_object_set_new(j, "via", text_or_null(pvn_via_text(s->via, via, sizeof(via))));
        json_object_set_new(j, "cpu_s_per_GB", real_or_null(pvn_report_has_cpu(&s->key), s->cpu));
        json_object_set_new(j, "messages_per_s", real_or_null(s->rate > 0, s->rate));
        if (rep->baseline) {
            double then = pvn_baseline_median(rep->baseline, rep, s);

            json_object_set_new(j, "baseline_median", real_or_null(then > 0, then));
        }
        json_array_append_new(list, j);
    }
    free(sum);
    return list;
}

/* ---- the run ---- */

/* Sets the variables of --env for one plugin; old[i] gets the previous values, for `back` to
 * restore. */
static void swap_env(const struct pvn_perf_opts *o, const char *plugin, char **old, bool back)
{
    for (int i = 0; i < o->nenv; i++) {
        int k = back ? o->nenv - 1 - i : i;
        const struct pvn_perf_env *e = &o->env[k];

        if (e->plugin[0] && strcmp(e->plugin, plugin) != 0)
            continue;
        if (!back) {
            old[k] = getenv(e->key) ? strdup(getenv(e->key)) : NULL;
            setenv(e->key, e->value, 1);
        } else if (old[k]) {
            setenv(e->key, old[k], 1);
            free(old[k]);
        } else {
            unsetenv(e->key);
        }
    }
}

/* The parameters of this project's plugin that were in effect for the ranks; null for other
 * plugins, and if a value is invalid. */
static json_t *parameters_json(const struct pvn_perf_opts *o, const char *plugin)
{
    struct pvn_err err = PVN_ERR_INIT;
    char *old[PVN_PERF_MAX_ENV] = {NULL}, stall_warn[32];
    bool warns;
    json_t *j = json_null();
    size_t count;
    const struct pvn_param_def *table = pvn_param_table(&count);

    swap_env(o, plugin, old, false);
    warns = pvn_opts_stall_warn(o, stall_warn, sizeof(stall_warn));
    if (warns)
        setenv(PVN_PERF_STALL_WARN, stall_warn, 1);
    pvn_log_set_level(PVN_LOG_NONE); /* the ranks have printed the warnings already */
    if (pvn_params_load(&err) == 0) {
        j = json_object();
        for (size_t i = 0; i < count; i++) {
            char text[PVN_PARAM_STR_LEN], name[128];

            snprintf(name, sizeof(name), PVN_PARAM_PREFIX "%s", table[i].name);
            json_object_set_new(
                j, name,
                any_text(pvn_param_format(&table[i], pvn_params_get(), text, sizeof(text))));
        }
    }
    pvn_params_unload();
    if (warns)
        unsetenv(PVN_PERF_STALL_WARN);
    swap_env(o, plugin, old, true);
    return j;
}

static json_t *plugins_json(const struct pvn_report *rep)
{
    json_t *list = json_array();

    for (int p = 0; p < rep->o->nplugins; p++) {
        const char *name = rep->o->plugin[p].name;
        const struct pvn_row *row = NULL;
        json_t *j;

        for (int i = 0; i < rep->nrows && !row; i++)
            if (rep->row[i].kind == PVN_ROW_PLUGIN && rep->row[i].plugin == p)
                row = &rep->row[i];
        if (!row)
            continue; /* the plugin was not loaded */
        j = json_pack("{so so si so}", "plugin", any_text(name), "name",
                      any_text(row->u.plugin.name), "abi", row->abi, "path",
                      any_text(row->u.plugin.path));
        json_object_set_new(j, "sha256", text_or_null(row->u.plugin.sha256));
        json_object_set_new(j, "parameters",
                            strcmp(row->u.plugin.name, OWN_NAME) == 0
                                ? parameters_json(rep->o, name)
                                : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

/* The server's end as JSON; null without one. */
static json_t *server_json(const struct pvn_report *rep)
{
    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row_peer *p = &rep->row[i].u.peer;
        json_t *j;

        if (rep->row[i].kind != PVN_ROW_PEER)
            continue;
        j = json_pack("{so so so si so}", "host", any_text(p->host), "version",
                      any_text(p->version), "name", any_text(p->name), "abi", p->abi, "path",
                      any_text(p->path));
        json_object_set_new(j, "plugin_version", text_or_null(p->plugin_version));
        json_object_set_new(j, "sha256", text_or_null(p->sha256));
        return j;
    }
    return json_null();
}

static json_t *root_json(const struct pvn_report *rep, int status)
{
    const struct pvn_run_info *run = &rep->run;
    json_t *command = json_array();
    json_t *root =
        json_pack("{ss si ss ss ss ss sb sb si}", "schema", "pvn-perf.schema.json", "format",
                  PVN_REPORT_FORMAT, "tool", "pvn-perf", "version", pvn_version(), "mode",
                  mode_name(rep->o), "started", run->started, "ok", status == PVN_PERF_OK,
                  "interrupted", status >= PVN_PERF_INTERRUPTED, "status", status);

    for (int i = 0; i < run->argc; i++)
        json_array_append_new(command, any_text(run->argv[i]));
    json_object_set_new(root, "error", text_or_null(rep->error));
    json_object_set_new(root, "command", command);
    json_object_set_new(root, "seconds", json_real(pvn_now_s() - run->began));
    json_object_set_new(root, "host", any_text(run->host));
    json_object_set_new(root, "kernel", json_string(run->kernel));
    json_object_set_new(root, "cpu", text_or_null(run->cpu));
    json_object_set_new(root, "cpus", json_integer(run->cpus));
    json_object_set_new(root, "preset", text_or_null(rep->o->preset));
    json_object_set_new(root, "type",
                        rep->o->mode == PVN_PERF_P2P || rep->o->mode == PVN_PERF_MESH
                            ? json_null()
                            : json_string(pvn_type_name(rep->o->type)));
    json_object_set_new(root, "baseline",
                        rep->baseline
                            ? json_pack("{so si si}", "file", any_text(rep->o->baseline),
                                        "tolerance_percent", rep->o->tolerance, "worse", rep->worse)
                            : json_null());
    return root;
}

int pvn_report_json(const struct pvn_report *rep, FILE *f, int status)
{
    json_t *root = root_json(rep, status);
    json_t *devices = json_array(), *results = json_array(), *doorbells = json_array();
    int rc;

    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];

        if (row->kind == PVN_ROW_RESULT)
            json_array_append_new(results, result_json(rep, row));
        else if (row->kind == PVN_ROW_DOORBELLS)
            json_array_append_new(doorbells, doorbells_json(rep, row));
        else if (row->kind == PVN_ROW_DEVICE)
            json_array_append_new(devices, device_json(rep, row));
    }
    json_object_set_new(root, "plugins", plugins_json(rep));
    json_object_set_new(root, "server", server_json(rep));
    json_object_set_new(root, "devices", devices);
    json_object_set_new(root, "results", results);
    json_object_set_new(root, "doorbells", doorbells);
    if (rep->o->mode == PVN_PERF_MESH)
        json_object_set_new(root, "mesh", pvn_mesh_json(rep));
    json_object_set_new(root, "summary", summary_json(rep));
    rc = root ? json_dumpf(root, f, JSON_INDENT(2) | JSON_REAL_PRECISION(7)) : -1;
    json_decref(root);
    if (!rc && fputc('\n', f) == EOF)
        rc = -1;
    return rc ? -(errno ? errno : EIO) : 0;
}

int pvn_report_line(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_interval *i = &row->u.interval;
    double MBps = i->seconds > 0 ? (double)i->bytes / i->seconds / 1e6 : 0;
    char via[24];
    json_t *j = json_pack(
        "{ss ss sI sf sf sf sf sI sI sI sI sb}", "tool", "pvn-perf", "plugin",
        rep->o->plugin[row->plugin].name, "bytes", (json_int_t)i->bytes_each, "from_s", i->from,
        "to_s", i->to, "busbw_MBps", MBps, "busbw_Gbps", pvn_report_gbps(MBps), "messages",
        (json_int_t)i->messages, "message_bytes", (json_int_t)i->bytes, "failovers",
        (json_int_t)i->failovers, "failbacks", (json_int_t)i->failbacks, "checked", i->errors >= 0);
    int rc;

    if (!j)
        return -ENOMEM;
    json_object_set_new(j, "errors", i->errors >= 0 ? json_integer(i->errors) : json_null());
    json_object_set_new(j, "via", text_or_null(pvn_via_text(i->via, via, sizeof(via))));
    errno = 0;
    rc = json_dumpf(j, rep->lines, JSON_COMPACT | JSON_REAL_PRECISION(7));
    json_decref(j);
    if (!rc && (fputc('\n', rep->lines) == EOF || fflush(rep->lines)))
        rc = -1;
    return rc ? -(errno ? errno : EIO) : 0;
}

/* ---- CSV ---- */

/* Writes ",value", or "," for a value that was not measured. */
static void put_real(FILE *f, bool known, int digits, double v)
{
    if (known)
        fprintf(f, ",%.*f", digits, v);
    else
        fputc(',', f);
}

static void put_result(FILE *f, const struct pvn_row_result *r)
{
    bool latency = strcmp(r->test, "latency") == 0, bandwidth = pvn_report_has_bandwidth(r);
    char via[24];

    fprintf(f, "%s,%s,%d,%d,%d,%d,%llu,%llu", r->test, r->item, r->ranks, r->channels, r->depth,
            r->group, (unsigned long long)r->bytes, (unsigned long long)r->iters);
    put_real(f, true, 3, r->time_us);
    put_real(f, latency, 3, r->min_us);
    put_real(f, latency, 3, r->p99_us);
    put_real(f, bandwidth, 3, r->algbw);
    put_real(f, pvn_report_has_busbw(r), 3, r->busbw);
    put_real(f, r->rate > 0, 1, r->rate);
    put_real(f, pvn_report_has_cpu(r), 5, r->cpu);
    put_real(f, r->rss > 0, 2, r->rss);
    put_real(f, r->errors >= 0, 0, (double)r->errors);
    /* No lane's description has a quotation mark. */
    fprintf(f, r->lanes[0] ? ",,%s,\"%s\"" : ",,%s,%s", pvn_via_text(r->via, via, sizeof(via)),
            r->lanes);
    put_real(f, latency, 3, r->p90_us);
    put_real(f, latency, 3, r->p999_us);
    put_real(f, latency, 3, r->max_us);
    put_real(f, bandwidth, 4, pvn_report_gbps(r->algbw));
    put_real(f, pvn_report_has_busbw(r), 4, pvn_report_gbps(r->busbw));
    fprintf(f, ",%s\n", pvn_memory_name((enum pvn_perf_memory)r->memory));
}

/* Writes a line per bin: the number of round trips as iterations, the edges as min_us and
 * max_us. */
static void put_bins(const struct pvn_report *rep, FILE *f, const struct pvn_row *row,
                     const struct pvn_row_result *of)
{
    for (int i = 0; i < row->u.bins.n; i++) {
        double low, high;

        pvn_report_bin(row->u.bins.bin[i].bin, &low, &high);
        fprintf(f, "%s,%d,%d,histogram,,%d,%d,%d,%d,%llu,%llu,,%.3f,,,,,,,,,,,,,%.3f,,,\n",
                rep->o->plugin[row->plugin].name, row->abi, row->repeat, of->ranks, of->channels,
                of->depth, of->group, (unsigned long long)of->bytes,
                (unsigned long long)row->u.bins.bin[i].count, low, high);
    }
}

int pvn_report_csv(const struct pvn_report *rep, FILE *f, int status)
{
    const struct pvn_row_result *of = NULL; /* the result to which bins belong */

    (void)status;
    fputs("plugin,abi,repeat,test,item,ranks,channels,depth,group,bytes,iterations,time_us,min_us,"
          "p99_us,algbw_MBps,busbw_MBps,messages_per_s,cpu_s_per_GB,rss_KiB_per_comm,errors,"
          "doorbells_per_message,via,lanes,p90_us,p999_us,max_us,algbw_Gbps,busbw_Gbps,memory\n",
          f);
    for (int i = 0; i < rep->nrows; i++) {
        const struct pvn_row *row = &rep->row[i];

        if (row->kind == PVN_ROW_BINS && of)
            put_bins(rep, f, row, of);
        if (row->kind == PVN_ROW_RESULT)
            of = &row->u.result;
        if (row->kind != PVN_ROW_DOORBELLS && row->kind != PVN_ROW_RESULT)
            continue;
        fprintf(f, "%s,%d,%d,", rep->o->plugin[row->plugin].name, row->abi, row->repeat);
        if (row->kind == PVN_ROW_RESULT)
            put_result(f, &row->u.result);
        else
            fprintf(f, "doorbells,,%d,,,,,%llu,,,,,,,,,,%.4f,,,,,,,,\n", row->u.doorbells.ranks,
                    (unsigned long long)row->u.doorbells.sum.msgs,
                    pvn_report_per_message(&row->u.doorbells.sum));
    }
    return ferror(f) ? -(errno ? errno : EIO) : 0;
}
