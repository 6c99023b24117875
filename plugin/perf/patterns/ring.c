/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf ring: collectives over a ring, as NCCL runs them on top of a net plugin. Each channel
 * has a part of the array, which goes round in chunks (ring_steps.c) through slots of registered
 * memory (slots.c). The polling thread does the GPU kernel's work (copies and sums between slots
 * and the user's arrays, each slice in one pass), so figures include it. It writes results past the
 * caches, which a GPU's memory does not use. With --no-sums the polling thread leaves the slots'
 * contents unchanged, as NCCL's proxy does, and only stamps each message. The figure is then that
 * of the plugin and the network alone.
 */
#include "config.h"

#include "perf/patterns/ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TAG            7
#define STAMP          16         /* bytes */
#define VERIFY_AT_ONCE (1u << 20) /* elements between two updates of the progress time */
#define MARGIN         64         /* guard bytes after each array */

/* The position of the algorithm: one per channel, or one each for sending and receiving. */
struct side {
    struct pvn_ring_pos pos;
    uint64_t iters_left;
    int finished;
};

struct pvn_ring_channel {
    struct pvn_out out;
    struct pvn_in in;
    struct side side[2];
    int sides;
};

static void start_side(struct pvn_ring *g, struct side *s)
{
    s->finished = s->iters_left == 0 || !pvn_ring_start(&g->shape, &s->pos);
}

static void advance(struct pvn_ring *g, struct side *s)
{
    if (pvn_ring_next(&g->shape, &s->pos))
        return;
    s->iters_left--;
    start_side(g, s);
}

static int finished(const struct pvn_ring_channel *c)
{
    return c->side[0].finished && c->side[c->sides - 1].finished;
}

static void check_size(struct pvn_ring *g, size_t got, size_t due)
{
    if (got == due || got == PVN_SIZE_UNSAID)
        return;
    g->t.errors++;
    pvn_rank_wrong(g->r, "test() reports %zu bytes where %zu were sent", got, due);
}

/* Does the GPU kernel's work on a slice. to, from: slots, or NULL if the move has none. */
static void reduce_or_copy(struct pvn_ring *g, const struct pvn_move *m, char *to, const char *from)
{
    const char *in = m->uses & PVN_IN ? g->in + m->in * g->size : NULL;
    char *out = m->uses & PVN_OUT ? g->out + m->out * g->size : NULL;

    if (in && from)
        pvn_values_add(g->r->o->type, to, out, in, from, m->count);
    else
        pvn_bytes_copy(to, out, in ? in : from, m->count * g->size);
}

/* Checks and stamps messages for --no-sums. The k-th message of a channel has a pattern of its own;
 * with --check the pattern fills the message. */
static void check_and_stamp(struct pvn_ring *g, const struct pvn_ring_channel *c, size_t len,
                            void *to, const void *from)
{
    uint64_t id = (uint64_t)(c - g->ch) << 48;
    size_t n = g->r->o->check || len < STAMP ? len : STAMP, at = 0;

    if (to)
        pvn_bytes_fill(to, n, id + c->out.filled);
    if (!from || pvn_bytes_check(from, n, id + c->in.used[0], &at) == 0)
        return;
    g->t.errors++;
    pvn_rank_wrong(g->r, "byte %zu of message %llu of channel %d is wrong", at,
                   (unsigned long long)c->in.used[0], (int)(c - g->ch));
}

/* to, from: addresses that the processor can access. */
static void work_on(struct pvn_ring *g, struct pvn_ring_channel *c, const struct pvn_move *m,
                    char *to, char *from)
{
    if (g->r->o->no_sums)
        check_and_stamp(g, c, m->count * g->size, to, from);
    else
        reduce_or_copy(g, m, to, from);
}

/* reduce_or_copy with slots in GPU memory, by copies. Without sums and checks the contents stay
 * unchanged, as with NCCL's proxy, because a copy of a stamp would cost more than the message. 0 or
 * -1. */
static int work_on_gpu(struct pvn_ring *g, struct pvn_ring_channel *c, const struct pvn_move *m,
                       char *to, char *from)
{
    char *in = from ? g->bounce : NULL, *out = to ? g->bounce + g->r->o->slot : NULL;
    size_t len = m->count * g->size;

    if (g->r->o->no_sums && !g->r->o->check)
        return 0;
    if (from && pvn_messages_read(g->r, in, from, len))
        return -1;
    work_on(g, c, m, out, in);
    return to ? pvn_messages_write(g->r, to, out, len) : 0;
}

/* The kernel's part: processes one slice if its slots are ready. 1 if it did, 0, or -1. */
static int compute(struct pvn_ring *g, struct pvn_ring_channel *c, struct side *s)
{
    struct pvn_move m;
    char *to = NULL, *from = NULL;

    if (s->finished)
        return 0;
    m = pvn_ring_move(&g->shape, &s->pos);
    if (m.uses & PVN_RECEIVED && !(from = pvn_in_slot(&c->in, 0)))
        return 0;
    if (m.uses & PVN_SENT && !(to = pvn_out_slot(&c->out)))
        return 0;
    if (!g->bounce)
        work_on(g, c, &m, to, from);
    else if (work_on_gpu(g, c, &m, to, from))
        return -1;
    if (from)
        check_size(g, pvn_in_use(&c->in, 0), m.count * g->size);
    if (to)
        pvn_out_fill(&c->out, m.count * g->size);
    advance(g, s);
    return 1;
}

/* True if the channel has received everything and posted its last message. Its sends may be
 * outstanding, as for a rank of NCCL, whose kernel ends when its last slice is passed on. The rank
 * progresses them until they are complete, whatever it waits for. */
static int channel_done(const struct pvn_ring_channel *c)
{
    return finished(c) && c->out.posted == c->out.filled && c->in.done == c->in.total[0];
}

static int stuck(struct pvn_ring *g, int i)
{
    const struct pvn_ring_channel *c = &g->ch[i];
    const struct pvn_rank *r = g->r;
    const char *missing = c->in.done < c->in.posted && c->in.used[0] == c->in.done
                              ? "a message from the previous rank"
                              : "the completion of a send to the next rank";

    return pvn_rank_fail(
        g->r,
        "nothing moved for %.0f s: channel %d waits for %s (%d or %d); sends: %llu "
        "filled, %llu posted, %llu complete; receives: %llu posted, %llu complete, "
        "%llu used " PVN_RANK_TIMEOUT,
        r->o->timeout, i, missing, (r->rank + r->nranks - 1) % r->nranks, (r->rank + 1) % r->nranks,
        (unsigned long long)c->out.filled, (unsigned long long)c->out.posted,
        (unsigned long long)c->out.done, (unsigned long long)c->in.posted,
        (unsigned long long)c->in.done, (unsigned long long)c->in.used[0]);
}

/* Progresses sends while the ranks wait for each other outside the plugin, as NCCL's proxy thread
 * does. 1: some are outstanding. */
static int attend_to_sends(void *arg)
{
    struct pvn_ring *g = arg;
    int outstanding = 0;

    for (int i = 0; i < g->r->o->channels && !g->failed; i++) {
        struct pvn_out *o = &g->ch[i].out;

        if (o->done < o->filled)
            g->failed = pvn_out_progress(g->r, o) < 0;
        outstanding |= o->done < o->filled;
    }
    return outstanding && !g->failed;
}

/* Makes a pass over the sends of all channels. 1 if something moved, 0, or -1. *waits: a channel
 * with outstanding sends, or -1. */
static int pass_sends(struct pvn_ring *g, int *waits)
{
    int moved = 0;

    *waits = -1;
    for (int i = 0; i < g->r->o->channels; i++) {
        struct pvn_out *o = &g->ch[i].out;
        int rc = o->done < o->filled ? pvn_out_progress(g->r, o) : 0;

        if (rc < 0)
            return -1;
        moved |= rc;
        if (o->done < o->filled)
            *waits = i;
    }
    return moved;
}

/* Completes the sends of earlier runs. Progresses every channel, as NCCL's proxy does: a channel
 * that nobody progresses does not notice faults, and other channels may wait for it. */
static int complete_sends(struct pvn_ring *g)
{
    int waits;

    if (g->failed)
        return -1;
    g->r->idle = 0;
    for (;;) {
        int moved = pass_sends(g, &waits), idle;

        if (moved < 0 || (waits >= 0 && pvn_rank_stops(g->r)))
            return -1;
        if (moved)
            pvn_rank_moved(g->r);
        if (waits < 0)
            return 0;
        idle = moved ? 0 : pvn_rank_idle(g->r);
        if (idle)
            return idle < 0 ? -1 : stuck(g, waits);
    }
}

static int copy_alone(struct pvn_ring *g, uint64_t iters)
{
    for (uint64_t i = 0; i < iters; i++) {
        if (pvn_rank_stops(g->r))
            return -1;
        memcpy(g->out, g->in, g->shape.count * g->size);
    }
    return 0;
}

/* Makes a pass over a channel. 1 if something moved, 0, or -1. */
static int pass(struct pvn_ring *g, struct pvn_ring_channel *c)
{
    int moved = pvn_in_progress(g->r, &c->in), rc = 0;

    for (int i = 0; i < c->sides && moved >= 0 && rc >= 0; i++)
        moved |= rc = compute(g, c, &c->side[i]);
    if (moved < 0 || rc < 0)
        return -1;
    rc = pvn_out_progress(g->r, &c->out);
    return rc < 0 ? -1 : moved | rc;
}

/* Makes passes over all channels until `left` of them are done. */
static int run_channels(struct pvn_ring *g, int left)
{
    g->r->idle = 0;
    while (left) {
        int moved = 0, last = 0, idle;

        if (pvn_rank_stops(g->r))
            return -1;
        for (int i = 0; i < g->r->o->channels; i++) {
            struct pvn_ring_channel *c = &g->ch[i];
            int rc;

            /* The channel's sends may need further calls of the plugin to go out. */
            if (channel_done(c)) {
                if (c->out.done < c->out.filled && pvn_out_progress(g->r, &c->out) < 0)
                    return -1;
                continue;
            }
            last = i;
            rc = pass(g, c);
            if (rc < 0)
                return -1;
            moved |= rc;
            left -= channel_done(c);
        }
        if (moved) {
            pvn_rank_moved(g->r);
            continue;
        }
        idle = pvn_rank_idle(g->r);
        if (idle)
            return idle < 0 ? -1 : stuck(g, last);
    }
    return 0;
}

/* Runs the collective on the whole array, iters times without a pause. */
static int run_ring(void *arg, uint64_t iters)
{
    struct pvn_ring *g = arg;
    int left = g->r->o->channels;

    if (g->r->nranks == 1)
        return copy_alone(g, iters);
    if (complete_sends(g))
        return -1;
    for (int i = 0; i < g->r->o->channels; i++) {
        struct pvn_ring_channel *c = &g->ch[i];

        pvn_out_start(&c->out);
        pvn_in_start(&c->in);
        c->sides = pvn_ring_sides(&g->shape);
        for (int k = 0; k < c->sides; k++) {
            c->side[k] = (struct side){.pos.side = k, .iters_left = iters};
            pvn_ring_share(&g->shape, i, g->r->o->channels, &c->side[k].pos);
            c->in.total[0] = iters * pvn_ring_receives(&g->shape, &c->side[k].pos);
            start_side(g, &c->side[k]);
        }
        left -= channel_done(c);
    }
    return run_channels(g, left);
}

static void fill(void *arg)
{
    struct pvn_ring *g = arg;
    struct pvn_whose w = {g->r->o->type, g->r->rank, g->r->nranks, ++g->seed};
    uint64_t n = pvn_ring_in(&g->shape);

    if (g->r->o->no_sums)
        return;
    if (g->shape.what == PVN_BROADCAST)
        w.rank = 0;
    for (uint64_t i = 0; i < n; i += VERIFY_AT_ONCE) {
        pvn_values_fill(g->in + i * g->size, i, n - i < VERIFY_AT_ONCE ? n - i : VERIFY_AT_ONCE,
                        &w);
        pvn_rank_moved(g->r);
    }
    /* NaN shows elements that were not written. */
    memset(g->out, 0xff, pvn_ring_out(&g->shape) * g->size);
    pvn_rank_moved(g->r);
}

/* Verifies `count` elements of the output from `out` on, which are the elements from `at` on of w's
 * array. */
static void verify_part(struct pvn_ring *g, uint64_t out, uint64_t at, uint64_t count,
                        const struct pvn_whose *w, int64_t *errors)
{
    for (uint64_t i = 0; i < count; i += VERIFY_AT_ONCE) {
        uint64_t n = count - i < VERIFY_AT_ONCE ? count - i : VERIFY_AT_ONCE, first = 0, wrong;
        const char *got = g->out + (out + i) * g->size;

        wrong = pvn_values_check(got, at + i, n, w, &first);
        pvn_rank_moved(g->r);
        if (!wrong)
            continue;
        *errors += (int64_t)wrong;
        pvn_rank_wrong(g->r, "element %llu of %llu is %g and should be %g (%llu wrong near there)",
                       (unsigned long long)(out + i + first),
                       (unsigned long long)pvn_ring_out(&g->shape),
                       pvn_values_get(w->type, got, first), pvn_values_expected(at + i + first, w),
                       (unsigned long long)wrong);
    }
}

static void verify(void *arg, int64_t *errors)
{
    struct pvn_ring *g = arg;
    uint64_t n = g->shape.count;
    struct pvn_whose w = {g->r->o->type, PVN_SUM, g->r->nranks, g->seed};

    if (g->r->o->no_sums)
        return;
    switch (g->shape.what) {
    case PVN_ALLREDUCE:
        verify_part(g, 0, 0, n, &w, errors);
        break;
    case PVN_REDUCESCATTER:
        verify_part(g, 0, n * (uint64_t)g->r->rank, n, &w, errors);
        break;
    case PVN_ALLGATHER:
        for (w.rank = 0; w.rank < w.nranks; w.rank++)
            verify_part(g, n * (uint64_t)w.rank, 0, n, &w, errors);
        break;
    default:
        w.rank = g->shape.what == PVN_SENDRECV ? (g->r->rank + w.nranks - 1) % w.nranks : 0;
        verify_part(g, 0, 0, n, &w, errors);
    }
}

void pvn_ring_shape_to(struct pvn_ring *g, enum pvn_collective what, uint64_t count)
{
    g->shape.what = what;
    g->shape.count = count;
}

static int set_up_channel(struct pvn_ring *g, int i)
{
    const struct pvn_perf_opts *o = g->r->o;
    struct pvn_ring_channel *c = &g->ch[i];
    size_t each = o->slot * (size_t)o->steps;
    char *at = g->mem + each * (size_t)(2 * i);

    c->out = (struct pvn_out){.comm = g->r->link[i].send,
                              .buf = at,
                              .stride = o->slot,
                              .steps = (uint64_t)o->steps,
                              .tag = TAG};
    c->in = (struct pvn_in){.comm = g->r->link[i].recv,
                            .buf = at + each,
                            .stride = o->slot,
                            .slot = o->slot,
                            .steps = (uint64_t)o->steps,
                            .tag = TAG,
                            .streams = 1};
    if (pvn_messages_register(g->r, c->out.comm, c->out.buf, each, &c->out.mh))
        return -1;
    return pvn_messages_register(g->r, c->in.comm, c->in.buf, each, &c->in.mh);
}

int pvn_ring_open(struct pvn_ring *g, struct pvn_rank *r, uint64_t in_bytes, uint64_t out_bytes)
{
    const struct pvn_perf_opts *o = r->o;

    memset(g, 0, sizeof(*g));
    g->r = r;
    g->size = pvn_type_size(o->type);
    g->t = (struct pvn_timed){.r = r, .arg = g, .fill = fill, .run = run_ring, .verify = verify};
    g->shape = (struct pvn_ring_shape){.nranks = r->nranks,
                                       .rank = r->rank,
                                       .slot = o->slot / g->size,
                                       .align = 16 / g->size,
                                       .slices = o->slices};
    g->in_len = in_bytes + MARGIN;
    g->out_len = out_bytes + MARGIN;
    g->mem_len = o->slot * (size_t)o->steps * 2 * (size_t)o->channels;
    pvn_rank_hold(r);
    if (r->nranks > 1 && o->steps > pvn_netdrv_max_requests(r->drv))
        pvn_rank_fail(r, "--steps %d: version %d of the interface allows %d requests", o->steps,
                      pvn_netdrv_abi(r->drv), pvn_netdrv_max_requests(r->drv));
    else if (pvn_rank_room(r, g->in_len + g->out_len + (pvn_messages_on_gpu(r) ? 0 : g->mem_len)) ==
             0)
        g->mem = pvn_rank_alloc_messages(r, g->mem_len);
    if (pvn_rank_agree(r) || pvn_messages_say(r))
        return -1;
    g->ch = calloc((size_t)o->channels, sizeof(*g->ch));
    g->in = pvn_rank_alloc(r, g->in_len);
    g->out = g->in ? pvn_rank_alloc(r, g->out_len) : NULL;
    if (!g->ch)
        return pvn_rank_fail(r, "out of memory for %d channels", o->channels);
    if (!g->out)
        return -1;
    if (!pvn_messages_on_gpu(r))
        memset(g->mem, 0, g->mem_len);
    else if (!(g->bounce = malloc(2 * o->slot)))
        return pvn_rank_fail(r, "out of memory for two slots");
    for (int i = 0; r->nranks > 1 && i < o->channels; i++)
        if (set_up_channel(g, i))
            return -1;
    r->boot.work = attend_to_sends;
    r->boot.work_arg = g;
    return 0;
}

static int deregister(struct pvn_ring *g)
{
    for (int i = 0; g->r->nranks > 1 && i < g->r->o->channels; i++) {
        struct pvn_ring_channel *c = &g->ch[i];
        ncclResult_t a, b;

        pvn_rank_at(g->r, "deregMr");
        a = pvn_netdrv_dereg_mr(g->r->drv, c->out.comm, c->out.mh);
        b = pvn_netdrv_dereg_mr(g->r->drv, c->in.comm, c->in.mh);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(g->r, "deregMr", a != ncclSuccess ? a : b);
    }
    if (pvn_boot_barrier(&g->r->boot))
        return pvn_rank_fail_boot(g->r);
    return 0;
}

int pvn_ring_close(struct pvn_ring *g, int rc)
{
    if (!rc)
        rc = complete_sends(g);
    if (!rc)
        rc = deregister(g);
    g->r->boot.work = NULL;
    if (!rc) {
        pvn_rank_free_messages(g->r, g->mem, g->mem_len);
        munmap(g->in, g->in_len);
        munmap(g->out, g->out_len);
    }
    free(g->ch);
    free(g->bounce);
    g->ch = NULL;
    return rc;
}
