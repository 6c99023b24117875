/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Error messages of RDMA lanes. Each says why the lane died, in one sentence that can be acted on. */
#include "net-pvrdma/rdma_lane_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hints.h"

static void gid_text(const uint8_t *raw, char *buf, size_t cap)
{
    if (!inet_ntop(AF_INET6, raw, buf, (socklen_t)cap))
        snprintf(buf, cap, "?");
}

/* Sets the two ends of queue pair qp in *err. */
static void locate(const struct rdma_lane *r, int qp, struct pvn_err *err)
{
    char mine[INET6_ADDRSTRLEN] = "none", theirs[INET6_ADDRSTRLEN] = "none";
    if (r->bound && r->gid.local >= 0) {
        gid_text(r->cfg.gids[r->gid.local].raw, mine, sizeof(mine));
        gid_text(r->peer.gids[r->gid.remote].raw, theirs, sizeof(theirs));
    }
    pvn_err_set_where(err, "%s QPN 0x%x GID %s", r->cfg.name,
                      r->qp && r->qp[qp].qp ? r->qp[qp].qp->qp_num : 0, mine);
    if (r->bound)
        pvn_err_set_who(err, "QPN 0x%x GID %s", r->peer.qpn[qp], theirs);
}

void rdma_locate(const struct pvn_lane *l, struct pvn_err *err)
{
    locate((const struct rdma_lane *)l, 0, err);
}

int rdma_dead(struct rdma_lane *r, int code, const char *doing)
{
    char why[128];
    if (r->l.err.code)
        return r->l.err.code;
    pvn_err_set(&r->l.err, code, "RDMA lane on %s, %s: %s", r->cfg.name, doing,
                pvn_strerror(code, why, sizeof(why)));
    locate(r, 0, &r->l.err);
    return r->l.err.code;
}

/* A sum that is wrong for so long belongs to no write in flight, whose rest becomes visible within nanoseconds. */
#define PARTIAL_NS PVN_NS_PER_S

__attribute__((noinline, cold)) int rdma_partial(struct rdma_lane *r, int ring, uint64_t number,
                                                 const char *doing)
{
    struct rdma_partial *p = &r->partial[ring];
    uint64_t now = pvn_now_ns();
    r->stats.partial++;
    if (p->until_ns == 0 || p->number != number) {
        p->number = number;
        p->until_ns = now + PARTIAL_NS;
    }
    if (now < p->until_ns)
        return 0;
    char what[128];
    snprintf(what, sizeof(what), "%s: its checksum has been wrong for a second", doing);
    return rdma_dead(r, -EBADMSG, what);
}

/* The meaning of a completion status (InfiniBand specification, volume 1, 11.6.2).
 *
 * LOSS: the link, the peer's adapter or this end's adapter is lost; other lanes may work.
 *
 * WRONG: the request is one that no lane would accept (length, kind), because of a bug here or a malformed
 * peer. A status that is not in the table counts as WRONG.
 *
 * UNCLEAR: memory was not accessible. Either the request is wrong, or the memory was lost before the queue
 * pair: if an adapter or its driver is removed, or a process is killed, the kernel destroys the newest object
 * first (Linux, drivers/infiniband/core/rdma_core.c, __uverbs_cleanup_ufile), and NCCL registers memory after
 * the queue pairs are connected. Before any event, the peer then gets REM_ACCESS_ERR, in send mode
 * REM_OP_ERR. The end whose adapter is removed gets LOC_PROT_ERR or, for a write with immediate data,
 * LOC_ACCESS_ERR. */
enum meaning { WRONG, LOSS, UNCLEAR };
static const uint8_t meaning_of[] = {
    [IBV_WC_SUCCESS] = WRONG, /* never the status of a failed request */
    [IBV_WC_LOC_LEN_ERR] = WRONG,
    [IBV_WC_LOC_QP_OP_ERR] = LOSS, /* rdma_rxe: no route, interface is down (rxe_req.c, 6.1) */
    [IBV_WC_LOC_EEC_OP_ERR] = WRONG,
    [IBV_WC_LOC_PROT_ERR] = UNCLEAR,
    [IBV_WC_WR_FLUSH_ERR] = LOSS, /* after another failed request, or in the error state */
    [IBV_WC_MW_BIND_ERR] = WRONG,
    [IBV_WC_BAD_RESP_ERR] = WRONG,
    [IBV_WC_LOC_ACCESS_ERR] = UNCLEAR,
    [IBV_WC_REM_INV_REQ_ERR] = WRONG,
    [IBV_WC_REM_ACCESS_ERR] = UNCLEAR,
    [IBV_WC_REM_OP_ERR] = UNCLEAR,
    [IBV_WC_RETRY_EXC_ERR] = LOSS,
    [IBV_WC_RNR_RETRY_EXC_ERR] = LOSS,
    [IBV_WC_LOC_RDD_VIOL_ERR] = WRONG,
    [IBV_WC_REM_INV_RD_REQ_ERR] = WRONG,
    [IBV_WC_REM_ABORT_ERR] = LOSS,
    [IBV_WC_INV_EECN_ERR] = WRONG,
    [IBV_WC_INV_EEC_STATE_ERR] = WRONG,
    [IBV_WC_FATAL_ERR] = LOSS,
    [IBV_WC_RESP_TIMEOUT_ERR] = LOSS,
    [IBV_WC_GENERAL_ERR] = LOSS,
};

static enum meaning meaning(enum ibv_wc_status status)
{
    return (unsigned)status < sizeof(meaning_of) ? (enum meaning)meaning_of[status] : WRONG;
}

/* The opcode of a failed completion is not defined; only these fields are (ibv_poll_cq(3)). */
int rdma_dead_wc(struct rdma_lane *r, const struct ibv_wc *wc)
{
    if (r->l.err.code)
        return r->l.err.code;
    int qp = 0;
    for (int i = 0; i < r->cfg.qps; i++)
        if (r->qp[i].qp && r->qp[i].qp->qp_num == wc->qp_num)
            qp = i;
    const char *name = r->cfg.v->wc_status_str ? r->cfg.v->wc_status_str(wc->status) : "";
    /* If the retries ran out, the peer has timed out. Everything else is EIO, including a failed device. */
    pvn_err_set(&r->l.err, wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -EIO,
                "RDMA lane on %s: a request completed with status %d (%s), vendor error 0x%x%s",
                r->cfg.name, wc->status, name, wc->vendor_err,
                r->chunks_done ? "" : "; it has never carried data");
    r->l.wrong = meaning(wc->status) == WRONG;
    r->l.unclear = meaning(wc->status) == UNCLEAR;
    pvn_err_set_fault(&r->l.err, PVN_FAULT_REMOTE);
    pvn_err_set_hint(&r->l.err,
                     pvn_hint_id_find(PVN_HINT_WC, wc->status,
                                      r->verified ? PVN_PHASE_TRANSFER : PVN_PHASE_VERIFY,
                                      r->chunks_done ? PVN_PAST_WORKED : PVN_PAST_NEVER_WORKED));
    locate(r, qp, &r->l.err);
    return r->l.err.code;
}
