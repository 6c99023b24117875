/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/results/mesh_groups.h"
#include "perf/results/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t cell(const struct pvn_mesh_matrix *m, int from, int to)
{
    return (size_t)from * (size_t)m->n + (size_t)to;
}

static bool within(const struct pvn_mesh_matrix *m, int from, int to)
{
    return m->host[from] == m->host[to];
}

/*
 * The upper median of values that are sorted from bad to good. One slow host affects 2 (n - 1) of
 * the n (n - 1) paths between n hosts. With two or three hosts these are more than half, so the
 * reference is then taken above them.
 */
static double reference(const double *v, int count, int n)
{
    int at = count / 2;

    if (count == n * (n - 1) && at < 2 * (n - 1))
        at = 2 * (n - 1);
    return v[at < count ? at : count - 1];
}

/* Fills ratio and median. */
static void compare(struct pvn_mesh_matrix *m, double *good)
{
    for (int inside = 0; inside < 2; inside++) {
        int count = 0;
        double ref;

        for (int f = 0; f < m->n; f++) {
            for (int t = 0; t < m->n; t++) {
                double v = m->value[cell(m, f, t)];

                if (f != t && within(m, f, t) == (inside == 1) && v > 0 &&
                    !pvn_mesh_crosses(m, f, t))
                    good[count++] = m->less_is_better ? 1 / v : v;
            }
        }
        qsort(good, (size_t)count, sizeof(*good), pvn_by_double);
        ref = count ? reference(good, count, m->n) : NAN;
        m->median[inside] = m->less_is_better ? 1 / ref : ref;
        for (int f = 0; f < m->n; f++) {
            for (int t = 0; t < m->n; t++) {
                double v = m->value[cell(m, f, t)];

                if (within(m, f, t) == (inside == 1))
                    m->ratio[cell(m, f, t)] = f == t || isnan(v)  ? NAN
                                              : v < 0             ? 0
                                              : m->less_is_better ? 1 / v / ref
                                                                  : v / ref;
            }
        }
    }
}

bool pvn_mesh_is_slow(const struct pvn_mesh_matrix *m, int from, int to)
{
    size_t c = cell(m, from, to);
    double best = m->best ? m->best[c] : 0, median = m->median[within(m, from, to)];

    if (!(m->ratio[c] < m->slow))
        return false;
    return !(best > 0) || (m->less_is_better ? median / best : best / median) < m->slow;
}

bool pvn_mesh_is_unsteady(const struct pvn_mesh_matrix *m, int from, int to)
{
    return m->ratio[cell(m, from, to)] < m->slow && !pvn_mesh_is_slow(m, from, to);
}

/* True if each path between groups is slow compared with the median within groups. */
static bool groups_hold(const struct pvn_mesh_matrix *m)
{
    for (int f = 0; f < m->n; f++) {
        for (int t = 0; t < m->n; t++)
            if (pvn_mesh_crosses(m, f, t) && !isnan(m->ratio[cell(m, f, t)]) &&
                !pvn_mesh_is_slow(m, f, t))
                return false;
    }
    return true;
}

int pvn_mesh_ratios(struct pvn_mesh_matrix *m)
{
    double *good = malloc(sizeof(*good) * ((size_t)m->n * (size_t)m->n + 1));

    if (!good || pvn_mesh_group(m) < 0) {
        free(good);
        return -ENOMEM;
    }
    compare(m, good);
    if (!groups_hold(m)) {
        m->groups = 0;
        compare(m, good);
    }
    free(good);
    return 0;
}

/* ---- slow lines, blocks and paths ---- */

/* The paths from one host to another. */
struct block {
    int slow, of, failed;
};

struct search {
    const struct pvn_mesh_matrix *m;
    int hosts;
    bool *explained; /* per cell */
    double *ratio;   /* ratios of a line's slow cells */
    int *seen;       /* per host or rank: the line in which it was last seen */
    int lines;
    struct block *block; /* [from * hosts + to] */
    struct pvn_mesh_finding *out;
    int n;
};

static bool is_slow(const struct search *s, size_t c)
{
    return pvn_mesh_is_slow(s->m, (int)(c / (size_t)s->m->n), (int)(c % (size_t)s->m->n));
}

/* True if a path counts for a line. Paths within a host count only if there is only one host. */
static bool counts(const struct search *s, const struct pvn_mesh_finding *f, int from, int to)
{
    int end = f->kind == PVN_MESH_SENDS ? from : to;
    size_t c = cell(s->m, from, to);

    if ((f->hosts ? s->m->host[end] : end) != f->who || isnan(s->m->ratio[c]) || s->explained[c])
        return false;
    return s->hosts == 1 || !within(s->m, from, to);
}

/* Fills in the figures of a line. Returns the number of peers with which it is slow. */
static int look(struct search *s, struct pvn_mesh_finding *f)
{
    const struct pvn_mesh_matrix *m = s->m;
    int others = 0;

    f->slow = f->of = f->failed = 0;
    s->lines++;
    for (int i = 0; i < m->n; i++) {
        if ((f->hosts ? m->host[i] : i) != f->who)
            continue;
        for (int k = 0; k < m->n; k++) {
            int from = f->kind == PVN_MESH_SENDS ? i : k, to = f->kind == PVN_MESH_SENDS ? k : i;
            int other = s->hosts == 1 ? k : m->host[k];

            if (!counts(s, f, from, to))
                continue;
            f->of++;
            if (!is_slow(s, cell(m, from, to)))
                continue;
            s->ratio[f->slow++] = m->ratio[cell(m, from, to)];
            f->failed += m->value[cell(m, from, to)] < 0;
            others += s->seen[other] != s->lines;
            s->seen[other] = s->lines;
        }
    }
    qsort(s->ratio, (size_t)f->slow, sizeof(*s->ratio), pvn_by_double);
    f->ratio = f->slow ? s->ratio[f->slow / 2] : NAN;
    return others;
}

static bool qualifies(struct search *s, struct pvn_mesh_finding *f)
{
    return look(s, f) >= 2 && 4 * f->slow >= 3 * f->of;
}

/* True if a finding may name a host: each of its ranks qualifies. */
static bool host_qualifies(struct search *s, struct pvn_mesh_finding *f)
{
    int ranks = 0;

    for (int i = 0; i < s->m->n; i++) {
        struct pvn_mesh_finding one = {.kind = f->kind, .who = i};

        if (s->m->host[i] != f->who)
            continue;
        if (!qualifies(s, &one))
            return false;
        ranks++;
    }
    return ranks > 1 && qualifies(s, f);
}

static bool clearer(const struct pvn_mesh_finding *a, const struct pvn_mesh_finding *b)
{
    double x = (double)a->slow / a->of, y = b->of ? (double)b->slow / b->of : 0;

    if (a->hosts != b->hosts && b->of)
        return a->hosts;
    return x > y || (x >= y && (a->slow > b->slow || (a->slow == b->slow && a->ratio < b->ratio)));
}

static void explain(struct search *s, const struct pvn_mesh_finding *f)
{
    for (int from = 0; from < s->m->n; from++) {
        for (int to = 0; to < s->m->n; to++)
            if (counts(s, f, from, to))
                s->explained[cell(s->m, from, to)] = true;
    }
}

/* Takes the clearest line as a finding. False if there is none. */
static bool take_line(struct search *s)
{
    struct pvn_mesh_finding best = {.of = 0};

    for (int kind = PVN_MESH_SENDS; kind <= PVN_MESH_RECEIVES; kind++) {
        for (int who = 0; who < s->m->n; who++) {
            struct pvn_mesh_finding one = {.kind = (enum pvn_mesh_kind)kind, .who = who};
            struct pvn_mesh_finding all = one;

            all.hosts = true;
            if (who < s->hosts && s->hosts > 1 && host_qualifies(s, &all) && clearer(&all, &best))
                best = all;
            if (qualifies(s, &one) && clearer(&one, &best))
                best = one;
        }
    }
    if (!best.of)
        return false;
    explain(s, &best);
    s->out[s->n++] = best;
    return true;
}

static void count_blocks(struct search *s)
{
    const struct pvn_mesh_matrix *m = s->m;

    for (int from = 0; from < m->n; from++) {
        for (int to = 0; to < m->n; to++) {
            size_t c = cell(m, from, to);
            struct block *b = &s->block[m->host[from] * s->hosts + m->host[to]];

            if (within(m, from, to) || isnan(m->ratio[c]) || s->explained[c])
                continue;
            b->of++;
            b->slow += is_slow(s, c);
            b->failed += m->value[c] < 0;
        }
    }
}

/* Takes the paths between two hosts as one finding if most of them are slow. */
static void take_block(struct search *s, int a, int b)
{
    const struct pvn_mesh_matrix *m = s->m;
    const struct block *k = &s->block[a * s->hosts + b];
    int n = 0;

    if (k->slow < 2 || 4 * k->slow < 3 * k->of)
        return;
    for (int from = 0; from < m->n; from++) {
        for (int to = 0; m->host[from] == a && to < m->n; to++) {
            size_t c = cell(m, from, to);

            if (m->host[to] != b || isnan(m->ratio[c]) || s->explained[c])
                continue;
            if (is_slow(s, c))
                s->ratio[n++] = m->ratio[c];
            s->explained[c] = true;
        }
    }
    qsort(s->ratio, (size_t)n, sizeof(*s->ratio), pvn_by_double);
    s->out[s->n++] = (struct pvn_mesh_finding){PVN_MESH_PATH, true,  a,         b,
                                               k->slow,       k->of, k->failed, s->ratio[n / 2]};
}

static int by_ratio(const void *a, const void *b)
{
    const struct pvn_mesh_finding *x = a, *y = b;

    return pvn_by_double(&x->ratio, &y->ratio);
}

static void take_paths(struct search *s)
{
    const struct pvn_mesh_matrix *m = s->m;
    int first = s->n;

    count_blocks(s);
    for (int a = 0; a < s->hosts; a++)
        for (int b = 0; b < s->hosts; b++)
            take_block(s, a, b);
    for (int from = 0; from < m->n; from++) {
        for (int to = 0; to < m->n; to++) {
            size_t c = cell(m, from, to);

            if (s->explained[c] || !is_slow(s, c))
                continue;
            s->out[s->n++] = (struct pvn_mesh_finding){PVN_MESH_PATH,   false,      from, to, 1, 1,
                                                       m->value[c] < 0, m->ratio[c]};
        }
    }
    qsort(&s->out[first], (size_t)(s->n - first), sizeof(*s->out), by_ratio);
}

/* Takes the paths between two groups as one finding. */
static void take_groups(struct search *s, int a, int b)
{
    const struct pvn_mesh_matrix *m = s->m;
    struct pvn_mesh_finding f = {.kind = PVN_MESH_GROUPS, .hosts = true, .who = a, .to = b};

    for (int from = 0; from < m->n; from++) {
        for (int to = 0; to < m->n; to++) {
            int x = m->group[m->host[from]], y = m->group[m->host[to]];
            size_t c = cell(m, from, to);

            if ((x != a || y != b) && (x != b || y != a))
                continue;
            s->explained[c] = true;
            s->ratio[f.of++] = m->ratio[c];
            f.failed += m->value[c] < 0;
        }
    }
    qsort(s->ratio, (size_t)f.of, sizeof(*s->ratio), pvn_by_double);
    f.slow = f.of;
    f.ratio = s->ratio[f.of / 2];
    s->out[s->n++] = f;
}

int pvn_mesh_find(const struct pvn_mesh_matrix *m, struct pvn_mesh_finding **out)
{
    size_t all = (size_t)m->n * (size_t)m->n + 1;
    struct search s = {.m = m, .hosts = pvn_mesh_hosts(m)};

    s.explained = calloc(all, sizeof(*s.explained));
    s.ratio = malloc(sizeof(*s.ratio) * all);
    s.seen = calloc((size_t)m->n + 1, sizeof(*s.seen));
    s.block = calloc(all, sizeof(*s.block));
    s.out = malloc(sizeof(*s.out) * (all + 4 * (size_t)m->n));
    if (s.explained && s.ratio && s.seen && s.block && s.out) {
        for (int a = 0; a < m->groups; a++)
            for (int b = a + 1; b < m->groups; b++)
                take_groups(&s, a, b);
        while (take_line(&s))
            ;
        take_paths(&s);
    } else {
        s.n = -ENOMEM;
        free(s.out);
        s.out = NULL;
    }
    free(s.explained);
    free(s.ratio);
    free(s.seen);
    free(s.block);
    *out = s.out;
    return s.n;
}

const struct pvn_mesh_finding *pvn_mesh_other(const struct pvn_mesh_finding *findings, int n, int i)
{
    const struct pvn_mesh_finding *f = &findings[i];

    for (int k = 0; k < n; k++) {
        const struct pvn_mesh_finding *g = &findings[k];
        bool path = f->kind == PVN_MESH_PATH;

        if (g->hosts != f->hosts || path != (g->kind == PVN_MESH_PATH) ||
            f->kind == PVN_MESH_GROUPS || g->kind == PVN_MESH_GROUPS)
            continue;
        if (path ? g->who == f->to && g->to == f->who : g->who == f->who && g->kind != f->kind)
            return g;
    }
    return NULL;
}
