/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf ring --collective pipeline: a chain of stages. Activations of micro batches go from rank
 * i to i+1, and their gradients back, in the order of one forward, one backward (1F1B: Narayanan et
 * al., arXiv:2104.04473, section 2.2.1, as Megatron-LM runs it without interleaving). There is no
 * computation in between.
 */
#include "config.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/patterns/pairs.h"
#include "perf/rank/timed.h"
#include "perf/workload/values.h"

#define MARGIN    64 /* guard bytes after the received data */
#define UNWRITTEN 0x5a

enum { FORWARD, BACKWARD };
enum { RECEIVE, SEND };

struct pipeline {
    struct pvn_rank *r;
    struct pvn_timed t;
    uint64_t bytes;     /* size of a micro batch's activation, and of its gradient */
    char *buf[2][2];    /* [FORWARD or BACKWARD][RECEIVE or SEND] */
    size_t room;        /* bytes of each buffer */
    uint32_t iteration; /* equal in all ranks */
};

/* A transfer of a micro batch in one direction. */
struct leg {
    int direction, send, micro;
};

/* The neighbour of a leg; it may be beyond an end. */
static int neighbour(const struct pipeline *p, const struct leg *l)
{
    return p->r->rank + ((l->direction == FORWARD) == (l->send == SEND) ? 1 : -1);
}

static uint64_t id_of(const struct pipeline *p, const struct leg *l, int sender)
{
    return (((uint64_t)p->iteration << 12 | (uint64_t)sender) << 16 | (uint64_t)l->micro) << 1 |
           (uint64_t)l->direction;
}

static void prepare(struct pipeline *p, const struct leg *l)
{
    char *b = p->buf[l->direction][l->send];

    if (!p->r->o->check || p->r->o->no_sums)
        return;
    if (l->send == SEND)
        pvn_bytes_fill(b, p->bytes, id_of(p, l, p->r->rank));
    else
        memset(b, UNWRITTEN, p->bytes + MARGIN);
}

static void verify(struct pipeline *p, const struct leg *l)
{
    const char *b = p->buf[l->direction][RECEIVE];
    size_t first = 0, wrong, beyond;

    if (!p->r->o->check || p->r->o->no_sums || l->send == SEND)
        return;
    wrong = pvn_bytes_check(b, p->bytes, id_of(p, l, neighbour(p, l)), &first);
    beyond = pvn_bytes_not(b + p->bytes, MARGIN, UNWRITTEN);
    p->t.errors += (int64_t)(wrong + beyond);
    if (wrong)
        pvn_rank_wrong(
            p->r, "byte %zu of the %s of micro batch %d from rank %d is wrong (%zu in all)", first,
            l->direction == FORWARD ? "activation" : "gradient", l->micro, neighbour(p, l), wrong);
    if (beyond)
        pvn_rank_wrong(p->r, "%zu bytes behind micro batch %d from rank %d were written", beyond,
                       l->micro, neighbour(p, l));
}

/* Runs one or two legs as a group, without those beyond the ends. */
static int move(struct pipeline *p, const struct leg *leg, int n)
{
    struct pvn_pair_op op[2] = {0};
    int ops = 0;

    for (int i = 0; i < n; i++) {
        int peer = neighbour(p, &leg[i]);

        if (peer < 0 || peer >= p->r->nranks)
            continue;
        prepare(p, &leg[i]);
        op[ops].node = peer;
        op[ops].send = leg[i].send == SEND;
        op[ops].data[0] = p->buf[leg[i].direction][leg[i].send];
        op[ops++].bytes[0] = p->bytes;
    }
    if (ops && pvn_pairs_run(p->r->pairs, op, ops))
        return -1;
    for (int i = 0; i < n; i++) {
        int peer = neighbour(p, &leg[i]);

        if (peer >= 0 && peer < p->r->nranks)
            verify(p, &leg[i]);
    }
    return 0;
}

static int move_one(struct pipeline *p, int direction, int send, int micro)
{
    struct leg l = {direction, send, micro};

    return move(p, &l, 1);
}

static int move_both(struct pipeline *p, int direction, int out, int in)
{
    struct leg l[2] = {{direction, SEND, out}, {!direction, RECEIVE, in}};

    return move(p, l, 2);
}

/* Runs one iteration. As many micro batches enter as there are stages behind this one. Then each
 * that comes back makes room for the next. At the end the pipeline drains. */
static int one_iteration(struct pipeline *p)
{
    int all = p->r->o->micro_batches, behind = p->r->nranks - 1 - p->r->rank;
    int warm = behind < all ? behind : all, steady = all - warm;

    for (int k = 0; k < warm; k++)
        if (move_one(p, FORWARD, RECEIVE, k) || move_one(p, FORWARD, SEND, k))
            return -1;
    if (steady && move_one(p, FORWARD, RECEIVE, warm))
        return -1;
    for (int k = 0; k < steady; k++) {
        int last = k + 1 == steady;

        if (move_both(p, FORWARD, warm + k, k))
            return -1;
        if (last ? move_one(p, BACKWARD, SEND, k) : move_both(p, BACKWARD, k, warm + k + 1))
            return -1;
    }
    for (int k = steady; k < all; k++)
        if (move_one(p, BACKWARD, RECEIVE, k) || move_one(p, BACKWARD, SEND, k))
            return -1;
    return 0;
}

static int run_pipeline(void *arg, uint64_t iters)
{
    struct pipeline *p = arg;

    for (uint64_t i = 0; i < iters; i++) {
        if (pvn_rank_stops(p->r) || one_iteration(p))
            return -1;
        p->iteration++;
    }
    p->t.errors += p->r->pairs->errors;
    p->r->pairs->errors = 0;
    return 0;
}

static int run_size(struct pipeline *p, uint64_t bytes)
{
    struct pvn_row_result res = {.bytes = bytes};
    int n = p->r->nranks;
    double both = 2.0 * p->r->o->micro_batches * (double)bytes;
    struct pvn_work w = {both, n > 1, both * (n - 1)};

    p->bytes = bytes;
    snprintf(res.test, sizeof(res.test), "%s", p->r->o->no_sums ? "no-sums" : "pipeline");
    if (p->r->o->no_sums)
        snprintf(res.item, sizeof(res.item), "pipeline");
    return pvn_timed_point(&p->t, &res, &w);
}

static int make_room(struct pipeline *p)
{
    const struct pvn_perf_opts *o = p->r->o;

    for (int i = 0; i < o->nsizes; i++)
        p->room = o->size[i] > p->room ? o->size[i] : p->room;
    p->room += MARGIN;
    pvn_rank_hold(p->r);
    pvn_rank_room(p->r, 4 * p->room);
    if (pvn_rank_agree(p->r))
        return -1;
    for (int i = 0; i < 4; i++) {
        p->buf[i / 2][i % 2] = pvn_rank_alloc(p->r, p->room);
        if (!p->buf[i / 2][i % 2])
            return -1;
    }
    return 0;
}

int pvn_pipeline_run(struct pvn_rank *r)
{
    struct pipeline p = {.r = r};
    int rc;

    p.t = (struct pvn_timed){.r = r, .arg = &p, .run = run_pipeline};
    rc = make_room(&p);
    if (!rc) {
        rc = pvn_pairs_start(r->pairs);
        for (int i = 0; !rc && i < r->o->nsizes; i++)
            rc = run_size(&p, r->o->size[i]);
        pvn_rank_say_sizes(r, rc);
        rc = pvn_pairs_stop(r->pairs, rc);
    }
    for (int i = 0; i < 4; i++)
        if (p.buf[i / 2][i % 2])
            munmap(p.buf[i / 2][i % 2], p.room);
    return rc;
}
