/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the adapters that the comms use, with their counters, for people and for
 * Prometheus. */
#include "topo/tool/stat/stat_adapters.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "plugin/stats/stat_via.h"

static int add_device(struct stat_adapters *a, const char *device)
{
    const char **more;
    if (device[0] == '\0')
        return 0;
    for (int i = 0; i < a->devices; i++)
        if (strcmp(a->device[i], device) == 0)
            return 0;
    more = realloc(a->device, ((size_t)a->devices + 1) * sizeof(*more));
    if (!more)
        return -1;
    a->device = more;
    a->device[a->devices++] = device;
    return 0;
}

/* True if the row's device is visible here. An interface of another network namespace may have the
 * name of a different one here. RDMA devices are visible if namespaces share them. */
static bool is_here(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    return !stat_in_other_net(f) || (pvn_via_of_lanes(r->lanes) & PVN_VIA_RDMA) != 0;
}

/* Lists the adapters of this host's processes, living or dead. */
static int list_devices(const struct stat_list *list, struct stat_adapters *a)
{
    int rc = 0;
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        for (int k = 0; f->life != PVN_STATS_ELSEWHERE && k < f->nrows; k++)
            if (is_here(f, &f->row[k]))
                rc = rc < 0 ? rc : add_device(a, f->row[k].device);
    }
    return rc;
}

/* Lists the members of all devices. The caller frees each name and the list. */
static char **members(const struct stat_adapters *a, int *n)
{
    size_t bytes = 0, most = 0;
    for (int i = 0; i < a->devices; i++) {
        bytes += strlen(a->device[i]) + 1;
        most += strlen(a->device[i]) / 2 + 1;
    }
    char **names = malloc(most * sizeof(*names) + bytes), *at, *save = NULL;
    *n = 0;
    if (!names)
        return NULL;
    at = (char *)(names + most);
    for (int i = 0; i < a->devices; i++) {
        size_t len = strlen(a->device[i]) + 1;
        memcpy(at, a->device[i], len);
        for (char *m = strtok_r(at, "+", &save); m; m = strtok_r(NULL, "+", &save))
            names[(*n)++] = m;
        at += len;
    }
    return names;
}

static int read_counters(const struct tool *t, const struct pvn_topo_options *options,
                         struct stat_adapters *a)
{
    const struct pvn_topo_ethtool *ethtool = a->topo->live ? pvn_topo_ethtool_open() : NULL;
    struct pvn_topo_fs *fs = NULL;
    int n, rc = pvn_topo_fs_open_dir(t->root, options->sysfs, &fs);
    char **names = members(a, &n);
    if (rc == 0 && !names)
        rc = -1;
    if (rc == 0)
        rc = pvn_topo_look_read(fs, a->topo, (const char *const *)names, n, ethtool, &a->look);
    a->read_s = pvn_now_s();
    free(names);
    pvn_topo_fs_close(fs);
    pvn_topo_ethtool_close(ethtool);
    return rc;
}

void stat_adapters_read(const struct tool *t, const struct stat_list *list, const char *sysfs,
                        struct stat_adapters *out)
{
    /* The sysfs argument applies only to the root "/"; another root has its own. */
    const struct pvn_topo_options options = {.flags = PVN_TOPO_NO_CONFIG | PVN_TOPO_FIRST_GID,
                                             .sysfs = strcmp(t->root, "/") == 0 ? sysfs : NULL};
    struct pvn_topo_err err;
    *out = (struct stat_adapters){0};
    if (list->saved || list_devices(list, out) < 0 || out->devices == 0)
        return;
    if (pvn_topo_load_dir(t->root, &options, &out->topo, &err) < 0) {
        out->topo = NULL;
        tool_error("the adapters' counters are left out: %s", err.text);
    } else if (read_counters(t, &options, out) < 0) {
        tool_error("the adapters' counters are left out: %s cannot be read", t->root);
    } else if (out->look.n == 0 &&
               (out->topo->unread & (PVN_TOPO_UNREAD_NETS | PVN_TOPO_UNREAD_RDMAS))) {
        tool_report_notes(t->root, out->topo);
        tool_error("the adapters' counters are left out for that");
    }
}

void stat_adapters_free(struct stat_adapters *a)
{
    pvn_topo_look_free(&a->look);
    pvn_topo_free(a->topo);
    free(a->device);
    *a = (struct stat_adapters){0};
}

/* ---- for people ---- */

/* "out_of_sequence 3, packet_seq_err 1" */
static void values(const struct pvn_topo_counted *c, char *out, size_t cap)
{
    out[0] = '\0';
    for (int k = 0; k < c->n; k++) {
        size_t used = strlen(out);
        if (c->counters[k].value > 0)
            snprintf(out + used, cap - used, "%s%s %" PRIu64, used ? ", " : "", c->counters[k].name,
                     c->counters[k].value);
    }
    if (c->n == 0)
        snprintf(out, cap, "its driver shows no counters of faults");
    else if (out[0] == '\0')
        snprintf(out, cap, "%d counters of faults, all zero", c->n);
}

void stat_print_adapters(const struct tool *t, const struct stat_adapters *a)
{
    if (a->look.n > 0)
        fprintf(t->out,
                "\nAdapters of these connections, counted since the drivers were loaded:\n");
    for (int i = 0; i < a->look.n; i++) {
        char name[PVN_TOPO_NAME_MAX], text[1024], shown[1024];
        pvn_topo_counted_name(a->topo, &a->look.list[i], name, sizeof(name));
        values(&a->look.list[i], text, sizeof(text));
        int at = fprintf(t->out, "  %s: ", tool_escape(name, shown, 128));
        tool_wrap(t, at, 6, tool_escape(text, shown, sizeof(shown)));
    }
}

/* "out_of_sequence 3.0, packet_seq_err 1.5"; "" if nothing grew, or if the device is another
 * one. */
static void rates(const struct stat_adapters *before, const struct stat_adapters *now, int i,
                  double seconds, char *out, size_t cap)
{
    const struct pvn_topo_counted *c = &now->look.list[i];
    out[0] = '\0';
    for (int k = 0; k < c->n; k++) {
        size_t used = strlen(out);
        uint64_t grew = pvn_topo_look_growth(&before->look, &now->look, i, k);
        if (grew > 0)
            snprintf(out + used, cap - used, "%s%s %.1f", used ? ", " : "", c->counters[k].name,
                     (double)grew / seconds);
    }
}

/* True if both models have the same devices. Growth is computed by the model's indexes, which
 * change if a device comes or goes. */
static bool same_devices(const struct pvn_topo *a, const struct pvn_topo *b)
{
    bool same = a->nrdmas == b->nrdmas && a->nnets == b->nnets;
    for (int i = 0; same && i < a->nrdmas; i++)
        same = strcmp(a->rdmas[i].name, b->rdmas[i].name) == 0 &&
               a->rdmas[i].nports == b->rdmas[i].nports;
    for (int i = 0; same && i < a->nnets; i++)
        same = strcmp(a->nets[i].name, b->nets[i].name) == 0;
    return same;
}

void stat_print_adapter_rates(const struct tool *t, const struct stat_adapters *before,
                              const struct stat_adapters *now)
{
    double seconds = now->read_s - before->read_s;
    bool headed = false;
    if (!before->topo || !now->topo || seconds <= 0 || !same_devices(before->topo, now->topo))
        return;
    for (int i = 0; i < now->look.n; i++) {
        char name[PVN_TOPO_NAME_MAX], text[1024], shown[1024];
        rates(before, now, i, seconds, text, sizeof(text));
        if (text[0] == '\0')
            continue;
        if (!headed)
            fputs("\nCounters of adapters that grew, per second:\n", t->out);
        headed = true;
        pvn_topo_counted_name(now->topo, &now->look.list[i], name, sizeof(name));
        int at = fprintf(t->out, "  %s: ", tool_escape(name, shown, 128));
        tool_wrap(t, at, 6, tool_escape(text, shown, sizeof(shown)));
    }
}

struct json_t *stat_adapters_json(const struct stat_adapters *before,
                                  const struct stat_adapters *now)
{
    bool both = before->topo && now->topo && same_devices(before->topo, now->topo);
    return json_adapters(now->topo, both ? &before->look : NULL, &now->look);
}

/* ---- for Prometheus ---- */

/* Writes the device's label as the plugin names it: with the port if the device has several. */
static void device_label(FILE *out, const struct pvn_topo *topo, const struct pvn_topo_counted *c)
{
    char name[PVN_TOPO_NAME_MAX + 16], port[16] = "";
    if (c->rdma < 0) {
        snprintf(name, sizeof(name), "%s", topo->nets[c->net].name);
    } else {
        const struct pvn_topo_rdma *r = &topo->rdmas[c->rdma];
        snprintf(port, sizeof(port), "%d", r->ports[c->port].num);
        snprintf(name, sizeof(name), "%s%s%s", r->name, r->nports > 1 ? ":" : "",
                 r->nports > 1 ? port : "");
    }
    stat_prom_label(out, "device", name);
    fputc(',', out);
    stat_prom_label(out, "port", port);
}

static bool is_rdma(const struct pvn_topo *topo, const char *device)
{
    char name[PVN_TOPO_NAME_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, "+:"), device);
    return topo && pvn_topo_find_rdma(topo, name) >= 0;
}

void stat_print_prom_adapters(const struct tool *t, const struct stat_adapters *a)
{
    stat_prom_heading(t->out, "device_info", "gauge",
                      "What the connections' devices are: adapters with RDMA, or interfaces.");
    for (int i = 0; i < a->devices; i++) {
        fputs(STAT_PROM_PREFIX "device_info{", t->out);
        stat_prom_label(t->out, "device", a->device[i]);
        fprintf(t->out, ",kind=\"%s\"} 1\n", is_rdma(a->topo, a->device[i]) ? "rdma" : "interface");
    }
    stat_prom_heading(t->out, "adapter_events_total", "counter",
                      "Counters of the adapters that connections use, as the kernel names them.");
    for (int i = 0; i < a->look.n; i++) {
        const struct pvn_topo_counted *c = &a->look.list[i];
        for (int k = 0; k < c->n; k++) {
            fputs(STAT_PROM_PREFIX "adapter_events_total{", t->out);
            device_label(t->out, a->topo, c);
            fputc(',', t->out);
            stat_prom_label(t->out, "counter", c->counters[k].name);
            fprintf(t->out, ",source=\"%s\",kind=\"%s\"} %" PRIu64 "\n",
                    pvn_topo_counter_source_name(c->counters[k].info->source),
                    pvn_topo_counter_kind_name(c->counters[k].info->kind), c->counters[k].value);
        }
    }
}
