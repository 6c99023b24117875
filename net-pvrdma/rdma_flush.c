/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushing GPU memory: on PCI Express no read passes an earlier write of the same requester. So when the adapter has
 * read a byte back from a GPU, everything that the adapter wrote there before has arrived, too.
 *
 * This is also true for memory registered with relaxed ordering (ordering.h), by the rules of the PCI Express Base
 * Specification (section 2.4.1, table "Ordering Rules Summary"). A read request must not pass a posted request, such as
 * a write (B2a), whatever the attribute of either is. The attribute lets a write pass other writes (A2b). It also lets
 * the completion of a read pass writes on its own path (D2b), but that path leads from the GPU to the adapter, and the
 * flushed writes go in the other direction. The only exception is ID-based ordering (B2b), which applies to requests of
 * two requesters; the adapter's function is one requester.
 *
 * A READ on the queue pair of the data would read the peer's memory. So each receiver has one more queue pair on the same
 * port, connected to itself.
 */
#include "base/random.h"
#include "net-pvrdma/rdma_lane_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "connect/wire.h"

enum {
    READS = 64, /* in flight on one lane: PVN_MAX_REQS flushes of up to two GPUs */
    READ_BYTES = 1
};

int rdma_flush_create(struct rdma_lane *r)
{
    struct flush_qp *f = &r->flush;
    if (r->cfg.sender || r->cfg.flush != PVN_FLUSH_READ)
        return 0;
    f->cq = r->cfg.v->create_cq(r->cfg.ctx, READS, &r->lost, NULL, 0);
    if (!f->cq)
        return rdma_dead(r, -(errno ? errno : EIO), "creating the completion queue of flushes");
    struct ibv_qp_init_attr a = {
        .qp_context = &r->lost,
        .send_cq = f->cq,
        .recv_cq = f->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = READS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    f->qp = r->cfg.v->create_qp(r->cfg.pd, &a);
    if (!f->qp)
        return rdma_dead(r, -(errno ? errno : EIO), "creating the queue pair of flushes");
    f->psn = (uint32_t)pvn_random64() & 0xffffff;
    return rdma_qp_to_init(r, f->qp);
}

int rdma_flush_connect(struct rdma_lane *r)
{
    struct flush_qp *f = &r->flush;
    if (!f->qp)
        return 0;
    struct ibv_ah_attr ah = {.dlid = r->cfg.lid, .sl = r->cfg.sl, .port_num = r->cfg.port};
    if (r->gid.local >= 0) {
        const struct pvn_gid_row *own = &r->cfg.gids[r->gid.local];
        ah.is_global = 1;
        ah.grh.hop_limit = 255;
        ah.grh.traffic_class = r->cfg.traffic_class;
        ah.grh.sgid_index = (uint8_t)own->index;
        memcpy(ah.grh.dgid.raw, own->raw, 16);
    }
    int rc = rdma_qp_to_rtr(r, f->qp, &ah, f->qp->qp_num, f->psn);
    return rc < 0 ? rc : rdma_qp_to_rts(r, f->qp, f->psn, r->cfg.max_rd_atomic);
}

static int read_byte(struct rdma_lane *r, uint32_t id, uint64_t from, uint32_t rkey)
{
    struct flush_qp *f = &r->flush;
    struct ibv_sge to = {.addr = (uintptr_t)f->spot, .length = READ_BYTES, .lkey = r->mem_mr->lkey};
    struct ibv_send_wr wr = {.wr_id = rdma_wr_id(WR_FLUSH, 0, id),
                             .sg_list = &to,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = from, .rkey = rkey}};
    struct ibv_send_wr *bad = NULL;
    r->stats.post_send++;
    int rc = ibv_post_send(f->qp, &wr, &bad);
    if (rc)
        return rdma_dead(r, -(rc < 0 ? EIO : rc), "posting a flush");
    f->pending++;
    return 0;
}

static int read_failed(struct rdma_lane *r, enum ibv_wc_status status)
{
    char doing[160];
    snprintf(doing, sizeof(doing), "reading from %s by RDMA READ (completion status %d, %s)",
             r->flush.proved ? "GPU memory to flush it" : "its own memory", status,
             r->cfg.v->wc_status_str ? r->cfg.v->wc_status_str(status) : "");
    return rdma_dead(r, -EIO, doing);
}

/* Takes up to max completions of READs. Returns their number, or the lane is dead. */
static int take_reads(struct rdma_lane *r, struct ibv_wc *wc, unsigned max)
{
    struct flush_qp *f = &r->flush;
    if (max > f->pending)
        max = f->pending;
    r->stats.polls++;
    int got = ibv_poll_cq(f->cq, (int)max, wc);
    if (got < 0)
        return rdma_dead(r, -EIO, "polling the completion queue of flushes");
    if ((unsigned)got < max)
        r->stats.empty_polls++;
    for (int i = 0; i < got; i++) {
        f->pending--;
        if (wc[i].status != IBV_WC_SUCCESS)
            return read_failed(r, wc[i].status);
    }
    return got;
}

/* Reads a byte of the lane's own block once, because a device may not be able to talk to itself. */
int rdma_flush_verify(struct rdma_lane *r)
{
    struct flush_qp *f = &r->flush;
    struct ibv_wc wc;
    if (!f->qp || f->proved)
        return 0;
    if (f->pending == 0) {
        int rc = read_byte(r, 0, (uintptr_t)r->mem, r->mem_mr->rkey);
        if (rc < 0)
            return rc;
    }
    int got = take_reads(r, &wc, 1);
    if (got <= 0)
        return got < 0 ? got : -EAGAIN;
    f->proved = true;
    return 0;
}

int rdma_post_flush(struct pvn_lane *l, uint32_t id, const void *addr, const struct pvn_mr *mr)
{
    struct rdma_lane *r = rdma_of(l);
    const struct pvn_rdma_mem *mem = mr->lane_mr[l->idx];
    struct pvn_err err = PVN_ERR_INIT;
    if (!mem || mem->gpu == 0 || r->cfg.flush == PVN_FLUSH_NONE)
        return -EALREADY;
    if (r->cfg.flush == PVN_FLUSH_CUDA) {
        int rc = r->cfg.registrar.flush(r->cfg.registrar.arg, mem, &err);
        if (rc == 0)
            return -EALREADY;
        l->err = err;
        return rc;
    }
    const struct ibv_mr *m = pvn_rdma_mem_find(mem, (uintptr_t)addr, READ_BYTES);
    if (!m)
        return rdma_dead(r, -EFAULT, "flushing bytes outside the registration given with them");
    if (r->flush.pending == READS)
        return -EAGAIN;
    return read_byte(r, id, (uintptr_t)addr, m->rkey);
}

int rdma_flush_poll(struct rdma_lane *r, struct pvn_event *ev, int max, int *n)
{
    struct ibv_wc wc[CQ_BATCH];
    int got = take_reads(r, wc, max < CQ_BATCH ? (unsigned)max : CQ_BATCH);
    for (int i = 0; i < got; i++)
        ev[(*n)++] = (struct pvn_event){.kind = PVN_EV_FLUSHED, .id = rdma_decode(&wc[i]).flush};
    return got < 0 ? got : 0;
}

/* Destroys the queue pair before its completion queue, see rdma_qps_destroy. */
void rdma_flush_destroy(struct rdma_lane *r)
{
    if (r->flush.qp)
        r->cfg.v->destroy_qp(r->flush.qp);
    if (r->flush.cq)
        r->cfg.v->destroy_cq(r->flush.cq);
}
