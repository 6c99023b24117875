/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/memlane.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pvn_memlane_plan pvn_memlane_plan[2][PVN_MEMLANES];
int pvn_memlane_open;

struct memlane {
    struct pvn_lane l;
    int index;
};

void pvn_memlane_reset(void)
{
    memset(pvn_memlane_plan, 0, sizeof(pvn_memlane_plan));
}

void pvn_memlane_device(struct pvn_device *dev, const char *name)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&dev->addr;

    snprintf(dev->name, sizeof(dev->name), "%s", name);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    dev->addr_len = sizeof(*in);
}

static const struct pvn_memlane_plan *plan(const struct pvn_lane *l)
{
    return &pvn_memlane_plan[l->sender][((const struct memlane *)l)->index];
}

static int answer(struct pvn_lane *l, int rc, const char *doing)
{
    if (rc && rc != -EAGAIN)
        pvn_err_set(&l->err, rc, "memory lane %d fails at %s by request of the test",
                    ((struct memlane *)l)->index, doing);
    return rc;
}

static int mem_offer(struct pvn_lane *l, void *buf, size_t cap)
{
    (void)cap;
    memcpy(buf, l->ops->name, strlen(l->ops->name));
    return (int)strlen(l->ops->name);
}

static int mem_bind(struct pvn_lane *l, const void *peer, size_t len)
{
    if (len != strlen(l->ops->name) || memcmp(peer, l->ops->name, len) != 0)
        return pvn_err_set(&l->err, -EPROTO, "the peer's memory lane is none");
    return answer(l, plan(l)->bind, "bind");
}

static int mem_verify(struct pvn_lane *l)
{
    struct pvn_memlane_plan *p = &pvn_memlane_plan[l->sender][((const struct memlane *)l)->index];

    if (p->verify_blocks_ms)
        usleep((useconds_t)p->verify_blocks_ms * 1000);
    p->verify_blocks_ms = 0;
    return answer(l, plan(l)->verify, "verify");
}

static int mem_fence(struct pvn_lane *l)
{
    struct pvn_memlane_plan *p = &pvn_memlane_plan[l->sender][((const struct memlane *)l)->index];

    return p->fences++ < p->fence_again ? -EAGAIN : p->fence;
}

static void mem_close(struct pvn_lane *l)
{
    pvn_memlane_open--;
    free(l);
}

static int make(struct pvn_lane_ops *ops, int index, const struct pvn_lane_args *args,
                struct pvn_lane **out, struct pvn_err *err)
{
    static struct pvn_lane_data_ops data_ops;
    struct memlane *m;
    int rc = pvn_memlane_plan[args->sender][index].lane_new;

    if (rc)
        return pvn_err_set(err, rc, "memory lane %d is not made by request of the test", index);
    m = calloc(1, sizeof(*m));
    pvn_lane_ops_fill(ops);
    pvn_lane_data_ops_fill(&data_ops);
    m->l.ops = ops;
    m->l.data = &data_ops;
    m->l.sender = args->sender;
    m->l.caps = pvn_memlane_plan[args->sender][index].caps;
    m->index = index;
    pvn_memlane_open++;
    *out = &m->l;
    return 0;
}

static int mem_new(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                   struct pvn_err *err)
{
    static struct pvn_lane_ops ops = {.name = "mem",
                                      .offer = mem_offer,
                                      .bind = mem_bind,
                                      .verify = mem_verify,
                                      .fence = mem_fence,
                                      .close = mem_close};

    return make(&ops, index, args, out, err);
}

static int mem2_new(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                    struct pvn_err *err)
{
    static struct pvn_lane_ops ops = {.name = "mem2",
                                      .offer = mem_offer,
                                      .bind = mem_bind,
                                      .verify = mem_verify,
                                      .fence = mem_fence,
                                      .close = mem_close};

    return make(&ops, index, args, out, err);
}

const struct pvn_transport_ops pvn_mem_transport = {
    .name = "mem", .offer_keeps = true, .lane_new = mem_new};
const struct pvn_transport_ops pvn_mem2_transport = {
    .name = "mem2", .offer_keeps = true, .lane_new = mem2_new};
