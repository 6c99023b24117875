/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The requester of a connection: transmission, retries, completion. */
#include "sv_int.h"

#include <stdlib.h>
#include <string.h>

/* In failed completions only wr_id, status, qp_num and vendor_err are valid. The rest is garbage
 * on purpose. */
enum { GARBAGE_OPCODE = 0x7f };

static bool is_read(const struct sv_wqe *w)
{
    return w->opcode == IBV_WR_RDMA_READ || w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
           w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static struct sv_wqe *wqe(struct sv_qp *qp, uint64_t n)
{
    return &qp->sq[n % qp->sq_cap];
}

static enum ibv_wc_opcode wc_opcode(const struct sv_wqe *w)
{
    switch (w->opcode) {
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return IBV_WC_SEND;
    default:
        return IBV_WC_RDMA_WRITE;
    }
}

/* Ends the oldest request. A failed one completes even if it was unsignalled. */
void sv_send_complete(struct sv_qp *qp, enum ibv_wc_status status)
{
    uint64_t n = qp->sq_una++;
    const struct sv_wqe *w = wqe(qp, n);
    if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED) && !qp->init.sq_sig_all)
        return;
    struct ibv_wc wc = {.wr_id = w->wr_id, .status = status, .qp_num = qp->ibv.qp_num};
    if (status == IBV_WC_SUCCESS) {
        wc.opcode = wc_opcode(w);
        wc.byte_len = is_read(w) ? (uint32_t)w->len : 0;
    } else {
        wc.opcode = (enum ibv_wc_opcode)GARBAGE_OPCODE;
        wc.byte_len = UINT32_MAX;
    }
    sv_cq_add((struct sv_cq *)qp->ibv.send_cq, qp, &wc, true, n, false);
}

static void fail(struct sv_qp *qp, enum ibv_wc_status status)
{
    sv_send_complete(qp, status);
    sv_qp_error(qp);
}

/* ---- timers ---- */

static uint64_t period(const struct sv_qp *qp)
{
    if (!qp->attr.timeout)
        return 0; /* never */
    uint64_t ns = 4096ull << qp->attr.timeout;
    uint64_t cap = (uint64_t)sv.p.timeout_cap_ms * 1000000;
    if (cap && ns > cap)
        ns = cap;
    return ns < 1000000 ? 1000000 : ns; /* a scheduler is not a NIC */
}

static bool outstanding(const struct sv_qp *qp)
{
    return qp->sq_una < qp->sq_next || qp->sq_off;
}

static void arm(struct sv_qp *qp, bool again)
{
    uint64_t p = period(qp);
    if (!outstanding(qp) || !p) {
        qp->timer = 0;
    } else if (again || !qp->timer) {
        qp->timer = sv_now() + p;
        sv_wake(qp->timer);
    }
}

static void rewind_to(struct sv_qp *qp, uint64_t msn, uint64_t off)
{
    for (uint64_t n = msn; n < qp->sq_tail && n <= qp->sq_next; n++) {
        wqe(qp, n)->got = 0;
        wqe(qp, n)->answered = false;
    }
    if (msn < qp->sq_tail && is_read(wqe(qp, msn)))
        off = 0;
    qp->sq_next = msn;
    qp->sq_off = off;
    qp->in_flight = 0;
    qp->rd_out = 0;
}

/* Takes one retry. False if none is left and the QP has failed. */
static bool retry(struct sv_qp *qp)
{
    if (qp->attr.retry_cnt == 7 && sv.p.retry7_endless)
        return true;
    if (!qp->retry_left) {
        fail(qp, IBV_WC_RETRY_EXC_ERR);
        return false;
    }
    qp->retry_left--;
    return true;
}

uint64_t sv_qp_timers(struct sv_qp *qp, uint64_t now)
{
    if (qp->ibv.state != IBV_QPS_RTS || qp->dead == 2 || sv_ctx_is_dead(sv_ctx_of(qp->ibv.context)))
        return 0;
    bool go = sv.p.async != 0;
    if (qp->hold_until &&
        (now >= qp->hold_until || (qp->hold_msgs && sv.messages >= qp->hold_msgs))) {
        qp->hold_until = qp->hold_msgs = 0;
        go = true;
    }
    if (qp->rnr_until && now >= qp->rnr_until) {
        qp->rnr_until = 0;
        go = true;
    }
    if (qp->timer && now >= qp->timer) {
        qp->timer = 0;
        if (outstanding(qp)) {
            if (!retry(qp))
                return 0;
            rewind_to(qp, qp->sq_una, 0);
        }
        go = true;
    }
    if (go)
        sv_qp_transmit(qp);
    uint64_t next = 0, at[3] = {qp->timer, qp->rnr_until, qp->hold_until};
    for (int i = 0; i < 3; i++)
        if (at[i] && (!next || at[i] < next))
            next = at[i];
    return next;
}

/* ---- transmission ---- */

static enum ibv_wc_status check_local(struct sv_qp *qp, const struct sv_wqe *w)
{
    if (sv.p.enforce_msg_sz && w->len > (uint64_t)sv.p.max_msg_sz)
        return IBV_WC_LOC_LEN_ERR;
    for (int i = 0; !w->inl && i < w->num_sge; i++)
        if (w->sge[i].length && !sv_mr_local(qp, &w->sge[i], is_read(w)))
            return sv.p.soft_status ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR;
    return IBV_WC_SUCCESS;
}

static void gather(struct sv_qp *qp, const struct sv_wqe *w, uint64_t off, char *to, size_t len)
{
    if (w->inl) {
        memcpy(to, w->inl + off, len);
        return;
    }
    for (int i = 0; i < w->num_sge && len; i++) {
        const struct ibv_sge *s = &w->sge[i];
        if (off >= s->length) {
            off -= s->length;
            continue;
        }
        size_t n = s->length - off < len ? s->length - off : len;
        char *mem = sv_mr_local(qp, s, false);
        if (mem)
            sv_hooks.get(to, mem + off, n);
        to += n;
        len -= n;
        off = 0;
    }
}

struct sv_packet *sv_packet_new(struct sv_qp *qp, enum sv_ptype type, size_t data)
{
    struct sv_packet *p = malloc(sizeof *p + data);
    if (!p)
        abort();
    memset(p, 0, sizeof *p);
    const struct sv_gid *g = sv_qp_sgid(qp);
    p->h = (struct sv_hdr){.type = (uint16_t)type,
                           .src_qpn = qp->ibv.qp_num,
                           .dst_qpn = qp->attr.dest_qp_num,
                           .data = (uint32_t)data,
                           .mtu = (uint8_t)qp->attr.path_mtu};
    if (qp->attr.ah_attr.is_global) {
        p->h.dgid = qp->attr.ah_attr.grh.dgid;
        if (g) {
            p->h.sgid = g->gid;
            p->h.gid_type = g->type;
        }
    }
    return p;
}

const struct sv_gid *sv_qp_sgid(struct sv_qp *qp)
{
    const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
    if (!ah->is_global || !qp->attr.port_num)
        return NULL;
    const struct sv_gid *g =
        &sv_ctx_of(qp->ibv.context)->dev->port[qp->attr.port_num - 1].gid[ah->grh.sgid_index];
    return g->valid ? g : NULL;
}

/* True if a UC request is lost because the port is down. RC requests need no check: their answers
 * find the port down. */
static bool unheard(struct sv_qp *qp)
{
    const struct sv_dev *d = sv_ctx_of(qp->ibv.context)->dev;
    return qp->ibv.qp_type == IBV_QPT_UC && d->port[qp->attr.port_num - 1].state != IBV_PORT_ACTIVE;
}

static void send_piece(struct sv_qp *qp, struct sv_wqe *w, bool drop)
{
    uint64_t left = w->len - qp->sq_off;
    uint32_t seg = (uint32_t)(left < SV_SEG ? left : SV_SEG);
    bool last = seg == left;
    if (is_read(w) && !qp->sq_off)
        qp->rd_out++;
    if (!drop && !qp->dead && !unheard(qp)) {
        struct sv_packet *p = sv_packet_new(qp, SV_P_REQ, is_read(w) ? 0 : seg);
        struct sv_hdr *h = &p->h;
        h->opcode = (uint8_t)w->opcode;
        h->last = last;
        h->msn = qp->sq_next;
        h->off = qp->sq_off;
        h->total = w->len;
        h->seg = seg;
        h->raddr = w->raddr;
        h->rkey = w->rkey;
        h->compare = w->compare;
        h->swap = w->swap;
        h->imm = w->imm;
        h->psn = qp->attr.sq_psn;
        h->solicited = (w->flags & IBV_SEND_SOLICITED) != 0;
        if (p->h.data)
            gather(qp, w, qp->sq_off, p->payload, seg);
        if (w->ghost)
            sv_ghost(p, sv_now() + (uint64_t)w->ghost_ms * 1000000);
        sv_send_packet(p);
    }
    qp->in_flight += seg;
    qp->sq_off += seg;
    if (last) {
        qp->sq_next++;
        qp->sq_off = 0;
    }
}

/* Checks a request before its first piece. True: transmit it. */
static bool may_start(struct sv_qp *qp, struct sv_wqe *w, bool *drop)
{
    if ((w->flags & IBV_SEND_FENCE) && qp->rd_out)
        return false;
    if (is_read(w) && qp->rd_out >= qp->attr.max_rd_atomic)
        return false;
    if (!w->forced && !sv_fault_message(qp, w, drop))
        return false;
    enum ibv_wc_status status = w->forced ? (enum ibv_wc_status)w->forced : check_local(qp, w);
    if (status == IBV_WC_SUCCESS)
        return true;
    w->forced = (int)status;
    if (qp->sq_una == qp->sq_next) /* its turn: completions come in order */
        fail(qp, status);
    return false;
}

void sv_qp_transmit(struct sv_qp *qp)
{
    bool drop = false;
    while (qp->ibv.state == IBV_QPS_RTS && qp->sq_next < qp->sq_tail) {
        if (qp->hold_until || qp->rnr_until || qp->dead == 2 ||
            sv_ctx_is_dead(sv_ctx_of(qp->ibv.context)))
            return;
        struct sv_wqe *w = wqe(qp, qp->sq_next);
        if (!qp->sq_off) {
            drop = false;
            if (!may_start(qp, w, &drop))
                break;
        }
        uint64_t left = w->len - qp->sq_off;
        if (qp->in_flight && qp->in_flight + (left < SV_SEG ? left : SV_SEG) > SV_WINDOW)
            break;
        send_piece(qp, w, drop);
        if (qp->ibv.qp_type == IBV_QPT_UC) { /* sent is done */
            sv_send_complete(qp, IBV_WC_SUCCESS);
            qp->in_flight = 0;
        }
    }
    if (qp->ibv.state == IBV_QPS_RTS)
        arm(qp, false);
}

/* ---- answers ---- */

/* Completes the requests before msn, which the other end has done. False if a READ's answer is
 * missing, in which case it starts again. */
static bool complete_before(struct sv_qp *qp, uint64_t msn)
{
    while (qp->sq_una < msn) {
        struct sv_wqe *w = wqe(qp, qp->sq_una);
        if (is_read(w) && !w->answered) {
            if (retry(qp))
                rewind_to(qp, qp->sq_una, 0);
            return false;
        }
        sv_send_complete(qp, IBV_WC_SUCCESS);
        if (qp->ibv.state != IBV_QPS_RTS)
            return false;
    }
    if (!outstanding(qp))
        qp->in_flight = 0;
    return true;
}

static void progress(struct sv_qp *qp, uint32_t seg)
{
    qp->in_flight -= seg < qp->in_flight ? seg : qp->in_flight;
    qp->retry_left = qp->attr.retry_cnt;
    qp->rnr_left = qp->attr.rnr_retry;
}

static void on_data(struct sv_qp *qp, const struct sv_packet *p)
{
    struct sv_wqe *w = wqe(qp, p->h.msn);
    if (!is_read(w) || w->answered || p->h.off != w->got || p->h.off + p->h.data > w->len)
        return;
    if (sv_scatter(qp, w->sge, w->num_sge, p->h.off, p->payload, p->h.data)) {
        if (complete_before(qp, p->h.msn))
            fail(qp, IBV_WC_LOC_PROT_ERR);
        return;
    }
    progress(qp, p->h.data);
    w->got += p->h.data;
    if (w->got < w->len)
        return;
    w->answered = true;
    if (qp->rd_out)
        qp->rd_out--;
    complete_before(qp, p->h.msn + 1);
}

/* Time of a receiver-not-ready code in 10 microseconds (IBTA 9.7.5.2.8, table 45). */
static const uint32_t rnr_time[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                      16,    24,   32,   48,    64,    96,    128,   192,
                                      256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                      4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

static void on_rnr(struct sv_qp *qp, const struct sv_hdr *h)
{
    if (!complete_before(qp, h->msn))
        return;
    if (qp->attr.rnr_retry != 7) { /* 7: without end */
        if (!qp->rnr_left) {
            fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
            return;
        }
        qp->rnr_left--;
    }
    rewind_to(qp, h->msn, h->off);
    qp->timer = 0;
    qp->rnr_until = sv_now() + rnr_time[h->status & 31] * 10000ull;
    sv_wake(qp->rnr_until);
}

void sv_on_answer(const struct sv_packet *p)
{
    const struct sv_hdr *h = &p->h;
    struct sv_qp *qp = sv_qp_find(h->dst_qpn);
    if (!qp || qp->ibv.state != IBV_QPS_RTS || !sv_path_ok(qp, h) || h->psn != qp->attr.sq_psn ||
        h->msn < qp->sq_una || h->msn > qp->sq_next || (h->msn == qp->sq_next && !qp->sq_off))
        return; /* of an earlier attempt */
    struct sv_wqe *w = wqe(qp, h->msn);
    if (w->lose_ack > 0 &&
        (h->type == SV_P_ACK || h->type == SV_P_READ || h->type == SV_P_ATOMIC)) {
        w->lose_ack -= h->last;
        return;
    }
    switch (h->type) {
    case SV_P_ACK:
        progress(qp, h->seg);
        if (h->last)
            complete_before(qp, h->msn + 1);
        break;
    case SV_P_READ:
    case SV_P_ATOMIC:
        on_data(qp, p);
        break;
    case SV_P_NAK:
        if (complete_before(qp, h->msn))
            fail(qp, (enum ibv_wc_status)h->status);
        break;
    case SV_P_RNR:
        on_rnr(qp, h);
        break;
    case SV_P_SEQ:
        if (complete_before(qp, h->msn) && retry(qp))
            rewind_to(qp, h->msn, h->off);
        break;
    default:
        break;
    }
    if (qp->ibv.state != IBV_QPS_RTS)
        return;
    arm(qp, true);
    sv_qp_transmit(qp);
}
