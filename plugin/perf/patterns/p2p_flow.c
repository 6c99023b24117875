/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/patterns/p2p_flow.h"

#include <stdio.h>
#include <string.h>

#include "perf/workload/values.h"

#define FILL 0xa5
#define TAG  100

static void *slot_of(const struct pvn_p2p *p, const struct pvn_flow *f, uint64_t message)
{
    uint64_t slots = (uint64_t)p->depth * (uint64_t)p->group;

    return f->base + (message % slots) * p->stride + PVN_P2P_GUARD;
}

/* Lengths of a verified pass: the corners, and anything up to the size. */
static size_t length_of(const struct pvn_p2p *p, uint64_t message)
{
    uint64_t h = (message + p->round * 7919) * 0x9e3779b97f4a7c15ull;

    if (!p->check)
        return p->size;
    switch (message % 6) {
    case 0:
        return p->size;
    case 1:
        return 0;
    case 2:
        return p->size ? 1 : 0;
    case 3:
        return p->size ? p->size - 1 : 0;
    default:
        return (h >> 20) % (p->size + 1);
    }
}

/* The number from which a message's bytes are computed. from: the side that sends it. */
static uint64_t id_of(const struct pvn_p2p *p, int from, int channel, uint64_t message)
{
    return p->round << 44 | (uint64_t)(2 * channel + from) << 32 | message;
}

/* Writes the bytes of message `id` into a buffer. 0 or -1. */
static int fill(struct pvn_p2p *p, void *buf, size_t len, uint64_t id)
{
    pvn_bytes_fill(p->bounce ? p->bounce : buf, len, id);
    return p->bounce ? pvn_messages_write(p->r, buf, p->bounce, len) : 0;
}

/* Fills a buffer and its guards with a value that no message has. 0 or -1. */
static int blank(struct pvn_p2p *p, char *buf)
{
    size_t len = p->size + 2 * PVN_P2P_GUARD;
    char *from = buf - PVN_P2P_GUARD;

    memset(p->bounce ? p->bounce : from, FILL, len);
    return p->bounce ? pvn_messages_write(p->r, from, p->bounce, len) : 0;
}

static int post_send(struct pvn_p2p *p, int c, struct pvn_flow *f)
{
    uint64_t m = f->posted;
    void *buf = slot_of(p, f, m);
    size_t len = length_of(p, m);
    ncclResult_t rc;

    if (p->check && fill(p, buf, len, id_of(p, p->side, c, m)))
        return -1;
    pvn_rank_at(p->r, "isend");
    rc = pvn_netdrv_isend(p->r->drv, f->comm, buf, len, TAG + (int)(m % (uint64_t)p->group),
                          f->mhandle, NULL, &f->req[m % f->window]);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "isend", rc);
    if (!f->req[m % f->window])
        return 0;
    f->posted++;
    return 1;
}

int pvn_p2p_post_recv(struct pvn_p2p *p, struct pvn_flow *f)
{
    void *data[PVN_P2P_GROUP], *mh[PVN_P2P_GROUP];
    size_t sizes[PVN_P2P_GROUP];
    int tags[PVN_P2P_GROUP];
    uint64_t u = f->posted;
    ncclResult_t rc;

    for (int g = 0; g < p->group; g++) {
        data[g] = slot_of(p, f, u * (uint64_t)p->group + (uint64_t)g);
        mh[g] = f->mhandle;
        sizes[g] = p->size;
        tags[g] = TAG + g;
        if (p->check && blank(p, data[g]))
            return -1;
    }
    f->req[u % f->window] = NULL;
    pvn_rank_at(p->r, "irecv");
    rc = pvn_netdrv_irecv(p->r->drv, f->comm, p->group, data, sizes, tags, mh, NULL,
                          &f->req[u % f->window]);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(p->r, "irecv", rc);
    if (!f->req[u % f->window])
        return 0;
    f->posted++;
    return 1;
}

/* Verifies a received message: the size from test(), the bytes, and the bytes that must not have
 * changed. 0, or -1 if the bytes cannot be fetched. */
static int verify(struct pvn_p2p *p, int c, const struct pvn_flow *f, uint64_t message, int got)
{
    const char *buf = slot_of(p, f, message);
    size_t want = length_of(p, message), first = 0, wrong, outside;

    if (p->bounce) {
        if (pvn_messages_read(p->r, p->bounce, buf - PVN_P2P_GUARD, p->size + 2 * PVN_P2P_GUARD))
            return -1;
        buf = p->bounce + PVN_P2P_GUARD;
    }
    wrong = pvn_bytes_check(buf, want, id_of(p, 1 - p->side, c, message), &first);
    outside = pvn_bytes_not(buf - PVN_P2P_GUARD, PVN_P2P_GUARD, FILL) +
              pvn_bytes_not(buf + want, p->size - want + PVN_P2P_GUARD, FILL);
    if (got == -1)
        p->r->sizes_missing = 1;
    if (!wrong && !outside && (got == -1 || (size_t)got == want)) {
        p->got_messages++;
        p->got_bytes += want;
        return 0;
    }
    p->errors++;
    if (wrong)
        pvn_rank_wrong(p->r,
                       "channel %d, message %llu of %zu bytes: %zu bytes differ, the first at "
                       "offset %zu is 0x%02x",
                       c, (unsigned long long)message, want, wrong, first,
                       (unsigned char)buf[first]);
    else if (outside)
        pvn_rank_wrong(p->r,
                       "channel %d, message %llu of %zu bytes into a buffer of %llu: %zu bytes "
                       "outside the message were written",
                       c, (unsigned long long)message, want, (unsigned long long)p->size, outside);
    else
        pvn_rank_wrong(p->r, "channel %d, message %llu: test() reports %d bytes, sent were %zu", c,
                       (unsigned long long)message, got, want);
    return 0;
}

/* Tests a request: 1 if it is complete, with the sizes of a receive, 0, or -1. */
static int test(struct pvn_p2p *p, void *request, int *sizes)
{
    int done = 0;
    ncclResult_t rc;

    pvn_rank_at(p->r, "test");
    rc = pvn_netdrv_test(p->r->drv, request, &done, sizes);
    return rc != ncclSuccess ? pvn_rank_fail_call(p->r, "test", rc) : done != 0;
}

/* Replaces a receive by its flush. 0 or -1. */
static int flush(struct pvn_p2p *p, struct pvn_flow *f, uint64_t unit)
{
    void *data[PVN_P2P_GROUP], *mh[PVN_P2P_GROUP];

    for (int g = 0; g < p->group; g++) {
        data[g] = slot_of(p, f, unit * (uint64_t)p->group + (uint64_t)g);
        mh[g] = f->mhandle;
    }
    return pvn_messages_flush(p->r, f->comm, p->group, data, f->got[unit % f->window], mh,
                              &f->req[unit % f->window]);
}

/* pvn_p2p_complete if a flush follows each receive: like NCCL's proxy, it posts the flush when the
 * data have arrived and tests the flush from then on. 2: a flush was posted. */
static int complete_flushed(struct pvn_p2p *p, struct pvn_flow *f)
{
    int moved = 0;

    if (f->arrived < f->posted) {
        int *got = f->got[f->arrived % f->window];

        memset(got, 0xff, sizeof(f->got[0]));
        moved = test(p, f->req[f->arrived % f->window], got);
        if (moved > 0 && flush(p, f, f->arrived++))
            return -1;
    }
    if (moved < 0 || f->done == f->arrived)
        return moved > 0 ? 2 : moved;
    if (f->req[f->done % f->window]) {
        int rc = test(p, f->req[f->done % f->window], NULL);

        if (rc <= 0)
            return rc < 0 ? -1 : moved ? 2 : 0;
    }
    return 1;
}

int pvn_p2p_complete(struct pvn_p2p *p, int c, struct pvn_flow *f, int is_send)
{
    int on_stack[PVN_P2P_GROUP] = {-1, -1, -1, -1, -1, -1, -1, -1}, *sizes = on_stack;
    int rc;

    if (f->done == f->posted)
        return 0;
    if (f->got && !is_send) {
        rc = complete_flushed(p, f);
        sizes = f->got[f->done % f->window];
    } else {
        rc = test(p, f->req[f->done % f->window], sizes);
    }
    if (rc != 1)
        return rc < 0 ? -1 : rc != 0;
    for (int g = 0; p->check && !is_send && g < p->group; g++)
        if (verify(p, c, f, f->done * (uint64_t)p->group + (uint64_t)g, sizes[g]))
            return -1;
    if (!p->check && !is_send) {
        p->got_messages += (uint64_t)p->group;
        p->got_bytes += (uint64_t)p->group * p->size;
    }
    f->done++;
    return 1;
}

static int stuck(struct pvn_p2p *p, int c, const struct pvn_flow *f, int is_send)
{
    return pvn_rank_fail(p->r,
                         "nothing moved for %.0f s: channel %d has %llu of %llu %s posted and %llu "
                         "complete, at %llu bytes each " PVN_RANK_TIMEOUT,
                         p->r->o->timeout, c, (unsigned long long)f->posted,
                         (unsigned long long)f->total, is_send ? "sends" : "receives",
                         (unsigned long long)f->done, (unsigned long long)p->size);
}

void pvn_p2p_start(struct pvn_p2p *p, struct pvn_flow *f, uint64_t units, int is_send)
{
    f->total = is_send ? units * (uint64_t)p->group : units;
    f->window = (uint64_t)p->depth * (uint64_t)(is_send ? p->group : 1);
    f->posted = f->arrived = f->done = 0;
}

/* Makes a pass over the flows of one direction: 1 if something moved, 0, or -1. Subtracts completed
 * flows from *left; *last is the last flow that is not complete. */
static int pass(struct pvn_p2p *p, struct pvn_flow *flows, int is_send, int *left, int *last)
{
    int moved = 0;

    for (int c = 0; c < p->channels; c++) {
        struct pvn_flow *f = &flows[c];
        int rc = 0;

        if (f->done == f->total)
            continue;
        *last = c;
        if (f->posted < f->total && f->posted - f->done < f->window)
            rc = is_send ? post_send(p, c, f) : pvn_p2p_post_recv(p, f);
        if (rc < 0)
            return -1;
        moved |= rc;
        rc = pvn_p2p_complete(p, c, f, is_send);
        if (rc < 0)
            return -1;
        moved |= rc;
        *left -= f->done == f->total;
    }
    return moved;
}

int pvn_p2p_drain(struct pvn_p2p *p, struct pvn_flow *flows, int is_send)
{
    int left = p->channels;

    p->r->idle = 0;
    while (left) {
        int last = 0, moved, idle;

        if (pvn_rank_stops(p->r))
            return -1;
        moved = pass(p, flows, is_send, &left, &last);
        if (moved < 0)
            return -1;
        if (moved) {
            pvn_rank_moved(p->r);
            continue;
        }
        idle = pvn_rank_idle(p->r);
        if (idle)
            return idle < 0 ? -1 : stuck(p, last, &flows[last], is_send);
    }
    return 0;
}

int pvn_p2p_both(struct pvn_p2p *p, uint64_t units, double *in_seconds)
{
    int out = p->channels, in = p->channels;
    double t0 = pvn_now_s();

    for (int c = 0; c < p->channels; c++) {
        pvn_p2p_start(p, &p->out[c], units, 1);
        pvn_p2p_start(p, &p->in[c], units, 0);
    }
    p->r->idle = 0;
    while (out || in) {
        int last_in = 0, last_out = 0, had = in, a, b, idle;

        if (pvn_rank_stops(p->r))
            return -1;
        a = pass(p, p->in, 0, &in, &last_in);
        b = a < 0 ? -1 : pass(p, p->out, 1, &out, &last_out);
        if (b < 0)
            return -1;
        if (had && !in)
            *in_seconds = pvn_now_s() - t0;
        if (a || b) {
            pvn_rank_moved(p->r);
            continue;
        }
        idle = pvn_rank_idle(p->r);
        if (idle < 0)
            return -1;
        if (idle)
            return in ? stuck(p, last_in, &p->in[last_in], 0)
                      : stuck(p, last_out, &p->out[last_out], 1);
    }
    return 0;
}

int pvn_p2p_stream(struct pvn_p2p *p, uint64_t units)
{
    int is_send = p->side == 0;
    struct pvn_flow *flows = is_send ? p->out : p->in;

    for (int c = 0; c < p->channels; c++)
        pvn_p2p_start(p, &flows[c], units, is_send);
    return pvn_p2p_drain(p, flows, is_send);
}

/* The number of requests of channel 0 that must be posted and complete in each direction. */
struct goal {
    uint64_t out_posted, out_done, in_posted, in_done;
};

static int reached(const struct pvn_flow *out, const struct pvn_flow *in, const struct goal *goal)
{
    return out->posted >= goal->out_posted && out->done >= goal->out_done &&
           in->posted >= goal->in_posted && in->done >= goal->in_done;
}

/* Works until both directions have reached the goal. Every pass tests both, because some plugins
 * move a message only if its own request is tested. The send of an answer is not waited for, as in
 * perftest's tools. Receives are posted ahead of the goal, one in each pass and after the send. */
static int reach(struct pvn_p2p *p, struct goal goal)
{
    struct pvn_flow *out = &p->out[0], *in = &p->in[0];

    p->r->idle = 0;
    while (!reached(out, in, &goal)) {
        int moved = 0, rc = 0;

        if (pvn_rank_stops(p->r))
            return -1;
        if (out->posted < goal.out_posted && out->posted - out->done < out->window)
            moved |= rc = post_send(p, 0, out);
        if (rc >= 0 && in->posted < in->total && in->posted - in->done < in->window)
            moved |= rc = pvn_p2p_post_recv(p, in);
        if (rc >= 0 && in->done < goal.in_done)
            moved |= rc = pvn_p2p_complete(p, 0, in, 0);
        if (rc >= 0 && !reached(out, in, &goal))
            moved |= rc = pvn_p2p_complete(p, 0, out, 1);
        if (rc < 0)
            return -1;
        if (moved) {
            pvn_rank_moved(p->r);
        } else {
            int idle = pvn_rank_idle(p->r);

            if (idle)
                return idle < 0 ? -1 : stuck(p, 0, in, 0);
        }
    }
    return 0;
}

int pvn_p2p_ping_pong(struct pvn_p2p *p, uint64_t n, struct pvn_hist *half)
{
    int group = p->group, rc = 0;

    p->group = 1;
    pvn_p2p_start(p, &p->out[0], n, 1);
    pvn_p2p_start(p, &p->in[0], n, 0);
    for (uint64_t i = 0; i < n && !rc; i++) {
        double t0 = pvn_now_s();

        if (p->side == 0) {
            rc = reach(p, (struct goal){i + 1, 0, i + 1, i + 1});
            if (half)
                pvn_hist_add(half, (uint64_t)((pvn_now_s() - t0) * 5e8));
        } else {
            rc = reach(p, (struct goal){i, 0, i + 1, i + 1});
            if (!rc)
                rc = reach(p, (struct goal){i + 1, 0, i + 2 < n ? i + 2 : n, i + 1});
        }
    }
    if (!rc)
        rc = reach(p, (struct goal){n, n, n, n});
    p->group = group;
    return rc;
}
