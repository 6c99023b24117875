/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/patterns/mesh_rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Ranks by the adapter that they share: place k has the ranks member[first[k]] to
 * member[first[k+1]-1]. */
struct places {
    int n;
    int *first, *member;
};

static int group(struct places *p, const uint64_t *place, int nranks)
{
    int k = 0;

    p->n = 0;
    p->first = calloc((size_t)nranks + 1, sizeof(int));
    p->member = calloc((size_t)nranks + 1, sizeof(int));
    if (!p->first || !p->member)
        return -ENOMEM;
    for (int i = 0; i < nranks; i++) {
        int seen = 0;

        for (int j = 0; j < i && !seen; j++)
            seen = place[j] == place[i];
        if (seen)
            continue;
        p->first[p->n++] = k;
        for (int j = i; j < nranks; j++)
            if (place[j] == place[i])
                p->member[k++] = j;
    }
    p->first[p->n] = k;
    return 0;
}

static int size_of(const struct places *p, int k)
{
    return p->first[k + 1] - p->first[k];
}

/*
 * The i-th pair of places in a round of the tournament (circle method): with an even number of
 * players the last one stays in place and the others rotate. An odd number has an additional player
 * who does not exist; its pair gives -1.
 */
static int opponents(int n, int round, int i, int *x, int *y)
{
    int even = n + n % 2, ring = even - 1;

    *x = i == 0 ? even - 1 : (round + i) % ring;
    *y = (round - i + ring) % ring;
    return *x < n && *y < n ? 0 : -1;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Number of rounds in one round of the places: all ranks of one place against all of the other. */
static int longest(const struct places *p, int round)
{
    int most = 0, x, y;

    for (int i = 0; i < (p->n + 1) / 2; i++)
        if (opponents(p->n, round, i, &x, &y) == 0)
            most = larger(most, size_of(p, x) * size_of(p, y));
    return most;
}

/* Number of rounds within a place, where one pair runs at a time. */
static int longest_inside(const struct places *p)
{
    int most = 0;

    for (int k = 0; k < p->n; k++)
        most = larger(most, size_of(p, k) * (size_of(p, k) - 1) / 2);
    return most;
}

static void join(struct pvn_mesh_rounds *m, int round, int a, int b)
{
    m->partner[(size_t)round * (size_t)m->nranks + (size_t)a] = b;
    m->partner[(size_t)round * (size_t)m->nranks + (size_t)b] = a;
}

static void fill_between(struct pvn_mesh_rounds *m, const struct places *p, int round, int from)
{
    int x, y;

    for (int i = 0; i < (p->n + 1) / 2; i++) {
        if (opponents(p->n, round, i, &x, &y))
            continue;
        for (int s = 0; s < size_of(p, x) * size_of(p, y); s++)
            join(m, from + s, p->member[p->first[x] + s / size_of(p, y)],
                 p->member[p->first[y] + s % size_of(p, y)]);
    }
}

static void fill_inside(struct pvn_mesh_rounds *m, const struct places *p, int from)
{
    for (int k = 0; k < p->n; k++) {
        int round = from;

        for (int a = p->first[k]; a < p->first[k + 1]; a++)
            for (int b = a + 1; b < p->first[k + 1]; b++)
                join(m, round++, p->member[a], p->member[b]);
    }
}

int pvn_mesh_rounds_make(struct pvn_mesh_rounds *m, const uint64_t *place, int nranks)
{
    struct places p;
    int rc = group(&p, place, nranks), of_places = p.n > 1 ? p.n - 1 + p.n % 2 : 0, at = 0;

    memset(m, 0, sizeof(*m));
    m->nranks = nranks;
    for (int k = 0; !rc && k < of_places; k++)
        m->n += longest(&p, k);
    if (!rc) {
        m->n += longest_inside(&p);
        m->partner = malloc(sizeof(int) * ((size_t)m->n * (size_t)nranks + 1));
        rc = m->partner ? 0 : -ENOMEM;
    }
    for (size_t i = 0; !rc && i < (size_t)m->n * (size_t)nranks; i++)
        m->partner[i] = -1;
    for (int k = 0; !rc && k < of_places; k++) {
        fill_between(m, &p, k, at);
        at += longest(&p, k);
    }
    if (!rc)
        fill_inside(m, &p, at);
    free(p.first);
    free(p.member);
    return rc;
}

void pvn_mesh_rounds_free(struct pvn_mesh_rounds *m)
{
    free(m->partner);
    m->partner = NULL;
}
