/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The findings of a matrix in sentences. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "perf/results/mesh_groups.h"

static const char *name_of(const struct pvn_mesh_names *names, bool host, int who)
{
    return host ? names->host[who] : names->rank[who];
}

/* "0.41 of the median" or "2.4 times the median latency". */
static const char *degree(const struct pvn_mesh_matrix *m, double ratio, char out[64])
{
    if (m->less_is_better)
        snprintf(out, 64, "%.1f times the median latency", 1 / ratio);
    else
        snprintf(out, 64, "%.2f of the median", ratio);
    return out;
}

/* "to everybody", "to 6 of 7". */
static const char *whom(const char *direction, const struct pvn_mesh_finding *f, char out[64])
{
    if (f->slow == f->of)
        snprintf(out, 64, "%s everybody", direction);
    else
        snprintf(out, 64, "%s %d of %d", direction, f->slow, f->of);
    return out;
}

static bool all_failed(const struct pvn_mesh_finding *f)
{
    return f->failed == f->slow;
}

/* Writes the finding of a path between two ranks, or of the paths between two hosts. */
static void path(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                 const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also, char *out,
                 size_t cap)
{
    const char *a = name_of(names, f->hosts, f->who), *b = name_of(names, f->hosts, f->to);
    const char *word = f->hosts ? "paths" : "path";
    char one[64], two[64];
    int n = snprintf(out, cap, "the %s %s %s %s %s", word, also ? "between" : "from", a,
                     also ? "and" : "to", b);

    if (n < 0 || (size_t)n >= cap)
        return;
    out += n;
    cap -= (size_t)n;
    if (all_failed(f))
        snprintf(out, cap, " failed");
    else if (!also || all_failed(also))
        snprintf(out, cap, "%s %s",
                 m->less_is_better ? ":"
                 : f->hosts        ? " are at"
                                   : " is at",
                 degree(m, f->ratio, one));
    else
        snprintf(out, cap, ": %s from the first to the second, %s back", degree(m, f->ratio, one),
                 degree(m, also->ratio, two));
}

/* Writes the finding of one end in one direction. */
static void one_direction(const struct pvn_mesh_matrix *m, const char *who,
                          const struct pvn_mesh_finding *f, char *out, size_t cap)
{
    bool sends = f->kind == PVN_MESH_SENDS;
    char how[64], to[64];

    whom(sends ? "to" : "from", f, to);
    if (all_failed(f))
        snprintf(out, cap, "%s failed to %s %s: its side", who, sends ? "send" : "receive", to);
    else if (m->less_is_better)
        snprintf(out, cap, "%s has %s %s: its side", who, degree(m, f->ratio, how), to);
    else
        snprintf(out, cap, "%s %s at %s %s: its side", who, sends ? "sends" : "receives",
                 degree(m, f->ratio, how), to);
}

static void both_directions(const struct pvn_mesh_matrix *m, const char *who,
                            const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also,
                            char *out, size_t cap)
{
    const struct pvn_mesh_finding *s = f->kind == PVN_MESH_SENDS ? f : also;
    const struct pvn_mesh_finding *r = f->kind == PVN_MESH_SENDS ? also : f;
    char how[64], back[64], to[64], from[64];

    if (all_failed(s))
        snprintf(out, cap, "%s failed %s: its side", who, whom("with", s, to));
    else if (m->less_is_better)
        snprintf(out, cap, "%s has %s %s: its side", who, degree(m, s->ratio, how),
                 whom("with", s, to));
    else
        snprintf(out, cap, "%s sends at %s %s and receives at %s %s: its side", who,
                 degree(m, s->ratio, how), whom("to", s, to), degree(m, r->ratio, back),
                 whom("from", r, from));
}

static void groups(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                   const struct pvn_mesh_finding *f, char *out, size_t cap)
{
    char a[80], b[80], how[64];

    pvn_mesh_group_names(m, names, f->who, a, sizeof(a));
    pvn_mesh_group_names(m, names, f->to, b, sizeof(b));
    if (all_failed(f))
        snprintf(out, cap, "hosts %s and hosts %s do not reach each other: look at what joins them",
                 a, b);
    else
        snprintf(out, cap,
                 "hosts %s and hosts %s reach each other at %s within each group: look at what "
                 "joins them",
                 a, b, degree(m, f->ratio, how));
}

/* Adds how many of the slow paths failed. */
static void add_failed(const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also,
                       char *out, size_t cap)
{
    int failed = f->failed + (also && !all_failed(also) ? also->failed : 0);
    size_t used = strlen(out);

    if (failed > 0 && !all_failed(f))
        snprintf(out + used, cap - used, "; %d of these paths failed", failed);
}

void pvn_mesh_sentence(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names,
                       const struct pvn_mesh_finding *f, const struct pvn_mesh_finding *also,
                       char *out, size_t cap)
{
    const char *who = f->kind == PVN_MESH_GROUPS ? "" : name_of(names, f->hosts, f->who);

    if (f->kind == PVN_MESH_GROUPS)
        groups(m, names, f, out, cap);
    else if (f->kind == PVN_MESH_PATH)
        path(m, names, f, also, out, cap);
    else if (also && all_failed(f) == all_failed(also))
        both_directions(m, who, f, also, out, cap);
    else
        one_direction(m, who, f, out, cap);
    add_failed(f, also, out, cap);
}

bool pvn_mesh_unsteady(const struct pvn_mesh_matrix *m, char *out, size_t cap)
{
    int count = 0, of = 0;

    for (int f = 0; f < m->n; f++) {
        for (int t = 0; t < m->n; t++) {
            of += !isnan(m->ratio[(size_t)f * (size_t)m->n + (size_t)t]);
            count += pvn_mesh_is_unsteady(m, f, t);
        }
    }
    snprintf(out, cap,
             "%d of %d paths were slow for a part of their time and not for all of it: their hosts "
             "were busy; measure again, or longer (--time, --repeat)",
             count, of);
    return count > 0;
}

void pvn_mesh_alike(const struct pvn_mesh_matrix *m, const struct pvn_mesh_names *names, char *out,
                    size_t cap)
{
    int from = -1, to = -1;
    double worst = INFINITY;
    char how[64];

    for (int f = 0; f < m->n; f++) {
        for (int t = 0; t < m->n; t++) {
            double ratio = m->ratio[(size_t)f * (size_t)m->n + (size_t)t];

            if (ratio < worst && !pvn_mesh_is_unsteady(m, f, t)) {
                worst = ratio;
                from = f;
                to = t;
            }
        }
    }
    if (from < 0)
        snprintf(out, cap, "nothing was measured");
    else
        snprintf(out, cap, "all alike: the slowest path, from %s to %s, %s %s", names->rank[from],
                 names->rank[to], m->less_is_better ? "has" : "is at", degree(m, worst, how));
}
