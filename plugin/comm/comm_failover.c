/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Failover: a comm that has lost a lane gets a new connection, with whatever lanes that finds, and
 * goes on where it was.
 *
 *     FENCE     nothing is read or written through the old lanes any more; the peer gets the reason
 *     CONNECT   the connector dials the listener again, which the acceptor has kept, at its first
 *               address or at another one (connect/paths.h); the set-up is the ordinary one
 *               (handshake.h), so RDMA may become TCP and TCP RDMA
 *     EXCHANGE  the receiver reports what it has, the sender answers (engine.h), both go on
 *
 * Either end may begin, and both may begin at once. A connection may be lost in every step, and the
 * next one is made then. The comm's own calls take the steps, as they do everything of a comm.
 * While the peer shows that it is there, by the old control connection, by one in its place
 * (link_keep.h) or by the new one, it is waited for without limit; otherwise FAILOVER_TIMEOUT ends
 * the comm.
 *
 * The peer may wait for an end whose requests are all done, and which nobody calls, because the
 * last acknowledgement may have been lost. So a thread that attends to one comm also takes the
 * steps of its idle comms; that thread is NCCL's proxy thread. While it sleeps, the plugin's own
 * (comm_workers.c) answers the sender's HELLO with the number of messages received. With FAILOVER a
 * comm's data calls come from one thread for its life.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "connect/link_back.h"
#include "connect/link_failover.h"
#include "connect/retry.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/profile.h"
#include "memory/gpucopy.h"
#include "nccl/types.h"
#include "seal/seal_begin.h"

/* A comm ends if so many connections of one failover have refused its memory. */
enum { REFUSALS_MAX = 8 };
#define ENDED "the peer's process has ended or was killed"

/* True if the comm's adapters write into GPU memory. */
static bool reaches_gpus(const struct pvn_comm *c)
{
    unsigned caps = 0;

    for (int i = 0; i < c->link.conn->nlanes; i++)
        caps |= c->link.conn->lane[i]->caps;
    return caps & (PVN_LANE_GPU_PEER | PVN_LANE_GPU_DMABUF);
}

/* Makes received data visible in GPU memory, before they count as received. The lanes that could
 * flush them are lost, and a flush of another adapter does not cover these data. */
static int flush_gpus(struct pvn_comm *c, struct pvn_err *err)
{
    const struct pvn_mem_copy *gpu = NULL, *last = NULL;
    int rc = 0;

    pthread_mutex_lock(&c->mem.lock);
    for (const struct pvn_comm_mr *m = c->mem.mrs; m && rc == 0; m = m->next) {
        if (m->mr.ptr_type == NCCL_PTR_HOST)
            continue;
        gpu = pvn_gpucopy_of(m->mr.addr, err);
        rc = !gpu ? err->code : gpu == last ? 0 : pvn_gpucopy_flush(gpu, err);
        last = gpu;
    }
    pthread_mutex_unlock(&c->mem.lock);
    return rc;
}

static void tell_peer(struct pvn_comm *c, enum pvn_frame_type type, const struct pvn_err *why)
{
    uint8_t body[PVN_REASON_MAX + 2];

    /* If this fails, no call reads from the connection any more. A socket reports a reset to one
     * call only, and end of stream to the next, which would look like the end of the peer's
     * process. */
    if (!c->link.conn->ctrl.eof &&
        pvn_conn_send(c->link.conn, type, body,
                      pvn_reason_encode(body, sizeof(body), why->reason[0]), NULL) < 0)
        c->link.conn->ctrl.eof = true;
}

static int give_up(struct pvn_comm *c, struct pvn_err *err, const char *why)
{
    const struct pvn_err *lost = pvn_engine_pause_reason(c->engine);

    pvn_err_add(err, "%s", why);
    if (lost->n > 0)
        pvn_err_add(err, "the failover began with: %s", lost->reason[0]);
    return comm_fail(c, err);
}

/* Ends the comm, because no peer is left to fail over to. The error that began the failover
 * explains the end best. */
static int peer_has_ended(struct pvn_comm *c, const char *how)
{
    struct pvn_err err = *pvn_engine_pause_reason(c->engine);

    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    pvn_err_add(&err, "%s", how);
    return comm_fail(c, &err);
}

/* The peer has closed its end, and its GOODBYE came on the connection `said`. That is no fault if
 * no request is open, because nothing is left to be moved. */
static int peer_has_closed(struct pvn_comm *c, const struct pvn_conn *said)
{
    struct pvn_err err = PVN_ERR_INIT;

    if (c->link.sender && said->has_received)
        pvn_engine_acknowledge(c->engine, said->has_received);
    pvn_err_set(&err, -ECONNRESET, "the peer has closed its end of the comm");
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    if (pvn_engine_pending(c->engine) == 0)
        return comm_end(c, &err);
    return c->link.failover ? give_up(c, &err, "failover") : comm_fail(c, &err);
}

/* No lanes take memory from now on, see attach_new in comm_mr.c. A report of the peer says nothing of this end's
 * device. */
static void stop_taking(struct pvn_comm *c, const struct pvn_err *why)
{
    pthread_mutex_lock(&c->mem.lock);
    c->mem.taker = NULL;
    c->mem.device_failed =
        why->fault != PVN_FAULT_REMOTE && (why->code == -ENODEV || why->code == -EIO);
    pthread_mutex_unlock(&c->mem.lock);
}

static int pause_comm(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_err err = *why;

    if (!pvn_link_failover_begin(&c->link)) {
        pvn_err_add(&err, "no failover: there is no memory for it");
        return comm_fail(c, &err);
    }
    stop_taking(c, why);
    /* The profiler is attached to the old lanes. */
    pvn_profile_free(c->profile);
    c->profile = NULL;
    comm_publish_last(c); /* with the last of these lanes' counters */
    pvn_engine_pause(c->engine, why);
    comm_set_calls(c);
    c->attend_in = 0;
    return 0;
}

/* The pause before the first attempt. It grows if a comm without a sound path loses its lanes again
 * and again. */
static uint64_t pause_ns(const struct pvn_paths *p)
{
    return p->losses < 2 ? 0 : pvn_retry_pause_ns(PVN_RETRY_LOSSES, p->losses - 2);
}

/* False if a device or port has failed, which is no fault of the network. Its error says so
 * (ENODEV, ENETDOWN; EIO until its event comes). A report of the peer (ENETDOWN, too) has the
 * peer's own reason, whatever that is. */
static bool is_the_network(const struct pvn_err *why)
{
    return why->code != -ENODEV && why->code != -EIO && why->code != -ENETDOWN;
}

static void remember(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_paths *p = &c->link.paths;
    uint64_t now = pvn_now_ns();
    bool fast = pvn_conn_worth_is_fast(pvn_conn_worth(c->link.conn));
    bool useless =
        pvn_engine_undelivered(c->engine) > 0 && pvn_engine_delivered(c->engine) == p->messages;

    if (!c->link.sender ||
        !pvn_path_memory_lost(&p->memory, p->used, fast, useless, now - p->since_ns, now) ||
        p->said_useless || !is_the_network(why))
        return;
    /* Else small packets are not answered either: the path is lost as a whole, or the peer's machine stands still. */
    if (!pvn_path_repeats_nothing(c->link.conn->ctrl.fd))
        return;
    p->said_useless = true;
    pvn_warn("failover: %s to %s: these lanes passed the handshake and were lost before they had "
             "delivered a message: others are tried first; likely: large packets are lost on the "
             "path; try: `ping -M do -s` with 28 bytes less than the MTU, the same MTU on all "
             "switches, net.ipv4.tcp_mtu_probing=1 (TCP), the port's active_mtu (RoCE)",
             c->link.conn->where, c->link.conn->who);
}

/* Counts the loss and remembers its path. 0, or the comm's error. */
static int note_loss(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_err err = *why;

    if (pvn_paths_count_loss(&c->link.paths, pvn_engine_delivered(c->engine),
                             pvn_engine_undelivered(c->engine) > 0, pvn_now_ns())) {
        pvn_err_add(&err, "the lanes were lost %d times, and no message was delivered meanwhile",
                    PVN_LOSSES_MAX);
        return comm_fail(c, &err);
    }
    remember(c, why);
    return 0;
}

/* Makes the first attempt due after the pause. Called after a loss, in FENCE. */
static void connect_after_pause(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_err err = *why;
    char text[PVN_ERR_TEXT_LEN];

    c->link.failover->retry_ns = pvn_now_ns() + pause_ns(&c->link.paths);
    pvn_link_back_lost(&c->link);
    pvn_conn_locate(c->link.conn, 0, &err);
    pvn_err_format(&err, text, sizeof(text));
    pvn_warn("failover: %s; the connection is made again, and what was not delivered is sent again",
             text);
}

/* True for a receiver that has all its messages, but not yet flushed by its lanes. The end of the
 * fence makes them visible, and then the peer's GOODBYE is no fault. */
static bool waits_for_flushes(const struct pvn_comm *c)
{
    return !c->link.sender && pvn_engine_may_pause(c->engine) &&
           pvn_engine_flushes(c->engine) > 0 &&
           pvn_engine_flushes(c->engine) == pvn_engine_pending(c->engine);
}

int comm_failover_begin(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_err err = *why;

    if (c->link.failover)
        return 0;
    if (c->link.conn->goodbye && waits_for_flushes(c))
        return pause_comm(c, why);
    if (c->link.conn->goodbye)
        return comm_failover_has_all(c) ? c->end.err.code : peer_has_closed(c, c->link.conn);
    if (!pvn_engine_may_pause(c->engine)) {
        pvn_err_add(
            &err,
            "these lanes report sends before they are delivered, so the comm cannot fail over");
        return comm_fail(c, &err);
    }
    bool hung_up = c->link.ctrl_err.code == -EPIPE;

    if (hung_up && !pvn_conn_keeps(c->link.conn)) {
        pvn_err_add(&err, "%s", ENDED);
        return comm_fail(c, &err);
    }
    if (note_loss(c, why) != 0 || pause_comm(c, why) != 0)
        return c->end.err.code;
    c->link.failover->hung_up = hung_up;
    c->link.failover->reset = c->link.ctrl_err.code == -ECONNRESET;
    /* This goes out before a better connection is given up, so that a peer that switches to that
     * gets the reason first. */
    tell_peer(c, PVN_FRAME_LANE_DOWN, why);
    connect_after_pause(c, why);
    return 0;
}

bool comm_failover_has_all(struct pvn_comm *c)
{
    if (!c->link.sender || !c->link.conn->goodbye || !pvn_engine_may_pause(c->engine) ||
        c->link.conn->has_received == 0 || c->link.conn->has_received != pvn_engine_next(c->engine))
        return false;
    if (!c->link.failover)
        pause_comm(c, &c->link.ctrl_err);
    return true;
}

int comm_failover_switch(struct pvn_comm *c, struct pvn_conn *next)
{
    struct pvn_err why = PVN_ERR_INIT;

    if (c->link.failover || !pvn_engine_may_pause(c->engine)) {
        pvn_conn_close(next, NULL);
        return 0;
    }
    pvn_err_set(&why, -ESTALE, "better lanes are there again");
    if (pause_comm(c, &why) != 0) {
        pvn_conn_close(next, NULL);
        return c->end.err.code;
    }
    c->link.failover->switches = true;
    /* The better connection was made with the key that the job has, so the key file is checked only
     * after a second, within which the acceptor's connection may come. */
    c->link.failover->key_ns = c->link.failover->stepped_ns + PVN_NS_PER_S;
    pvn_conn_close(c->link.failover->next, NULL);
    c->link.failover->next = next;
    if (c->link.sender)
        tell_peer(c, PVN_FRAME_SWITCH, &why);
    return 0;
}

/* The peer lost a lane before it knew of the switch. So it has given up the better connection and
 * waits for another one. 0, or the comm's error. */
static int switch_is_off(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_link_failover *f = c->link.failover;

    if (note_loss(c, why) != 0)
        return c->end.err.code;
    comm_mr_detach_next(c);
    stop_taking(c, why);
    pvn_link_leave_better(&c->link);
    pvn_engine_pause_because(c->engine, why);
    f->began_ns = f->since_ns = f->stepped_ns;
    connect_after_pause(c, why);
    return 0;
}

/* Fences the old lanes. 0, the comm's error, or -EAGAIN: not yet. */
static int fence(struct pvn_comm *c)
{
    /* In a switch nothing is lost and nothing is open. The sender keeps its old lanes until the
     * receiver's report comes, which the receiver sends when it has fenced its own. A receiver that
     * has not read SWITCH yet would take their end for a loss. */
    if (c->link.failover->switches && c->link.sender && c->link.failover->next &&
        !c->link.conn->ctrl.eof && !c->link.conn->goodbye &&
        !pvn_conn_has_input(c->link.failover->next))
        return -EAGAIN;
    bool again = false;

    for (int i = 0; i < c->link.conn->nlanes; i++) {
        struct pvn_lane *l = c->link.conn->lane[i];
        int rc = l->ops->fence(l);

        again |= rc == -EAGAIN;
        if (rc && rc != -EAGAIN) {
            struct pvn_err err = PVN_ERR_INIT;

            pvn_err_set(&err, rc, "lane %d (%s) cannot be fenced: it may still move memory", i,
                        l->ops->name);
            return give_up(c, &err, "nothing may be sent again");
        }
    }
    if (again)
        return -EAGAIN;
    if (pvn_engine_drain(c->engine) != 0) {
        struct pvn_err err = *pvn_engine_err(c->engine);

        return give_up(c, &err, "the lanes' last events");
    }
    if (!c->link.sender && reaches_gpus(c)) {
        struct pvn_err err = PVN_ERR_INIT;

        if (flush_gpus(c, &err) != 0)
            return give_up(c, &err,
                           "what the lost lanes have written into GPU memory cannot be made "
                           "visible to the GPU");
    }
    if (!c->link.sender)
        pvn_engine_flushed(c->engine);
    pvn_link_note(&c->link, PVN_LINK_FENCED);
    return 0;
}

/* Repeats the reason for the failover on another control connection, because the first frame may
 * have been lost with the earlier one. A peer that has read that one ignores this one. In a switch
 * the receiver sends nothing: the sender has begun it, and LANE_DOWN would call it off. */
static void tell_again(struct pvn_comm *c)
{
    bool switches = c->link.failover->switches;

    if (!switches || c->link.sender)
        tell_peer(c, switches ? PVN_FRAME_SWITCH : PVN_FRAME_LANE_DOWN,
                  pvn_engine_pause_reason(c->engine));
}

/* Takes the peer's reports from the old control connection. 0, or the comm's error. */
static int watch_peer(struct pvn_comm *c)
{
    struct pvn_err err = PVN_ERR_INIT;
    bool before;
    int rc;

    if (pvn_link_keep_adopt(&c->link)) {
        c->link.failover->hung_up = c->link.failover->reset = false;
        tell_again(c);
    }
    before = c->link.conn->ctrl.eof;
    rc = pvn_conn_listen(c->link.conn, &err);

    /* 1: the peer has closed its end; the lanes are fenced first. */
    if (rc == -EREMOTEIO || rc == -EPROTO)
        return give_up(c, &err, "failover");
    /* 2: the peer has lost a lane. That matters only in a switch. */
    if (rc == 2 && c->link.sender && c->link.failover->switches && c->link.state == PVN_LINK_FENCE)
        return switch_is_off(c, &err);
    c->link.failover->reset |= rc == -ECONNRESET;
    if (rc != -EPIPE || before || c->link.failover->exchanged)
        return 0;
    if (!pvn_conn_keeps(c->link.conn))
        return peer_has_ended(c, ENDED);
    c->link.failover->hung_up = true;
    c->link.failover->began_ns = pvn_now_ns();
    return 0;
}

/* The thing waited for, in words. */
static const char *waits_for(const struct pvn_comm *c)
{
    const struct pvn_link_failover *f = c->link.failover;

    if (c->link.state == PVN_LINK_FENCE)
        return "the requests of the lost lanes have not ended";
    if (c->link.state == PVN_LINK_EXCHANGE)
        return "the peer has not said where it goes on";
    return f->last.n > 0 ? f->last.reason[0] : "the peer did not connect";
}

/* Publishes now and then, because the statistics would otherwise show a comm that nobody calls. */
static void publish(struct pvn_comm *c)
{
    const struct pvn_link_failover *f = c->link.failover;
    char text[256];

    if (f->stepped_ns < c->stall.look_ns)
        return;
    c->stall.look_ns = f->stepped_ns + COMM_LOOK_NS;
    snprintf(text, sizeof(text), "failover: %.160s; %s", waits_for(c),
             pvn_link_peer_text(&c->link));
    comm_publish_failover(c, f->stepped_ns, f->since_ns, text);
}

static int out_of_time(struct pvn_comm *c, uint64_t limit, const char *param)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ETIMEDOUT, "no new connection within %.3g s (NCCL_PVRDMA_%s)",
                (double)limit / PVN_NS_PER_S, param);
    pvn_err_set_fault(&err, PVN_FAULT_REMOTE);
    return give_up(c, &err, waits_for(c));
}

void comm_failover_uncalled(struct pvn_comm *c, uint64_t now)
{
    struct pvn_link_failover *f = c->link.failover;
    uint64_t step = now - f->stepped_ns;

    if (f->stepped_ns >= now)
        return;
    f->began_ns = pvn_not_counted_ns(f->began_ns, step, now);
    f->since_ns = pvn_not_counted_ns(f->since_ns, step, now);
    f->stepped_ns = now;
}

static int check_deadline(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    const struct pvn_params *p = pvn_params_get();
    uint64_t now = pvn_now_ns(), step = now - f->stepped_ns, waited, ended_ns;

    pvn_link_look_for_peer(&c->link, now);
    /* Time with the peer seen, or without calls, does not count. */
    if (pvn_link_sees_peer(&c->link) || step > PVN_NS_PER_S)
        f->began_ns = pvn_not_counted_ns(f->began_ns, step, now);
    if (step > PVN_NS_PER_S) {
        f->since_ns = pvn_not_counted_ns(f->since_ns, step, now);
        f->gone_ns = f->gone_ns ? pvn_not_counted_ns(f->gone_ns, step, now) : 0;
    }
    f->stepped_ns = now;
    waited = now - f->since_ns;
    ended_ns = f->hung_up ? f->began_ns : f->gone_ns;
    if (ended_ns && now - ended_ns >= pvn_link_limit_ns(&c->link))
        return peer_has_ended(c, ENDED);
    if (now - f->began_ns >= p->failover_timeout)
        return out_of_time(c, p->failover_timeout, "FAILOVER_TIMEOUT");
    if (p->stall_abort && waited >= p->stall_abort && pvn_engine_pending(c->engine) > 0)
        return out_of_time(c, p->stall_abort, "STALL_ABORT");
    if (p->stall_warn && waited >= p->stall_warn && !f->stall_reported) {
        f->stall_reported = true;
        pvn_warn("failover: %s %s %s: no new connection for %.0f s: %s; %s", c->link.conn->where,
                 c->link.sender ? "to" : "from", c->link.conn->who, (double)waited / PVN_NS_PER_S,
                 waits_for(c), pvn_link_peer_text(&c->link));
    }
    return 0;
}

/* The connection that was to take over is lost as well. */
static int next_failed(struct pvn_comm *c, const struct pvn_err *why)
{
    struct pvn_link_failover *f = c->link.failover;
    bool refused = c->link.sender && pvn_link_is_refused(&c->link, why);
    bool goodbye = f->next && f->next->goodbye, better = goodbye && f->next->cfg.beside;

    f->last = *why;
    /* The GOODBYE of a better connection is about that alone: the peer's comm goes on, or says the
     * same on the old one. */
    if (better && f->switches && c->link.sender) {
        struct pvn_err off = PVN_ERR_INIT;

        pvn_err_set(&off, -ENETDOWN, "the peer has given up the better connection");
        return switch_is_off(c, &off) ? c->end.err.code : -EAGAIN;
    }
    if (goodbye && !better)
        return peer_has_closed(c, f->next);
    comm_mr_detach_next(c);
    pvn_link_drop_next(&c->link);
    if (!refused)
        return -EAGAIN;
    return peer_has_ended(c, f->hung_up ? ENDED : "the peer's process does not listen any more");
}

/* Ends the comm if its key file was replaced. Each new connection would be refused, and the comm
 * would try without limit while the peer is there. */
static int check_key(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    struct pvn_err err = PVN_ERR_INIT;

    /* A connection that has had its HELLO has passed this check (handshake_steps.c), and stays
     * valid. */
    if ((f->next && f->next->hello_seen) || !c->link.conn->cfg.key || f->stepped_ns < f->key_ns)
        return 0;
    f->key_ns = f->stepped_ns + PVN_NS_PER_S;
    return pvn_seal_check_replaced(&err) ? give_up(c, &err, "failover") : 0;
}

static int connect_step(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    struct pvn_err err = PVN_ERR_INIT;
    bool slots = c->link.sender || pvn_engine_may_use_slots(c->engine);
    int rc = pvn_link_connect(&c->link, f->refuses || !slots, &err);

    /* The HELLO says how many messages the peer has received: it may be all, and nobody may call
     * its end any more. */
    if (c->link.sender && f->next && f->next->hello_seen && f->next->theirs.received)
        pvn_engine_acknowledge(c->engine, f->next->theirs.received);
    if (rc == -EAGAIN)
        return check_key(c) ? c->end.err.code : rc;
    if (rc)
        return next_failed(c, &err);
    pvn_link_note(&c->link, PVN_LINK_CONNECTED);
    f->exchanged = true;
    return 0;
}

static void say_lanes(const struct pvn_comm *c, bool switched, uint64_t since_ns)
{
    uint64_t now = pvn_now_ns(), replayed = pvn_engine_get_stats(c->engine)->replayed;
    char lanes[PVN_ERR_TEXT_LEN];

    pvn_conn_lanes_text(c->link.conn, lanes, sizeof(lanes));
    if (switched)
        pvn_warn("failback: %s %s %s: returned after %.3f s on worse lanes: %s",
                 c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who,
                 (double)(now - c->link.back.slower_ns) / PVN_NS_PER_S, lanes);
    else
        pvn_warn(
            "failover: %s %s %s: connected again after %.3f s: %s; %llu messages sent again so far",
            c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who,
            (double)(now - since_ns) / PVN_NS_PER_S, lanes, (unsigned long long)replayed);
}

/* Puts the new connection into use. The engine has already resumed with its lanes. */
static int take_over(struct pvn_comm *c, bool resumed)
{
    const struct pvn_link_failover *f = c->link.failover;
    uint64_t since_ns = f->since_ns;
    bool switched = f->switches && c->link.back.slower_ns;
    struct pvn_conn *old;

    /* The failover counts as attended, so that a stall from before is not forgotten. */
    c->attended_ns = f->stepped_ns;
    pthread_mutex_lock(&c->mem.lock);
    c->profile = pvn_profile_of(f->next);
    old = pvn_link_take_over(&c->link, pvn_engine_delivered(c->engine));
    pthread_mutex_unlock(&c->mem.lock);
    pvn_conn_close(old, NULL);
    if (!resumed) {
        struct pvn_err err = *pvn_engine_err(c->engine);

        return give_up(c, &err, "failover");
    }
    comm_note(c, PVN_LINK_RESUMED);
    say_lanes(c, switched, since_ns);
    comm_publish_replaced(c, switched);
    pvn_link_back_settle(&c->link);
    c->end.grace_ns = 0;
    return 0;
}

/* Registers the comm's memory with the new lanes, before the peer goes on with them. If they refuse
 * it, TCP or another path may take it. -EAGAIN: that is tried. From here on the new lanes take new
 * registrations, too, so that one that they refuse fails alone, and not the comm. */
static int attach(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    struct pvn_err err = PVN_ERR_INIT;
    bool fast = pvn_conn_worth_is_fast(pvn_conn_worth(f->next));
    int rc;

    if (f->step != PVN_LINK_EXCHANGE_BEGINS)
        return 0;
    pthread_mutex_lock(&c->mem.lock);
    rc = comm_mr_attach_all(c, f->next, &err);
    pthread_mutex_unlock(&c->mem.lock);
    if (rc == 0) {
        f->step = PVN_LINK_EXCHANGE_ATTACHED;
        return 0;
    }
    if (!fast || pvn_params_get()->strict || ++f->refusals > REFUSALS_MAX)
        return give_up(c, &err, "failover");
    pvn_warn(
        "failover: %s %s %s: the new lanes do not take the memory that is registered: %s; others are "
        "tried",
        f->next->where, c->link.sender ? "to" : "from", f->next->who, err.reason[0]);
    f->refuses = true;
    rc = next_failed(c, &err);
    if (c->link.failover)
        f->attempts = 0; /* the next attempt takes the other kind, on the same path */
    return rc;
}

static int exchange_sender(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    struct pvn_engine_report report;
    struct pvn_engine_answer answer;
    struct pvn_err err = PVN_ERR_INIT;
    uint8_t body[64];
    const uint8_t *in;
    size_t len;
    int rc = pvn_conn_expect(f->next, PVN_FRAME_REPORT, &in, &len, &err);

    if (rc == -EAGAIN)
        return rc;
    if (rc == -EREMOTEIO)
        return give_up(c, &err, "failover");
    if (rc < 0 || pvn_report_decode(in, len, &report, &err) != 0)
        return next_failed(c, &err);
    bool resumed =
        pvn_engine_resume_sender(c->engine, f->next->lane, f->next->nlanes, &report, &answer) == 0;
    if (resumed)
        pvn_conn_send(f->next, PVN_FRAME_ANSWER, body,
                      pvn_answer_encode(body, sizeof(body), &answer), &err);
    return take_over(c, resumed);
}

/* True if the comm can go on with these lanes. A matched comm that holds messages cannot number
 * them by slots, but can go on over TCP. */
static bool can_use(const struct pvn_comm *c, const struct pvn_conn *next)
{
    bool slots = false;

    for (int i = 0; i < next->nlanes; i++)
        slots |= (next->lane[i]->caps & PVN_LANE_NEEDS_CTS) != 0;
    return !slots || pvn_engine_may_use_slots(c->engine);
}

static int exchange_receiver(struct pvn_comm *c)
{
    struct pvn_link_failover *f = c->link.failover;
    struct pvn_engine_answer answer;
    struct pvn_err err = PVN_ERR_INIT;
    const uint8_t *in;
    size_t len;
    int rc = 0;

    if (f->step == PVN_LINK_EXCHANGE_ATTACHED) {
        struct pvn_engine_report report;
        uint8_t body[512];

        if (!can_use(c, f->next)) {
            pvn_err_set(&err, -EOPNOTSUPP,
                        "unexpected messages wait for their receives, and only TCP can carry "
                        "such a comm on");
            return next_failed(c, &err);
        }
        pvn_engine_make_report(c->engine, &report);
        rc = pvn_conn_send(f->next, PVN_FRAME_REPORT, body,
                           pvn_report_encode(body, sizeof(body), &report), &err);
        f->step = PVN_LINK_EXCHANGE_REPORTED;
        pvn_link_keep_expect(&c->link, f->next->cfg.nonce);
    }
    if (rc == 0)
        rc = pvn_conn_expect(f->next, PVN_FRAME_ANSWER, &in, &len, &err);
    if (rc == -EAGAIN)
        return rc;
    if (rc == -EREMOTEIO)
        return give_up(c, &err, "failover");
    if (rc < 0 || pvn_answer_decode(in, len, &answer, &err) != 0)
        return next_failed(c, &err);
    return take_over(
        c, pvn_engine_resume_receiver(c->engine, f->next->lane, f->next->nlanes, &answer) == 0);
}

static int attach_and_exchange(struct pvn_comm *c)
{
    int rc = attach(c);

    if (rc)
        return rc;
    return c->link.sender ? exchange_sender(c) : exchange_receiver(c);
}

void comm_failover_step(struct pvn_comm *c)
{
    int rc = watch_peer(c);

    if (rc == 0)
        rc = check_deadline(c);
    while (rc == 0 && c->link.failover && !c->end.failed) {
        if (c->link.conn->goodbye && c->link.state != PVN_LINK_FENCE) {
            peer_has_closed(c, c->link.conn);
            break;
        }
        if (c->link.state == PVN_LINK_FENCE)
            rc = fence(c);
        else if (c->link.state == PVN_LINK_CONNECT)
            rc = connect_step(c);
        else
            rc = attach_and_exchange(c);
    }
    if (c->link.failover && !c->end.failed)
        publish(c);
}
