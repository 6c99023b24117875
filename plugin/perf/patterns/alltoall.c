/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf ring --collective alltoall and alltoallv, and the steps of a mixture of experts: every
 * rank sends a block to every rank. In NCCL, rank l of a node gets the blocks of all its node's
 * ranks for the ranks l of other nodes through NVLink. Here it makes these blocks itself.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf/patterns/moe.h"
#include "perf/patterns/pairs.h"
#include "perf/rank/timed.h"
#include "perf/workload/values.h"

#define MARGIN         64         /* guard bytes after the output */
#define VERIFY_AT_ONCE (1u << 20) /* bytes between two updates of the progress time */
#define UNWRITTEN      0xa5

struct a2a {
    struct pvn_rank *r;
    struct pvn_timed t;
    struct pvn_work work; /* for the sizes below */
    uint64_t *bytes;      /* [source rank * ranks + destination rank] */
    char *in, *out;
    size_t in_len, out_len;
    struct pvn_pair_op *op; /* both directions of each node */
    uint32_t seed;
};

/* Rank i of a node. */
static int rank_of(const struct a2a *a, int node, int i)
{
    return node * a->r->o->group + i;
}

static int nodes(const struct a2a *a)
{
    return a->r->nranks / a->r->o->group;
}

/* Bytes that rank i of this node sends to this rank's counterpart in `node`, or that rank i of
 * `node` sends to this rank. */
static uint64_t block(const struct a2a *a, int node, int i, int send)
{
    int mine = a->r->rank / a->r->o->group, l = a->r->rank % a->r->o->group;
    int src = send ? rank_of(a, mine, i) : rank_of(a, node, i);
    int dst = send ? rank_of(a, node, l) : a->r->rank;

    return a->bytes[src * a->r->nranks + dst];
}

static uint64_t all_blocks(const struct a2a *a, int send)
{
    uint64_t sum = 0;

    for (int n = 0; n < nodes(a); n++)
        for (int i = 0; i < a->r->o->group; i++)
            sum += block(a, n, i, send);
    return sum;
}

/* Builds the operations and figures for the sizes in a->bytes. */
static void shape(struct a2a *a)
{
    uint64_t at[2] = {0, 0}, all = 0, moved = 0;
    int n = a->r->nranks, group = a->r->o->group;

    for (int node = 0; node < nodes(a); node++) {
        for (int send = 0; send < 2; send++) {
            struct pvn_pair_op *op = &a->op[2 * node + send];

            op->node = node;
            op->send = send;
            for (int i = 0; i < group; i++) {
                op->bytes[i] = block(a, node, i, send);
                op->data[i] = (send ? a->in : a->out) + at[send];
                at[send] += op->bytes[i];
            }
        }
    }
    for (int src = 0; src < n; src++) {
        for (int dst = 0; dst < n; dst++) {
            all += a->bytes[src * n + dst];
            moved += src / group == dst / group ? 0 : a->bytes[src * n + dst];
        }
    }
    /* This is nccl-tests' (n-1)/n if all pairs have the same size. */
    a->work.bytes = (double)all / n;
    a->work.factor = all ? (double)moved / (double)all : (double)(n - group) / n;
    a->work.sent = (double)moved;
}

static int run_alltoall(void *arg, uint64_t iters)
{
    struct a2a *a = arg;
    int mine = a->r->rank / a->r->o->group, n = 0;
    struct pvn_pair_op *others = a->op + 2 * nodes(a);

    for (int k = 0; k < 2 * nodes(a); k++)
        if (a->op[k].node != mine)
            others[n++] = a->op[k];
    for (uint64_t i = 0; i < iters; i++) {
        const struct pvn_pair_op *from = &a->op[2 * mine + 1], *to = &a->op[2 * mine];

        if (pvn_rank_stops(a->r) || (n && pvn_pairs_run(a->r->pairs, others, n)))
            return -1;
        for (int k = 0; k < a->r->o->group; k++)
            memcpy(to->data[k], from->data[k], from->bytes[k]);
    }
    a->t.errors += a->r->pairs->errors;
    a->r->pairs->errors = 0;
    return 0;
}

static uint64_t id_of(const struct a2a *a, int src, int dst, uint64_t at)
{
    return ((((uint64_t)a->seed << 12 | (uint64_t)src) << 12) | (uint64_t)dst) << 16 |
           at / VERIFY_AT_ONCE;
}

/* Fills each piece of a block in the input, or verifies it in the output. */
static void each_piece(struct a2a *a, const struct pvn_pair_op *op, int i, int64_t *errors)
{
    int src = rank_of(a, op->send ? a->r->rank / a->r->o->group : op->node, i);
    int dst = op->send ? rank_of(a, op->node, a->r->rank % a->r->o->group) : a->r->rank;

    for (uint64_t at = 0; at < op->bytes[i]; at += VERIFY_AT_ONCE) {
        uint64_t left = op->bytes[i] - at, id = id_of(a, src, dst, at);
        size_t len = left < VERIFY_AT_ONCE ? (size_t)left : VERIFY_AT_ONCE, first = 0, wrong;

        pvn_rank_moved(a->r);
        if (op->send) {
            pvn_bytes_fill(op->data[i] + at, len, id);
            continue;
        }
        wrong = pvn_bytes_check(op->data[i] + at, len, id, &first);
        if (!wrong)
            continue;
        *errors += (int64_t)wrong;
        pvn_rank_wrong(a->r, "byte %llu of %llu from rank %d is wrong (%zu wrong near there)",
                       (unsigned long long)(at + first), (unsigned long long)op->bytes[i], src,
                       wrong);
    }
}

static void each_block(struct a2a *a, int send, int64_t *errors)
{
    for (int n = 0; n < nodes(a); n++)
        for (int i = 0; i < a->r->o->group; i++)
            each_piece(a, &a->op[2 * n + send], i, errors);
}

static void fill(void *arg)
{
    struct a2a *a = arg;
    int64_t none = 0;

    a->seed++;
    if (a->r->o->no_sums)
        return;
    each_block(a, 1, &none);
    memset(a->out, UNWRITTEN, a->out_len);
    pvn_rank_moved(a->r);
}

static void verify(void *arg, int64_t *errors)
{
    struct a2a *a = arg;
    uint64_t end = all_blocks(a, 0);
    size_t beyond;

    if (a->r->o->no_sums)
        return;
    each_block(a, 0, errors);
    beyond = pvn_bytes_not(a->out + end, MARGIN, UNWRITTEN);
    if (!beyond)
        return;
    *errors += (int64_t)beyond;
    pvn_rank_wrong(a->r, "%zu bytes behind the output of %llu were written", beyond,
                   (unsigned long long)end);
}

/* Sets the block sizes of a run: a size of the command line, or a layer of the model. */
static void sizes_of(struct a2a *a, uint64_t size, int layer, int combine)
{
    uint64_t n = (uint64_t)a->r->nranks;

    if (a->r->o->preset[0])
        pvn_moe_bytes(layer, a->r->o->tokens, combine, a->r->nranks, a->bytes);
    else if (a->r->o->collective == PVN_ALLTOALLV)
        pvn_uneven_bytes(size, a->r->nranks, a->bytes);
    else
        for (uint64_t i = 0; i < n * n; i++)
            a->bytes[i] = size / n;
}

static int layers_of(const struct a2a *a)
{
    int layers = a->r->o->layers;

    return !a->r->o->preset[0] ? 0 : layers && layers < PVN_MOE_LAYERS ? layers : PVN_MOE_LAYERS;
}

static void cover(struct a2a *a)
{
    uint64_t in = all_blocks(a, 1), out = all_blocks(a, 0);

    a->in_len = in > a->in_len ? in : a->in_len;
    a->out_len = out > a->out_len ? out : a->out_len;
}

/* Allocates memory for the largest run. */
static int make_room(struct a2a *a)
{
    struct pvn_rank *r = a->r;

    for (int i = 0; i < r->o->nsizes; i++) {
        sizes_of(a, r->o->size[i], 0, 0);
        cover(a);
    }
    for (int k = 0; k < 2 * layers_of(a); k++) {
        sizes_of(a, 0, k / 2, k % 2);
        cover(a);
    }
    a->in_len += MARGIN;
    a->out_len += MARGIN;
    pvn_rank_hold(r);
    pvn_rank_room(r, a->in_len + a->out_len);
    if (pvn_rank_agree(r))
        return -1;
    a->in = pvn_rank_alloc(r, a->in_len);
    a->out = a->in ? pvn_rank_alloc(r, a->out_len) : NULL;
    return a->out ? 0 : -1;
}

static int run_size(struct a2a *a, uint64_t size)
{
    struct pvn_row_result res = {.rss = a->r->rss_per_comm};
    const char *name = pvn_collective_name(a->r->o->collective);

    sizes_of(a, size, 0, 0);
    shape(a);
    res.bytes = (uint64_t)a->work.bytes;
    snprintf(res.test, sizeof(res.test), "%s", a->r->o->no_sums ? "no-sums" : name);
    if (a->r->o->no_sums)
        snprintf(res.item, sizeof(res.item), "%s", name);
    return pvn_timed_point(&a->t, &res, &a->work);
}

/* The all-to-alls of a training step by kind, and their sum. */
enum { DISPATCH, COMBINE, WHOLE, KINDS };

struct step {
    struct pvn_outcome sum[KINDS];
    struct pvn_work work[KINDS];
};

static void add_work(struct pvn_work *to, const struct pvn_work *w)
{
    to->bytes += w->bytes;
    to->sent += w->sent;
}

static void report(struct a2a *a, const char *test, const char *item, struct pvn_work w, int steps,
                   const struct pvn_outcome *o)
{
    struct pvn_row_result res = {.bytes = (uint64_t)w.bytes};

    snprintf(res.test, sizeof(res.test), "%s", test);
    snprintf(res.item, sizeof(res.item), "%s", item);
    w.factor = w.bytes > 0 ? w.sent / (w.bytes * a->r->nranks) : 0;
    pvn_timed_report(&a->t, &res, &w, steps, o);
}

/* The kind of a layer's k-th exchange. A layer has four: tokens go out and come back, then their
 * gradients. */
static int kind_of(int k)
{
    return k % 2 ? COMBINE : DISPATCH;
}

static int run_layer(struct a2a *a, int layer, int k, int steps, struct step *s)
{
    static const char *const name[] = {"dispatch", "combine"};
    int warm = a->r->o->warmup >= 0 ? a->r->o->warmup : 0;
    struct pvn_outcome sum = {0}, o;
    char item[32];

    sizes_of(a, 0, layer, kind_of(k));
    shape(a);
    snprintf(item, sizeof(item), "%s layer %d%s", name[kind_of(k)], layer,
             k < 2 ? "" : " backward");
    pvn_rank_progress(a->r, "%s, %d ranks: %s, %.1f MB", a->r->o->preset, a->r->nranks, item,
                      a->work.bytes / 1e6);
    for (int i = -warm; i < steps; i++) {
        if (pvn_timed_once(&a->t, 1, &o))
            return -1;
        if (i >= 0)
            pvn_outcome_add(&sum, &o);
        else
            sum.errors += o.errors;
    }
    report(a, "bucket", item, a->work, steps, &sum);
    pvn_outcome_add(&s->sum[kind_of(k)], &sum);
    pvn_outcome_add(&s->sum[WHOLE], &sum);
    add_work(&s->work[kind_of(k)], &a->work);
    add_work(&s->work[WHOLE], &a->work);
    return 0;
}

/* Runs micro batches through all layers and back. The gradient of combine's result goes out like a
 * dispatch, the gradient of the tokens comes back like a combine. */
static int run_preset(struct a2a *a)
{
    int layers = layers_of(a), steps = a->r->o->iters ? a->r->o->iters : 2;
    struct step s = {0};

    for (int n = 0; n < 4 * layers; n++) {
        int backward = n >= 2 * layers;
        int layer = backward ? (4 * layers - 1 - n) / 2 : n / 2;

        if (run_layer(a, layer, n % 2 + 2 * backward, steps, &s))
            return -1;
    }
    report(a, "part", "dispatch", s.work[DISPATCH], steps, &s.sum[DISPATCH]);
    report(a, "part", "combine", s.work[COMBINE], steps, &s.sum[COMBINE]);
    report(a, "step", a->r->o->preset, s.work[WHOLE], steps, &s.sum[WHOLE]);
    return 0;
}

int pvn_alltoall_run(struct pvn_rank *r)
{
    struct a2a a = {.r = r};
    size_t n = (size_t)r->nranks;
    int rc = 0;

    a.t =
        (struct pvn_timed){.r = r, .arg = &a, .fill = fill, .run = run_alltoall, .verify = verify};
    a.bytes = calloc(n * n, sizeof(*a.bytes));
    a.op = calloc(4 * n, sizeof(*a.op));
    if (!a.bytes || !a.op)
        rc = pvn_rank_fail(r, "out of memory for the sizes of %d ranks", r->nranks);
    if (!rc)
        rc = make_room(&a);
    if (!rc) {
        rc = pvn_pairs_start(r->pairs);
        for (int i = 0; !rc && i < r->o->nsizes; i++)
            rc = run_size(&a, r->o->size[i]);
        if (!rc && r->o->preset[0])
            rc = run_preset(&a);
        pvn_rank_say_sizes(r, rc);
        rc = pvn_pairs_stop(r->pairs, rc);
    }
    if (a.in)
        munmap(a.in, a.in_len);
    if (a.out)
        munmap(a.out, a.out_len);
    free(a.bytes);
    free(a.op);
    return rc;
}
