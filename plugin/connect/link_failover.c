/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/link_failover.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "connect/handshake.h"
#include "connect/link_back.h"
#include "connect/link_keep.h"
#include "connect/listener.h"
#include "connect/retry.h"

bool pvn_link_failover_begin(struct pvn_link *l)
{
    struct pvn_link_failover *f = calloc(1, sizeof(*f));

    if (!f)
        return false;
    f->began_ns = f->since_ns = f->stepped_ns = pvn_now_ns();
    l->failover = f;
    pvn_link_note(l, PVN_LINK_LOST);
    return true;
}

static void forget(struct pvn_link *l)
{
    pvn_presence_probe_end(&l->failover->probe);
    free(l->failover);
    l->failover = NULL;
}

struct pvn_conn *pvn_link_take_over(struct pvn_link *l, uint64_t messages)
{
    struct pvn_conn *old = l->conn;

    l->conn = l->failover->next;
    l->paths.used = l->failover->path;
    l->paths.since_ns = pvn_now_ns();
    l->paths.messages = messages;
    forget(l);
    pvn_conn_replace(l->conn, old);
    /* This error came from the old control connection. The next failover would take it for one of
     * the connection in use. */
    pvn_err_clear(&l->ctrl_err);
    pvn_link_keep_watch(l);
    return old;
}

void pvn_link_end(struct pvn_link *l, const struct pvn_err *why, uint64_t received)
{
    struct pvn_conn *next = l->failover ? l->failover->next : NULL;

    /* The next connection may be all that still leads to the peer. */
    if (next && why && next->state == PVN_CONN_UP)
        pvn_conn_fail(next, why);
    if (next)
        next->received = received;
    if (l->failover) {
        pvn_conn_close(next, "the comm was closed during a failover");
        forget(l);
    }
    pvn_link_back_stop(l);
    pvn_link_keep_adopt(l);
    pvn_link_keep_leave(l);
}

/* True if this attempt has had its time. Nothing accepts it: then a new one gets through sooner than the kernel's next
 * SYN, which comes later each time, and another path is better than one that has already failed. Or, if there are other
 * paths, the peer's machine has accepted it and acknowledges nothing more. */
static bool gets_no_answer(const struct pvn_link *l)
{
    struct pvn_link_failover *f = l->failover;
    bool more = pvn_paths_more(&l->paths);
    uint64_t now = pvn_now_ns(), limit = pvn_retry_answer_ns(PVN_RETRY_FAILOVER);

    if (f->next->state == PVN_CONN_DIAL)
        return (more && f->next->attempts > 0) || now - f->dialled_ns > limit;
    return more && pvn_path_silent(&f->silence, f->next->ctrl.fd, now) > limit;
}

static int dial(struct pvn_link *l, struct pvn_err *err)
{
    struct pvn_link_failover *f = l->failover;
    int rc;

    if (!f->next) {
        struct pvn_conn_cfg cfg;

        if (pvn_now_ns() < f->retry_ns)
            return -EAGAIN;
        cfg = pvn_paths_choose(&l->paths, &f->attempts);
        f->path = pvn_paths_index(&l->paths, f->attempts);
        f->silence = (struct pvn_path_watch){0};
        f->next = pvn_conn_new(&cfg);
        if (!f->next)
            return -EAGAIN;
        f->dialled_ns = pvn_now_ns();
    }
    rc = pvn_conn_step(f->next);
    if (rc == -EAGAIN && gets_no_answer(l)) {
        if (f->next->err.code == 0 || f->next->err.code == -EAGAIN)
            pvn_err_set(&f->next->err, -ETIMEDOUT, "no answer within %.3g s",
                        (double)pvn_retry_answer_ns(PVN_RETRY_FAILOVER) / PVN_NS_PER_S);
        rc = f->next->err.code;
    }
    if (rc && rc != -EAGAIN)
        *err = f->next->err;
    return rc;
}

int pvn_link_connect(struct pvn_link *l, bool fallback_only, struct pvn_err *err)
{
    struct pvn_link_failover *f = l->failover;

    if (l->sender)
        return dial(l, err);
    f->next = pvn_link_back_take(l);
    if (f->next)
        return 0;
    f->next = pvn_listener_resumed(l->keeper, l->id, fallback_only, &f->last);
    if (!f->next)
        return -EAGAIN;
    /* The better connection of a switch was lost before it was taken, and this is another one. */
    f->switches = false;
    return 0;
}

/* A process that has ended refuses on every path, and its old control connection is gone. If
 * only one path refuses, a firewall may reject the connection, or another machine may have the
 * address. */
bool pvn_link_is_refused(struct pvn_link *l, const struct pvn_err *why)
{
    struct pvn_link_failover *f = l->failover;
    unsigned path = 1u << pvn_paths_index(&l->paths, f->attempts);

    if (why->code != -ECONNREFUSED) {
        f->refused &= ~path;
        return false;
    }
    if (!(f->refused & path) && pvn_paths_more(&l->paths))
        pvn_info(PVN_NET, "failover: %s to %s: the connection is refused; other paths are tried",
                 f->next->where, f->next->who);
    f->refused |= path;
    return l->conn->ctrl.eof && pvn_paths_are_all(&l->paths, f->refused);
}

/* Closes it without a GOODBYE, because the comm goes on. The peer may have taken the report
 * already, and go on with this connection. */
static void close_next(struct pvn_link_failover *f)
{
    if (f->next)
        f->next->replaced = true;
    pvn_conn_close(f->next, NULL);
    f->next = NULL;
    f->switches = false;
}

void pvn_link_leave_better(struct pvn_link *l)
{
    close_next(l->failover);
    l->failover->exchanged = false; /* the peer has given up only the better connection */
    l->failover->step = PVN_LINK_EXCHANGE_BEGINS;
    if (l->state == PVN_LINK_EXCHANGE)
        pvn_link_note(l, PVN_LINK_AGAIN);
}

void pvn_link_drop_next(struct pvn_link *l)
{
    struct pvn_link_failover *f = l->failover;

    /* The connection had come up, and the peer may have refused it. */
    if (l->sender && l->state == PVN_LINK_EXCHANGE)
        pvn_path_memory_lost(&l->paths.memory, f->path,
                             pvn_conn_worth_is_fast(pvn_conn_worth(f->next)), true, 0,
                             pvn_now_ns());
    close_next(f);
    f->step = PVN_LINK_EXCHANGE_BEGINS;
    f->retry_ns = pvn_now_ns() + pvn_retry_pause_ns(PVN_RETRY_FAILOVER, f->attempts++);
    pvn_link_note(l, PVN_LINK_AGAIN);
    pvn_link_back_stop(l);
    if (!l->sender)
        pvn_link_back_start(l);
}

/* True if the peer is shown by the old control connection, by one in its place, or by the
 * connection that is to take over. The old one counts even if its path was dead for a time: a
 * process that is stopped dials nobody, but its machine answers there. */
static bool is_connected(const struct pvn_link *l)
{
    const struct pvn_link_failover *f = l->failover;

    return !l->conn->ctrl.eof || pvn_link_keep_lives(l) ||
           (!f->hung_up && pvn_path_answers(l->conn->ctrl.fd)) ||
           (f->next && f->next->hello_seen && f->next->state <= PVN_CONN_UP);
}

/* A refusal alone could be a firewall's. After a reset of the control connection, which the peer's machine sends if the
 * process has ended with unread bytes, or the machine has started again, it means that the process is gone. */
void pvn_link_look_for_peer(struct pvn_link *l, uint64_t now)
{
    struct pvn_link_failover *f = l->failover;
    int n = l->paths.nothers;

    if (!l->sender && !is_connected(l)) {
        f->stands = pvn_presence_stands(&f->probe, l->paths.other, n, now);
    } else {
        pvn_presence_probe_end(&f->probe);
        f->stands = false;
    }
    if (!f->reset || !pvn_presence_is_refused(&f->probe, n))
        f->gone_ns = 0;
    else if (f->gone_ns == 0)
        f->gone_ns = now;
}

bool pvn_link_sees_peer(const struct pvn_link *l)
{
    return is_connected(l) || l->failover->stands;
}

const char *pvn_link_peer_text(const struct pvn_link *l)
{
    return is_connected(l)       ? "the peer's process is alive and is waited for"
           : l->failover->stands ? "the peer's process is stopped and is waited for"
                                 : "the peer cannot be reached";
}
