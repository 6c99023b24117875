/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings in a matrix of paths between ranks. Either one host or rank sends or receives slowly
 * with all others (the cause is on its side), or single paths are slow (the cause is between the
 * ends), or all are alike. Each path is compared with the median of the paths of its kind, between
 * hosts or within one. Pure functions, any thread.
 */
#ifndef PVN_PERF_MESH_FIND_H
#define PVN_PERF_MESH_FIND_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_MESH_FAILED    (-1.0) /* a value: the path did not work */
#define PVN_MESH_SLOW_BW   0.75   /* a path below this fraction of the median is slow */
#define PVN_MESH_SLOW_TIME 0.5    /* for latency: slow at more than twice the median */

struct pvn_mesh_matrix {
    int n;               /* ranks */
    const int *host;     /* per rank, from 0; ranks on the same host have the same number */
    double *value;       /* [from * n + to]: above 0, PVN_MESH_FAILED, or NaN if not measured */
    double *best;        /* best part of that measurement; NaN: none; NULL: no path has any */
    bool less_is_better; /* latency */
    double slow;         /* a path below this ratio is slow, if its best part is, too */
    /* Set by pvn_mesh_ratios; ratio and group have room for n * n and n. */
    int *group;    /* per host: its group, -1: no group */
    int groups;    /* 0: no groups, else at least two (mesh_groups.h) */
    double *ratio; /* 1: equal to the median, less is worse, 0: failed, NaN: not measured */
    /* between hosts (with groups: within a group), within one host; NaN: no such path */
    double median[2];
};

/* Fills ratio and median. 0 or -ENOMEM. */
int pvn_mesh_ratios(struct pvn_mesh_matrix *m);

/* Both need the ratios. A path that is slow in only some parts of its measurement is unsteady: the
 * disturbance, usually a busy host, does not belong to the path. */
bool pvn_mesh_is_slow(const struct pvn_mesh_matrix *m, int from, int to);
bool pvn_mesh_is_unsteady(const struct pvn_mesh_matrix *m, int from, int to);

enum pvn_mesh_kind { PVN_MESH_SENDS, PVN_MESH_RECEIVES, PVN_MESH_PATH, PVN_MESH_GROUPS };

struct pvn_mesh_finding {
    enum pvn_mesh_kind kind;
    bool hosts;  /* who and to are hosts with all their ranks; else ranks */
    int who, to; /* to: the end of a path; PVN_MESH_GROUPS: both are groups */
    int slow;    /* slow paths, including failed ones */
    int of;      /* paths that were examined */
    int failed;
    double ratio; /* median ratio of the slow paths */
};

/*
 * Finds groups with slow paths between them. Then hosts, and then ranks, whose paths in one
 * direction are slow for at least three quarters, to or from at least two others: the clearest
 * first, and each path counted once. Then the remaining slow paths. Returns the number of findings
 * (free *out), or -ENOMEM.
 */
int pvn_mesh_find(const struct pvn_mesh_matrix *m, struct pvn_mesh_finding **out);

/* Names of ranks and hosts in sentences. */
struct pvn_mesh_names {
    char (*rank)[96]; /* "host c7", "rank 3 on c7" */
    char (*host)[96]; /* "host c7" */
};

/* Writes a finding as a sentence; `also`: the same end's finding in the other direction, or
 * NULL. */
void pvn_mesh_sentence(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                       const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also,
                       char *out, size_t cap);
/* Writes how many paths are unsteady; false if none is. */
bool pvn_mesh_unsteady(const struct pvn_mesh_matrix *m, char *out, size_t cap);
/* Writes, if there are no findings, how far the slowest path is from the median. */
void pvn_mesh_alike(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names, char *out,
                    size_t cap);
/* The other direction of findings[i], of the same host, rank or path, or NULL. */
const struct pvn_mesh_finding *pvn_mesh_other(const struct pvn_mesh_finding *findings, int n,
                                              int i);

#ifdef __cplusplus
}
#endif

#endif
