/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The waits of a job as a graph. Each stalled comm is an arrow from its process to its peer's
 * process. The root cause is a process with arrows to it and none of its own, or a circle of such
 * processes.
 *
 * Hosts are read one after the other, the first one perhaps before its waits are long enough to
 * count as a stall. So if a process that others wait for has no stalled comm, its shorter waits are
 * arrows, too.
 */
#include "topo/tool/stat/stat_job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/tool/load/query.h"

static int compare(const char *host, uint64_t pid, const struct stat_node *n)
{
    int c = strcmp(host, n->host);
    return c ? c : pid < n->pid ? -1 : pid > n->pid;
}

/* Sorts processes of one host and pid by their files; the one that was not read comes last. */
static int by_process(const void *a, const void *b)
{
    const struct stat_node *x = a, *y = b;
    int c = compare(x->host, x->pid, y);
    if (c || x->file == y->file)
        return c;
    return !x->file ? 1 : !y->file ? -1 : x->file < y->file ? -1 : 1;
}

static int by_from(const void *a, const void *b)
{
    const struct stat_wait *x = a, *y = b;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static int by_waiting(const void *a, const void *b)
{
    const struct stat_root *x = a, *y = b;
    return x->waiting != y->waiting ? y->waiting - x->waiting : x->circle - y->circle;
}

enum wait_kind { NO_WAIT, SHORT_WAIT, STALL };

/* True if the peer has the name and the pid of the process itself. */
static bool is_namesake(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    return r->peer_pid == f->head.id.pid && strcmp(r->peer_host, f->head.id.host) == 0;
}

/* True if the process is its own peer. A clone of its machine has the same name, and a container
 * often the same pid, but not its addresses. */
static bool is_itself(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    return is_namesake(f, r) && (stat_has_address(f, r->peer_addr) || !stat_has_addresses(f));
}

/* How the comm's process waits for its peer, if it waits and the peer is known. */
static enum wait_kind kind_of(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    enum stat_trouble trouble = stat_trouble(f, r);
    if (!stat_is_comm(r) || !r->peer_host[0] || is_itself(f, r))
        return NO_WAIT;
    if (trouble == STAT_FINE && stat_stalled(f, r) >= STAT_FOLLOWED_S)
        return SHORT_WAIT;
    return trouble == STAT_STALLED ? STALL : NO_WAIT;
}

/* The first node of this host and pid, or where it would be. */
static int first_process(const struct stat_job *job, const char *host, uint64_t pid)
{
    int low = 0, high = job->nodes;
    while (low < high) {
        int mid = (low + high) / 2;
        if (compare(host, pid, &job->node[mid]) > 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The node of a file that was read. */
static int find_process(const struct stat_job *job, const struct pvn_stats *f)
{
    int first = first_process(job, f->head.id.host, f->head.id.pid), i = first;
    while (i < job->nodes && job->node[i].file && stat_are_apart(job->node[i].file, f))
        i++;
    return i < job->nodes && compare(f->head.id.host, f->head.id.pid, &job->node[i]) == 0 &&
                   job->node[i].file
               ? i
               : first;
}

/* The node of a comm's peer: of those with its host and pid the one at its address, else the only
 * one whose addresses are not known, else one that was not read. A single process of this host and
 * pid is the peer anyway, for it may have further addresses. -1: none. */
static int find_peer(const struct stat_job *job, const struct pvn_stats *f,
                     const struct pvn_stat_row *r)
{
    int unknown = -1, unknowns = 0, single = -1, n = 0;
    for (int i = first_process(job, r->peer_host, r->peer_pid);
         i < job->nodes && compare(r->peer_host, r->peer_pid, &job->node[i]) == 0; i++) {
        const struct pvn_stats *file = job->node[i].file;
        if (!file)
            return unknowns == 1 ? unknown : i;
        if (stat_has_address(file, r->peer_addr))
            return i;
        single = n++ == 0 && !is_namesake(f, r) ? i : -1;
        if (stat_has_addresses(file) || (is_namesake(f, r) && !stat_are_apart(file, f)))
            continue;
        unknown = i;
        unknowns++;
    }
    return unknowns == 1 ? unknown : single;
}

/* Selects one of two files of one host and pid: that of the living process, else of the one that
 * began last. */
static const struct pvn_stats *later_of(const struct pvn_stats *a, const struct pvn_stats *b)
{
    if ((a->life == PVN_STATS_DEAD) != (b->life == PVN_STATS_DEAD))
        return a->life == PVN_STATS_DEAD ? b : a;
    return stat_age(b, b->head.mono_ns) < stat_age(a, a->head.mono_ns) ? b : a;
}

/* True if both files belong to one process. A file's name is PID-START-N.stat; several copies of
 * the plugin in one process differ only in N. */
static bool one_process(const struct pvn_stats *a, const struct pvn_stats *b)
{
    const char *x = strrchr(a->path, '/'), *y = strrchr(b->path, '/');
    size_t n = x ? strlen(x) : 0;
    while (n > 0 && x[n] != '-')
        n--;
    return x && y && n > 0 && strncmp(x, y, n + 1) == 0;
}

/* Adds a second file for the host and pid of a node. */
static void join_node(struct stat_node *n, const struct pvn_stats *file)
{
    const struct pvn_stats *first = n->file;
    n->file = later_of(first, file);
    if (!one_process(first, file))
        n->earlier = n->file == file ? first : file;
}

/* Adds the processes that were read, sorted and each once. */
static void add_read(const struct stat_list *list, struct stat_job *job)
{
    for (int i = 0; i < list->n; i++)
        job->node[i] = (struct stat_node){.host = list->file[i].head.id.host,
                                          .pid = list->file[i].head.id.pid,
                                          .file = &list->file[i]};
    qsort(job->node, (size_t)list->n, sizeof(*job->node), by_process);
    for (int i = 0; i < list->n; i++) {
        struct stat_node one = job->node[i];
        int k = first_process(job, one.host, one.pid);
        while (k < job->nodes && stat_are_apart(job->node[k].file, one.file))
            k++;
        if (k < job->nodes)
            join_node(&job->node[k], one.file);
        else
            job->node[job->nodes++] = one;
    }
}

/* Adds the processes that were not read and that others wait for. */
static void add_unread(const struct stat_list *list, struct stat_job *job)
{
    int n = job->nodes, kept = 0;
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        for (int k = 0; k < f->nrows; k++)
            if (kind_of(f, &f->row[k]) != NO_WAIT && find_peer(job, f, &f->row[k]) < 0)
                job->node[n++] =
                    (struct stat_node){.host = f->row[k].peer_host, .pid = f->row[k].peer_pid};
    }
    qsort(job->node, (size_t)n, sizeof(*job->node), by_process);
    for (int i = 0; i < n; i++)
        if (kept == 0 || by_process(&job->node[kept - 1], &job->node[i]) != 0)
            job->node[kept++] = job->node[i];
    job->nodes = kept;
}

/* Adds the waits of one kind in a file. */
static void add_of_kind(struct stat_job *job, int from, const struct pvn_stats *f,
                        enum wait_kind kind)
{
    for (int k = 0; k < f->nrows; k++) {
        const struct pvn_stat_row *r = &f->row[k];
        if (kind_of(f, r) == kind)
            job->wait[job->waits++] =
                (struct stat_wait){.from = from, .to = find_peer(job, f, r), .file = f, .row = r};
    }
}

/* Adds the short waits of processes that a stalled process waits for, and so on. waits: a flag for
 * each node, all false. */
static void follow(struct stat_job *job, bool *waits)
{
    for (int i = 0; i < job->waits; i++)
        waits[job->wait[i].from] = true;
    /* The loop also visits waits that it appends. */
    for (int i = 0; i < job->waits; i++) {
        int to = job->wait[i].to;
        const struct pvn_stats *f = job->node[to].file;
        if (waits[to] || !f)
            continue;
        waits[to] = true;
        add_of_kind(job, to, f, SHORT_WAIT);
    }
}

static int add_waits(const struct stat_list *list, struct stat_job *job)
{
    bool *waits = calloc((size_t)job->nodes + 1, sizeof(*waits));
    if (!waits)
        return -ENOMEM;
    for (int i = 0; i < list->n; i++) {
        const struct pvn_stats *f = &list->file[i];
        add_of_kind(job, find_process(job, f), f, STALL);
    }
    follow(job, waits);
    free(waits);
    qsort(job->wait, (size_t)job->waits, sizeof(*job->wait), by_from);
    return 0;
}

/* ---- circles ---- */

/* Arrows by their begin, or reversed by their end: those of node v are next[first[v]] to
 * next[first[v + 1] - 1]. */
struct arrows {
    int *first, *next;
};

static int arrows_make(const struct stat_job *job, bool backwards, struct arrows *a)
{
    a->first = calloc((size_t)job->nodes + 2, sizeof(*a->first));
    a->next = calloc((size_t)job->waits + 1, sizeof(*a->next));
    if (!a->first || !a->next)
        return -ENOMEM;
    for (int i = 0; i < job->waits; i++)
        a->first[(backwards ? job->wait[i].to : job->wait[i].from) + 2]++;
    for (int v = 0; v < job->nodes; v++)
        a->first[v + 2] += a->first[v + 1];
    for (int i = 0; i < job->waits; i++) {
        const struct stat_wait *w = &job->wait[i];
        int begin = backwards ? w->to : w->from;
        a->next[a->first[begin + 1]++] = backwards ? w->from : w->to;
    }
    return 0;
}

static void arrows_free(struct arrows *a)
{
    free(a->first);
    free(a->next);
}

/* Sorts the nodes by the order in which a depth-first search leaves them. stack, at: as many ints
 * as nodes. */
static void order_of_leaving(const struct stat_job *job, const struct arrows *a, int *stack,
                             int *at, int *order)
{
    int n = 0;
    memset(at, -1, (size_t)job->nodes * sizeof(*at));
    for (int begin = 0; begin < job->nodes; begin++) {
        int depth = 0;
        if (at[begin] >= 0)
            continue;
        at[begin] = a->first[begin];
        stack[depth++] = begin;
        while (depth > 0) {
            int v = stack[depth - 1];
            if (at[v] == a->first[v + 1]) {
                order[n++] = v;
                depth--;
                continue;
            }
            int to = a->next[at[v]++];
            if (at[to] < 0) {
                at[to] = a->first[to];
                stack[depth++] = to;
            }
        }
    }
}

/* Numbers the circles (strongly connected components, by Kosaraju's two searches) and returns how
 * many there are. */
static int number_circles(struct stat_job *job, const struct arrows *back, const int *order,
                          int *stack)
{
    int circles = 0;
    for (int v = 0; v < job->nodes; v++)
        job->node[v].circle = -1;
    for (int i = job->nodes - 1; i >= 0; i--) {
        int depth = 0;
        if (job->node[order[i]].circle >= 0)
            continue;
        job->node[order[i]].circle = circles;
        stack[depth++] = order[i];
        while (depth > 0) {
            int v = stack[--depth];
            for (int k = back->first[v]; k < back->first[v + 1]; k++) {
                int from = back->next[k];
                if (job->node[from].circle >= 0)
                    continue;
                job->node[from].circle = circles;
                stack[depth++] = from;
            }
        }
        circles++;
    }
    return circles;
}

static int find_circles(struct stat_job *job)
{
    struct arrows forward = {0}, back = {0};
    size_t n = (size_t)job->nodes + 1;
    int *stack = calloc(n, sizeof(*stack)), *at = calloc(n, sizeof(*at)),
        *order = calloc(n, sizeof(*order)), circles = -ENOMEM;
    if (stack && at && order && arrows_make(job, false, &forward) == 0 &&
        arrows_make(job, true, &back) == 0) {
        order_of_leaving(job, &forward, stack, at, order);
        circles = number_circles(job, &back, order, stack);
    }
    arrows_free(&forward);
    arrows_free(&back);
    free(stack);
    free(at);
    free(order);
    return circles;
}

/* ---- roots ---- */

bool *stat_job_waiting(const struct stat_job *job, int circle)
{
    struct arrows back = {0};
    bool *waits = calloc((size_t)job->nodes + 1, sizeof(*waits));
    int *stack = calloc((size_t)job->nodes + 1, sizeof(*stack)), depth = 0;
    if (!waits || !stack || arrows_make(job, true, &back) < 0) {
        free(waits);
        waits = NULL;
    }
    for (int v = 0; waits && v < job->nodes; v++)
        if (job->node[v].circle == circle)
            stack[depth++] = v;
    while (depth > 0) {
        int v = stack[--depth];
        for (int k = back.first[v]; k < back.first[v + 1]; k++) {
            int from = back.next[k];
            if (waits[from] || job->node[from].circle == circle)
                continue;
            waits[from] = true;
            stack[depth++] = from;
        }
    }
    arrows_free(&back);
    free(stack);
    return waits;
}

static int count_waiting(const struct stat_job *job, struct stat_root *root)
{
    bool *waits = stat_job_waiting(job, root->circle);
    if (!waits)
        return -ENOMEM;
    for (int v = 0; v < job->nodes; v++)
        root->waiting += waits[v];
    free(waits);
    return 0;
}

/* Finds the circles from which no arrow leads out and to which at least one leads. */
static int find_roots(struct stat_job *job, int circles)
{
    struct stat_root *all = calloc((size_t)circles + 1, sizeof(*all));
    bool *goes_out = calloc((size_t)circles + 1, sizeof(*goes_out));
    int rc = all && goes_out ? 0 : -ENOMEM;
    for (int v = 0; rc == 0 && v < job->nodes; v++)
        all[job->node[v].circle].nodes++;
    for (int i = 0; rc == 0 && i < job->waits; i++) {
        int from = job->node[job->wait[i].from].circle, to = job->node[job->wait[i].to].circle;
        goes_out[from] |= from != to;
    }
    for (int c = 0; rc == 0 && c < circles; c++) {
        struct stat_root r = {.circle = c, .nodes = all[c].nodes};
        rc = goes_out[c] ? 0 : count_waiting(job, &r);
        if (!goes_out[c] && (r.waiting > 0 || r.nodes > 1))
            all[job->roots++] = r;
    }
    free(goes_out);
    job->root = all;
    if (rc == 0)
        qsort(job->root, (size_t)job->roots, sizeof(*job->root), by_waiting);
    return rc;
}

int stat_job_make(const struct stat_list *list, struct stat_job *job)
{
    size_t most = 0;
    int circles;
    memset(job, 0, sizeof(*job));
    job->list = list;
    for (int i = 0; i < list->n; i++)
        most += 1 + (size_t)list->file[i].nrows;
    job->node = calloc(most + 1, sizeof(*job->node));
    job->wait = calloc(most + 1, sizeof(*job->wait));
    if (job->node && job->wait) {
        add_read(list, job);
        add_unread(list, job);
        circles = add_waits(list, job) == 0 ? find_circles(job) : -ENOMEM;
        if (circles >= 0 && find_roots(job, circles) == 0)
            return 0;
    }
    stat_job_free(job);
    return -ENOMEM;
}

void stat_job_free(struct stat_job *job)
{
    free(job->node);
    free(job->wait);
    free(job->root);
    memset(job, 0, sizeof(*job));
}

/* ---- what is known of a root ---- */

/* Counts the messages of a process with others of its circle, over comms that are up. */
static void count_inside(const struct stat_job *job, const struct stat_node *n, uint64_t *received,
                         uint64_t *sent)
{
    *received = *sent = 0;
    for (int k = 0; k < n->file->nrows; k++) {
        const struct pvn_stat_row *r = &n->file->row[k];
        int peer = r->ended_ns || !r->peer_host[0] ? -1 : find_peer(job, n->file, r);
        if (peer >= 0 && job->node[peer].circle == n->circle && &job->node[peer] != n)
            *(r->sender ? sent : received) += r->n.msgs;
    }
}

/* The node of a circle whose messages received from the circle exceed those sent to it by the most:
 * its own messages are the missing ones. -1 if no node stands out. */
static int farthest_behind(const struct stat_job *job, const struct stat_root *root,
                           uint64_t *received, uint64_t *sent)
{
    int64_t most = 0;
    int behind = -1;
    bool alone = true;
    for (int v = 0; v < job->nodes; v++) {
        uint64_t in, out;
        if (job->node[v].circle != root->circle || !job->node[v].file)
            continue;
        count_inside(job, &job->node[v], &in, &out);
        int64_t kept = (int64_t)(in - out);
        if (kept > 0 && kept == most)
            alone = false;
        if (kept <= most)
            continue;
        most = kept;
        behind = v;
        alone = true;
        *received = in;
        *sent = out;
    }
    return alone ? behind : -1;
}

const char *stat_node_name(const struct stat_node *n, char *buf, size_t len)
{
    if (n->file && n->file->head.rank[0])
        snprintf(buf, len, "rank %s, %s pid %llu on %s", n->file->head.rank, n->file->head.command,
                 (unsigned long long)n->pid, n->host);
    else
        snprintf(buf, len, "%s%spid %llu on %s", n->file ? n->file->head.command : "",
                 n->file ? " " : "", (unsigned long long)n->pid, n->host);
    return buf;
}

static void why_circle(const struct stat_job *job, const struct stat_root *root, char *out,
                       size_t cap)
{
    uint64_t received = 0, sent = 0;
    int behind = farthest_behind(job, root, &received, &sent);
    char name[200];
    if (behind >= 0)
        snprintf(out, cap,
                 "%s has received %llu messages from the others and sent %llu: its next one is "
                 "what is missing first",
                 stat_node_name(&job->node[behind], name, sizeof(name)),
                 (unsigned long long)received, (unsigned long long)sent);
    else
        snprintf(out, cap,
                 "none has fallen behind the others: look at the network between them, "
                 "and whether all are in the same collective");
}

/* True for one host: "node7" and "node7.cluster" are the same. */
static bool same_host(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return n == strcspn(b, ".") && strncmp(a, b, n) == 0;
}

/* Explains why a process was not read: its host may have given no answer. */
static void why_not_read(const struct stat_job *job, const struct stat_node *n, char *out,
                         size_t cap)
{
    const struct stat_list *list = job->list;
    for (int i = 0; i < list->answers; i++) {
        const struct tool_answer *a = &list->answer[i];
        const char *at = strchr(a->host, '@');
        if (!same_host(at ? at + 1 : a->host, n->host))
            continue;
        if (a->doc)
            snprintf(out, cap,
                     "%s has no statistics of it: it has ended, or is another user's, or keeps "
                     "them in a container",
                     a->host);
        else
            snprintf(out, cap, "its host gave no answer: %.400s", a->reason);
        return;
    }
    snprintf(out, cap, "its statistics are not among these: run pvn-topo --json stat on %s",
             n->host);
}

/* True if the waiting comms are connected to an earlier process with the same pid. */
static bool waits_are_old(const struct stat_job *job, const struct stat_node *n)
{
    for (int i = 0; n->earlier && i < job->waits; i++) {
        const struct stat_wait *w = &job->wait[i];
        if (&job->node[w->to] == n &&
            stat_age(w->file, w->row->born_ns) > stat_age(n->file, n->file->head.mono_ns))
            return true;
    }
    return false;
}

void stat_job_why(const struct stat_job *job, const struct stat_root *root, char *out, size_t cap)
{
    const struct stat_node *n = job->node;
    while (n->circle != root->circle)
        n++;
    const struct pvn_stats *f = n->file;
    double silent = f ? stat_age(f, f->head.touched_ns) : 0;
    if (root->nodes > 1)
        why_circle(job, root, out, cap);
    else if (!f)
        why_not_read(job, n, out, cap);
    else if (waits_are_old(job, n))
        snprintf(out, cap,
                 "it was started again %.0f s ago under the same pid; the connections that wait "
                 "lead to the process before, which is gone: start the whole job again",
                 stat_age(f, f->head.mono_ns));
    else if (f->life == PVN_STATS_DEAD)
        snprintf(out, cap, "it is dead");
    else if (f->state == 'T' || f->state == 't')
        snprintf(out, cap, "it is stopped, by a signal or a debugger");
    else if (silent > STAT_STALLED_S)
        snprintf(out, cap,
                 "NCCL has not called the plugin there for %.0f s: it computes, idles, or hangs "
                 "elsewhere",
                 silent);
    else
        snprintf(out, cap,
                 "it waits for no other process: its GPU or its program has the next step");
}
