/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A listener's members, and the connections that it sets aside to be closed. */
#include "config.h"
#include "connect/listener_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

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

void listener_note_unproved(struct pvn_listener *l, const struct sockaddr_storage *peer,
                            const char *why)
{
    char addr[PVN_ADDR_TEXT_LEN];

    if (l->stats.unproved++ > 0) {
        pvn_trace(PVN_NET, "%s: refused a peer: %s", l->cfg.dev->name, why);
        return;
    }
    pvn_addr_format((const struct sockaddr *)peer, addr, sizeof(addr));
    if (asprintf(&l->unproved, "one at %s was refused: %s", addr, why) < 0)
        l->unproved = NULL;
    pvn_warn(
        "%s: a connection that knows this listener was refused: %s; peer %s; all ranks of a job need "
        "the same NCCL_PVRDMA_KEY_FILE, or none; further ones are counted only",
        l->cfg.dev->name, why, addr);
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

/* Sets aside the connections for comm `id` that came before conn, which takes over. The peer has
 * given them up, even if their sockets still look open from here. */
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
