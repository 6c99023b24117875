/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_priv.h"
#include "connect/link_failover.h"

void comm_mr_detach_some(struct pvn_comm_mr *m, struct pvn_conn *conn, int lanes)
{
    while (lanes-- > 0) {
        struct pvn_lane *l = conn->lane[lanes];

        if (m->mr.lane_mr[lanes])
            l->ops->mem_dereg(l, &m->mr);
    }
}

void comm_mr_detach(struct pvn_comm_mr *m)
{
    if (m->on)
        comm_mr_detach_some(m, m->on, m->on->nlanes);
    m->on = NULL;
}

void comm_mr_detach_all(struct pvn_comm *c, const struct pvn_conn *conn)
{
    for (struct pvn_comm_mr *m = c->mem.mrs; m; m = m->next)
        if (m->on == conn)
            comm_mr_detach(m);
}

/* Revokes the bytes in [from, to), except those that `others`, a list of registrations, have as
 * well. */
static void revoke(const struct pvn_conn *conn, uintptr_t from, uintptr_t to,
                   const struct pvn_comm_mr *others)
{
    for (; others && from < to; others = others->next) {
        uintptr_t begin = (uintptr_t)others->mr.addr, end = begin + others->mr.len;

        if (end <= from || begin >= to)
            continue;
        if (begin > from)
            revoke(conn, from, begin, others->next);
        from = end;
    }
    if (from >= to)
        return;
    for (int i = 0; i < conn->nlanes; i++)
        conn->lane[i]->ops->mem_revoke(conn->lane[i], (const void *)from, to - from);
}

void comm_mr_revoke(const struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    uintptr_t from = (uintptr_t)m->mr.addr;

    if (m->on)
        revoke(m->on, from, from + m->mr.len, c->mem.mrs);
}

void comm_mr_detach_next(struct pvn_comm *c)
{
    if (!c->link.failover)
        return;
    pthread_mutex_lock(&c->mem.lock);
    comm_mr_detach_all(c, c->link.failover->next);
    c->mem.taker = NULL;
    pthread_mutex_unlock(&c->mem.lock);
}
