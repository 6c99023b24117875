/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_pending.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "comm/plugin.h"

/* A hash table by cookie; pending_lock protects it and each entry's `next`, `busy` and `dropped`. */
enum { BUCKETS = 256 };
static pthread_mutex_t pending_lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm_pending *pending[BUCKETS];

struct comm_pending *comm_pending_new(const void *owner, struct pvn_err *err)
{
    struct comm_pending *p = calloc(1, sizeof(*p));
    struct comm_pending **first;

    if (!p)
        pvn_err_set(err, -ENOMEM, "no memory for a connection");
    if (!p || pvn_plugin_hold(err) != 0) {
        free(p);
        return NULL;
    }
    p->cookie = pvn_random64();
    p->owner = owner;
    p->busy = true;
    first = &pending[p->cookie % BUCKETS];
    pthread_mutex_lock(&pending_lock);
    p->next = *first;
    *first = p;
    pthread_mutex_unlock(&pending_lock);
    return p;
}

struct comm_pending *comm_pending_take(uint64_t cookie, bool *busy)
{
    struct comm_pending *p;

    *busy = false;
    if (cookie == 0)
        return NULL;
    pthread_mutex_lock(&pending_lock);
    for (p = pending[cookie % BUCKETS]; p && p->cookie != cookie; p = p->next)
        ;
    if (p && p->busy) {
        *busy = true;
        p = NULL;
    } else if (p) {
        p->busy = true;
    }
    pthread_mutex_unlock(&pending_lock);
    return p;
}

bool comm_pending_put(struct comm_pending *p)
{
    bool dropped;

    pthread_mutex_lock(&pending_lock);
    dropped = p->dropped;
    p->busy = dropped;
    pthread_mutex_unlock(&pending_lock);
    return !dropped;
}

void comm_pending_free(struct comm_pending *p)
{
    struct comm_pending **at;

    pthread_mutex_lock(&pending_lock);
    for (at = &pending[p->cookie % BUCKETS]; *at != p; at = &(*at)->next)
        ;
    *at = p->next;
    pthread_mutex_unlock(&pending_lock);
    free(p);
    pvn_plugin_release();
}

/* Removes all entries of this owner and links them by `next`, except those that a thread has taken, which
 * it marks as dropped. */
static struct comm_pending *take_all(const void *owner)
{
    struct comm_pending *taken = NULL;

    pthread_mutex_lock(&pending_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (struct comm_pending **at = &pending[i]; *at;) {
            struct comm_pending *p = *at;

            if (owner && p->owner != owner) {
                at = &p->next;
                continue;
            }
            if (p->busy) {
                p->dropped = true;
                at = &p->next;
                continue;
            }
            *at = p->next;
            p->next = taken;
            taken = p;
        }
    pthread_mutex_unlock(&pending_lock);
    return taken;
}

void comm_pending_drop(const void *owner)
{
    struct comm_pending *taken = take_all(owner);

    /* Without the lock, because closing a connection's lanes may block in an adapter. */
    while (taken) {
        struct comm_pending *p = taken;

        taken = p->next;
        pvn_info(PVN_NET, "finalize gives up connecting to %s, which connect had begun",
                 p->conn->who);
        pvn_conn_close(p->conn, "the connecting process has finalized the plugin");
        free(p);
        pvn_plugin_release();
    }
}

void comm_pending_after_fork(void)
{
    pthread_mutex_init(&pending_lock, NULL); /* another thread of the parent may have held it */
    memset(pending, 0, sizeof(pending));
}
