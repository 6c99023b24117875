/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/nccl/assign.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Limit of partial assignments in the exact search. */
#define BUDGET 200000

struct search {
    const struct pvn_topo_assign *p;
    int *users; /* per link */
    int *now, *best;
    int *least; /* per row: its smallest distance; an optimum has only such columns */
    int *rest;  /* per row: a lower bound of the second distance that it and all later rows add */
    long best_share, best_second;
    long budget;
};

static const int *uses(const struct pvn_topo_assign *p, int row, int col)
{
    return p->uses[(size_t)row * (size_t)p->cols + (size_t)col];
}

static int distance(const struct pvn_topo_assign *p, int row, int col)
{
    return p->distance[(size_t)row * (size_t)p->cols + (size_t)col];
}

static int second(const struct pvn_topo_assign *p, int row, int col)
{
    return p->second[(size_t)row * (size_t)p->cols + (size_t)col];
}

/* Sharing that a row adds: with u users on a link the next one adds u*(u+1) - u*(u-1) = 2u. */
static long take_links(struct search *s, int row, int col)
{
    long added = 0;
    for (const int *link = uses(s->p, row, col); *link >= 0; link++)
        added += 2L * s->users[*link]++;
    return added;
}

static long give_links(struct search *s, int row, int col)
{
    long removed = 0;
    for (const int *link = uses(s->p, row, col); *link >= 0; link++)
        removed += 2L * --s->users[*link];
    return removed;
}

static bool candidate(const struct search *s, int row, int col)
{
    int d = distance(s->p, row, col);
    return d < PVN_TOPO_ASSIGN_NEVER && d == s->least[row];
}

static void descend(struct search *s, int row, long share, long second_sum)
{
    if (share > s->best_share ||
        (share == s->best_share && second_sum + s->rest[row] >= s->best_second) || s->budget-- <= 0)
        return;
    if (row == s->p->rows) {
        memcpy(s->best, s->now, (size_t)row * sizeof(*s->now));
        s->best_share = share;
        s->best_second = second_sum;
        return;
    }
    if (s->least[row] >= PVN_TOPO_ASSIGN_NEVER) {
        s->now[row] = -1;
        descend(s, row + 1, share, second_sum);
        return;
    }
    for (int col = 0; col < s->p->cols; col++) {
        if (!candidate(s, row, col))
            continue;
        s->now[row] = col;
        long added = take_links(s, row, col);
        descend(s, row + 1, share + added, second_sum + second(s->p, row, col));
        give_links(s, row, col);
    }
}

/* Assigns each row in turn the column that adds the least cost, as a first solution to improve
 * on. */
static void greedy(struct search *s)
{
    for (int row = 0; row < s->p->rows; row++) {
        long best = LONG_MAX;
        s->best[row] = -1;
        for (int col = 0; col < s->p->cols; col++) {
            if (!candidate(s, row, col))
                continue;
            long cost =
                take_links(s, row, col) * (PVN_TOPO_ASSIGN_SECOND_MAX + 1) + second(s->p, row, col);
            give_links(s, row, col);
            if (cost < best) {
                best = cost;
                s->best[row] = col;
            }
        }
        if (s->best[row] >= 0)
            take_links(s, row, s->best[row]);
    }
}

static long place(struct search *s, int row, int col)
{
    return col < 0 ? 0
                   : take_links(s, row, col) * (PVN_TOPO_ASSIGN_SECOND_MAX + 1) +
                         second(s->p, row, col);
}

static long lift(struct search *s, int row, int col)
{
    return col < 0 ? 0
                   : give_links(s, row, col) * (PVN_TOPO_ASSIGN_SECOND_MAX + 1) +
                         second(s->p, row, col);
}

/* Moves a single row or, in a small machine, two rows together if that helps. */
static bool improve(struct search *s)
{
    bool pairs = s->p->rows * s->p->cols <= 256;
    for (int a = 0; a < s->p->rows; a++) {
        for (int b = a; b < (pairs ? s->p->rows : a + 1); b++) {
            int old_a = s->best[a], old_b = s->best[b];
            if (old_a < 0 || old_b < 0)
                continue;
            long before = lift(s, a, old_a) + (a == b ? 0 : lift(s, b, old_b));
            for (int ca = 0; ca < s->p->cols; ca++) {
                for (int cb = 0; candidate(s, a, ca) && cb < (a == b ? 1 : s->p->cols); cb++) {
                    if (a != b && !candidate(s, b, cb))
                        continue;
                    long after = place(s, a, ca) + (a == b ? 0 : place(s, b, cb));
                    if (after < before) {
                        s->best[a] = ca;
                        if (a != b)
                            s->best[b] = cb;
                        return true;
                    }
                    if (a != b)
                        lift(s, b, cb);
                    lift(s, a, ca);
                }
            }
            place(s, a, old_a);
            if (a != b)
                place(s, b, old_b);
        }
    }
    return false;
}

void pvn_topo_assign_cost(const struct pvn_topo_assign *p, const int *out, long cost[3])
{
    int *users = calloc((size_t)p->links + 1, sizeof(*users));
    memset(cost, 0, 3 * sizeof(cost[0]));
    for (int row = 0; users && row < p->rows; row++) {
        if (out[row] < 0)
            continue;
        cost[0] += distance(p, row, out[row]);
        for (const int *link = uses(p, row, out[row]); *link >= 0; link++)
            cost[1] += 2L * users[*link]++;
        cost[2] += second(p, row, out[row]);
    }
    free(users);
}

int pvn_topo_assign_solve(const struct pvn_topo_assign *p, int *out, bool *exact)
{
    struct search s = {.p = p, .best = out, .budget = BUDGET};
    long cost[3];
    int err = -ENOMEM;
    s.users = calloc((size_t)p->links + 1, sizeof(int));
    s.now = calloc((size_t)p->rows + 1, sizeof(int));
    s.least = calloc((size_t)p->rows + 1, sizeof(int));
    s.rest = calloc((size_t)p->rows + 1, sizeof(int));
    if (!s.users || !s.now || !s.least || !s.rest)
        goto out;
    for (int row = 0; row < p->rows; row++) {
        s.least[row] = PVN_TOPO_ASSIGN_NEVER;
        for (int col = 0; col < p->cols; col++)
            if (distance(p, row, col) < s.least[row])
                s.least[row] = distance(p, row, col);
    }
    for (int row = p->rows - 1; row >= 0; row--) {
        int least = INT_MAX;
        for (int col = 0; col < p->cols; col++)
            if (candidate(&s, row, col) && second(p, row, col) < least)
                least = second(p, row, col);
        s.rest[row] = s.rest[row + 1] + (least == INT_MAX ? 0 : least);
    }
    greedy(&s);
    /* Every improvement lowers the cost, so this ends; the bound only keeps huge machines quick. */
    for (int round = 0; round < 4 * p->rows && improve(&s); round++)
        ;
    memset(s.users, 0, (size_t)p->links * sizeof(int));
    pvn_topo_assign_cost(p, out, cost);
    s.best_share = cost[1];
    s.best_second = cost[2];
    descend(&s, 0, 0, 0);
    if (exact)
        *exact = s.budget > 0;
    err = 0;
out:
    free(s.users);
    free(s.now);
    free(s.least);
    free(s.rest);
    return err;
}
