/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_pending.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "comm/device.h"
#include "comm/profile.h"
#include "connect/link_back.h"
#include "connect/link_failover.h"
#include "connect/route.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/plugin.h"
#include "seal/seal_begin.h"

/* Each lane lowers this to its own chunk size (max_chunk). */
enum { CHUNK_MAX = 64 << 20 };
/* Payload of unexpected messages, which wait for a receive with their tag. NCCL's own use stays far
 * below. */
enum { UNEXPECTED_BYTES_MAX = 64 << 20 };

#define LISTEN_MAGIC UINT32_C(0x50564e4c)

struct pvn_listen {
    uint32_t magic;
    unsigned epoch;
    unsigned users; /* calls that are using it */
    struct pvn_listener *listener;
    const void *owner;
    struct pvn_listen *next;
};

/* All open listeners, a hash table by address. A handle is looked up here before it is used,
 * because a finalize may have closed it. */
enum { BUCKETS = 256 };
static pthread_mutex_t listens_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_listen *listens[BUCKETS];

/* Addresses may be a power of two apart, which a multiplication spreads (by the golden ratio: Knuth). */
static struct pvn_listen **bucket_of(const struct pvn_listen *l)
{
    return &listens[((uintptr_t)l * UINT64_C(0x9e3779b97f4a7c15) >> 32) % BUCKETS];
}

static int report(struct pvn_err *err)
{
    const struct pvn_err *refusal = pvn_seal_refusal();

    if (refusal && strcmp(refusal->reason[0], err->reason[0]) == 0)
        pvn_seal_warn_refusal();
    else
        pvn_warn_err(err);
    return err->code;
}

static int find_device(int dev, const struct pvn_device **out, struct pvn_err *err)
{
    int rc = pvn_plugin_ready(err);

    if (rc)
        return rc;
    *out = pvn_device_get(dev);
    if (*out)
        return 0;
    pvn_err_set(err, -EINVAL, "no device %d: there are %d", dev, pvn_devices_count());
    pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
    return err->code;
}

static int ports(const struct pvn_device *dev, const struct pvn_device **port)
{
    int i;

    for (i = 0; i < dev->nmembers; i++)
        port[i] = pvn_device_get(dev->members[i]);
    return dev->nmembers;
}

/* True if the comms of this device outlive their lanes. With NCCL_PVRDMA_STRICT the first loss is
 * an error. */
static bool failover_requested(const struct pvn_device *dev)
{
    const struct pvn_params *p = pvn_params_get();
    const struct pvn_device *other;

    if (p->strict || p->failover >= 0)
        return !p->strict && p->failover;
    return !dev->via[0].ops->is_fallback || pvn_devices_beside(dev, &other, 1) > 0;
}

/* True if ranks may share the comms of this device. NCCL's v4 interface has no tags. */
static bool may_be_shared(const struct pvn_comm_cfg *cfg, const struct pvn_device *dev)
{
    return !cfg->lazy && dev->max_recvs > 1 && pvn_params_get()->shared_comms;
}

static struct pvn_comm *comm_new(struct pvn_conn *conn, bool sender, struct pvn_err *err)
{
    struct pvn_comm *c = calloc(1, sizeof(*c));

    if (!c)
        pvn_err_set(err, -ENOMEM, "no memory for a comm");
    if (!c || pvn_plugin_hold(err) != 0) {
        free(c);
        return NULL;
    }
    c->magic = COMM_MAGIC;
    c->epoch = pvn_fork_epoch();
    c->sends = c->receives = NO_EPOCH;
    c->tests = c->epoch;
    c->link.sender = sender;
    c->link.conn = conn;
    c->link.id = conn->cfg.nonce;
    c->dev = conn->cfg.dev;
    pthread_mutex_init(&c->mem.lock, NULL);
    return c;
}

static uint64_t now_for_engine(void *ctx)
{
    (void)ctx;
    return pvn_now_ns();
}

/* True if the comm keeps copies of small messages. These are sent again without a registration, and
 * by the plugin's thread, which calls no adapter. So only processes without adapters keep them. */
static bool keeps_small(const struct pvn_comm *c)
{
    return c->link.sender && pvn_conn_failover(c->link.conn) && !pvn_devices_have_adapters();
}

static int start_engine(struct pvn_comm *c)
{
    struct pvn_engine_cfg cfg = {.sender = c->link.sender,
                                 .nlanes = c->link.conn->nlanes,
                                 .chunk = CHUNK_MAX,
                                 .unexpected_max = UNEXPECTED_BYTES_MAX,
                                 .now = now_for_engine,
                                 .owner = c,
                                 .outlives_lanes = pvn_conn_failover(c->link.conn),
                                 .keeps = keeps_small(c) && comm_help_new(c)};
    const struct pvn_device *beside[PVN_MAX_DEVICES];
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_engine *engine;
    int rc;

    memcpy(cfg.lanes, c->link.conn->lane, sizeof(cfg.lanes));
    c->profile = pvn_profile_of(c->link.conn);
    engine = pvn_engine_new(&cfg);
    if (!engine) {
        pvn_err_set(&err, -errno, "the message engine could not be made");
        return comm_fail(c, &err);
    }
    pthread_mutex_lock(&c->mem.lock);
    c->engine = engine;
    rc = comm_mr_attach_all(c, c->link.conn, &err);
    pthread_mutex_unlock(&c->mem.lock);
    if (rc)
        return comm_fail(c, &err);
    c->tests = c->help ? NO_EPOCH : c->epoch;
    pvn_paths_init(&c->link.paths, c->link.conn, c->link.id, beside,
                   pvn_devices_beside(c->dev, beside, PVN_MAX_DEVICES));
    c->lists.driven = pvn_conn_failover(c->link.conn);
    for (int i = 0; i < c->link.conn->nlanes; i++)
        c->lists.driven |= (c->link.conn->lane[i]->caps & PVN_LANE_SENT_IS_COPIED) != 0;
    if (c->lists.driven)
        comm_attend_join(c);
    comm_live_join(c);
    if (c->stats.live)
        comm_workers_show();
    comm_note(c, PVN_LINK_CAME_UP);
    if (c->help)
        comm_help_join(c);
    return 0;
}

int comm_come_up(struct pvn_comm *c)
{
    int rc = c->link.listener ? pvn_listener_step(c->link.listener, c->link.conn)
                              : pvn_conn_step(c->link.conn);

    if (rc == -EAGAIN)
        return rc;
    if (c->link.listener) {
        pvn_listener_leave(c->link.listener, c->link.conn);
        c->link.listener = NULL;
    }
    return rc ? comm_fail(c, &c->link.conn->err) : start_engine(c);
}

/* Has the plugin's threads keep a comm connected that is up. An acceptor's has its keeper. */
static void keep_connected(struct pvn_comm *c)
{
    if (!pvn_conn_failover(c->link.conn))
        return;
    c->link.served = comm_workers_join();
    pvn_link_keep_join(&c->link);
    pvn_link_back_start(&c->link);
}

/* Refuses a key that cannot be used, or not by this interface. A lazy acceptor waits for the HELLO
 * within accept. With a key, that needs steps of the connector, which may be waiting likewise: in a
 * ring, each rank for the next one. */
static int check_key(const struct pvn_comm_cfg *cfg, struct pvn_err *err)
{
    const struct pvn_err *refusal = pvn_seal_refusal();

    if (refusal) {
        *err = *refusal;
        return err->code;
    }
    if (!cfg->lazy || !pvn_seal_key())
        return 0;
    pvn_err_set(
        err, -EOPNOTSUPP,
        "NCCL_PVRDMA_KEY_FILE needs version 5 of NCCL's interface or a later one (NCCL 2.12): "
        "this NCCL uses version 4");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return err->code;
}

/* ---- listen, accept ---- */

int pvn_comm_listen(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_listen **out,
                    struct pvn_err *err)
{
    struct pvn_listener_cfg lc = {.traffic_class = cfg->traffic_class, .lazy = cfg->lazy};
    struct pvn_listen *l;

    *out = NULL;
    if (find_device(cfg->dev, &lc.dev, err) != 0 || check_key(cfg, err) != 0)
        return report(err);
    l = calloc(1, sizeof(*l));
    if (!l) {
        pvn_err_set(err, -ENOMEM, "no memory for a listener");
        return report(err);
    }
    lc.nports = ports(lc.dev, lc.port);
    lc.received = comm_received;
    lc.key = pvn_seal_key();
    lc.shared = may_be_shared(cfg, lc.dev);
    lc.failover = failover_requested(lc.dev);
    lc.nothers = pvn_devices_beside(lc.dev, lc.other, PVN_OTHER_ADDRS);
    if (pvn_plugin_hold(err) != 0) {
        free(l);
        return report(err);
    }
    if (pvn_listener_open(&lc, handle, &l->listener, err) != 0) {
        free(l);
        pvn_plugin_release();
        return report(err);
    }
    l->magic = LISTEN_MAGIC;
    l->epoch = pvn_fork_epoch();
    l->owner = cfg->owner;
    pthread_mutex_lock(&listens_lock);
    l->next = *bucket_of(l);
    *bucket_of(l) = l;
    pthread_mutex_unlock(&listens_lock);
    *out = l;
    return 0;
}

/* The link to the listener in its list, or to NULL if it is not open. The caller holds the lock. */
static struct pvn_listen **find(const struct pvn_listen *l)
{
    struct pvn_listen **at = bucket_of(l);

    while (*at && *at != l)
        at = &(*at)->next;
    return at;
}

/* Counts a call in `users`, if the listener is open: it stays open until used() is called. False:
 * it is not open. */
static bool use(struct pvn_listen *l)
{
    struct pvn_listen *at;
    bool child = pvn_forked(); /* another thread of the parent may have held the lock */

    if (!child)
        pthread_mutex_lock(&listens_lock);
    at = *find(l);
    if (at)
        at->users++;
    if (!child)
        pthread_mutex_unlock(&listens_lock);
    return at && at->magic == LISTEN_MAGIC;
}

static void used(struct pvn_listen *l)
{
    bool child = pvn_forked();

    if (!child)
        pthread_mutex_lock(&listens_lock);
    l->users--;
    if (!child)
        pthread_mutex_unlock(&listens_lock);
}

static int accept_one(struct pvn_listen *l, struct pvn_comm **out, struct pvn_err *err)
{
    struct pvn_conn *conn;
    struct pvn_comm *c;
    int rc;

    rc = pvn_listener_accept(l->listener, &conn, err);
    if (rc)
        return report(err);
    if (!conn)
        return 0;
    c = comm_new(conn, false, err);
    if (!c) {
        if (conn->state != PVN_CONN_UP)
            pvn_listener_leave(l->listener, conn);
        pvn_conn_close(conn, "no memory");
        return report(err);
    }
    if (conn->state != PVN_CONN_UP) {
        c->link.listener = l->listener;
    } else if (comm_come_up(c) != 0) {
        *err = c->end.err;
        rc = err->code;
        pvn_comm_close(c);
        return rc;
    }
    if (pvn_conn_failover(conn)) {
        c->link.keeper = l->listener;
        pvn_listener_keep(c->link.keeper);
    }
    keep_connected(c);
    *out = c;
    return 0;
}

int pvn_comm_accept(struct pvn_listen *l, struct pvn_comm **out, struct pvn_err *err)
{
    int rc;

    *out = NULL;
    if (!use(l)) {
        pvn_err_set(err, -EINVAL, "%p is no listener of this plugin, or was closed before",
                    (const void *)l);
        pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
        return report(err);
    }
    if (pvn_fork_in_child(l->epoch)) {
        pvn_err_set(err, -ECHILD,
                    "this listener belongs to process %d; a forked child cannot use it",
                    pvn_fork_parent());
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
        rc = report(err);
    } else {
        rc = accept_one(l, out, err);
    }
    used(l);
    return rc;
}

static void close_listen(struct pvn_listen *l)
{
    pvn_listener_close(l->listener);
    l->magic = 0;
    free(l);
    pvn_plugin_release();
}

/* Finds and unlinks it at once: the end of the process or a finalize may close it as well. */
int pvn_comm_close_listen(struct pvn_listen *l)
{
    bool child = pvn_forked(), found, ours; /* as in use() */
    struct pvn_listen **at;

    if (!child)
        pthread_mutex_lock(&listens_lock);
    at = find(l);
    found = *at != NULL;
    ours = found && !pvn_fork_in_child(l->epoch);
    if (ours)
        *at = l->next;
    if (!child)
        pthread_mutex_unlock(&listens_lock);
    if (ours)
        close_listen(l);
    return found ? 0 : -EINVAL;
}

void pvn_comm_drop_listeners(const void *owner)
{
    struct pvn_listen **at, *l, *dropped = NULL;

    pthread_mutex_lock(&listens_lock);
    for (int i = 0; i < BUCKETS; i++)
        for (at = &listens[i]; *at;) {
            l = *at;
            if ((owner && l->owner != owner) || l->users || pvn_fork_in_child(l->epoch)) {
                at = &l->next;
                continue;
            }
            *at = l->next;
            l->next = dropped;
            dropped = l;
        }
    pthread_mutex_unlock(&listens_lock);
    while (dropped) {
        l = dropped;
        dropped = l->next;
        close_listen(l);
    }
}

/* ---- connect ---- */

void pvn_comm_finish(bool unmapping)
{
    comm_workers_finish(true, unmapping);
}

void pvn_comm_after_fork(void)
{
    comm_pending_after_fork();
    comm_attend_after_fork();
    comm_live_after_fork();
    comm_workers_after_fork();
    comm_help_after_fork();
    /* The parent's listeners stay known, so that closing them succeeds. */
    pthread_mutex_init(&listens_lock, NULL);
}

/* Chooses the first of the listener's addresses in a network that the device shares, else its first
 * address. */
static void choose_peer(struct pvn_conn_cfg *cc, const struct pvn_handle *h)
{
    const struct pvn_device *dev = cc->port[0];

    cc->peer_len = pvn_wire_addr_to_sockaddr(&h->addr, dev->ifindex, &cc->peer);
    for (int i = 0; i < h->nmore && !pvn_route_is_near(dev, (const struct sockaddr *)&cc->peer);
         i++) {
        struct sockaddr_storage more;

        pvn_wire_addr_to_sockaddr(&h->more[i], dev->ifindex, &more);
        if (!pvn_route_is_near(dev, (const struct sockaddr *)&more))
            continue;
        cc->instead = cc->peer;
        cc->has_instead = true;
        cc->peer = more;
    }
}

static int new_conn(const struct pvn_comm_cfg *cfg, const uint8_t *handle, struct pvn_conn **out,
                    struct pvn_err *err)
{
    struct pvn_conn_cfg cc = {
        .sender = true, .traffic_class = cfg->traffic_class, .lazy = cfg->lazy};
    struct pvn_handle h;
    int rc;

    rc = find_device(cfg->dev, &cc.dev, err);
    if (rc == 0)
        rc = check_key(cfg, err);
    if (rc)
        return rc;
    rc = pvn_handle_decode(handle, PVN_HANDLE_BYTES, &h, err);
    if (rc) {
        pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
        return rc;
    }
    cc.nports = ports(cc.dev, cc.port);
    cc.failover = failover_requested(cc.dev);
    for (cc.nseen = 0; cc.nseen < cc.nports && cc.nseen < PVN_OTHER_ADDRS; cc.nseen++)
        cc.seen[cc.nseen] = cc.port[cc.nseen];
    cc.nseen += pvn_devices_beside(cc.dev, cc.seen + cc.nseen, PVN_OTHER_ADDRS - cc.nseen);
    cc.shared = may_be_shared(cfg, cc.dev);
    cc.session = h.session;
    cc.key = pvn_seal_key();
    cc.peer_has_key = h.has_key;
    cc.peer_features = h.features;
    choose_peer(&cc, &h);
    *out = pvn_conn_new(&cc);
    return *out ? 0 : pvn_err_set(err, -ENOMEM, "no memory for a connection");
}

/* The entry comes first: it holds the plugin, and so the key that the connection gets. */
static struct comm_pending *begin(const struct pvn_comm_cfg *cfg, const uint8_t *handle,
                                  struct pvn_err *err)
{
    struct comm_pending *p = comm_pending_new(cfg->owner, err);

    if (p && new_conn(cfg, handle, &p->conn, err) != 0) {
        comm_pending_free(p);
        return NULL;
    }
    return p;
}

/* Keeps a connection for the next call of connect, which finds it by the handle. */
static int keep(struct comm_pending *p, uint8_t *handle, struct pvn_err *err)
{
    pvn_handle_set_cookie(handle, p->cookie);
    if (comm_pending_put(p))
        return 0;
    pvn_handle_set_cookie(handle, 0);
    pvn_conn_close(p->conn, "the connecting process has finalized the plugin");
    comm_pending_free(p);
    pvn_err_set(err, -ECANCELED, "finalize was called while connect was running");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return report(err);
}

int pvn_comm_connect(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_comm **out,
                     struct pvn_err *err)
{
    struct pvn_conn *conn;
    struct comm_pending *p;
    struct pvn_comm *c;
    bool busy;
    int rc;

    *out = NULL;
    if (pvn_plugin_ready(err) != 0)
        return report(err);
    p = comm_pending_take(pvn_handle_cookie(handle), &busy);
    if (busy)
        return 0;
    if (!p)
        p = begin(cfg, handle, err);
    if (!p)
        return report(err);
    conn = p->conn;
    rc = pvn_conn_step(conn);
    if (rc == -EAGAIN && !(cfg->lazy && pvn_conn_hello_sent(conn)))
        return keep(p, handle, err);
    pvn_handle_set_cookie(handle, 0);
    if (rc && rc != -EAGAIN) {
        *err = conn->err;
        pvn_conn_close(conn, NULL);
        comm_pending_free(p);
        return report(err);
    }
    c = comm_new(conn, true, err);
    if (!c)
        pvn_conn_close(conn, "no memory");
    comm_pending_free(p);
    if (!c)
        return report(err);
    if (conn->state == PVN_CONN_UP && comm_come_up(c) != 0) {
        *err = c->end.err;
        rc = err->code;
        pvn_comm_close(c);
        return rc;
    }
    keep_connected(c);
    *out = c;
    return 0;
}

/* ---- close ---- */

static void say_what_it_did(const struct pvn_comm *c)
{
    const struct pvn_engine_stats *s = pvn_engine_get_stats(c->engine);
    struct pvn_lane_counters n;
    char lanes[PVN_ERR_TEXT_LEN], doorbells[96] = "";

    pvn_conn_count(c->link.conn, &n);
    if (n.doorbells_known)
        snprintf(doorbells, sizeof(doorbells),
                 "; doorbells: %" PRIu64 " send, %" PRIu64 " receive, %" PRIu64 " empty polls",
                 n.doorbells_send, n.doorbells_recv, n.doorbells_empty);
    pvn_conn_lanes_text(c->link.conn, lanes, sizeof(lanes));
    pvn_info(PVN_NET, "%s %s %s: closed after %s %" PRIu64 " messages, %" PRIu64 " bytes%s: %s",
             c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who,
             c->link.sender ? "sending" : "receiving", s->msgs, s->bytes, doorbells, lanes);
}

/* Lets a receiver that is done answer a peer that connects again: its last acknowledgement may have been lost with
 * the lanes, and the peer's machine may stand still meanwhile. */
static void linger(struct pvn_comm *c)
{
    if (!c->link.sender && !c->end.failed && pvn_engine_pending(c->engine) == 0 &&
        (c->link.failover || comm_has_lost_lanes(c)))
        pvn_link_back_linger(&c->link, pvn_engine_received(c->engine));
}

int pvn_comm_close(struct pvn_comm *c)
{
    if (!c || c->magic != COMM_MAGIC)
        return -EINVAL;
    /* The sockets are the parent's as well, so nothing may be sent or shut down on them. */
    if (pvn_fork_in_child(c->epoch))
        return 0;
    /* A peer that connects meanwhile finds the comm in the list, or its attempts that linger. */
    if (c->lists.driven) {
        comm_attend_stop(c);
        linger(c);
        comm_attend_leave(c);
    }
    comm_help_leave(c);
    comm_live_leave(c);
    comm_mr_detach_next(c);
    pvn_link_end(&c->link, NULL, c->engine ? pvn_engine_received(c->engine) : 0);
    if (c->link.keeper)
        pvn_listener_let_go(c->link.keeper);
    if (c->link.listener)
        pvn_listener_leave(c->link.listener, c->link.conn);
    /* The acknowledgements of completed receives leave now. Not while requests are open, because
     * their buffers are gone already if NCCL aborts. */
    if (c->engine && !c->end.failed && pvn_engine_pending(c->engine) == 0)
        pvn_engine_progress(c->engine);
    if (c->engine)
        say_what_it_did(c);
    if (c->engine && !c->end.failed)
        comm_publish_last(c);
    if (c->engine && !c->link.sender)
        c->link.conn->received = pvn_engine_received(c->engine);
    /* Adapters must be done with registered memory before it is given back. */
    pvn_conn_stop(c->link.conn);
    comm_mr_free_all(c);
    pvn_engine_free(c->engine);
    pvn_profile_free(c->profile);
    pvn_conn_close(c->link.conn, "the peer closed the comm while it was being set up");
    pvn_paths_free(&c->link.paths);
    c->magic = c->epoch = c->sends = c->receives = c->tests = 0;
    if (c->link.served)
        comm_workers_leave();
    if (c->link.served || c->stats.live)
        comm_workers_finish(false, false);
    free(c);
    pvn_plugin_release();
    return 0;
}
