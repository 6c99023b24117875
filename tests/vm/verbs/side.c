/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

void side_open(struct side *s, const char *device, int gid_index, size_t len)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);

    *s = (struct side){.len = len, .gid_index = gid_index};
    for (int i = 0; i < n; i++)
        if (!strcmp(ibv_get_device_name(list[i]), device))
            s->ctx = ibv_open_device(list[i]);
    if (list)
        ibv_free_device_list(list);
    if (!s->ctx)
        errx(2, "no device %s among %d", device, n);
    if (ibv_query_gid(s->ctx, 1, gid_index, &s->gid))
        err(2, "%s: GID %d", device, gid_index);
    s->pd = ibv_alloc_pd(s->ctx);
    s->channel = ibv_create_comp_channel(s->ctx);
    s->cq = ibv_create_cq(s->ctx, 512, NULL, s->channel, 0);
    s->buf = aligned_alloc(4096, len);
    if (!s->pd || !s->channel || !s->cq || !s->buf)
        err(2, "%s: protection domain, completion queue or memory", device);
    memset(s->buf, 0, len);
    s->mr = ibv_reg_mr(s->pd, s->buf, len, SIDE_ACCESS);
    if (!s->mr)
        err(2, "%s: registering %zu bytes", device, len);
}

void side_close(struct side *s)
{
    if (s->qp)
        ibv_destroy_qp(s->qp);
    ibv_dereg_mr(s->mr);
    ibv_destroy_cq(s->cq);
    ibv_destroy_comp_channel(s->channel);
    ibv_dealloc_pd(s->pd);
    ibv_close_device(s->ctx);
    free(s->buf);
}

void side_new_qp(struct side *s, struct ibv_qp_cap want)
{
    struct ibv_qp_init_attr init = {
        .send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .cap = want};
    struct ibv_wc wc;

    if (s->qp) {
        ibv_destroy_qp(s->qp);
        while (ibv_poll_cq(s->cq, 1, &wc) > 0)
            ;
    }
    s->qp = ibv_create_qp(s->pd, &init);
    if (!s->qp)
        err(2, "create_qp");
    s->cap = init.cap;
}

static void connect_one(struct side *s, const struct side *peer, const struct side_rc *rc)
{
    struct ibv_port_attr port;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = SIDE_ACCESS};

    if (ibv_query_port(s->ctx, 1, &port))
        err(2, "query_port");
    if (ibv_modify_qp(s->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        err(2, "modify_qp to INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port.active_mtu,
        .dest_qp_num = peer->qp->qp_num,
        .max_dest_rd_atomic = rc->rd_atomic,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = peer->gid, .sgid_index = s->gid_index, .hop_limit = 64}}};
    /* The call fails for a while if the neighbour is not resolved yet. */
    for (int tries = 0;
         ibv_modify_qp(s->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
         tries++) {
        if (tries == 20)
            err(2, "modify_qp to RTR");
        usleep(100000);
    }
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = rc->timeout,
                                .retry_cnt = rc->retry_cnt,
                                .rnr_retry = rc->rnr_retry,
                                .max_rd_atomic = rc->rd_atomic};
    if (ibv_modify_qp(s->qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        err(2, "modify_qp to RTS");
}

void side_connect(struct side *a, struct side *b, const struct side_rc *rc)
{
    connect_one(a, b, rc);
    connect_one(b, a, rc);
}

int side_wait(struct side *s, struct ibv_wc *wc, double limit)
{
    double end = pvn_now_s() + limit;
    int n;

    memset(wc, 0, sizeof *wc);
    while (!(n = ibv_poll_cq(s->cq, 1, wc))) {
        if (pvn_now_s() > end)
            return 0;
        usleep(50);
    }
    return n;
}

int side_post(struct side *s, struct ibv_send_wr *wr, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + offset, length, s->mr->lkey};
    struct ibv_send_wr *bad;

    wr->sg_list = &sge;
    wr->num_sge = length ? 1 : 0;
    return ibv_post_send(s->qp, wr, &bad);
}

int side_post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)s->buf + offset, length, s->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = length ? 1 : 0}, *bad;

    return ibv_post_recv(s->qp, &wr, &bad);
}
