/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat in Prometheus's text exposition format, version 0.0.4: all samples of a metric
 * behind its HELP and TYPE. Comms of dead processes are left out, so that their series end. */
#include "topo/tool/stat.h"

#define PREFIX "nccl_pvrdma_"

static void label(FILE *out, const char *name, const char *value)
{
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

/* What every sample of a process begins with. */
static void process_labels(FILE *out, const struct pvn_stats *f)
{
    fprintf(out, "pid=\"%llu\",", (unsigned long long)f->head.id.pid);
    label(out, "host", f->head.id.host);
    fputc(',', out);
    label(out, "rank", f->head.rank);
}

static void comm_labels(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    char peer[240];
    process_labels(out, f);
    fprintf(out, ",comm=\"%llu\",direction=\"%s\",", (unsigned long long)r->id,
            r->sender ? "send" : "recv");
    label(out, "device", r->device);
    fputc(',', out);
    label(out, "peer", stat_peer(r, peer, sizeof(peer)));
}

static void heading(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

static double up(const struct pvn_stats *f)
{
    return f->life == PVN_STATS_ALIVE;
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
    {"process_start_time_seconds", "gauge", "When the plugin was initialised, since the epoch.",
     began},
    {"comms_total", "counter", "Connections and listeners that the process has opened.", comms},
    {"comms_failed_total", "counter", "Connections that have failed.", failed},
    {"comms_untracked_total", "counter", "Connections without statistics for lack of room.",
     untracked},
};

static const struct {
    const char *name, *type, *help;
    size_t offset; /* in struct pvn_stat_counts */
    uint64_t known;
    const char *label; /* another one, whole, or "" */
} of_comm[] = {
#define AT(f) offsetof(struct pvn_stat_counts, f)
    {"messages_total", "counter", "Messages completed.", AT(msgs), 0, ""},
    {"bytes_total", "counter", "Bytes of completed messages.", AT(bytes), 0, ""},
    {"chunks_total", "counter", "Pieces of messages posted or arrived.", AT(chunks), 0, ""},
    {"requests_open", "gauge", "Requests that were open at the last look.", AT(open), 0, ""},
    {"stashed_total", "counter", "Messages that came before a buffer with their tag.", AT(stashed),
     0, ""},
    {"lane_full_total", "counter", "Posts that a lane had no room for.", AT(lane_full), 0, ""},
    {"empty_polls_total", "counter", "Polls of a lane that gave nothing.", AT(empty_polls), 0, ""},
    {"doorbells_total", "counter", "Doorbells of an RDMA adapter, by what rang them.",
     AT(doorbells_send), PVN_STAT_KNOWS_DOORBELLS, ",by=\"send\""},
    {"doorbells_total", "counter", NULL, AT(doorbells_recv), PVN_STAT_KNOWS_DOORBELLS, ",by=\"recv\""},
    {"doorbells_total", "counter", NULL, AT(doorbells_empty), PVN_STAT_KNOWS_DOORBELLS,
     ",by=\"empty_poll\""},
    {"tcp_retransmits_total", "counter", "TCP segments sent again.", AT(retransmits),
     PVN_STAT_KNOWS_RETRANSMITS, ""},
#undef AT
};

static bool shown(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    return f->life != PVN_STATS_DEAD && stat_is_comm(r) && r->ended_ns == 0;
}

static void process_metrics(FILE *out, const struct stat_list *list)
{
    heading(out, "process_info", "gauge", "What the process is.");
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        fputs(PREFIX "process_info{", out);
        process_labels(out, f);
        fputc(',', out);
        label(out, "command", f->head.command);
        fputc(',', out);
        label(out, "plugin", f->head.plugin);
        fprintf(out, ",interface=\"v%u\"} 1\n", f->head.abi);
    }
    for (size_t m = 0; m < sizeof(of_process) / sizeof(of_process[0]); m++) {
        heading(out, of_process[m].name, of_process[m].type, of_process[m].help);
        for (int i = 0; i < list->n; i++) {
            fprintf(out, PREFIX "%s{", of_process[m].name);
            process_labels(out, &list->file[i]);
            fprintf(out, "} %.17g\n", of_process[m].value(&list->file[i]));
        }
    }
}

/* Calls print for every comm that is shown. */
static void each(FILE *out, const struct stat_list *list,
                 void (*print)(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r,
                               size_t m),
                 size_t m)
{
    for (int i = 0; i < list->n; i++) {
        for (int k = 0; k < list->file[i].nrows; k++) {
            if (shown(&list->file[i], &list->file[i].row[k]))
                print(out, &list->file[i], &list->file[i].row[k], m);
        }
    }
}

static void counter(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    if ((r->n.known & of_comm[m].known) != of_comm[m].known)
        return;
    fprintf(out, PREFIX "%s{", of_comm[m].name);
    comm_labels(out, f, r);
    fprintf(out, "%s} %llu\n", of_comm[m].label,
            (unsigned long long)*(const uint64_t *)((const char *)&r->n + of_comm[m].offset));
}

static void state(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(PREFIX "comm_state{", out);
    comm_labels(out, f, r);
    fputc(',', out);
    label(out, "state", r->state);
    fputs("} 1\n", out);
}

static void stalled(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(PREFIX "stalled_seconds{", out);
    comm_labels(out, f, r);
    fprintf(out, "} %.3f\n", stat_stalled(f, r));
}

static void looked(FILE *out, const struct pvn_stats *f, const struct pvn_stat_row *r, size_t m)
{
    (void)m;
    fputs(PREFIX "last_look_time_seconds{", out);
    comm_labels(out, f, r);
    fprintf(out, "} %.3f\n", stat_wall(f, r->n.look_ns));
}

void stat_print_prom(const struct tool *t, const struct stat_list *list)
{
    process_metrics(t->out, list);
    for (size_t m = 0; m < sizeof(of_comm) / sizeof(of_comm[0]); m++) {
        if (of_comm[m].help)
            heading(t->out, of_comm[m].name, of_comm[m].type, of_comm[m].help);
        each(t->out, list, counter, m);
    }
    heading(t->out, "comm_state", "gauge", "The connection's state, as a label.");
    each(t->out, list, state, 0);
    heading(
        t->out, "stalled_seconds", "gauge",
        "For how long nothing has moved though requests are open, or connecting has not got on; "
        "0: it does.");
    each(t->out, list, stalled, 0);
    heading(t->out, "last_look_time_seconds", "gauge",
            "When NCCL last asked the plugin about it, since the epoch.");
    each(t->out, list, looked, 0);
}
