/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The number of messages that a comm has received, for the HELLO to a peer that connects again. Any thread
 * may query it, with a listener's lock held or not, and also after the comm was closed.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <stdlib.h>

struct closed_comm {
    struct closed_comm *next;
    uint64_t id, received;
};

static pthread_mutex_t ids_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_comm *ids; /* every comm that is driven */
static struct closed_comm *closed;

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
    for (const struct closed_comm *c = closed; c; c = c->next)
        if (c->id == id)
            n = c->received;
    pthread_mutex_unlock(&ids_lock);
    return n;
}

bool comm_received_keep(uint64_t id, uint64_t received)
{
    struct closed_comm *c = malloc(sizeof(*c));

    if (!c)
        return false;
    pthread_mutex_lock(&ids_lock);
    *c = (struct closed_comm){closed, id, received};
    closed = c;
    pthread_mutex_unlock(&ids_lock);
    return true;
}

void comm_received_forget(uint64_t id)
{
    pthread_mutex_lock(&ids_lock);
    for (struct closed_comm **at = &closed; *at; at = &(*at)->next)
        if ((*at)->id == id) {
            struct closed_comm *c = *at;

            *at = c->next;
            free(c);
            break;
        }
    pthread_mutex_unlock(&ids_lock);
}

void comm_received_after_fork(void)
{
    pthread_mutex_init(&ids_lock, NULL);
    ids = NULL;
    closed = NULL;
}
