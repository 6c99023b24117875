/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is worth lending. The receiver of lent pages copies them one by one and the kernel
 * checks each before (hardened usercopy): 4 KiB at a time that takes longer than the copy that was
 * saved, in huge pages it does not. So a registered buffer is moved into huge pages, and only what
 * lies in them is lent.
 */
#include "config.h"
#include "net-tcp/tcp_priv.h"

#include <sys/mman.h>

#include "nccl/types.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum {
    HUGE_PAGE = 2 * 1024 * 1024,
    MOVE_MAX = 32 * 1024 * 1024 /* bytes: tens of ms; buffers to send from are smaller */
};

struct range {
    uintptr_t first, end;
};

/* The whole huge pages that a buffer has room for; none: end is not above first. */
static struct range huge_pages(const struct pvn_mr *mr)
{
    uintptr_t at = (uintptr_t)mr->addr, mask = ~(uintptr_t)(HUGE_PAGE - 1);
    return (struct range){(at + HUGE_PAGE - 1) & mask, (at + mr->len) & mask};
}

/* lane_mr says whether the buffer is in huge pages. */
int tcp_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                struct pvn_err *err)
{
    static char yes;
    const struct tcp_lane *t = tcp_of(l);
    struct range r = huge_pages(mr);
    (void)dmabuf_fd;
    (void)dmabuf_offset;
    (void)err;
    mr->lane_mr[l->idx] = NULL;
    mr->rkey[l->idx] = 0;
    if (!t->cfg.sender || !t->lend_min || mr->ptr_type != NCCL_PTR_HOST || r.end <= r.first ||
        r.end - r.first > MOVE_MAX)
        return 0;
    /* The bytes and addresses stay as they are. Refused before Linux 6.1, for memory that a device
     * has pinned, and where there are no huge pages to be had. */
    if (madvise((void *)r.first, r.end - r.first, MADV_COLLAPSE) == 0)
        mr->lane_mr[l->idx] = &yes;
    return 0;
}

int tcp_mem_dereg(struct pvn_lane *l, struct pvn_mr *mr)
{
    mr->lane_mr[l->idx] = NULL;
    return 0;
}

bool tcp_mem_lendable(const struct tcp_lane *t, const struct pvn_write *w)
{
    uintptr_t at = (uintptr_t)w->src, end = at + w->f.len;
    if (!w->mr)
        return true; /* nothing is known of it */
    if (!w->mr->lane_mr[t->l.idx])
        return false;
    struct range r = huge_pages(w->mr);
    at = at > r.first ? at : r.first;
    end = end < r.end ? end : r.end;
    return end > at && end - at >= w->f.len / 2;
}
