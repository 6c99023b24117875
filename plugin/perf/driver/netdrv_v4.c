/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/driver/netdrv_v4.h"

#include <pthread.h>
#include <stdlib.h>

struct call {
    struct call *next;
    struct pvn_netdrv_v4 *owner;
    void *key; /* the handle of a connect, the listen comm of an accept */
    int dev;
    int is_connect;
    int done;
    ncclResult_t rc;
    void *comm;
    pthread_t thread;
};

struct pvn_netdrv_v4 {
    const ncclNet_v4_t *net;
    pthread_mutex_t lock; /* guards the list, and done, rc and comm of its calls */
    struct call *calls;
};

struct pvn_netdrv_v4 *pvn_netdrv_v4_new(const ncclNet_v4_t *net)
{
    struct pvn_netdrv_v4 *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->net = net;
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

void pvn_netdrv_v4_free(struct pvn_netdrv_v4 *p)
{
    if (!p)
        return;
    while (p->calls) {
        struct call *c = p->calls;

        p->calls = c->next;
        pthread_join(c->thread, NULL);
        free(c);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void *run_call(void *arg)
{
    struct call *c = arg;
    void *comm = NULL;
    ncclResult_t rc;

    if (c->is_connect)
        rc = c->owner->net->connect(c->dev, c->key, &comm);
    else
        rc = c->owner->net->accept(c->key, &comm);
    pthread_mutex_lock(&c->owner->lock);
    c->rc = rc;
    c->comm = comm;
    c->done = 1;
    pthread_mutex_unlock(&c->owner->lock);
    return NULL;
}

static ncclResult_t start_call(struct pvn_netdrv_v4 *p, int is_connect, int dev, void *key)
{
    struct call *c = calloc(1, sizeof(*c));

    if (!c)
        return ncclSystemError;
    c->owner = p;
    c->key = key;
    c->dev = dev;
    c->is_connect = is_connect;
    if (pthread_create(&c->thread, NULL, run_call, c)) {
        free(c);
        return ncclSystemError;
    }
    c->next = p->calls;
    p->calls = c;
    return ncclSuccess;
}

static ncclResult_t poll_call(struct pvn_netdrv_v4 *p, int is_connect, int dev, void *key,
                              void **comm)
{
    ncclResult_t rc = ncclSuccess;
    struct call **at, *c;

    *comm = NULL;
    pthread_mutex_lock(&p->lock);
    for (at = &p->calls; (c = *at); at = &c->next)
        if (c->key == key && c->is_connect == is_connect)
            break;
    if (!c)
        rc = start_call(p, is_connect, dev, key);
    else if (!c->done)
        c = NULL;
    else
        *at = c->next;
    pthread_mutex_unlock(&p->lock);
    if (c) {
        pthread_join(c->thread, NULL);
        rc = c->rc;
        *comm = c->comm;
        free(c);
    }
    return rc;
}

ncclResult_t pvn_netdrv_v4_connect(struct pvn_netdrv_v4 *p, int dev, void *handle, void **send_comm)
{
    return poll_call(p, 1, dev, handle, send_comm);
}

ncclResult_t pvn_netdrv_v4_accept(struct pvn_netdrv_v4 *p, void *listen_comm, void **recv_comm)
{
    return poll_call(p, 0, 0, listen_comm, recv_comm);
}
