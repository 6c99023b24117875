/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The responder of a connection: order, checks, placement, answers. */
#include "sv_int.h"

#include <stdlib.h>
#include <string.h>

/* True if this packet may reach this QP. Wrong addresses cause silence, as on a network: the
 * sender gets no answer and no error. */
bool sv_path_ok(struct sv_qp *qp, const struct sv_hdr *h)
{
    const struct sv_ctx *c = sv_ctx_of(qp->ibv.context);
    const struct sv_dev *d = c->dev;
    const struct ibv_qp_attr *a = &qp->attr;
    if (qp->dead || sv_ctx_is_dead(c) || !a->port_num ||
        d->port[a->port_num - 1].state != IBV_PORT_ACTIVE || h->src_qpn != a->dest_qp_num)
        return false;
    if (!a->ah_attr.is_global)
        return !sv.p.ethernet;
    const struct sv_gid *own = sv_qp_sgid(qp);
    if (!own || own->type != h->gid_type || memcmp(&own->gid, &h->dgid, sizeof own->gid) ||
        memcmp(&a->ah_attr.grh.dgid, &h->sgid, sizeof h->sgid))
        return false;
    return sv.p.routed || !sv_gid_v4(&own->gid) || !memcmp(own->gid.raw, h->sgid.raw, 15);
}

int sv_scatter(struct sv_qp *qp, const struct ibv_sge *sge, int n, uint64_t off, const char *src,
               size_t len)
{
    for (int i = 0; i < n && len; i++) {
        const struct ibv_sge *s = &sge[i];
        if (off >= s->length) {
            off -= s->length;
            continue;
        }
        size_t part = s->length - off < len ? s->length - off : len;
        char *mem = sv_mr_local(qp, s, true);
        if (!mem)
            return -1;
        sv_hooks.put(mem + off, src, part);
        src += part;
        len -= part;
        off = 0;
    }
    return len ? -1 : 0;
}

void sv_recv_complete(struct sv_qp *qp, struct sv_rwqe *r, uint64_t index, struct ibv_wc *wc,
                      bool solicited)
{
    wc->wr_id = r->wr_id;
    wc->qp_num = qp->ibv.qp_num;
    wc->src_qp = qp->attr.dest_qp_num;
    if (wc->status != IBV_WC_SUCCESS)
        wc->byte_len = UINT32_MAX; /* means nothing in a failed completion */
    sv_relaxed_completion(qp);
    sv_cq_add((struct sv_cq *)qp->ibv.recv_cq, qp, wc, false, index, solicited);
}

static void answer(struct sv_qp *qp, const struct sv_hdr *to, enum sv_ptype type, uint64_t msn,
                   uint64_t off, uint32_t status)
{
    if (qp->ibv.qp_type == IBV_QPT_UC)
        return;
    struct sv_packet *p = sv_packet_new(qp, type, 0);
    p->h.msn = msn;
    p->h.off = off;
    p->h.seg = to->seg;
    p->h.last = to->last;
    p->h.psn = qp->attr.rq_psn;
    p->h.status = status;
    sv_send_packet(p);
}

static void answer_data(struct sv_qp *qp, const struct sv_hdr *to, enum sv_ptype type,
                        const void *data, size_t len)
{
    struct sv_packet *p = sv_packet_new(qp, type, len);
    p->h.msn = to->msn;
    p->h.off = to->off;
    p->h.last = to->last;
    p->h.psn = qp->attr.rq_psn;
    if (len)
        sv_hooks.get(p->payload, data, len);
    sv_send_packet(p);
}

/* Refuses a request for good. The requester is informed, and this end fails, too (IBTA 9.9.3,
 * responder class C). */
static void refuse(struct sv_qp *qp, const struct sv_hdr *h, enum ibv_wc_status status)
{
    answer(qp, h, SV_P_NAK, h->msn, h->off, status);
    struct sv_ctx *c = sv_ctx_of(qp->ibv.context);
    if (status == IBV_WC_REM_ACCESS_ERR)
        sv_raise(c, IBV_EVENT_QP_ACCESS_ERR, &qp->ibv, 0);
    else if (status == IBV_WC_REM_INV_REQ_ERR && !qp->r_cur)
        sv_raise(c, IBV_EVENT_QP_REQ_ERR, &qp->ibv, 0);
    sv_qp_error(qp);
}

/* Fails a receive that could not be filled: it completes with an error of its own. */
static void refuse_receive(struct sv_qp *qp, const struct sv_hdr *h, enum ibv_wc_status own,
                           enum ibv_wc_status theirs)
{
    if (sv.p.soft_status) {
        own = IBV_WC_LOC_QP_OP_ERR;
        theirs = IBV_WC_REM_OP_ERR;
    }
    struct ibv_wc wc = {.status = own, .opcode = IBV_WC_RECV};
    struct sv_rwqe *r = qp->r_cur;
    answer(qp, h, SV_P_NAK, h->msn, h->off, theirs);
    qp->r_cur = NULL;
    sv_recv_complete(qp, r, qp->r_cur_index, &wc, false);
    sv_qp_error(qp);
}

/* Takes the next receive. False if there is none and the requester got an RNR NAK. */
static bool take_receive(struct sv_qp *qp, const struct sv_hdr *h)
{
    if (qp->rq_head == qp->rq_tail) {
        qp->r_nak_sent = true; /* what follows is dropped in silence until this comes again */
        answer(qp, h, SV_P_RNR, h->msn, h->off, qp->attr.min_rnr_timer);
        return false;
    }
    qp->r_cur_index = qp->rq_head++;
    qp->r_cur = &qp->rq[qp->r_cur_index % qp->rq_cap];
    return true;
}

static void finish_receive(struct sv_qp *qp, const struct sv_hdr *h, enum ibv_wc_opcode opcode,
                           bool imm)
{
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .opcode = opcode, .byte_len = (uint32_t)h->total};
    if (imm) {
        wc.imm_data = h->imm;
        wc.wc_flags = IBV_WC_WITH_IMM;
    }
    struct sv_rwqe *r = qp->r_cur;
    qp->r_cur = NULL;
    sv_recv_complete(qp, r, qp->r_cur_index, &wc, h->solicited);
}

/* Each of these returns false if the request fails, after it has reported that. */
static bool do_write(struct sv_qp *qp, const struct sv_packet *p)
{
    const struct sv_hdr *h = &p->h;
    bool imm = h->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    char *mem = NULL;
    if (h->total) { /* no bytes, no key check (IBTA 9.7.4.1.6) */
        mem = sv_mr_remote(qp, h->rkey, h->raddr, h->total, IBV_ACCESS_REMOTE_WRITE);
        if (!mem) {
            refuse(qp, h, IBV_WC_REM_ACCESS_ERR);
            return false;
        }
    }
    if (imm && h->last && !take_receive(qp, h))
        return false;
    if (h->data && !sv_relaxed_hold(qp, sv_mr_by_rkey(h->rkey), mem + h->off, p->payload, h->data))
        sv_hooks.put(mem + h->off, p->payload, h->data);
    if (imm && h->last)
        finish_receive(qp, h, IBV_WC_RECV_RDMA_WITH_IMM, true);
    return true;
}

static bool do_send(struct sv_qp *qp, const struct sv_packet *p)
{
    const struct sv_hdr *h = &p->h;
    if (!h->off) {
        if (!take_receive(qp, h))
            return false;
        uint64_t room = 0;
        for (int i = 0; i < qp->r_cur->num_sge; i++)
            room += qp->r_cur->sge[i].length;
        if (room < h->total) {
            refuse_receive(qp, h, IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR);
            return false;
        }
    }
    if (h->data &&
        sv_scatter(qp, qp->r_cur->sge, qp->r_cur->num_sge, h->off, p->payload, h->data)) {
        refuse_receive(qp, h, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
        return false;
    }
    if (h->last)
        finish_receive(qp, h, IBV_WC_RECV, h->opcode == IBV_WR_SEND_WITH_IMM);
    return true;
}

static bool do_read(struct sv_qp *qp, const struct sv_hdr *h)
{
    char *mem = NULL;
    enum ibv_wc_status why = IBV_WC_SUCCESS;
    if (!qp->attr.max_dest_rd_atomic)
        why = IBV_WC_REM_INV_REQ_ERR;
    else if (h->total &&
             !(mem = sv_mr_remote(qp, h->rkey, h->raddr, h->total, IBV_ACCESS_REMOTE_READ)))
        why = IBV_WC_REM_ACCESS_ERR;
    if (why) {
        refuse(qp, h, why);
        return false;
    }
    if (mem)
        sv_relaxed_read(qp, sv_mr_by_rkey(h->rkey));
    answer_data(qp, h, SV_P_READ, mem ? mem + h->off : NULL, h->seg);
    return true;
}

static bool do_atomic(struct sv_qp *qp, const struct sv_hdr *h)
{
    enum ibv_wc_status why = IBV_WC_SUCCESS;
    char *mem = NULL;
    if (!qp->attr.max_dest_rd_atomic || (h->raddr & 7) || h->total != 8)
        why = IBV_WC_REM_INV_REQ_ERR;
    else if (!(mem = sv_mr_remote(qp, h->rkey, h->raddr, 8, IBV_ACCESS_REMOTE_ATOMIC)))
        why = IBV_WC_REM_ACCESS_ERR;
    if (why) {
        refuse(qp, h, why);
        return false;
    }
    sv_relaxed_read(qp, sv_mr_by_rkey(h->rkey));
    uint64_t old, new, *at = (uint64_t *)(void *)mem;
    if (h->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        old = __atomic_fetch_add(at, h->compare, __ATOMIC_ACQ_REL);
    } else {
        old = h->compare;
        new = h->swap;
        __atomic_compare_exchange_n(at, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    /* A duplicate gets the same answer and does nothing. */
    qp->atomic_log[h->msn % SV_ATOMIC_LOG].msn = h->msn;
    qp->atomic_log[h->msn % SV_ATOMIC_LOG].value = old;
    answer_data(qp, h, SV_P_ATOMIC, &old, 8);
    return true;
}

/* Handles duplicates. Only READs are executed again, because their answer must have been lost. */
static void duplicate(struct sv_qp *qp, const struct sv_hdr *h)
{
    if (h->opcode == IBV_WR_RDMA_READ) {
        do_read(qp, h);
    } else if (h->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
        uint64_t i = h->msn % SV_ATOMIC_LOG;
        if (qp->atomic_log[i].msn == h->msn)
            answer_data(qp, h, SV_P_ATOMIC, &qp->atomic_log[i].value, 8);
    } else {
        answer(qp, h, SV_P_ACK, h->msn, h->off, 0);
    }
}

static bool execute(struct sv_qp *qp, const struct sv_packet *p)
{
    switch (p->h.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        if (sv.p.no_write == 2) {
            answer(qp, &p->h, SV_P_NAK, p->h.msn, p->h.off, IBV_WC_REM_INV_REQ_ERR);
            sv_qp_error(qp);
            return false;
        }
        if (!do_write(qp, p))
            return false;
        break;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        if (!do_send(qp, p))
            return false;
        break;
    case IBV_WR_RDMA_READ:
        return do_read(qp, &p->h);
    default:
        return do_atomic(qp, &p->h);
    }
    if (qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS) /* its CQ may have overrun */
        answer(qp, &p->h, SV_P_ACK, p->h.msn, p->h.off, 0);
    return true;
}

/* Places a late copy of a WRITE that has long been acknowledged. The only check of the QP's state
 * is that it still takes writes, because a fence must end that. */
static void on_ghost(struct sv_qp *qp, const struct sv_packet *p)
{
    char *mem = sv_mr_remote(qp, p->h.rkey, p->h.raddr, p->h.total, IBV_ACCESS_REMOTE_WRITE);
    if (mem && p->h.data) {
        sv_hooks.put(mem + p->h.off, p->payload, p->h.data);
        sv.ghosts_landed++;
    } else {
        sv.ghosts_refused++;
    }
}

void sv_on_request(const struct sv_packet *p)
{
    const struct sv_hdr *h = &p->h;
    struct sv_qp *qp = sv_qp_find(h->dst_qpn);
    bool open = qp && (qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS) &&
                sv_path_ok(qp, h) && h->psn == qp->attr.rq_psn;
    if (h->type == SV_P_GHOST) {
        if (open)
            on_ghost(qp, p);
        else
            sv.ghosts_refused++;
        return;
    }
    if (!open)
        return;
    if (!qp->r_est && qp->ibv.state == IBV_QPS_RTR)
        sv_raise(sv_ctx_of(qp->ibv.context), IBV_EVENT_COMM_EST, &qp->ibv, 0);
    qp->r_est = true;
    if (qp->ibv.qp_type == IBV_QPT_UC)
        qp->r_msn = h->msn; /* those before it were lost */
    if (h->msn < qp->r_msn || (h->msn == qp->r_msn && h->off < qp->r_off)) {
        duplicate(qp, h);
        return;
    }
    if (h->msn > qp->r_msn || h->off > qp->r_off) { /* something before it was lost */
        if (!qp->r_nak_sent)
            answer(qp, h, SV_P_SEQ, qp->r_msn, qp->r_off, 0);
        qp->r_nak_sent = true;
        return;
    }
    qp->r_nak_sent = false;
    if (sv.p.check_mtu && h->mtu != qp->attr.path_mtu &&
        h->total > (128u << (h->mtu < qp->attr.path_mtu ? h->mtu : qp->attr.path_mtu))) {
        refuse(qp, h, IBV_WC_REM_INV_REQ_ERR);
        return;
    }
    if (!execute(qp, p))
        return;
    qp->r_off += h->seg;
    if (h->last) {
        qp->r_msn++;
        qp->r_off = 0;
    }
}
