/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the processes of a job as a whole, joined by their comms, and which of them the
 * others wait for. */
#ifndef PVN_TOPO_TOOL_STAT_JOB_H
#define PVN_TOPO_TOOL_STAT_JOB_H

#include "topo/tool/stat/stat.h"

/* A process: one whose statistics were read, or the peer of one. */
struct stat_node {
    const char *host;
    uint64_t pid;
    const struct pvn_stats *file;    /* NULL: not read */
    const struct pvn_stats *earlier; /* another process that had its pid before; NULL: none */
    int circle; /* number of the circle it is in; a process alone is one, too */
};

/* A stalled comm, or one of a process for which others wait: its process waits for the peer's. */
struct stat_wait {
    int from, to; /* nodes */
    const struct pvn_stats *file;
    const struct pvn_stat_row *row;
};

/* A root: others wait for it, and it waits for nobody outside: a process, or several that wait for
 * each other. */
struct stat_root {
    int circle;
    int nodes;   /* in it */
    int waiting; /* processes outside that wait for it, or for one that does */
};

struct stat_job {
    const struct stat_list *list;
    struct stat_node *node;
    int nodes;
    struct stat_wait *wait; /* by from */
    int waits;
    struct stat_root *root; /* by waiting, the most first */
    int roots;
};

/* 0, or -ENOMEM with an empty job; the list outlives the job. */
int stat_job_make(const struct stat_list *list, struct stat_job *job);
void stat_job_free(struct stat_job *job);
/* The node of a circle that has received the most messages from the others of the circle beyond those
 * it has sent to them, so that its part is what is missing; -1: none stands out. */
int stat_job_behind(const struct stat_job *job, const struct stat_root *root, uint64_t *received,
                    uint64_t *sent);
/* Nodes that wait for a root, at once or through others: a flag for each node, which the caller
 * frees; NULL without memory. */
bool *stat_job_waiting(const struct stat_job *job, int circle);
/* Why a root does not go on, as far as its file says. */
void stat_job_why(const struct stat_job *job, const struct stat_root *root, char *out, size_t cap);
/* "rank 3, python pid 812 on node2". Returns buf. */
const char *stat_node_name(const struct stat_node *n, char *buf, size_t len);

/* Which of two files of one host and pid speaks for it: that of the process that lives, or began
 * last. */
const struct pvn_stats *stat_later(const struct pvn_stats *a, const struct pvn_stats *b);

void stat_print_job(const struct tool *t, const struct stat_list *list);

#endif
