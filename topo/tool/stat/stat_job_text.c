/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat for people: first the process that all others wait for. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "topo/tool/load/query.h"
#include "topo/tool/stat/stat_job.h"

enum { SHOWN = 8 }; /* limit of processes, and of comms, named in a list */

/* A sentence that is being built. */
struct line {
    char text[4096];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(l->text + l->len, sizeof(l->text) - l->len, format, ap);
    va_end(ap);
    if (n > 0)
        l->len += (size_t)n;
    if (l->len >= sizeof(l->text))
        l->len = sizeof(l->text) - 1;
}

/* "rank 3", or "pid 812 on node2". */
static void add_short_name(struct line *l, const struct stat_node *n)
{
    if (n->file && n->file->head.rank[0])
        add(l, "rank %s", n->file->head.rank);
    else
        add(l, "pid %llu on %s", (unsigned long long)n->pid, n->host);
}

/* Adds the first few of the flagged nodes; returns how many there are. */
static int add_list(struct line *l, const struct stat_job *job, const bool *flagged)
{
    int n = 0;
    for (int v = 0; v < job->nodes; v++) {
        if (!flagged[v] || n++ >= SHOWN)
            continue;
        add(l, "%s", n == 1 ? "" : ", ");
        add_short_name(l, &job->node[v]);
    }
    if (n > SHOWN)
        add(l, " and %d more", n - SHOWN);
    return n;
}

static void add_circle(struct line *l, const struct stat_job *job, const struct stat_root *root,
                       bool *flagged)
{
    for (int v = 0; v < job->nodes; v++)
        flagged[v] = job->node[v].circle == root->circle;
    add_list(l, job, flagged);
    add(l, " wait for each other");
    if (root->waiting)
        add(l, ", and %d more process%s for them", root->waiting, root->waiting == 1 ? "" : "es");
}

static void print_head(const struct tool *t, int processes, const struct stat_job *job,
                       const struct stat_root *root, bool *flagged)
{
    struct line l = {0};
    char name[200], why[512];
    const struct stat_node *n = job->node;
    while (n->circle != root->circle)
        n++;
    stat_job_why(job, root, why, sizeof(why));
    if (root->nodes > 1)
        add_circle(&l, job, root, flagged);
    else
        add(&l, "%d of %d process%s wait%s for %s", root->waiting, processes,
            processes == 1 ? "" : "es", root->waiting == 1 ? "s" : "",
            stat_node_name(n, name, sizeof(name)));
    add(&l, ": %s", why);
    fputs(t->bold, t->out);
    tool_wrap(t, 0, 4, l.text);
    fputs(t->off, t->out);
}

static void print_wait(const struct tool *t, const struct stat_job *job, const struct stat_wait *w)
{
    struct line l = {0};
    char name[200];
    add(&l, "%s", stat_node_name(&job->node[w->from], name, sizeof(name)));
    add(&l, " has waited %.1f s to %s ", stat_stalled(w->file, w->row),
        w->row->phase != PVN_STAT_UP ? "connect to"
        : w->row->sender             ? "send to"
                                     : "receive from");
    add_short_name(&l, &job->node[w->to]);
    add(&l, " (comm %llu)%s%s", (unsigned long long)w->row->id, w->row->text[0] ? ": " : "",
        w->row->text);
    fprintf(t->out, "    ");
    tool_wrap(t, 4, 8, l.text);
}

/* Prints the comms that wait for the root, one of each process, and those that wait for these
 * processes. */
static void print_waits(const struct tool *t, const struct stat_job *job,
                        const struct stat_root *root, bool *flagged)
{
    struct line l = {0};
    int n = 0, last = -1;
    for (int i = 0; i < job->waits; i++) {
        const struct stat_wait *w = &job->wait[i];
        if (job->node[w->to].circle != root->circle || w->from == last)
            continue;
        last = w->from;
        flagged[w->from] = false;
        if (n++ < SHOWN)
            print_wait(t, job, w);
    }
    if (n > SHOWN)
        fprintf(t->out, "    and %d more processes\n", n - SHOWN);
    if (add_list(&l, job, flagged) == 0)
        return;
    fprintf(t->out, "    ");
    add(&l, " wait%s for these", strchr(l.text, ',') ? "" : "s");
    tool_wrap(t, 4, 8, l.text);
}

/* Prints processes that have the pid of an earlier one: a peer's entry for the pid may mean
 * either. */
static void print_again(const struct tool *t, const struct stat_job *job)
{
    int n = 0;
    for (int v = 0; v < job->nodes; v++) {
        const struct stat_node *node = &job->node[v];
        struct line l = {0};
        char name[200];
        if (!node->earlier || n++ >= SHOWN)
            continue;
        add(&l, "%s ", stat_node_name(node, name, sizeof(name)));
        if (node->file->life != PVN_STATS_DEAD && node->earlier->life != PVN_STATS_DEAD)
            add(&l, "is not the only one of this pid there, as in containers: what peers say of it "
                    "may mean either");
        else
            add(&l,
                "began %.0f s ago with the pid of an earlier process, which began %.0f s ago and "
                "is dead: the same rank, started again",
                stat_age(node->file, node->file->head.mono_ns),
                stat_age(node->earlier, node->earlier->head.mono_ns));
        tool_wrap(t, 0, 4, l.text);
    }
    if (n > 0)
        fputc('\n', t->out);
}

/* Adds " on 2 hosts", or " on 1 of 2 hosts; node3 gave no answer". */
static void add_hosts(struct line *l, const struct stat_list *list)
{
    const char **silent = calloc((size_t)list->answers, sizeof(*silent));
    char names[600];
    int n = 0;
    for (int i = 0; silent && i < list->answers; i++)
        if (!list->answer[i].doc)
            silent[n++] = list->answer[i].host;
    if (n == 0)
        add(l, " on %d host%s", list->answers, list->answers == 1 ? "" : "s");
    else
        add(l, " on %d of %d hosts; %s gave no answer", list->answers - n, list->answers,
            pvn_topo_hosts_fold(silent, n, names, sizeof(names)));
    free(silent);
}

static bool is_any_answer(const struct stat_list *list)
{
    for (int i = 0; i < list->answers; i++)
        if (list->answer[i].doc)
            return true;
    return false;
}

/* Prints that no process waits. A host that gave no answer is unknown. */
static void print_no_wait(const struct tool *t, const struct stat_list *list)
{
    struct line l = {0};
    if (list->n == 0 && !is_any_answer(list)) {
        add(&l, "no host answered");
    } else {
        add(&l, "no process waits for another: %d process%s", list->n, list->n == 1 ? "" : "es");
        add_hosts(&l, list);
    }
    fputs(t->bold, t->out);
    tool_wrap(t, 0, 4, l.text);
    fputs(t->off, t->out);
}

void stat_print_job(const struct tool *t, const struct stat_list *list)
{
    struct stat_job job;
    int rc = stat_job_make(list, &job);
    for (int i = 0; rc == 0 && i < job.roots; i++) {
        bool *flagged = stat_job_waiting(&job, job.root[i].circle);
        bool *scratch = calloc((size_t)job.nodes, sizeof(*scratch));
        if (flagged && scratch) {
            print_head(t, list->n, &job, &job.root[i], scratch);
            print_waits(t, &job, &job.root[i], flagged);
        } else {
            rc = -ENOMEM;
        }
        free(flagged);
        free(scratch);
    }
    if (rc < 0)
        tool_error("out of memory for the waits of %d processes", list->n);
    if (rc == 0 && job.roots == 0 && list->answers)
        print_no_wait(t, list);
    if (job.roots > 0 || list->answers)
        fputc('\n', t->out);
    if (rc == 0)
        print_again(t, &job);
    stat_job_free(&job);
}
