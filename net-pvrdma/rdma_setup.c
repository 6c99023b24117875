/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Set-up of an RDMA lane: offer, bind (GIDs, MTU, queue pairs) and a round trip. */
#include "net-pvrdma/rdma_lane_priv.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

const char *pvn_rdma_mode_name(enum pvn_rdma_mode mode)
{
    static const char *const names[] = {"auto", "record", "imm", "send"};
    return (unsigned)mode < sizeof(names) / sizeof(*names) ? names[mode] : "unknown";
}

/* log2 of the window in chunks. A chunk takes two slots of the send queue and one record. */
static uint8_t window_log2(const struct rdma_lane *r)
{
    uint8_t n = 1;
    while (n < RECORD_RING_LOG2 && 4u << n <= r->qp[0].slots)
        n++;
    return n;
}

int rdma_offer(struct pvn_lane *l, void *buf, size_t cap)
{
    struct rdma_lane *r = rdma_of(l);
    struct rdma_offer o = {.mode = (uint8_t)r->cfg.mode,
                           .nqps = (uint8_t)r->cfg.qps,
                           .ethernet = r->cfg.ethernet,
                           .mtu = (uint8_t)r->cfg.mtu,
                           .max_rd_atomic = r->cfg.max_rd_atomic,
                           .ngids = (uint8_t)r->cfg.ngids,
                           .window_log2 = window_log2(r),
                           .needs_acks = r->cfg.costly_poll,
                           .software = r->cfg.software,
                           .modes = (uint8_t)r->cfg.modes,
                           .shorts = r->cfg.short_max > 0,
                           .counts = true,
                           .pieces_log2 = rdma_pieces_log2(r),
                           .lid = r->cfg.lid,
                           .mem_rkey = r->mem_mr->rkey,
                           .mem_addr = (uintptr_t)r->mem};
    for (int i = 0; i < r->cfg.qps; i++) {
        o.qpn[i] = r->qp[i].qp->qp_num;
        o.psn[i] = r->qp[i].psn;
    }
    memcpy(o.gids, r->cfg.gids, sizeof(o.gids));
    int len = pvn_rdma_offer_encode(&o, buf, cap);
    if (len < 0)
        return pvn_err_set(&l->err, len, "the RDMA offer of %s does not fit %zu bytes", r->cfg.name,
                           cap);
    return len;
}

static const char *layer(bool ethernet)
{
    return ethernet ? "RoCE" : "InfiniBand";
}

/* The mode that both ends choose: a mode that one end requests and the other one accepts. If both accept everything, imm
 * mode is better because a message of one chunk is one request and one packet; record mode needs two. But an imm
 * receiver polls its completion queue all the time. If that is expensive for either end, record mode is better: imm mode
 * would then need a second request for the count, and a receive request. */
static enum pvn_rdma_mode common_mode(const struct rdma_lane *r)
{
    unsigned both = r->cfg.modes & r->peer.modes;
    bool costly = r->cfg.costly_poll || r->peer.needs_acks;
    bool imm = r->cfg.mode == PVN_RDMA_IMM || r->peer.mode == PVN_RDMA_IMM || !costly;
    bool send = r->cfg.mode == PVN_RDMA_SEND || r->peer.mode == PVN_RDMA_SEND;
    if (send && both >> PVN_RDMA_SEND & 1)
        return PVN_RDMA_SEND;
    if (imm && both >> PVN_RDMA_IMM & 1)
        return PVN_RDMA_IMM;
    for (enum pvn_rdma_mode m = PVN_RDMA_RECORD; m <= PVN_RDMA_SEND; m++)
        if (both >> m & 1)
            return m;
    return PVN_RDMA_AUTO;
}

/* True if the sender writes a count of its chunks into the receiver's memory, because the receiver's polls are
 * expensive; see rdma_imm.c. */
static bool are_counted(const struct rdma_lane *r)
{
    return r->peer.counts && (r->cfg.sender ? r->peer.needs_acks : r->cfg.costly_poll);
}

static int agree_on_mode(struct rdma_lane *r)
{
    static const struct rdma_mode *const table[] = {[PVN_RDMA_RECORD] = &rdma_record_mode,
                                                    [PVN_RDMA_IMM] = &rdma_imm_mode,
                                                    [PVN_RDMA_SEND] = &rdma_send_mode};
    enum pvn_rdma_mode mode = common_mode(r);
    if (mode == PVN_RDMA_AUTO)
        return pvn_err_set(
            &r->l.err, -EPROTONOSUPPORT,
            "%s works in %s mode and the peer's device in %s mode, and neither can do the other; "
            "NCCL_PVRDMA_RDMA_MODE=auto on both lets them agree",
            r->cfg.name, pvn_rdma_mode_name(r->cfg.mode),
            pvn_rdma_mode_name((enum pvn_rdma_mode)r->peer.mode));
    r->cfg.mode = mode;
    r->mode = mode == PVN_RDMA_IMM && are_counted(r) ? &rdma_counted_mode : table[mode];
    r->tx.window_by_reads = r->mode->window_by_reads;
    r->l.data = r->mode->data[r->cfg.sender];
    return 0;
}

/* Agrees on the lane's properties, from this end's configuration and the peer's offer. */
static int agree(struct pvn_lane *l, const void *peer, size_t len)
{
    struct rdma_lane *r = rdma_of(l);
    int rc = pvn_rdma_offer_decode(peer, len, &r->peer, &l->err);
    if (rc < 0)
        return rc;
    if (r->peer.ethernet != r->cfg.ethernet)
        return pvn_err_set(&l->err, -EPROTONOSUPPORT, "%s is %s and the peer's port is %s",
                           r->cfg.name, layer(r->cfg.ethernet), layer(r->peer.ethernet));
    r->gid.local = r->gid.remote = -1;
    if (r->cfg.ethernet) {
        /* Both ends choose from the same two tables by the same rule. The sender is the connector. */
        rc = pvn_gid_choose(r->cfg.gids, r->cfg.ngids, r->peer.gids, r->peer.ngids, r->cfg.sender,
                            &r->gid, &l->err);
        if (rc < 0)
            return rc;
        if (r->cfg.sends_from)
            r->cfg.sends_from(r->cfg.health_arg, &r->cfg.gids[r->gid.local]);
    }
    r->nqps = r->peer.nqps < r->cfg.qps ? r->peer.nqps : r->cfg.qps;
    r->mtu = r->peer.mtu < r->cfg.mtu ? (enum ibv_mtu)r->peer.mtu : r->cfg.mtu;
    r->tx.window = 1u << window_log2(r);
    rc = agree_on_mode(r);
    if (rc == 0)
        rc = r->mode->open(r);
    if (rc < 0)
        return rc;
    if (r->nqps == 1)
        r->l.lone_chunk = r->cfg.lone_chunk;
    r->bound = true;
    return 0;
}

/* A call after -EAGAIN connects the remaining queue pairs. */
int rdma_bind(struct pvn_lane *l, const void *peer, size_t len)
{
    struct rdma_lane *r = rdma_of(l);
    int rc = r->bound ? 0 : agree(l, peer, len);
    if (rc == 0)
        rc = rdma_qps_connect(r);
    return rc < 0 ? rc : rdma_flush_connect(r);
}

/* Posts a request on every queue pair. Its completion shows that the path works in both directions. */
static int send_probes(struct rdma_lane *r)
{
    int rc = 0;
    for (int k = 0; rc == 0 && k < r->nqps; k++)
        rc = r->mode->probe(r, k);
    return rc;
}

/* 0 if the peer's queue pairs are known to be connected, else -EAGAIN. The acceptor sends its offer after it has connected
 * its queue pairs, so the connector knows. The acceptor learns it from the connector's first request. An earlier request
 * of its own would be lost and repeated only after the time-out of a packet, which is seconds. */
static int peer_connected(struct rdma_lane *r)
{
    if (r->cfg.sender || r->probed)
        return 0;
    return r->mode->peer_connected(r);
}

int rdma_verify(struct pvn_lane *l)
{
    struct rdma_lane *r = rdma_of(l);
    if (r->verified)
        return 0;
    int connected = peer_connected(r);
    if (connected < 0)
        return connected;
    if (r->outstanding == 0 && !r->probed) {
        r->probed = true;
        int rc = send_probes(r);
        if (rc < 0)
            return rc;
    }
    int rc = r->mode->take(r);
    if (rc < 0)
        return rc;
    if (r->outstanding > 0)
        return -EAGAIN;
    rc = rdma_flush_verify(r);
    if (rc < 0)
        return rc;
    r->verified = true;
    memset(&r->stats, 0, sizeof(r->stats));
    if (r->gid.text[0])
        pvn_info(PVN_INIT | PVN_NET, "%s: %s", r->cfg.name, r->gid.text);
    return 0;
}
