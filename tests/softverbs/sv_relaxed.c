/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory registered with relaxed ordering, on an adapter that makes use of it (`set relaxed_ordering 2`). Writes
 * there are held back for as long as they may be, and are placed in reverse order.
 *
 * A write may be held back until something guarantees that it is visible. For host memory that is a completion of the
 * receiving queue pair, or a READ of host memory. A completion goes to host memory and pushes no write to a GPU, so
 * for GPU memory it is only a READ of GPU memory. Later writes push nothing, because relaxed ordering gives that up.
 */
#include "sv_int.h"

#include <stdlib.h>
#include <string.h>

struct sv_held {
    struct sv_held *next;
    const struct sv_qp *qp;
    const struct sv_mr *mr;
    char *to;
    size_t len;
    char data[];
};

static bool of_gpu(const struct sv_mr *mr)
{
    return mr->mapped || mr->device;
}

bool sv_relaxed_hold(const struct sv_qp *qp, const struct sv_mr *mr, char *to, const char *data,
                     size_t len)
{
    if (sv.p.relaxed_ordering != SV_RELAXED_USED || !(mr->access & IBV_ACCESS_RELAXED_ORDERING))
        return false;
    struct sv_held *h = malloc(sizeof *h + len);
    if (!h)
        abort();
    *h = (struct sv_held){.next = sv.relaxed, .qp = qp, .mr = mr, .to = to, .len = len};
    memcpy(h->data, data, len);
    sv.relaxed = h;
    sv.relaxed_held++;
    return true;
}

/* Places the pieces that the arguments select; NULL selects all. kind 0: host memory, 1: GPU
 * memory, -1: both. */
static void land(const struct sv_dev *dev, const struct sv_qp *qp, const struct sv_mr *mr, int kind)
{
    for (struct sv_held **at = &sv.relaxed, *h; (h = *at) != NULL;) {
        if ((dev && sv_ctx_of(h->qp->ibv.context)->dev != dev) || (qp && h->qp != qp) ||
            (mr && h->mr != mr) || (kind >= 0 && of_gpu(h->mr) != (kind == 1))) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        if (!h->mr->lost && !h->mr->taken)
            sv_hooks.put(h->to, h->data, h->len);
        free(h);
    }
}

void sv_relaxed_completion(const struct sv_qp *qp)
{
    land(NULL, qp, NULL, 0);
}

void sv_relaxed_read(const struct sv_qp *qp, const struct sv_mr *mr)
{
    land(sv_ctx_of(qp->ibv.context)->dev, NULL, NULL, of_gpu(mr));
}

void sv_relaxed_qp_ends(const struct sv_qp *qp)
{
    land(NULL, qp, NULL, -1);
}

void sv_relaxed_mr_ends(const struct sv_mr *mr)
{
    land(NULL, NULL, mr, -1);
}

void sv_relaxed_release(void)
{
    land(NULL, NULL, NULL, -1);
}
