/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of messages that a comm has received, for the HELLO to a peer that connects again. Any thread
 * may query it, with a listener's lock held or not, and also after the comm was closed.
 */
#include "config.h"
#include "comm/comm_priv.h"
#include "connect/link_back.h"

static pthread_mutex_t ids_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *ids; /* every comm that is driven */

void comm_received_join(struct pvn_comm *c)
{
    pthread_mutex_lock(&ids_lock);
    c->lists.of_ids = ids;
    ids = c;
    pthread_mutex_unlock(&ids_lock);
}

void comm_received_leave(struct pvn_comm *c)
{
    pthread_mutex_lock(&ids_lock);
    for (struct pvn_comm **at = &ids; *at; at = &(*at)->lists.of_ids)
        if (*at == c) {
            *at = c->lists.of_ids;
            break;
        }
    pthread_mutex_unlock(&ids_lock);
}

uint64_t comm_received(uint64_t id)
{
    uint64_t n = 0;

    pthread_mutex_lock(&ids_lock);
    for (const struct pvn_comm *c = ids; c; c = c->lists.of_ids)
        if (c->link.id == id && !c->link.sender)
            n = pvn_engine_received(c->engine);
    pthread_mutex_unlock(&ids_lock);
    return n ? n : pvn_link_back_received(id);
}

void comm_received_after_fork(void)
{
    pthread_mutex_init(&ids_lock, NULL);
    ids = NULL;
}
