/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat in Prometheus's text exposition format, version 0.0.4: all samples of a metric
 * follow its HELP and TYPE. Counters are sums over a process's comms, open and closed, for each
 * device, direction and set of transports. Series of single comms must be requested. Dead processes
 * are left out, so that their series end. */
#include "topo/tool/stat/stat.h"

#include <string.h>

#include "plugin/stats/stat_via.h"

/* Writes the labels that begin every sample of a process. */
static void process_labels(FILE *out, const struct pvn_stats *f)
{
    fprintf(out, "pid=\"%llu\",", (unsigned long long)f->head.id.pid);
    stat_prom_label(out, "host", f->head.id.host);
    fputc(',', out);
    stat_prom_label(out, "rank", f->head.rank);
}

/* Writes the peer without its port and pid. These change with every connection, and each value of a
 * label is a series that Prometheus keeps. */
static void peer_label(FILE *out, const struct pvn_stat_row *r)
{
    char peer[sizeof(r->peer_addr) + 1];
    char *colon;

    if (r->peer_host[0]) {
        stat_prom_label(out, "peer", r->peer_host);
        return;
    }
    snprintf(peer, sizeof(peer), "%s", r->peer_addr);
    colon = strrchr(peer, ':');
    if (colon)
        *colon = '\0';
    stat_prom_label(out, "peer", peer);
}

static void comm_labels(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    process_labels(out, f);
    fprintf(out, ",comm=\"%llu\",direction=\"%s\",", (unsigned long long)r->id,
            r->sender ? "send" : "recv");
    stat_prom_label(out, "device", r->device);
    fputc(',', out);
    peer_label(out, r);
}

static double up(const struct pvn_stats *f)
{
    return f->life == PVN_STATS_ALIVE;
}
static double stopped(const struct pvn_stats *f)
{
    return f->state == 'T' || f->state == 't';
}
static double last_call(const struct pvn_stats *f)
{
    return stat_wall(f, f->head.touched_ns ? f->head.touched_ns : f->head.mono_ns);
}
static double began(const struct pvn_stats *f)
{
    return stat_wall(f, f->head.mono_ns);
}
static double comms(const struct pvn_stats *f)
{
    return (double)f->head.comms;
}
static double failed(const struct pvn_stats *f)
{
    return f->head.failed;
}
static double untracked(const struct pvn_stats *f)
{
    return f->head.untracked;
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const struct pvn_stats *f);
} of_process[] = {
    {"process_up", "gauge", "1 while the process exists, 0 when its file is all that is left.", up},
    {"process_stopped", "gauge", "1 while the process is stopped by a signal or a debugger.",
     stopped},
    {"process_last_call_time_seconds", "gauge",
     "When NCCL last called the plugin for any connection, since the epoch.", last_call},
    {"process_start_time_seconds", "gauge", "When the plugin was initialised, since the epoch.",
     began},
    {"comms_total", "counter", "Connections and listeners that the process has opened.", comms},
    {"comms_failed_total", "counter", "Connections that have failed.", failed},
    {"comms_untracked_total", "counter",
     "Connections without statistics because the file has no row left.", untracked},
};

static const struct {
    const char *name, *help;
    size_t offset; /* in struct pvn_stat_counts */
    size_t total;  /* in struct pvn_stat_total */
    uint64_t known;
    const char *label; /* a further label with its value, or "" */
} counters[] = {
#define AT(f) offsetof(struct pvn_stat_counts, f), offsetof(struct pvn_stat_total, f)
    {"messages_total", "Messages completed.", AT(msgs), 0, ""},
    {"bytes_total", "Bytes of completed messages.", AT(bytes), 0, ""},
    {"chunks_total", "Pieces of messages posted or arrived.", AT(chunks), 0, ""},
    {"unexpected_total",
     "Unexpected messages: they arrived before a buffer with their tag was posted.", AT(unexpected),
     0, ""},
    {"lane_full_total", "Posts refused by a lane because its send queue or socket was full.",
     AT(lane_full), 0, ""},
    {"empty_polls_total", "Polls of a lane that found no event.", AT(empty_polls), 0, ""},
    {"doorbells_total", "Doorbells of an RDMA adapter, by what rang them.", AT(doorbells_send),
     PVN_STAT_KNOWS_DOORBELLS, ",by=\"send\""},
    {"doorbells_total", NULL, AT(doorbells_recv), PVN_STAT_KNOWS_DOORBELLS, ",by=\"recv\""},
    {"doorbells_total", NULL, AT(doorbells_empty), PVN_STAT_KNOWS_DOORBELLS, ",by=\"empty_poll\""},
    {"tcp_retransmits_total", "TCP segments retransmitted.", AT(retransmits),
     PVN_STAT_KNOWS_RETRANSMITS, ""},
    {"failovers_total", "Times that the lanes of a comm were lost and replaced.", AT(failovers), 0,
     ""},
    {"failbacks_total", "Times that a comm returned to better lanes.", AT(failbacks), 0, ""},
    {"replayed_messages_total", "Messages sent again on other lanes.", AT(replayed), 0, ""},
#undef AT
};

enum { COUNTERS = sizeof(counters) / sizeof(counters[0]) };

/* ---- sums of a process over comms of one device, direction and set of transports ---- */

struct sums {
    const char *device;
    uint32_t sender, via;
    uint64_t known;
    uint64_t value[COUNTERS];
    uint64_t open, up;
    double stalled; /* longest stall, seconds */
};

enum { KINDS = 64 };

static struct sums *sums_for(struct sums *all, int *n, const char *device, uint32_t sender,
                             uint32_t via)
{
    for (int i = 0; i < *n; i++)
        if (all[i].sender == sender && all[i].via == via && strcmp(all[i].device, device) == 0)
            return &all[i];
    if (*n == KINDS)
        return NULL; /* more devices than a machine has */
    all[*n] = (struct sums){.device = device, .sender = sender, .via = via};
    return &all[(*n)++];
}

/* Sums up open comms, closed comms, and comms whose rows were reused. */
static int sum_up(const struct pvn_stats *f, struct sums *all)
{
    int n = 0;
    for (int i = 0; i < f->nrows; i++) {
        const struct pvn_stat_row *r = &f->row[i];
        /* A comm without lanes is not up yet and has carried nothing. */
        uint32_t via = pvn_via_of_lanes(r->lanes);
        struct sums *s =
            stat_is_comm(r) && via ? sums_for(all, &n, r->device, r->sender, via) : NULL;
        if (!s)
            continue;
        s->known |= r->n.known;
        for (int m = 0; m < COUNTERS; m++)
            s->value[m] += *(const uint64_t *)((const char *)&r->n + counters[m].offset);
        if (r->ended_ns)
            continue;
        s->open += r->n.open;
        s->up += r->phase == PVN_STAT_UP;
        if (stat_stalled(f, r) > s->stalled)
            s->stalled = stat_stalled(f, r);
    }
    for (int i = 0; i < PVN_STAT_TOTALS && f->head.total[i].device[0]; i++) {
        const struct pvn_stat_total *t = &f->head.total[i];
        struct sums *s = sums_for(all, &n, t->device, t->sender, t->via);
        if (!s)
            continue;
        s->known |= (t->via & PVN_VIA_RDMA ? PVN_STAT_KNOWS_DOORBELLS : 0) |
                    (t->via & PVN_VIA_TCP ? PVN_STAT_KNOWS_RETRANSMITS : 0);
        for (int m = 0; m < COUNTERS; m++)
            s->value[m] += *(const uint64_t *)((const char *)t + counters[m].total);
    }
    return n;
}

static void sum_labels(FILE *out, const struct pvn_stats *f, const struct sums *s)
{
    char via[24];
    process_labels(out, f);
    fprintf(out, ",direction=\"%s\",", s->sender ? "send" : "recv");
    stat_prom_label(out, "device", s->device);
    fputc(',', out);
    stat_prom_label(out, "transport", pvn_via_text(s->via, via, sizeof(via)));
}

/* Writes the m-th counter of all processes. The gauges follow the counters. */
static void put_sums(FILE *out, const struct stat_list *list, int m, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        struct sums all[KINDS];
        int n = list->file[i].life == PVN_STATS_DEAD ? 0 : sum_up(&list->file[i], all);
        for (int k = 0; k < n; k++) {
            if (m < COUNTERS && (all[k].known & counters[m].known) != counters[m].known)
                continue;
            fprintf(out, STAT_PROM_PREFIX "%s{", name);
            sum_labels(out, &list->file[i], &all[k]);
            if (m < COUNTERS)
                fprintf(out, "%s} %llu\n", counters[m].label, (unsigned long long)all[k].value[m]);
            else if (m == COUNTERS)
                fprintf(out, "} %llu\n", (unsigned long long)all[k].open);
            else if (m == COUNTERS + 1)
                fprintf(out, "} %llu\n", (unsigned long long)all[k].up);
            else
                fprintf(out, "} %.3f\n", all[k].stalled);
        }
    }
}

static void sum_metrics(FILE *out, const struct stat_list *list)
{
    for (int m = 0; m < COUNTERS; m++) {
        if (counters[m].help)
            stat_prom_heading(out, counters[m].name, "counter", counters[m].help);
        put_sums(out, list, m, counters[m].name);
    }
    stat_prom_heading(out, "requests_open", "gauge", "Requests that were open at the last look.");
    put_sums(out, list, COUNTERS, "requests_open");
    stat_prom_heading(out, "comms_up", "gauge", "Connections that are up.");
    put_sums(out, list, COUNTERS + 1, "comms_up");
    stat_prom_heading(
        out, "stalled_seconds", "gauge",
        "Seconds without a byte moved on the connection that has waited longest with requests "
        "open; 0: none stalls.");
    put_sums(out, list, COUNTERS + 2, "stalled_seconds");
}

/* ---- processes ---- */

static void process_metrics(FILE *out, const struct stat_list *list)
{
    stat_prom_heading(out, "process_info", "gauge", "What the process is.");
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        fputs(STAT_PROM_PREFIX "process_info{", out);
        process_labels(out, f);
        fputc(',', out);
        stat_prom_label(out, "command", f->head.command);
        fputc(',', out);
        stat_prom_label(out, "plugin", f->head.plugin);
        fprintf(out, ",interface=\"v%u\"} 1\n", f->head.abi);
    }
    for (size_t m = 0; m < sizeof(of_process) / sizeof(of_process[0]); m++) {
        stat_prom_heading(out, of_process[m].name, of_process[m].type, of_process[m].help);
        for (int i = 0; i < list->n; i++) {
            fprintf(out, STAT_PROM_PREFIX "%s{", of_process[m].name);
            process_labels(out, &list->file[i]);
            fprintf(out, "} %.17g\n", of_process[m].value(&list->file[i]));
        }
    }
}

/* ---- comms, if they are requested (--per-comm) ---- */

static bool shown(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    return f->life != PVN_STATS_DEAD && stat_is_comm(r) && r->ended_ns == 0;
}

/* Calls print for every comm that is shown. */
static void each(FILE *out, const struct stat_list *list,
                 void (*print)(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r,
                               size_t m),
                 size_t m)
{
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < list->file[i].nrows; k++)
            if (shown(&list->file[i], &list->file[i].row[k]))
                print(out, &list->file[i], &list->file[i].row[k], m);
    }
}

static void counter(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    if ((r->n.known & counters[m].known) != counters[m].known)
        return;
    fprintf(out, STAT_PROM_PREFIX "comm_%s{", counters[m].name);
    comm_labels(out, f, r);
    fprintf(out, "%s} %llu\n", counters[m].label,
            (unsigned long long)*(const uint64_t *)((const char *)&r->n + counters[m].offset));
}

static void state(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(STAT_PROM_PREFIX "comm_state{", out);
    comm_labels(out, f, r);
    fputc(',', out);
    stat_prom_label(out, "state", r->state);
    fputs("} 1\n", out);
}

static void stalled(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(STAT_PROM_PREFIX "comm_stalled_seconds{", out);
    comm_labels(out, f, r);
    fprintf(out, "} %.3f\n", stat_stalled(f, r));
}

static void looked(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(STAT_PROM_PREFIX "comm_last_call_time_seconds{", out);
    comm_labels(out, f, r);
    fprintf(out, "} %.3f\n", stat_wall(f, r->n.look_ns));
}

static void comm_metrics(FILE *out, const struct stat_list *list)
{
    char name[64];
    for (size_t m = 0; m < COUNTERS; m++) {
        snprintf(name, sizeof(name), "comm_%s", counters[m].name);
        if (counters[m].help)
            stat_prom_heading(out, name, "counter", counters[m].help);
        each(out, list, counter, m);
    }
    stat_prom_heading(out, "comm_state", "gauge", "The connection's state, as a label.");
    each(out, list, state, 0);
    stat_prom_heading(
        out, "comm_stalled_seconds", "gauge",
        "Seconds without a byte moved while requests are open, or without progress of "
        "connecting; 0: no stall.");
    each(out, list, stalled, 0);
    stat_prom_heading(out, "comm_last_call_time_seconds", "gauge",
                      "When NCCL last called the plugin for it, since the epoch.");
    each(out, list, looked, 0);
}

void stat_print_prom(const struct tool *t, const struct stat_list *list)
{
    process_metrics(t->out, list);
    sum_metrics(t->out, list);
    if (t->per_comm)
        comm_metrics(t->out, list);
}
