/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of operations between pairs (sendProxyProgress, recvProxyProgress and sharedBuffersGet in
 * src/transport/net.cc of NCCL 2.28.9). A channel has slots for twice as many messages as a stream
 * may have in flight, and the streams of a batch divide them. The polling thread does the GPU
 * kernel's work: it copies between slots and the user's arrays. A group ends before its sends are
 * complete, as for a rank of NCCL, whose kernel ends when it has received everything and has passed
 * on its last message. A channel begins its next batch when the sends are complete.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "perf/patterns/pairs.h"
#include "perf/rank/slots.h"
#include "perf/workload/values.h"

#define STAMP 16 /* bytes */

/* A part of an operation: up to `group` streams. */
struct pvn_pairs_piece {
    const struct pvn_pair_op *op;
    int channel, batch, round, part;
};

/* The remainder of one stream's part. */
struct stream {
    char *data;
    uint64_t left, messages;
    size_t message; /* bytes */
    int source;     /* rank */
};

struct out_sub {
    struct pvn_out out;
    struct stream s;
    int node;
};

struct in_sub {
    struct pvn_in in;
    struct stream s[PVN_STREAMS_MAX];
    int node;
};

struct pvn_pairs_channel {
    int next, end; /* pieces of this channel that have not begun */
    int outs, ins; /* sends and receives of the current batch; 0 and 0 without one */
    struct out_sub out[PVN_PAIRS_BATCH];
    struct in_sub in[PVN_PAIRS_BATCH];
};

static int piece_order(const void *a, const void *b)
{
    const struct pvn_pairs_piece *x = a, *y = b;

    if (x->channel != y->channel)
        return x->channel - y->channel;
    if (x->batch != y->batch)
        return x->batch - y->batch;
    return x->round != y->round ? x->round - y->round : x->op->send - y->op->send;
}

static void add_pieces(struct pvn_pairs *p, const struct pvn_pair_op *op)
{
    int round = pvn_pairs_round(&p->plan, op->node, op->send), parts = 0;

    for (int i = 0; i < p->plan.group; i++) {
        int n = pvn_pairs_parts(&p->plan, op->bytes[i]);

        parts = n > parts ? n : parts;
    }
    for (int part = 0; part < parts; part++)
        p->piece[p->pieces++] =
            (struct pvn_pairs_piece){op, pvn_pairs_channel(&p->plan, round, part),
                                     pvn_pairs_batch(&p->plan, round), round, part};
}

static struct stream stream_of(const struct pvn_pairs *p, const struct pvn_pairs_piece *x, int i)
{
    uint64_t bytes = x->op->bytes[i], from, to;
    int node = x->op->send ? p->plan.node : x->op->node;
    struct stream s = {.message = pvn_pairs_message(&p->plan, bytes),
                       .source = node * p->plan.group + i};

    pvn_pairs_part(bytes, pvn_pairs_parts(&p->plan, bytes), x->part, &from, &to);
    s.data = x->op->data[i] + from;
    s.left = to - from;
    s.messages = (s.left + s.message - 1) / s.message;
    return s;
}

/* Slot 0 of stream `sub` in a channel's pool. Each of the `subs` streams has every subs-th slot. */
static char *slots_of(const struct pvn_pairs *p, const struct pvn_pairs_channel *c, int send,
                      int sub)
{
    size_t pool = (size_t)pvn_pairs_pool(p, send) * p->plan.slot, at = (size_t)(c - p->ch) * pool;

    if (!send)
        at += (size_t)p->plan.channels * (size_t)pvn_pairs_pool(p, 1) * p->plan.slot;
    return p->mem + at + (size_t)sub * p->plan.slot;
}

/* Messages in flight per stream. */
static uint64_t depth(const struct pvn_pairs *p, int send, int subs)
{
    int share = pvn_pairs_pool(p, send) / subs;

    return (uint64_t)(share < p->r->o->steps ? share : p->r->o->steps);
}

static void start_sends(struct pvn_pairs *p, struct pvn_pairs_channel *c,
                        const struct pvn_pairs_piece *x, int subs)
{
    for (int i = 0; i < p->plan.group; i++) {
        const struct pvn_pair_comm *comm =
            pvn_pairs_comm(p, x->op->node, x->part, p->lanes > 1 ? i : 0);
        struct out_sub *o = &c->out[c->outs];

        o->node = x->op->node;
        o->s = stream_of(p, x, i);
        o->out = (struct pvn_out){.comm = comm->send,
                                  .mh = comm->send_mh,
                                  .buf = slots_of(p, c, 1, c->outs),
                                  .stride = p->plan.slot * (size_t)subs,
                                  .steps = depth(p, 1, subs),
                                  .tag = o->s.source};
        c->outs++;
    }
}

/* Starts as many grouped receives as are needed; `sub` is the first stream's number in the
 * batch. */
static void start_receives(struct pvn_pairs *p, struct pvn_pairs_channel *c,
                           const struct pvn_pairs_piece *x, int subs, int sub)
{
    int most = p->lanes > 1 ? 1 : p->max_recvs, n = p->plan.group;

    for (int first = 0; first < n; first += most) {
        const struct pvn_pair_comm *comm =
            pvn_pairs_comm(p, x->op->node, x->part, p->lanes > 1 ? first : 0);
        struct in_sub *r = &c->in[c->ins++];

        r->node = x->op->node;
        r->in = (struct pvn_in){.comm = comm->recv,
                                .mh = comm->recv_mh,
                                .buf = slots_of(p, c, 0, sub + first),
                                .stride = p->plan.slot * (size_t)subs,
                                .slot = p->plan.slot,
                                .steps = depth(p, 0, subs),
                                .tag = x->op->node * n + first,
                                .streams = n - first < most ? n - first : most};
        for (int i = 0; i < r->in.streams; i++) {
            r->s[i] = stream_of(p, x, first + i);
            r->in.total[i] = r->s[i].messages;
        }
    }
}

/* Sets up the channel's next batch. */
static void start_batch(struct pvn_pairs *p, struct pvn_pairs_channel *c)
{
    int last = c->next, subs[2] = {0, 0}, sub = 0;

    c->outs = c->ins = 0;
    while (last < c->end && p->piece[last].batch == p->piece[c->next].batch)
        subs[p->piece[last++].op->send] += p->plan.group;
    for (; c->next < last; c->next++) {
        const struct pvn_pairs_piece *x = &p->piece[c->next];

        if (x->op->send) {
            start_sends(p, c, x, subs[1]);
        } else {
            start_receives(p, c, x, subs[0], sub);
            sub += p->plan.group;
        }
    }
}

/* The id that --no-sums stamps on a message, or fills it with under --check. */
static uint64_t stamp_id(const struct stream *s, uint64_t message)
{
    return (uint64_t)s->source << 48 | (message + 1);
}

static size_t stamp_length(const struct pvn_pairs *p, size_t len)
{
    return p->r->o->check || len < STAMP ? len : STAMP;
}

/* Fills a slot with a message: 0, or -1. Without sums and checks the contents of GPU memory stay
 * unchanged, as with NCCL's proxy. */
static int fill_slot(struct pvn_pairs *p, const struct out_sub *o, char *slot, size_t len)
{
    char *to = p->bounce ? p->bounce : slot;

    if (p->r->o->no_sums && p->bounce && !p->r->o->check)
        return 0;
    if (p->r->o->no_sums)
        pvn_bytes_fill(to, stamp_length(p, len), stamp_id(&o->s, o->out.filled));
    else
        pvn_bytes_copy(to, NULL, o->s.data, len);
    return p->bounce ? pvn_messages_write(p->r, slot, to, len) : 0;
}

static int fill_slots(struct pvn_pairs *p, struct out_sub *o)
{
    int moved = 0;
    char *slot;

    while (o->out.filled < o->s.messages && (slot = pvn_out_slot(&o->out))) {
        size_t len = o->s.left < o->s.message ? (size_t)o->s.left : o->s.message;

        if (fill_slot(p, o, slot, len))
            return -1;
        pvn_out_fill(&o->out, len);
        o->s.data += len;
        o->s.left -= len;
        moved = 1;
    }
    return moved;
}

static void check_stamp(struct pvn_pairs *p, const struct in_sub *r, int i, const char *from,
                        size_t len)
{
    uint64_t message = r->in.used[i];
    size_t at = 0;

    if (pvn_bytes_check(from, stamp_length(p, len), stamp_id(&r->s[i], message), &at) == 0)
        return;
    p->errors++;
    pvn_rank_wrong(p->r, "byte %zu of message %llu from rank %d is wrong", at,
                   (unsigned long long)message, r->s[i].source);
}

/* Takes a message of stream i from its slot: 0, or -1. */
static int empty_slot(struct pvn_pairs *p, const struct in_sub *r, int i, const char *slot,
                      size_t len)
{
    const char *from = p->bounce ? p->bounce : slot;

    if (p->r->o->no_sums && p->bounce && !p->r->o->check)
        return 0;
    if (p->bounce && pvn_messages_read(p->r, p->bounce, slot, len))
        return -1;
    if (p->r->o->no_sums)
        check_stamp(p, r, i, from, len);
    else
        pvn_bytes_copy(NULL, r->s[i].data, from, len);
    return 0;
}

static int empty_stream(struct pvn_pairs *p, struct in_sub *r, int i)
{
    struct stream *s = &r->s[i];
    int moved = 0;
    char *slot;

    while ((slot = pvn_in_slot(&r->in, i))) {
        size_t len = s->left < s->message ? (size_t)s->left : s->message, got;

        if (empty_slot(p, r, i, slot, len))
            return -1;
        got = pvn_in_use(&r->in, i);
        if (got != len && got != PVN_SIZE_UNSAID) {
            p->errors++;
            pvn_rank_wrong(p->r, "test() reports %zu bytes from rank %d, which sent %zu", got,
                           s->source, len);
        }
        s->data += len;
        s->left -= len;
        moved = 1;
    }
    return moved;
}

static int received(const struct in_sub *r)
{
    for (int i = 0; i < r->in.streams; i++)
        if (r->in.used[i] < r->in.total[i])
            return 0;
    return 1;
}

static int handed_over(const struct out_sub *o)
{
    return o->out.posted == o->s.messages;
}

static int sent(const struct out_sub *o)
{
    return o->out.done == o->s.messages;
}

/* Sends of the channel that are not complete. */
static int outstanding(const struct pvn_pairs_channel *c)
{
    int n = 0;

    for (int i = 0; i < c->outs; i++)
        n += !sent(&c->out[i]);
    return n;
}

/* Makes progress on receives. 1 if something moved, 0, or -1. */
static int receive(struct pvn_pairs *p, struct in_sub *r)
{
    int moved = pvn_in_progress(p->r, &r->in);

    for (int i = 0; i < r->in.streams && moved >= 0; i++) {
        int rc = empty_stream(p, r, i);

        moved = rc < 0 ? -1 : moved | rc;
    }
    return moved;
}

static int send(struct pvn_pairs *p, struct out_sub *o)
{
    int moved = fill_slots(p, o), rc = moved < 0 ? -1 : pvn_out_progress(p->r, &o->out);

    return rc < 0 ? -1 : moved | rc;
}

/* Makes a pass over a channel's batch. 1 if something moved, 0, or -1. *left counts streams that
 * still have to receive or to post. */
static int pass(struct pvn_pairs *p, struct pvn_pairs_channel *c, int *left)
{
    int moved = 0;

    for (int i = 0; i < c->ins && moved >= 0; i++) {
        int rc = received(&c->in[i]) ? 0 : receive(p, &c->in[i]);

        moved = rc < 0 ? -1 : moved | rc;
        *left += !received(&c->in[i]);
    }
    for (int i = 0; i < c->outs && moved >= 0; i++) {
        int rc = sent(&c->out[i]) ? 0 : send(p, &c->out[i]);

        moved = rc < 0 ? -1 : moved | rc;
        *left += !handed_over(&c->out[i]);
    }
    return moved;
}

/* The rank at the other end of the comms with a node. */
static int peer_of(const struct pvn_pairs *p, int node)
{
    return node * p->plan.group + p->r->rank % p->plan.group;
}

static int stuck(struct pvn_pairs *p)
{
    for (int k = 0; k < p->plan.channels; k++) {
        const struct pvn_pairs_channel *c = &p->ch[k];

        for (int i = 0; i < c->ins; i++) {
            const struct in_sub *r = &c->in[i];

            if (!received(r))
                return pvn_rank_fail(
                    p->r,
                    "nothing moved for %.0f s: channel %d waits for a message from rank %d (%llu of "
                    "%llu came; %llu receives posted) " PVN_RANK_TIMEOUT,
                    p->r->o->timeout, k, peer_of(p, r->node), (unsigned long long)r->in.done,
                    (unsigned long long)pvn_in_steps(&r->in), (unsigned long long)r->in.posted);
        }
        for (int i = 0; i < c->outs; i++) {
            const struct out_sub *o = &c->out[i];

            if (!sent(o))
                return pvn_rank_fail(
                    p->r,
                    "nothing moved for %.0f s: channel %d waits for the completion of a send to rank "
                    "%d (%llu of %llu complete, %llu posted) " PVN_RANK_TIMEOUT,
                    p->r->o->timeout, k, peer_of(p, o->node), (unsigned long long)o->out.done,
                    (unsigned long long)o->s.messages, (unsigned long long)o->out.posted);
        }
    }
    return pvn_rank_fail(p->r, "nothing moved for %.0f s " PVN_RANK_TIMEOUT, p->r->o->timeout);
}

static void assign(struct pvn_pairs *p, const struct pvn_pair_op *op, int n)
{
    int at = 0;

    p->pieces = 0;
    for (int i = 0; i < n; i++)
        add_pieces(p, &op[i]);
    qsort(p->piece, (size_t)p->pieces, sizeof(*p->piece), piece_order);
    for (int k = 0; k < p->plan.channels; k++) {
        struct pvn_pairs_channel *c = &p->ch[k];

        c->next = at;
        while (at < p->pieces && p->piece[at].channel == k)
            at++;
        c->end = at;
    }
}

/* Makes a pass over all channels. 1 if something moved, 0, or -1. *busy: the group is not
 * finished. */
static int pass_all(struct pvn_pairs *p, int *busy)
{
    int moved = 0;

    *busy = 0;
    for (int k = 0; k < p->plan.channels; k++) {
        struct pvn_pairs_channel *c = &p->ch[k];
        int left = 0, rc = pass(p, c, &left);

        if (rc < 0)
            return -1;
        moved |= rc;
        if (left == 0 && c->next < c->end && outstanding(c) == 0) {
            start_batch(p, c);
            moved = left = 1;
        }
        *busy |= left > 0 || c->next < c->end;
    }
    return moved;
}

int pvn_pairs_run(struct pvn_pairs *p, const struct pvn_pair_op *op, int n)
{
    int busy = 1;

    if (p->failed)
        return -1;
    assign(p, op, n);
    p->r->idle = 0;
    while (busy) {
        int moved = pvn_rank_stops(p->r) ? -1 : pass_all(p, &busy), idle;

        if (moved < 0)
            return -1;
        if (moved)
            pvn_rank_moved(p->r);
        idle = moved || !busy ? 0 : pvn_rank_idle(p->r);
        if (idle)
            return idle < 0 ? -1 : stuck(p);
    }
    return 0;
}

/* Progresses sends while the ranks wait for each other outside the plugin, as NCCL's proxy thread
 * does. 1: some sends are outstanding. */
static int attend_to_sends(void *arg)
{
    struct pvn_pairs *p = arg;
    int some = 0;

    for (int k = 0; k < p->plan.channels && !p->failed; k++) {
        int left = 0;

        p->failed = outstanding(&p->ch[k]) && pass(p, &p->ch[k], &left) < 0;
        some |= outstanding(&p->ch[k]) > 0;
    }
    return some && !p->failed;
}

static int complete_sends(struct pvn_pairs *p)
{
    p->r->idle = 0;
    while (attend_to_sends(p)) {
        int idle = pvn_rank_stops(p->r) ? -1 : pvn_rank_idle(p->r);

        if (idle)
            return idle < 0 ? -1 : stuck(p);
    }
    return p->failed ? -1 : 0;
}

static int reg_comm(struct pvn_pairs *p, struct pvn_pair_comm *c)
{
    size_t out = (size_t)(p->plan.channels * pvn_pairs_pool(p, 1)) * p->plan.slot;

    if (pvn_messages_register(p->r, c->send, p->mem, out, &c->send_mh))
        return -1;
    return pvn_messages_register(p->r, c->recv, p->mem + out, p->mem_len - out, &c->recv_mh);
}

int pvn_pairs_start(struct pvn_pairs *p)
{
    struct pvn_rank *r = p->r;
    const struct pvn_perf_opts *o = r->o;

    p->mem_len =
        p->plan.slot * (size_t)(p->plan.channels * (pvn_pairs_pool(p, 0) + pvn_pairs_pool(p, 1)));
    p->ch = calloc((size_t)p->plan.channels, sizeof(*p->ch));
    p->piece = calloc((size_t)(2 * p->plan.nodes * p->plan.per_peer), sizeof(*p->piece));
    pvn_rank_hold(r);
    if (!p->ch || !p->piece)
        pvn_rank_fail(r, "out of memory for %d channels", p->plan.channels);
    else if (r->nranks > 1 && o->steps > pvn_netdrv_max_requests(r->drv))
        pvn_rank_fail(r, "--steps %d: version %d of the interface allows %d requests", o->steps,
                      pvn_netdrv_abi(r->drv), pvn_netdrv_max_requests(r->drv));
    else if (pvn_messages_on_gpu(r) || pvn_rank_room(r, p->mem_len) == 0)
        p->mem = pvn_rank_alloc_messages(r, p->mem_len);
    if (pvn_rank_agree(r) || pvn_messages_say(r))
        return -1;
    if (!pvn_messages_on_gpu(r))
        memset(p->mem, 0, p->mem_len);
    else if (!(p->bounce = malloc(p->plan.slot)))
        return pvn_rank_fail(r, "out of memory for a message of %zu bytes", p->plan.slot);
    for (int i = 0; i < p->plan.nodes * p->plan.per_peer * p->lanes; i++)
        if (p->comm[i].send && reg_comm(p, &p->comm[i]))
            return -1;
    r->boot.work = attend_to_sends;
    r->boot.work_arg = p;
    return 0;
}

static int dereg_all(struct pvn_pairs *p)
{
    for (int i = 0; i < p->plan.nodes * p->plan.per_peer * p->lanes; i++) {
        struct pvn_pair_comm *c = &p->comm[i];
        ncclResult_t a, b;

        if (!c->send)
            continue;
        pvn_rank_at(p->r, "deregMr");
        a = pvn_netdrv_dereg_mr(p->r->drv, c->send, c->send_mh);
        b = pvn_netdrv_dereg_mr(p->r->drv, c->recv, c->recv_mh);
        if (a != ncclSuccess || b != ncclSuccess)
            return pvn_rank_fail_call(p->r, "deregMr", a != ncclSuccess ? a : b);
    }
    if (pvn_boot_barrier(&p->r->boot))
        return pvn_rank_fail_boot(p->r);
    return 0;
}

int pvn_pairs_stop(struct pvn_pairs *p, int rc)
{
    if (!rc)
        rc = complete_sends(p);
    if (!rc)
        rc = dereg_all(p);
    p->r->boot.work = NULL;
    if (!rc)
        pvn_rank_free_messages(p->r, p->mem, p->mem_len);
    free(p->ch);
    free(p->piece);
    free(p->bounce);
    p->bounce = NULL;
    p->ch = NULL;
    p->piece = NULL;
    return rc;
}
