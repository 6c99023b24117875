/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from which zero-copy pays. The receiver copies the sender's pages one by one, and the
 * kernel checks each of them first (hardened usercopy): with pages of 4 KiB that takes longer than
 * the copy that was saved, with huge pages it does not. So a registered buffer is moved into huge
 * pages, and only what lies in them, or in hugetlb pages, is sent without a copy.
 */
#include "config.h"
#include "net-tcp/tcp_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/read_line.h"
#include "nccl/types.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum {
    HUGE_PAGE = 2 * 1024 * 1024,
    SMALL_PAGE = 4096,
    MOVE_MAX = 32 * 1024 * 1024, /* bytes: tens of ms; buffers to send from are smaller */
    LOOKS = 4,                   /* at messages of a buffer that was not touched yet */
    RUNS = 16                    /* of huge pages, the longest of which counts */
};

/* PAGEMAP_SCAN of Linux 6.7 (include/uapi/linux/fs.h), which older headers lack. */
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
        category_mask, category_anyof_mask, return_mask;
};
struct run {
    uint64_t start, end, categories;
};
#define SCAN_REQUEST _IOWR('f', 16, struct scan)
#define SCAN_IS_HUGE (1u << 6)

static const char *thp_enabled = "/sys/kernel/mm/transparent_hugepage/enabled";

void tcp_mem_thp_from(const char *path)
{
    thp_enabled = path;
}

/* MADV_COLLAPSE does not ask whether the administrator has switched huge pages off. */
static bool huge_pages_are_off(void)
{
    char text[64];
    return pvn_read_line(thp_enabled, text, sizeof(text)) && strstr(text, "[never]");
}

/* The lane's view of a registered buffer. */
struct tcp_mr {
    uintptr_t from, to; /* the whole huge pages that it has room for; none: to is not above from */
    uintptr_t first, end; /* what of it lies in huge pages, in one piece */
    int looks;            /* that are left, for huge pages that come when the owner writes to it */
};

static struct tcp_mr room_for_huge_pages(const struct pvn_mr *mr)
{
    uintptr_t at = (uintptr_t)mr->addr, mask = ~(uintptr_t)(HUGE_PAGE - 1);
    return (struct tcp_mr){.from = (at + HUGE_PAGE - 1) & mask, .to = (at + mr->len) & mask};
}

/*
 * Takes the longest of the first runs of huge pages, from wherever they are: hugetlb, pinned after
 * they were made, beside others that could not be moved. Walks the page tables only. Linux before
 * 6.7 does not say, and the buffer is copied from.
 */
static void find_huge_pages(struct tcp_mr *r)
{
    struct run run[RUNS] = {0};
    struct scan q = {.size = sizeof(q),
                     .start = r->from,
                     .end = r->to,
                     .vec = (uintptr_t)run,
                     .vec_len = RUNS,
                     .category_mask = SCAN_IS_HUGE,
                     .return_mask = SCAN_IS_HUGE};
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    int n = fd < 0 ? 0 : ioctl(fd, SCAN_REQUEST, &q);
    if (fd >= 0)
        close(fd);
    for (int i = 0; i < n; i++) {
        if (run[i].end - run[i].start > r->end - r->first) {
            r->first = run[i].start;
            r->end = run[i].end;
        }
    }
}

/* True if each of the huge pages has, or could have had, its place in memory. */
static bool is_touched(const struct tcp_mr *r)
{
    unsigned char there = 1;
    for (uintptr_t at = r->from; at < r->to; at += HUGE_PAGE)
        if (mincore((void *)at, SMALL_PAGE, &there) < 0 || !(there & 1))
            return false;
    return true;
}

/* Into huge pages, if the buffer is not in such. Its bytes and addresses stay as they are. Refused
 * before Linux 6.1, for memory that is pinned, and where there are no huge pages to be had. */
static bool move(const struct tcp_mr *r)
{
    return r->to - r->from <= MOVE_MAX && !huge_pages_are_off() &&
           madvise((void *)r->from, r->to - r->from, MADV_COLLAPSE) == 0;
}

int tcp_mem_reg(struct pvn_lane *l, struct pvn_mr *mr, int dmabuf_fd, uint64_t dmabuf_offset,
                struct pvn_err *err)
{
    const struct tcp_lane *t = tcp_of(l);
    struct tcp_mr r = room_for_huge_pages(mr);
    (void)dmabuf_fd;
    (void)dmabuf_offset;
    (void)err;
    mr->lane_mr[l->idx] = NULL;
    mr->rkey[l->idx] = 0;
    if (!t->cfg.sender || !t->zerocopy_min || mr->ptr_type != NCCL_PTR_HOST || r.to <= r.from)
        return 0;
    if (move(&r)) {
        r.first = r.from;
        r.end = r.to;
    } else {
        find_huge_pages(&r);
        /* Memory that has no pages yet cannot be moved; it gets huge ones when it is written to. */
        if (!is_touched(&r) && r.to - r.from <= MOVE_MAX &&
            madvise((void *)r.from, r.to - r.from, MADV_HUGEPAGE) == 0)
            r.looks = LOOKS;
    }
    if (r.end == r.first && !r.looks)
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

/* True if at least half of these bytes are in huge pages. */
static bool are_huge(const struct tcp_mr *r, uintptr_t at, size_t len)
{
    uintptr_t first = at > r->first ? at : r->first;
    uintptr_t end = at + len < r->end ? at + len : r->end;
    return end > first && end - first >= len / 2;
}

bool tcp_mem_zerocopy_pays(const struct tcp_lane *t, const struct pvn_write *w)
{
    if (!w->mr)
        return true; /* nothing is known of it */
    struct tcp_mr *known = w->mr->lane_mr[t->l.idx];
    if (!known)
        return false;
    if (are_huge(known, (uintptr_t)w->src, w->f.len))
        return true;
    if (__builtin_expect(known->looks == 0, 1))
        return false;
    known->looks--;
    find_huge_pages(known);
    return are_huge(known, (uintptr_t)w->src, w->f.len);
}
