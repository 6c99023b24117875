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

void comm_mr_detach_next(struct pvn_comm *c)
{
    if (!c->link.failover)
        return;
    pthread_mutex_lock(&c->mem.lock);
    comm_mr_detach_all(c, c->link.failover->next);
    pthread_mutex_unlock(&c->mem.lock);
}
