/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from which zero-copy pays. The receiver copies the sender's pages one by one, and the
 * kernel checks each of them first (hardened usercopy): with pages of 4 KiB that takes longer than
 * the copy that was saved, with huge pages it does not. So a registered buffer is moved into huge
 * pages, and only what lies in them is sent without a copy.
 */
#include "config.h"
#include "net-tcp/tcp_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nccl/types.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum {
    HUGE_PAGE = 2 * 1024 * 1024,
    MOVE_MAX = 32 * 1024 * 1024 /* bytes: tens of ms; buffers to send from are smaller */
};

static const char *thp_enabled = "/sys/kernel/mm/transparent_hugepage/enabled";

void tcp_mem_thp_from(const char *path)
{
    thp_enabled = path;
}

/* MADV_COLLAPSE does not ask whether the administrator has switched huge pages off. */
static bool huge_pages_are_off(void)
{
    char text[64] = "";
    FILE *f = fopen(thp_enabled, "re");
    if (!f)
        return false;
    bool off = fgets(text, sizeof(text), f) && strstr(text, "[never]");
    fclose(f);
    return off;
}

/* What this lane knows of a registered buffer that is in huge pages: their range of addresses. */
struct tcp_mr {
    uintptr_t first, end;
};

/* The whole huge pages that a buffer has room for; none: end is not above first. */
static struct tcp_mr huge_pages(const struct pvn_mr *mr)
{
    uintptr_t at = (uintptr_t)mr->addr, mask = ~(uintptr_t)(HUGE_PAGE - 1);
    return (struct tcp_mr){(at + HUGE_PAGE - 1) & mask, (at + mr->len) & mask};
}

int tcp_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                struct pvn_err *err)
{
    const struct tcp_lane *t = tcp_of(l);
    struct tcp_mr r = huge_pages(mr);
    (void)dmabuf_fd;
    (void)dmabuf_offset;
    (void)err;
    mr->lane_mr[l->idx] = NULL;
    mr->rkey[l->idx] = 0;
    if (!t->cfg.sender || !t->zerocopy_min || mr->ptr_type != NCCL_PTR_HOST || r.end <= r.first ||
        r.end - r.first > MOVE_MAX || huge_pages_are_off())
        return 0;
    /* The bytes and addresses stay as they are. Refused before Linux 6.1, for memory that a device
     * has pinned, and where there are no huge pages to be had. */
    if (madvise((void *)r.first, r.end - r.first, MADV_COLLAPSE) < 0)
        return 0;
    struct tcp_mr *known = malloc(sizeof(*known));
    if (!known)
        return 0; /* the buffer is copied from, as if it were not in huge pages */
    *known = r;
    mr->lane_mr[l->idx] = known;
    return 0;
}

int tcp_mem_dereg(struct pvn_lane *l, struct pvn_mr *mr)
{
    free(mr->lane_mr[l->idx]);
    mr->lane_mr[l->idx] = NULL;
    return 0;
}

bool tcp_mem_zerocopy_pays(const struct tcp_lane *t, const struct pvn_write *w)
{
    uintptr_t at = (uintptr_t)w->src, end = at + w->f.len;
    if (!w->mr)
        return true; /* nothing is known of it */
    const struct tcp_mr *known = w->mr->lane_mr[t->l.idx];
    if (!known)
        return false;
    at = at > known->first ? at : known->first;
    end = end < known->end ? end : known->end;
    return end > at && end - at >= w->f.len / 2;
}
