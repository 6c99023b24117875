/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The choice among a lane's queue pairs; see rdma_path.h. */
#include "net-pvrdma/rdma_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SMOOTH = 2 }; /* smoothing: a new measurement has the weight 1 / SMOOTH */

int rdma_paths_open(struct rdma_lane *r)
{
    if (!r->cfg.sender || r->nqps == 1)
        return 0;
    r->paths = calloc((size_t)r->nqps, sizeof(*r->paths));
    r->tx.least_cost = 1;
    return r->paths ? 0 : rdma_dead(r, -ENOMEM, "allocating the state of its paths");
}

void rdma_path_posted(struct rdma_lane *r, int k, uint32_t bytes)
{
    struct rdma_path *p = &r->paths[k];
    uint64_t now = r->tx.picked_ns;
    p->posted_ns = now;
    p->flight[p->tail++ % RECORD_RING] =
        (struct rdma_flight){.posted_ns = now, .chunk = r->qp[k].posted, .bytes = bytes};
    p->free_ns = (p->free_ns > now ? p->free_ns : now) + rdma_path_takes(r, p, bytes, 1);
    p->outstanding += bytes;
    p->sent += bytes;
}

/* Adds a measurement: chunks of weight w were delivered in ns of the path's busy time. */
static void measured(struct rdma_lane *r, struct rdma_path *p, uint64_t ns, uint64_t w)
{
    uint64_t cost = ns * 1024 / w + 1, least = UINT64_MAX;
    p->cost = p->cost ? (p->cost * (SMOOTH - 1) + cost) / SMOOTH : cost;
    for (int k = 0; k < r->nqps; k++)
        if (r->paths[k].cost && r->paths[k].cost < least)
            least = r->paths[k].cost;
    r->tx.least_cost = least;
}

/* A busy period of the path: the last chunks of one acknowledgement that followed each other without a gap. */
struct busy {
    uint64_t from_ns, until_ns; /* begin, and the end that the path's cost predicts */
    uint64_t weight;
};

static void one_more(struct busy *b, const struct rdma_path *p, const struct rdma_flight *f)
{
    uint64_t w = rdma_path_weight(f->bytes, 1);
    if (f->posted_ns > b->until_ns) {
        b->from_ns = b->until_ns = f->posted_ns;
        b->weight = 0;
    }
    b->until_ns += w * p->cost / 1024;
    b->weight += w;
}

void rdma_path_acked(struct rdma_lane *r, int k, uint64_t arrived_ns)
{
    struct rdma_path *p = &r->paths[k];
    struct busy b = {.from_ns = p->arrived_ns, .until_ns = p->arrived_ns};
    uint32_t before = p->head;
    for (; p->head != p->tail; p->head++) {
        const struct rdma_flight *f = &p->flight[p->head % RECORD_RING];
        if ((int32_t)(r->qp[k].acked - f->chunk) < 0)
            break;
        one_more(&b, p, f);
        p->outstanding -= f->bytes;
    }
    if (p->head == before)
        return;
    if (arrived_ns > b.from_ns)
        measured(r, p, arrived_ns - b.from_ns, b.weight);
    p->arrived_ns = arrived_ns;
    p->free_ns = arrived_ns + rdma_path_takes(r, p, p->outstanding, p->tail - p->head);
}

static int append_number(char *buf, size_t cap, int len, const char *what, uint64_t n)
{
    size_t at = len >= 0 && (size_t)len < cap ? (size_t)len : cap;
    return len + snprintf(buf + at, cap - at, "%s%llu", what, (unsigned long long)n);
}

int rdma_paths_describe(const struct rdma_lane *r, char *buf, size_t cap, int len)
{
    uint64_t sent = 0;
    for (int k = 0; r->paths && k < r->nqps; k++)
        sent += r->paths[k].sent;
    if (sent == 0)
        return len;
    for (int k = 0; k < r->nqps; k++)
        len = append_number(buf, cap, len, k ? "/" : ", shares ",
                            (100 * r->paths[k].sent + sent / 2) / sent);
    for (int k = 0; k < r->nqps; k++)
        len = append_number(buf, cap, len, k ? "/" : " %, outstanding bytes ",
                            r->paths[k].outstanding);
    return len;
}
