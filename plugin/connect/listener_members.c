/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A listener's members, and the connections that it sets aside. */
#include "config.h"
#include "connect/listener_priv.h"

#include <stdlib.h>

struct member *listener_find(struct pvn_listener *l, uint64_t nonce)
{
    struct member *m;

    for (m = l->members; m; m = m->next)
        if (m->conn->cfg.nonce == nonce)
            return m;
    return NULL;
}

struct pvn_conn *listener_remove(struct pvn_listener *l, struct member **at)
{
    struct member *m = *at;
    struct pvn_conn *c = m->conn;

    *at = m->next;
    free(m);
    return c;
}

void listener_set_aside(struct pvn_listener *l, struct member **at, const char *why)
{
    pvn_conn_set_aside(&l->aside, listener_remove(l, at), why);
}

void listener_unlock(struct pvn_listener *l)
{
    struct pvn_conn *gone = pvn_conn_take_aside(&l->aside, true);

    pthread_mutex_unlock(&l->lock);
    pvn_conn_close_aside(gone);
}

void listener_unlock_answering(struct pvn_listener *l)
{
    struct pvn_conn *gone = pvn_conn_take_aside(&l->aside, false);

    pthread_mutex_unlock(&l->lock);
    pvn_conn_close_aside(gone);
}

/* conn takes over: those of its comm that came before it were given up by their maker, whatever
 * their sockets look like from here. */
static void close_older(struct pvn_listener *l, uint64_t id, const struct pvn_conn *conn)
{
    for (struct member **at = &l->members; *at && (*at)->conn != conn;) {
        struct member *m = *at;

        if (!m->given && m->conn->theirs.resumes == id)
            listener_set_aside(l, at, NULL);
        else
            at = &m->next;
    }
}

void listener_take_out(struct pvn_listener *l, const struct pvn_conn *conn, uint64_t id)
{
    struct member **at = &l->members;

    if (id)
        close_older(l, id, conn);
    while (*at && (*at)->conn != conn)
        at = &(*at)->next;
    if (*at)
        listener_remove(l, at);
}
