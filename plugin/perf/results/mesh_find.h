/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings in a matrix of paths between ranks: one host or rank sends or receives slowly with
 * all others (its side), or single paths are slow (what lies between), or all are alike. Everything
 * is compared with the median of the paths of the same kind, between hosts or within one. Pure
 * functions, any thread.
 */
#ifndef PVN_PERF_MESH_FIND_H
#define PVN_PERF_MESH_FIND_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_MESH_FAILED    (-1.0) /* a value: the path did not work */
#define PVN_MESH_SLOW_BW   0.75   /* below this part of the median a path is slow */
#define PVN_MESH_SLOW_TIME 0.5    /* for latency: at more than twice the median */

struct pvn_mesh_matrix {
    int n;           /* ranks */
    const int *host; /* per rank, from 0; ranks on the same host have the same number */
    double *value;   /* [from * n + to]: above 0, PVN_MESH_FAILED, or NaN if not measured */
    double
        *best; /* of the parts of that measurement the best, NaN: there is none; NULL: of no path */
    bool less_is_better; /* latency */
    double slow;         /* a path below this ratio is slow, if its best part is, too */
    /* Set by pvn_mesh_ratios; ratio and group have room for n * n and n. */
    int *group;       /* per host: its group, -1: in none */
    int groups;       /* 0: no groups, else two at least (mesh_groups.h) */
    double *ratio;    /* 1: as the median, less is worse, 0: failed, NaN: not measured */
    double median[2]; /* between hosts (with groups: of one), within one; NaN: no such path */
};

/* 0 or -ENOMEM. */
int pvn_mesh_ratios(struct pvn_mesh_matrix *m);

/* Needs the ratios. A path that is slow in parts of its measurement alone is unsteady: what disturbs
 * it, a busy host above all, is not the path's. */
bool pvn_mesh_is_slow(const struct pvn_mesh_matrix *m, int from, int to);
bool pvn_mesh_is_unsteady(const struct pvn_mesh_matrix *m, int from, int to);

enum pvn_mesh_kind { PVN_MESH_SENDS, PVN_MESH_RECEIVES, PVN_MESH_PATH, PVN_MESH_GROUPS };

struct pvn_mesh_finding {
    enum pvn_mesh_kind kind;
    bool hosts;  /* who and to are hosts with all their ranks, else ranks */
    int who, to; /* to: of a path; PVN_MESH_GROUPS: both are groups */
    int slow;    /* paths that are, those that failed included */
    int of;      /* paths that were looked at */
    int failed;
    double ratio; /* the median of those that are slow */
};

/*
 * Groups that reach each other slowly; then hosts, then ranks, of which at least three quarters of the paths in one direction are slow, to or
 * from at least two others, the clearest first and each path counted once; then the paths that
 * remain. The number of findings (free *out), or -ENOMEM.
 */
int pvn_mesh_find(const struct pvn_mesh_matrix *m, struct pvn_mesh_finding **out);

/* How the sentences call ranks and hosts. */
struct pvn_mesh_names {
    char (*rank)[96]; /* "host c7", "rank 3 on c7" */
    char (*host)[96]; /* "host c7" */
};

/* One finding as a sentence; `also`: the same one's other direction, or NULL. */
void pvn_mesh_sentence(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                       const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also,
                       char *out, size_t cap);
/* Says how many paths are unsteady; false: none is. */
bool pvn_mesh_unsteady(const struct pvn_mesh_matrix *m, char *out, size_t cap);
/* Says, where nothing was found, how far the slowest path is from the median. */
void pvn_mesh_alike(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names, char *out,
                    size_t cap);
/* The other direction of findings[i], of the same host, rank or path, or NULL. */
const struct pvn_mesh_finding *pvn_mesh_other(const struct pvn_mesh_finding *findings, int n,
                                              int i);

#ifdef __cplusplus
}
#endif

#endif
