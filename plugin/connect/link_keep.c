/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* One lock for all links. Connections are dialled and get their HELLO with the lock held: they have
 * no lanes, so that does not block. */
#include "config.h"
#include "connect/link_keep.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/param.h"
#include "connect/handshake.h"
#include "connect/listener.h"
#include "connect/path_watch.h"
#include "connect/retry.h"

/* A comm that is called makes another connection itself within this time. */
#define DELAY_NS PVN_NS_PER_S

struct pvn_link_keep {
    struct pvn_link_keep *next;
    /* The answering thread reads its sender and keeper, and of its paths the fields that paths.h
     * names. */
    const struct pvn_link *link;
    /* The control connection in use; -1: it is not replaced. The comm's thread changes this before
     * it closes the socket. */
    int fd;
    struct pvn_path_watch path;
    uint64_t nonce;        /* of its connection */
    uint64_t unanswered;   /* acceptor: another nonce that the peer may name (expect); 0: none */
    struct pvn_conn *conn; /* the new control connection; connector: from its first attempt on */
    uint64_t dead_ns;      /* when fd was found dead, 0: not */
    uint64_t began_ns, next_ns;
    unsigned attempt;
    atomic_bool ready; /* the comm may take conn */
    atomic_bool lives; /* the peer, or its machine, has shown that it is there */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_link_keep *all;

/* True if poll reports one of these events, an error or the end. Does not wait. */
static bool reports(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* True if the peer's machine has acknowledged the HELLO, or with a key the bytes before it. */
static bool is_acknowledged(const struct pvn_conn *conn)
{
    int unsent = 1;

    return conn->ctrl.tx_len == 0 && ioctl(conn->ctrl.fd, SIOCOUTQ, &unsent) == 0 && unsent == 0;
}

static void drop(struct pvn_link_keep *k, uint64_t now)
{
    k->next_ns = now + pvn_retry_pause_ns(PVN_RETRY_CONTROL, 0);
    pvn_conn_close(k->conn, NULL);
    k->conn = NULL;
    atomic_store(&k->ready, false);
    atomic_store(&k->lives, false);
}

/* Connector: begins an attempt when it is time for one. */
static void dial(struct pvn_link_keep *k, uint64_t now)
{
    struct pvn_conn_cfg cfg;

    if (k->dead_ns == 0)
        k->dead_ns = now;
    if (now - k->dead_ns < DELAY_NS || now < k->next_ns)
        return;
    cfg = pvn_paths_next(&k->link->paths, &k->attempt);
    cfg.resumes = k->nonce;
    cfg.control = true;
    k->conn = pvn_conn_new(&cfg);
    k->began_ns = now;
    k->attempt++;
}

static void step_dialled(struct pvn_link_keep *k, uint64_t now)
{
    int rc = pvn_conn_step(k->conn);
    bool waits = k->conn->state == PVN_CONN_SEAL || k->conn->state == PVN_CONN_HELLO;
    bool acknowledged = waits && is_acknowledged(k->conn);

    atomic_store(&k->lives, acknowledged || k->conn->state == PVN_CONN_OFFER);
    if (k->conn->state == PVN_CONN_OFFER) {
        pvn_conn_confirm(k->conn);
        atomic_store(&k->ready, true);
    } else if (rc != -EAGAIN ||
               (!acknowledged && now - k->began_ns > pvn_retry_answer_ns(PVN_RETRY_CONTROL))) {
        drop(k, now);
    }
}

/* True if the connection has ended in order, and all that came before the end has been read. Reads
 * nothing itself: a socket reports an error to one call only, and that call must be the comm's,
 * which would take a mere end of stream for the end of the peer's process. */
static bool hung_up(int fd)
{
    int unread = 1;

    return reports(fd, POLLRDHUP) && ioctl(fd, SIOCINQ, &unread) == 0 && unread == 0;
}

/* True if the control connection in use has ended, or its path is dead. */
static bool is_lost(struct pvn_link_keep *k, uint64_t now)
{
    uint64_t limit = pvn_path_limit(true);

    return reports(k->fd, 0) || hung_up(k->fd) ||
           (limit && pvn_path_silent(&k->path, k->fd, now) >= limit);
}

static void step_sender(struct pvn_link_keep *k, uint64_t now)
{
    if (!k->conn && k->fd >= 0 && (k->dead_ns || is_lost(k, now)))
        dial(k, now);
    if (k->conn)
        step_dialled(k, now);
}

/* Takes a newer control connection from the listener. One that is there already is closed, because
 * the peer has lost it. */
static void step_receiver(struct pvn_link_keep *k)
{
    struct pvn_conn *newer = k->fd < 0 ? NULL : pvn_listener_control(k->link->keeper, k->nonce);

    if (!newer && k->fd >= 0 && k->unanswered)
        newer = pvn_listener_control(k->link->keeper, k->unanswered);
    if (!newer)
        return;
    drop(k, 0);
    k->conn = newer;
    atomic_store(&k->lives, true);
    atomic_store(&k->ready, true);
}

bool pvn_link_keep_step(void)
{
    uint64_t now = pvn_now_ns();
    bool busy = false;

    pthread_mutex_lock(&lock);
    for (struct pvn_link_keep *k = all; k; k = k->next) {
        if (atomic_load(&k->ready) && reports(k->conn->ctrl.fd, POLLRDHUP))
            drop(k, now);
        if (!k->link->sender)
            step_receiver(k);
        else if (!atomic_load(&k->ready))
            step_sender(k, now);
        busy |= k->conn && !atomic_load(&k->ready);
    }
    pthread_mutex_unlock(&lock);
    return busy;
}

void pvn_link_keep_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    all = NULL;
}

/* ---- the comm's thread ---- */

void pvn_link_keep_join(struct pvn_link *l)
{
    struct pvn_link_keep *k = pvn_conn_keeps(l->conn) ? calloc(1, sizeof(*k)) : NULL;

    if (!k)
        return;
    k->link = l;
    k->fd = l->conn->ctrl.fd;
    k->nonce = l->conn->cfg.nonce;
    l->keep = k;
    pthread_mutex_lock(&lock);
    k->next = all;
    all = k;
    pthread_mutex_unlock(&lock);
}

void pvn_link_keep_watch(struct pvn_link *l)
{
    struct pvn_link_keep *k = l->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    drop(k, 0);
    k->fd = l->conn->ctrl.fd;
    if (l->conn->cfg.nonce != k->nonce)
        k->unanswered = 0;
    k->nonce = l->conn->cfg.nonce;
    k->path = (struct pvn_path_watch){0};
    k->dead_ns = k->next_ns = 0;
    k->attempt = 0;
    pthread_mutex_unlock(&lock);
}

void pvn_link_keep_expect(struct pvn_link *l, uint64_t nonce)
{
    struct pvn_link_keep *k = l->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    k->unanswered = nonce;
    pthread_mutex_unlock(&lock);
}

/* Takes the new control connection if it is ready and alive; NULL: it is not. */
static struct pvn_conn *take_ready(struct pvn_link *l)
{
    struct pvn_link_keep *k = l->keep;
    struct pvn_conn *conn = NULL;

    if (!k || !atomic_load(&k->ready))
        return NULL;
    pthread_mutex_lock(&lock);
    /* It may have been lost since the thread looked. */
    if (atomic_load(&k->ready) && !reports(k->conn->ctrl.fd, POLLRDHUP)) {
        conn = k->conn;
        k->conn = NULL;
        k->fd = -1;
        atomic_store(&k->ready, false);
    }
    pthread_mutex_unlock(&lock);
    return conn;
}

bool pvn_link_keep_adopt(struct pvn_link *l)
{
    struct pvn_conn *next = take_ready(l);

    if (!next)
        return false;
    pvn_conn_replace_control(l->conn, next);
    pvn_conn_close(next, NULL);
    pvn_link_keep_watch(l);
    pvn_err_clear(&l->ctrl_err);
    if (l->state == PVN_LINK_ALONE)
        pvn_warn("%s %s %s: the control connection is there again after %.3f s", l->conn->where,
                 l->sender ? "to" : "from", l->conn->who,
                 (double)(pvn_now_ns() - l->since_ns) / PVN_NS_PER_S);
    pvn_link_note(l, PVN_LINK_CTRL_BACK);
    return true;
}

bool pvn_link_keep_lives(const struct pvn_link *l)
{
    return l->keep && atomic_load(&l->keep->lives);
}

void pvn_link_keep_leave(struct pvn_link *l)
{
    struct pvn_link_keep *k = l->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    for (struct pvn_link_keep **at = &all; *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            break;
        }
    drop(k, 0);
    pthread_mutex_unlock(&lock);
    l->keep = NULL;
    free(k);
}
