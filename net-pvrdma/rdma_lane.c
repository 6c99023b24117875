/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The RDMA lane's table, memory and end; see rdma_lane.h. */
#include "net-pvrdma/rdma_rx.h"
#include "net-pvrdma/rdma_tx.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hints.h"

enum { FLUSH_SPOT = 64 }; /* bytes behind the rings: where reads of GPU memory end */

const char *pvn_rdma_mode_name(enum pvn_rdma_mode mode)
{
    static const char *const names[] = {"auto", "record", "imm", "send"};
    return (unsigned)mode < sizeof(names) / sizeof(*names) ? names[mode] : "unknown";
}

static int rdma_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd,
                        uint64_t dmabuf_offset, struct pvn_err *err)
{
    struct rdma_lane *r = rdma_of(l);
    struct pvn_rdma_mem *mem = NULL;
    if (!r->cfg.registrar.reg)
        return -EOPNOTSUPP;
    if (mr->len == 0)
        return 0;
    int rc = r->cfg.registrar.reg(r->cfg.registrar.arg, mr, dmabuf_fd, dmabuf_offset, &mem, err);
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

static struct pvn_lane_ops tx_ops, two_sided_ops, fenced_ops;

static void rdma_close(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (r->qp) {
        if (r->l.ops != &fenced_ops) {
            rdma_two_drain(r);
            rdma_rx_final_ack(r);
            rdma_qps_error(r);
        }
        rdma_qps_destroy(r);
    }
    free(r->kept);
    rdma_flush_destroy(r);
    rdma_two_close(r);
    if (r->mem_mr)
        r->cfg.v->dereg_mr(r->mem_mr);
    free(r->mem);
    free(r->qp);
    free(r);
}

static int rdma_describe(const struct pvn_lane *l, char *buf, size_t cap)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    return snprintf(buf, cap, "rdma on %s, %s mode, %d queue pair%s, MTU %d", r->cfg.name,
                    pvn_rdma_mode_name(r->cfg.mode), r->nqps, r->nqps == 1 ? "" : "s",
                    128 << (r->mtu ? r->mtu : r->cfg.mtu));
}

void pvn_rdma_lane_get_stats(const struct pvn_lane *l, struct pvn_rdma_lane_stats *out)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    *out = r->stats;
    if (r->two)
        return;
    /* Those of the queue pairs begin again after 2^32. */
    uint64_t longs = 0;
    out->chunks = r->chunks_done;
    for (int k = 0; k < r->nqps; k++) {
        longs += r->qp[k].longs;
        out->chunks += l->sender ? r->qp[k].posted - r->qp[k].reported : 0;
    }
    out->shorts = out->chunks - longs;
    out->post_send += l->sender ? out->shorts : 0;
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

/* The queue pairs take turns, so the last one is the one before the next. */
static int rdma_last_post(const struct pvn_lane *l, struct pvn_transfer *t)
{
    const struct rdma_lane *r = (const struct rdma_lane *)l;
    const struct rqp *q = &r->qp[(r->next_qp + r->nqps - 1) % r->nqps];
    t->qpn = q->qp->qp_num;
    t->wr_id = q->posted;
    t->opcode = r->two                        ? IBV_WR_SEND
                : r->cfg.mode == PVN_RDMA_IMM ? IBV_WR_RDMA_WRITE_WITH_IMM
                                              : IBV_WR_RDMA_WRITE;
    return 0;
}

static struct pvn_lane_ops rx_ops = {
    .name = "rdma",
    .offer = rdma_offer,
    .bind = rdma_bind,
    .verify = rdma_verify,
    .mem_reg = rdma_mem_reg,
    .mem_dereg = rdma_mem_dereg,
    .post_cts = rdma_post_cts,
    .post_write = rdma_post_write,
    .last_post = rdma_last_post,
    .post_flush = rdma_post_flush,
    .kick = rdma_rx_kick,
    .poll = rdma_rx_poll,
    .copy_out = rdma_copy_out,
    .fence = rdma_fence,
    .close = rdma_close,
    .locate = rdma_locate,
    .describe = rdma_describe,
    .count = rdma_count,
};
static pthread_once_t rdma_ops_once = PTHREAD_ONCE_INIT;

static void fill_ops(void)
{
    tx_ops = two_sided_ops = rx_ops;
    fenced_ops = rx_ops;
    fenced_ops.post_cts = NULL;
    fenced_ops.post_write = NULL;
    fenced_ops.post_flush = NULL;
    fenced_ops.kick = NULL;
    fenced_ops.fence = NULL;
    fenced_ops.poll = rdma_fenced_poll;
    tx_ops.kick = rdma_tx_kick;
    tx_ops.poll = rdma_tx_poll;
    tx_ops.fast.send_next = rdma_send_next;
    two_sided_ops.post_cts = NULL;
    two_sided_ops.post_flush = NULL;
    two_sided_ops.mem_reg = rdma_two_mem_reg;
    two_sided_ops.post_write = rdma_two_post_write;
    two_sided_ops.kick = rdma_tx_kick;
    two_sided_ops.poll = rdma_two_poll;
    pvn_lane_ops_fill(&rx_ops);
    pvn_lane_ops_fill(&tx_ops);
    pvn_lane_ops_fill(&fenced_ops);
    pvn_lane_ops_fill(&two_sided_ops);
}

void rdma_two_sided(struct rdma_lane *r)
{
    r->l.ops = &two_sided_ops;
    r->l.caps = PVN_LANE_SETS_KICK_DUE;
}

void rdma_use_fenced_ops(struct rdma_lane *r)
{
    r->l.ops = &fenced_ops;
}

static int map_memory(struct rdma_lane *r)
{
    size_t spot = mem_size(r->cfg.qps), len = spot + FLUSH_SPOT;
    void *mem = NULL;
    /* Whole pages of our own: after a fork a child's copy never shares one with somebody else's
     * data. */
    len = (len + 4095) / 4096 * 4096;
    if (posix_memalign(&mem, 4096, len))
        return rdma_dead(r, -ENOMEM, "allocating its rings");
    memset(mem, 0, len);
    r->mem = mem;
    r->flush.spot = r->mem + spot;
    r->mem_mr =
        r->cfg.v->reg_mr(r->cfg.pd, mem, len,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!r->mem_mr) {
        int rc = rdma_dead(r, -(errno ? errno : EIO), "registering its rings");
        pvn_err_set_hint(&r->l.err,
                         pvn_hint_id_find(PVN_HINT_ERRNO, -rc, PVN_PHASE_REG, PVN_PAST_ANY));
        return rc;
    }
    r->tx.line = r->cts = (struct cts_line *)(r->mem + MEM_CTS);
    r->ack = (struct ack_line *)(r->mem + MEM_ACK);
    r->totals = (uint64_t *)(r->mem + MEM_TOTALS);
    r->hello = (uint64_t *)(r->mem + MEM_HELLO);
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
    pthread_once(&rdma_ops_once, fill_ops);
    struct rdma_lane *r = calloc(1, sizeof(*r));
    if (r)
        r->qp = calloc(PVN_RDMA_MAX_QPS, sizeof(*r->qp));
    if (!r || !r->qp) {
        free(r);
        pvn_err_set(err, -ENOMEM, "no memory for an RDMA lane on %s", cfg->name);
        return NULL;
    }
    r->cfg = *cfg;
    if (r->cfg.modes == 0)
        r->cfg.modes = cfg->mode == PVN_RDMA_AUTO ? PVN_RDMA_ANY_MODE : 1u << cfg->mode;
    r->gid.local = r->gid.remote = -1;
    r->tx.reap_at = REAP_AT;
    r->l.ops = cfg->sender ? &tx_ops : &rx_ops;
    r->l.sender = cfg->sender;
    r->l.caps = PVN_LANE_NEEDS_CTS | PVN_LANE_SENT_IS_DELIVERED | PVN_LANE_CONNECTOR_FIRST |
                PVN_LANE_SETS_KICK_DUE | cfg->gpu_caps;
    r->l.max_chunk = cfg->max_chunk;
    if (map_memory(r) < 0 || rdma_qps_create(r) < 0 || rdma_flush_create(r) < 0) {
        *err = r->l.err;
        rdma_close(&r->l);
        return NULL;
    }
    return &r->l;
}
