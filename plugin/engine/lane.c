/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Defaults for operations that a lane does not have, so that callers need not test for NULL. */
#include "engine/lane.h"

#include <errno.h>
#include <stdio.h>

static int no_offer(struct pvn_lane *l, void *buf, size_t cap)
{
    return -EOPNOTSUPP;
}

static int no_bind(struct pvn_lane *l, const void *peer, size_t len)
{
    return -EOPNOTSUPP;
}

int pvn_lane_no_adopt(struct pvn_lane *l, int stream, int fd)
{
    return -EOPNOTSUPP;
}

static int ok(struct pvn_lane *l)
{
    return 0;
}

int pvn_lane_ok_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                    struct pvn_err *err)
{
    return 0;
}

int pvn_lane_ok_dereg(struct pvn_lane *l, struct pvn_mr *mr)
{
    return 0;
}

void pvn_lane_no_revoke(struct pvn_lane *l, const void *addr, size_t len)
{
}

int pvn_lane_no_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b)
{
    return -EOPNOTSUPP;
}

int pvn_lane_no_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    return -EOPNOTSUPP;
}

int pvn_lane_no_next_slot(struct pvn_lane *l, const struct pvn_cts **cts)
{
    return 0;
}

int pvn_lane_no_post_flush(struct pvn_lane *l, uint32_t id, const void *addr,
                           const struct pvn_mr *mr)
{
    return -EOPNOTSUPP;
}

int pvn_lane_no_last_post(const struct pvn_lane *l, struct pvn_transfer *t)
{
    return -EOPNOTSUPP;
}

static int no_events(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    return 0;
}

void pvn_lane_no_copy(const struct pvn_event *ev, void *dst)
{
}

static int never_overdue(struct pvn_lane *l, uint64_t now_ns, uint64_t peer_ready_ns)
{
    return 0;
}

void pvn_lane_no_join(struct pvn_lane *l, struct pvn_lane *const *lanes, int nlanes)
{
}

void pvn_lane_nothing(struct pvn_lane *l)
{
}

static void no_locate(const struct pvn_lane *l, struct pvn_err *err)
{
}

static int plain_describe(const struct pvn_lane *l, char *buf, size_t cap)
{
    return snprintf(buf, cap, "%s lane %d", l->ops->name, l->idx);
}

static void no_counters(const struct pvn_lane *l, struct pvn_lane_counters *sum)
{
}

size_t pvn_lane_nothing_left(const struct pvn_lane *l)
{
    (void)l;
    return 0;
}

void pvn_lane_ops_fill(struct pvn_lane_ops *ops)
{
    if (!ops->name)
        ops->name = "unnamed";
    if (!ops->offer)
        ops->offer = no_offer;
    if (!ops->bind)
        ops->bind = no_bind;
    if (!ops->adopt)
        ops->adopt = pvn_lane_no_adopt;
    if (!ops->verify)
        ops->verify = ok;
    if (!ops->mem_reg)
        ops->mem_reg = pvn_lane_ok_reg;
    if (!ops->mem_dereg)
        ops->mem_dereg = pvn_lane_ok_dereg;
    if (!ops->mem_revoke)
        ops->mem_revoke = pvn_lane_no_revoke;
    if (!ops->last_post)
        ops->last_post = pvn_lane_no_last_post;
    if (!ops->overdue)
        ops->overdue = never_overdue;
    if (!ops->left)
        ops->left = pvn_lane_nothing_left;
    if (!ops->fence)
        ops->fence = ok;
    if (!ops->drain)
        ops->drain = no_events;
    if (!ops->join)
        ops->join = pvn_lane_no_join;
    if (!ops->stop)
        ops->stop = pvn_lane_nothing;
    if (!ops->close)
        ops->close = pvn_lane_nothing;
    if (!ops->locate)
        ops->locate = no_locate;
    if (!ops->describe)
        ops->describe = plain_describe;
    if (!ops->count)
        ops->count = no_counters;
}

void pvn_lane_data_ops_fill(struct pvn_lane_data_ops *ops)
{
    if (!ops->post_cts)
        ops->post_cts = pvn_lane_no_post_cts;
    if (!ops->post_write)
        ops->post_write = pvn_lane_no_post_write;
    if (!ops->next_slot)
        ops->next_slot = pvn_lane_no_next_slot;
    if (!ops->post_flush)
        ops->post_flush = pvn_lane_no_post_flush;
    if (!ops->kick)
        ops->kick = ok;
    if (!ops->poll)
        ops->poll = no_events;
    if (!ops->copy_out)
        ops->copy_out = pvn_lane_no_copy;
}
