/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm's control connection is kept, whether or not anybody calls the comm: when it is lost, the
 * connector makes another one beside the lanes, which may still work, and the acceptor takes it.
 * Both ends do that on the plugin's answering thread (comm_failback.c). The comm's own thread, which may sleep
 * for hours, adopts the new one when it comes by (comm_ctrl.c); until then that connection is what
 * shows the peer that this process is there, so that no time limit of a failover runs out.
 *
 * Each attempt takes the next path (connect/paths.h), as a failover does. A connection names the one
 * whose control connection it replaces by its nonce, so one that was made too late, when a failover
 * has replaced the lanes as well, finds nothing to replace.
 *
 * A process that is stopped as a whole answers no HELLO. Its machine does, and acknowledges what
 * this end has sent.
 *
 * One lock for all. Under it connections are dialled and get their HELLO, which does not block; they
 * have no lanes.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/param.h"
#include "connect/path_watch.h"
#include "connect/retry.h"

/* A comm that is called makes another connection itself by then. */
#define DELAY_NS PVN_NS_PER_S

struct comm_keep {
    struct comm_keep *next;
    const struct pvn_comm *comm; /* what it was connected with does not change */
    /* The control connection in use; -1: it is not to be replaced. The comm's thread says here that it stops using it
     * before it closes it. */
    int fd;
    struct pvn_path_watch path;
    uint64_t nonce;        /* of its connection */
    uint64_t unanswered;   /* acceptor: of the one with which the peer may go on already; 0: none */
    struct pvn_conn *conn; /* connector: the attempt; at both ends, the result */
    uint64_t dead_ns;      /* when fd was found dead, 0: not */
    uint64_t began_ns, next_ns;
    unsigned attempt;
    atomic_bool ready; /* conn is for the comm to take */
    atomic_bool lives; /* the peer, or its machine at least */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct comm_keep *all;

/* True if poll reports one of these events, an error or the end; at once. */
static bool reports(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* The peer's machine has taken the HELLO. */
static bool is_acknowledged(const struct pvn_conn *conn)
{
    int unsent = 1;

    return conn->ctrl.tx_len == 0 && ioctl(conn->ctrl.fd, SIOCOUTQ, &unsent) == 0 && unsent == 0;
}

static void drop(struct comm_keep *k, uint64_t now)
{
    k->next_ns = now + pvn_retry_pause_ns(PVN_RETRY_CONTROL, 0);
    pvn_conn_close(k->conn, NULL);
    k->conn = NULL;
    atomic_store(&k->ready, false);
    atomic_store(&k->lives, false);
}

/* Connector. */
static void dial(struct comm_keep *k, uint64_t now)
{
    struct pvn_conn_cfg cfg;

    if (k->dead_ns == 0)
        k->dead_ns = now;
    if (now - k->dead_ns < DELAY_NS || now < k->next_ns)
        return;
    cfg = pvn_paths_next(&k->comm->link.paths, &k->attempt);
    cfg.resumes = k->nonce;
    cfg.control = true;
    k->conn = pvn_conn_new(&cfg);
    k->began_ns = now;
    k->attempt++;
}

static void step_dialled(struct comm_keep *k, uint64_t now)
{
    int rc = pvn_conn_step(k->conn);
    bool acknowledged = k->conn->state == PVN_CONN_HELLO && is_acknowledged(k->conn);

    atomic_store(&k->lives, acknowledged || k->conn->state == PVN_CONN_OFFER);
    if (k->conn->state == PVN_CONN_OFFER) {
        pvn_conn_confirm(k->conn);
        atomic_store(&k->ready, true);
    } else if (rc != -EAGAIN ||
               (!acknowledged && now - k->began_ns > pvn_retry_answer_ns(PVN_RETRY_CONTROL))) {
        drop(k, now);
    }
}

/* It has ended in order, and nothing waits to be read before that end. */
static bool hung_up(int fd)
{
    uint8_t byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* The control connection in use has ended, or its path is dead. */
static bool is_lost(struct comm_keep *k, uint64_t now)
{
    uint64_t limit = pvn_params_get()->tcp_user_timeout;

    return reports(k->fd, 0) || hung_up(k->fd) ||
           (limit && pvn_path_silent(&k->path, k->fd, now) >= limit);
}

static void step_sender(struct comm_keep *k, uint64_t now)
{
    if (!k->conn && k->fd >= 0 && (k->dead_ns || is_lost(k, now)))
        dial(k, now);
    if (k->conn)
        step_dialled(k, now);
}

/* One that is there already goes: the peer has lost it. */
static void step_receiver(struct comm_keep *k)
{
    struct pvn_conn *newer =
        k->fd < 0 ? NULL : pvn_listener_control(k->comm->link.keeper, k->nonce);

    if (!newer && k->fd >= 0 && k->unanswered)
        newer = pvn_listener_control(k->comm->link.keeper, k->unanswered);
    if (!newer)
        return;
    drop(k, 0);
    k->conn = newer;
    atomic_store(&k->lives, true);
    atomic_store(&k->ready, true);
}

bool comm_keep_step(void)
{
    uint64_t now = pvn_now_ns();
    bool busy = false;

    pthread_mutex_lock(&lock);
    for (struct comm_keep *k = all; k; k = k->next) {
        if (atomic_load(&k->ready) && reports(k->conn->ctrl.fd, POLLRDHUP))
            drop(k, now);
        if (!k->comm->link.sender)
            step_receiver(k);
        else if (!atomic_load(&k->ready))
            step_sender(k, now);
        busy |= k->conn && !atomic_load(&k->ready);
    }
    pthread_mutex_unlock(&lock);
    return busy;
}

bool comm_keep_any(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = all != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

void comm_keep_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    all = NULL;
}

/* ---- the comm's thread ---- */

void comm_keep_join(struct pvn_comm *c)
{
    struct comm_keep *k = pvn_conn_keeps(c->link.conn) ? calloc(1, sizeof(*k)) : NULL;

    if (!k)
        return;
    k->comm = c;
    k->fd = c->link.conn->ctrl.fd;
    k->nonce = c->link.conn->cfg.nonce;
    c->keep = k;
    pthread_mutex_lock(&lock);
    k->next = all;
    all = k;
    pthread_mutex_unlock(&lock);
}

void comm_keep_watch(struct pvn_comm *c, const struct pvn_conn *conn)
{
    struct comm_keep *k = c->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    drop(k, 0);
    k->fd = conn ? conn->ctrl.fd : -1;
    if (!conn || conn->cfg.nonce != k->nonce)
        k->unanswered = 0;
    k->nonce = conn ? conn->cfg.nonce : 0;
    k->path = (struct pvn_path_watch){0};
    k->dead_ns = k->next_ns = 0;
    k->attempt = 0;
    pthread_mutex_unlock(&lock);
}

void comm_keep_expect(struct pvn_comm *c, uint64_t nonce)
{
    struct comm_keep *k = c->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    k->unanswered = nonce;
    pthread_mutex_unlock(&lock);
}

struct pvn_conn *comm_keep_take(struct pvn_comm *c)
{
    struct comm_keep *k = c->keep;
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

bool comm_keep_lives(const struct pvn_comm *c)
{
    return c->keep && atomic_load(&c->keep->lives);
}

void comm_keep_leave(struct pvn_comm *c)
{
    struct comm_keep *k = c->keep;

    if (!k)
        return;
    pthread_mutex_lock(&lock);
    for (struct comm_keep **at = &all; *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            break;
        }
    drop(k, 0);
    pthread_mutex_unlock(&lock);
    c->keep = NULL;
    free(k);
}
