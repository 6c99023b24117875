/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects a request that neither completes nor fails. A device retransmits unacknowledged packets as often as its
 * queue pair's attributes say, and then reports an error. A device that has reported nothing long after this time
 * never will. Called a few times a second: see pvn_lane_ops.overdue.
 */
#include "net-pvrdma/rdma_rx.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hints.h"

/* Added to the device's own limit, because a host or a hypervisor may stop for a moment. */
#define MARGIN_NS (5 * PVN_NS_PER_S)
/* A longer gap between two calls does not count, because completions of that time still lie in the queue. */
#define AWAY_NS PVN_NS_PER_S
/* Silence after which unsignaled requests are followed by a signaled one, and the peer is queried. */
#define ASK_NS PVN_NS_PER_S

/* The longest time in which a device has to report an error; 0: no limit. A device may wait up to four times the
 * configured time-out before it retransmits (InfiniBand specification, volume 1, 9.7.6.1.3). */
static uint64_t bound_ns(const struct rdma_lane *r)
{
    if (r->cfg.timeout == 0)
        return 0;
    uint64_t timeout = UINT64_C(4096) << r->cfg.timeout;
    return 4 * timeout * (r->cfg.retry_cnt + 1u) + MARGIN_NS;
}

/* Receiver: true if the peer is not known to have all chains. */
static bool chains_are_open(const struct rdma_lane *r)
{
    return r->rx.chain_tail != r->rx.chain_head && r->rx.chain_tail != r->rx.chain_known;
}

/* True if a request is in flight whose result the device has to report. */
static bool has_outstanding(const struct rdma_lane *r)
{
    if (r->flush.pending)
        return true;
    if (r->mode->all_signaled)
        return r->outstanding > 0;
    if (!r->cfg.sender)
        return chains_are_open(r) || r->qp[0].unsignaled > 0;
    for (int k = 0; k < r->nqps; k++)
        if (r->qp[k].acked != r->qp[k].posted)
            return true;
    return false;
}

/* A number that changes when any request in flight ends. */
static uint64_t ended(const struct rdma_lane *r)
{
    uint64_t n = r->rx.chain_head + r->rx.chain_known + r->flush.pending;
    if (r->mode->all_signaled)
        n += r->outstanding;
    for (int k = 0; k < r->nqps; k++)
        n += (uint64_t)r->qp[k].acked + r->qp[k].signals_taken;
    return n;
}

/* Takes completions that no poll has taken, because an expensive queue is rarely polled. */
static int take_completed(struct rdma_lane *r)
{
    if (r->mode->rx_polls_queue && !r->cfg.sender) {
        r->rx.take_now = true;
        return 0;
    }
    return r->mode->take(r);
}

static int never_ends(struct rdma_lane *r, uint64_t silent_ns)
{
    char what[160];
    snprintf(what, sizeof(what),
             "waiting for completions: neither success nor an error for %.0f s, and with a "
             "time-out of %d and %d retries the device has to report one within %.0f s",
             (double)silent_ns / PVN_NS_PER_S, r->cfg.timeout, r->cfg.retry_cnt,
             (double)(bound_ns(r) - MARGIN_NS) / PVN_NS_PER_S);
    int rc = rdma_dead(r, -ETIMEDOUT, what);
    pvn_err_set_hint(&r->l.err, PVN_HINT_WC_FATAL);
    return rc;
}

int rdma_overdue(struct pvn_lane *l, uint64_t now, uint64_t peer_ready_ns)
{
    struct rdma_lane *r = rdma_of(l);
    struct rdma_silence *s = &r->silence;
    if (!r->bound || r->fenced)
        return 0;
    uint64_t bound = bound_ns(r), last = s->looked_ns, n = ended(r);
    int rc = 0;
    if (l->err.code || bound == 0)
        return l->err.code;
    s->looked_ns = now;
    if (!has_outstanding(r) || n != s->ended) {
        s->ended = n;
        s->since_ns = now;
        return 0;
    }
    if (now - last > AWAY_NS) {
        s->since_ns += now - last;
        return 0;
    }
    uint64_t silent = now - s->since_ns;
    if (silent >= ASK_NS && !r->mode->all_signaled && !r->cfg.sender && !chains_are_open(r))
        rc = rdma_rx_signal_now(r);
    if (rc == 0 && silent >= bound / 2)
        rc = take_completed(r);
    if (rc < 0 || ended(r) != s->ended)
        return rc;
    if (r->cfg.sender && r->mode->waits_for_receives &&
        (peer_ready_ns == 0 || now - peer_ready_ns < bound))
        return silent < ASK_NS ? 0 : -EAGAIN;
    return silent < bound ? 0 : never_ends(r, silent);
}
