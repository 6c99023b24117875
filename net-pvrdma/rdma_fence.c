/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The fence of a lane (fence in engine/lane.h): a failover calls it at both ends before other lanes send the same
 * bytes again, so that no late write of the old ones can overwrite them.
 *
 * The queue pairs are taken into the error state and destroyed. An adapter that has destroyed a queue pair accepts
 * nothing for it any more, so writes of the peer that are still in flight no longer land. Arrivals from before are
 * not lost: they lie in the rings (records, short messages) or, in imm and send mode, in the completion queue, from
 * which destroying the queue pair would remove them; the mode saves these first. rdma_drain gives them to the
 * engine.
 */
#include "net-pvrdma/rdma_qp.h"
#include "net-pvrdma/rdma_rx.h"

#include <errno.h>

#include "base/clock.h"

/* Time limits while a device is being removed. EVENT_NS: from the first EIO to the device's event; long, because the
 * kernel removes the device from one process after the other. REMOVAL_NS: from that event to the time at which the
 * kernel is assumed to have destroyed the queue pairs. */
#define EVENT_NS   (30 * PVN_NS_PER_S)
#define REMOVAL_NS PVN_NS_PER_S

/* True if the device is known to have failed for good. */
static bool device_is_lost(struct rdma_lane *r)
{
    struct pvn_err why = PVN_ERR_INIT;
    return r->cfg.health && r->cfg.health(r->cfg.health_arg, &why) == -ENODEV;
}

/* True if the device was removed from this context: from then on every call returns EIO. */
static bool is_taken_away(const struct rdma_lane *r, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return r->cfg.v->query_qp(qp, &attr, IBV_QP_STATE, &init) == EIO;
}

/*
 * Destroys a queue pair. 0: it is destroyed; -EAGAIN: call again; another errno: it may still exist.
 *
 * EIO has two causes. If another call works, it is the driver's own error, and the queue pair may still exist. If every
 * call returns EIO, the device was removed, for example by a reset of its driver: the kernel destroys the queue pairs
 * itself (Linux, drivers/infiniband/core/uverbs_main.c, ib_uverbs_remove_one), shortly before or after the event that
 * reports the removal. Old kernels then refuse to destroy them, and libibverbs keeps its object; newer ones succeed.
 */
static int destroy_qp(struct rdma_lane *r, struct ibv_qp *qp)
{
    int rc = -r->cfg.v->destroy_qp(qp);
    if (rc != -EIO || !is_taken_away(r, qp))
        return rc;
    uint64_t now = pvn_now_ns();
    if (r->removed_ns == 0)
        r->removed_ns = now;
    if (r->lost_ns == 0 && device_is_lost(r))
        r->lost_ns = now;
    if (r->lost_ns == 0)
        return now - r->removed_ns < EVENT_NS ? -EAGAIN : rc;
    return now - r->lost_ns < REMOVAL_NS ? -EAGAIN : 0;
}

/* A call after -EAGAIN continues where the last call ended. */
int rdma_fence(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (r->fenced)
        return 0;
    if (r->emptied_ns == 0) { /* the first call */
        rdma_qps_error(r);
        r->emptied_ns = pvn_now_ns();
    }
    int rc = r->bound ? r->mode->save_arrivals(r) : 0;
    for (int k = 0; rc == 0 && k < r->cfg.qps; k++) {
        rc = r->qp[k].qp ? destroy_qp(r, r->qp[k].qp) : 0;
        if (rc == 0)
            r->qp[k].qp = NULL;
    }
    r->fenced = rc == 0;
    return rc;
}

/* Returns arrivals from before the fence. A sender has none. Its completions no longer matter, because the next lanes send
 * unacknowledged messages again. */
int rdma_drain(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct rdma_lane *r = rdma_of(l);
    int n = 0;
    if (r->cfg.sender || !r->bound)
        return 0;
    if (r->l.short_max > 0)
        rdma_read_shorts(r, ev, max, &n);
    r->mode->take_landed(r, ev, max, &n);
    return n;
}
