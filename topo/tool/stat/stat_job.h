/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: the processes of a whole job, connected by their comms, and the process that the
 * others wait for. */
#ifndef PVN_TOPO_TOOL_STAT_JOB_H
#define PVN_TOPO_TOOL_STAT_JOB_H

#include "topo/tool/stat/stat.h"

/* A process: one whose statistics were read, or the peer of one. */
struct stat_node {
    const char *host;
    uint64_t pid;
    const struct pvn_stats *file;    /* NULL: not read */
    const struct pvn_stats *earlier; /* an earlier process with the same pid; NULL: none */
    int circle;                      /* number of its circle; a single process is a circle, too */
};

/* A stalled comm, or a waiting comm of a process that others wait for. Its process waits for the
 * peer's process. */
struct stat_wait {
    int from, to; /* nodes */
    const struct pvn_stats *file;
    const struct pvn_stat_row *row;
};

/* A root: a process, or several that wait for each other. Others wait for it, and it waits for
 * nobody outside. */
struct stat_root {
    int circle;
    int nodes;   /* processes in it */
    int waiting; /* processes outside that wait for it, directly or through others */
};

struct stat_job {
    const struct stat_list *list;
    struct stat_node *node;
    int nodes;
    struct stat_wait *wait; /* sorted by from */
    int waits;
    struct stat_root *root; /* sorted by waiting, the most first */
    int roots;
};

/* 0, or -ENOMEM with an empty job; the list outlives the job. */
int stat_job_make(const struct stat_list *list, struct stat_job *job);
void stat_job_free(struct stat_job *job);
/* A flag for each node: it waits for a root, directly or through others. The caller frees the
 * flags; NULL if memory is short. */
bool *stat_job_waiting(const struct stat_job *job, int circle);
/* Writes why a root makes no progress, if its file shows it. */
void stat_job_why(const struct stat_job *job, const struct stat_root *root, char *out, size_t cap);
/* "rank 3, python pid 812 on node2". Returns buf. */
const char *stat_node_name(const struct stat_node *n, char *buf, size_t len);

void stat_print_job(const struct tool *t, const struct stat_list *list);

#endif
