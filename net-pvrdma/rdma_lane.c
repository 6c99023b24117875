/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The RDMA lane's table of operations, its memory and its close; see rdma_lane.h. */
#include "net-pvrdma/rdma_path.h"
#include "net-pvrdma/rdma_rx.h"
#include "net-pvrdma/rdma_tx.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/pages.h"
#include "nccl/types.h"

enum { FLUSH_SPOT = 64 }; /* bytes after the rings, into which flushes read from GPU memory */

static int copies_only(const struct rdma_lane *r, const struct pvn_mr *mr, struct pvn_err *err)
{
    if (mr->ptr_type == NCCL_PTR_HOST)
        return 0;
    return pvn_err_set(
        err, -EOPNOTSUPP,
        "%s works in send mode with this peer, which copies and cannot reach GPU memory",
        r->cfg.name);
}

static int rdma_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd,
                        uint64_t dmabuf_offset, struct pvn_err *err)
{
    struct rdma_lane *r = rdma_of(l);
    struct pvn_rdma_mem *mem = NULL;
    if (r->bound && r->mode->copies)
        return copies_only(r, mr, err);
    if (!r->cfg.registrar.reg)
        return -EOPNOTSUPP;
    if (mr->len == 0)
        return 0;
    int rc = r->cfg.registrar.reg(r->cfg.registrar.arg, mr, r->bound && r->mode->relaxed, dmabuf_fd,
                                  dmabuf_offset, &mem, err);
    if (rc < 0)
        return rc;
    mr->lane_mr[l->idx] = mem;
    mr->rkey[l->idx] = mem->count == 1 ? mem->part[0].mr->rkey : 0;
    mr->gpu = mem->gpu;
    return 0;
}

static int rdma_mem_dereg(struct pvn_lane *l, struct pvn_mr *mr)
{
    struct rdma_lane *r = rdma_of(l);
    if (mr->lane_mr[l->idx] && r->cfg.registrar.dereg)
        r->cfg.registrar.dereg(r->cfg.registrar.arg, mr->lane_mr[l->idx]);
    mr->lane_mr[l->idx] = NULL;
    mr->rkey[l->idx] = 0;
    return 0;
}

static void rdma_stop(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (!r->bound || r->errored)
        return;
    r->mode->before_close(r);
    rdma_qps_error(r);
}

static void rdma_close(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    rdma_stop(l);
    if (r->qp)
        rdma_qps_destroy(r);
    free(r->kept);
    free(r->paths);
    rdma_flush_destroy(r);
    rdma_two_free(r);
    if (r->mem_mr)
        r->cfg.v->dereg_mr(r->mem_mr);
    if (r->cfg.closed)
        r->cfg.closed(r->cfg.health_arg);
    free(r->mem);
    free(r->qp);
    free(r);
}

static int rdma_describe(const struct pvn_lane *l, char *buf, size_t cap)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    int len = snprintf(buf, cap, "rdma on %s, %s mode, %d queue pair%s, MTU %d", r->cfg.name,
                       pvn_rdma_mode_name(r->cfg.mode), r->nqps, r->nqps == 1 ? "" : "s",
                       128 << (r->mtu ? r->mtu : r->cfg.mtu));
    return rdma_paths_describe(r, buf, cap, len);
}

void pvn_rdma_lane_get_stats(const struct pvn_lane *l, struct pvn_rdma_lane_stats *out)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    *out = r->stats;
    if (r->bound)
        r->mode->get_stats(r, out);
}

static void rdma_count(const struct pvn_lane *l, struct pvn_lane_counters *sum)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    struct pvn_rdma_lane_stats s;
    pvn_rdma_lane_get_stats(l, &s);
    sum->doorbells_known = true;
    sum->doorbells_send += s.post_send;
    sum->doorbells_recv += s.post_recv;
    if (r->cfg.costly_poll)
        sum->doorbells_empty += s.empty_polls;
}

/* Either all of the comm's lanes are RDMA lanes that need clear-to-send, or none is. */
static void rdma_join(struct pvn_lane *l, struct pvn_lane *const *lanes, int nlanes)
{
    struct rdma_lane *r = rdma_of(l);
    if (!(l->caps & PVN_LANE_NEEDS_CTS))
        return;
    r->first = rdma_of(lanes[0]);
    r->njoined = r->first == r ? nlanes : 1;
    for (int i = 0; i < nlanes; i++) {
        if (r->first == r)
            r->joined[i] = rdma_of(lanes[i]);
        if (lanes[i] == l)
            r->tx.acks = &r->first->ack[i];
    }
    rdma_rx_join(r);
    /* idle_poll_ns is for all queues of the comm together. */
    if (r->mode->rx_polls_queue && !r->cfg.sender)
        r->cfg.idle_poll_ns *= (uint64_t)nlanes;
}

/* The queue pair used last is the one before next_qp. */
static int rdma_last_post(const struct pvn_lane *l, struct pvn_transfer *t)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    const struct rqp *q = &r->qp[(r->next_qp + r->nqps - 1) % r->nqps];
    t->qpn = q->qp->qp_num;
    t->wr_id = q->posted;
    t->opcode = r->mode->opcode;
    return 0;
}

static const struct pvn_lane_ops rdma_ops = {
    .name = "rdma",
    .offer = rdma_offer,
    .bind = rdma_bind,
    .adopt = pvn_lane_no_adopt,
    .verify = rdma_verify,
    .join = rdma_join,
    .mem_reg = rdma_mem_reg,
    .mem_dereg = rdma_mem_dereg,
    .mem_revoke = pvn_lane_no_revoke,
    .last_post = rdma_last_post,
    .overdue = rdma_overdue,
    .left = pvn_lane_nothing_left,
    .fence = rdma_fence,
    .drain = rdma_drain,
    .stop = rdma_stop,
    .close = rdma_close,
    .locate = rdma_locate,
    .describe = rdma_describe,
    .count = rdma_count,
};

static int map_memory(struct rdma_lane *r)
{
    size_t spot = mem_size(r->cfg.qps), len = spot + FLUSH_SPOT;
    void *mem = pvn_pages_new(&len);
    if (!mem)
        return rdma_dead(r, -ENOMEM, "allocating its rings");
    r->mem = mem;
    r->flush.spot = r->mem + spot;
    /* Never with relaxed ordering (ordering.h), because this end polls memory that the peer writes. */
    r->mem_mr = r->cfg.v->reg_mr(r->cfg.pd, mem, len, PVN_RDMA_ACCESS);
    if (!r->mem_mr) {
        int rc = rdma_dead(r, -(errno ? errno : EIO), "registering its rings");
        pvn_err_set_hint(&r->l.err,
                         pvn_hint_id_find(PVN_HINT_ERRNO, -rc, PVN_PHASE_REG, PVN_PAST_ANY));
        return rc;
    }
    r->tx.line = r->cts = (struct cts_line *)(r->mem + MEM_CTS);
    r->tx.acks = r->ack = (struct ack_line *)(r->mem + MEM_ACK);
    r->totals = (uint64_t *)(r->mem + MEM_TOTALS);
    r->hello = (uint64_t *)(r->mem + MEM_HELLO);
    r->counts = (uint32_t *)(r->mem + MEM_COUNTS);
    r->record = (struct record *)(r->mem + MEM_RECORD);
    return 0;
}

struct pvn_lane *pvn_rdma_lane_new(const struct pvn_rdma_lane_cfg *cfg, struct pvn_err *err)
{
    if (cfg->qps < 1 || cfg->qps > PVN_RDMA_MAX_QPS || cfg->ngids < 0 ||
        cfg->ngids > PVN_RDMA_MAX_GIDS || cfg->max_wr < PVN_RDMA_MIN_WR) {
        pvn_err_set(err, -EINVAL,
                    "an RDMA lane on %s with %d queue pairs of %u requests is not possible",
                    cfg->name, cfg->qps, cfg->max_wr);
        return NULL;
    }
    struct rdma_lane *r =
        calloc(1, sizeof(*r) + (cfg->sender ? CTS_SLOTS * sizeof(r->cts_seen[0]) : 0));
    if (r)
        r->qp = calloc((size_t)cfg->qps, sizeof(*r->qp));
    if (!r || !r->qp) {
        free(r);
        pvn_err_set(err, -ENOMEM, "no memory for an RDMA lane on %s", cfg->name);
        return NULL;
    }
    r->cfg = *cfg;
    if (r->cfg.modes == 0)
        r->cfg.modes = cfg->mode == PVN_RDMA_AUTO ? PVN_RDMA_ANY_MODE : 1u << cfg->mode;
    if (!r->cfg.now)
        r->cfg.now = pvn_now_ns;
    r->gid.local = r->gid.remote = -1;
    r->tx.reap_at = REAP_AT;
    r->first = r->joined[0] = r;
    r->njoined = 1;
    r->l.ops = &rdma_ops;
    r->l.sender = cfg->sender;
    r->l.caps = PVN_LANE_NEEDS_CTS | PVN_LANE_SENT_IS_DELIVERED | PVN_LANE_CONNECTOR_FIRST |
                PVN_LANE_SETS_KICK_DUE | cfg->gpu_caps;
    r->l.max_chunk = cfg->max_chunk;
    if (map_memory(r) < 0 || rdma_qps_create(r) < 0 || rdma_flush_create(r) < 0) {
        *err = r->l.err;
        r->cfg.closed = NULL;
        rdma_close(&r->l);
        return NULL;
    }
    return &r->l;
}
