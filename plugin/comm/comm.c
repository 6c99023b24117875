/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_fast.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "base/result.h"
#include "comm/device.h"
#include "comm/profile.h"
#include "nccl/types.h"

/* When a data socket breaks, the peer's own account of it is usually already on its way over the
 * control connection; this long it is waited for, so that both logs tell the same story. */
#define GRACE_NS (PVN_NS_PER_S / 4)
/* When the peer is gone, what it sent before is still taken, and acknowledgements; without any new
 * byte for this long the rest will not come. */
#define LOST_NS PVN_NS_PER_S

/* Time between two looks at whether bytes have moved. */
#define LOOK_NS (PVN_NS_PER_S / 10)
/* Between two calls that look: nobody called for so long, and
 * while nobody does nothing can move. */
#define AWAY_NS PVN_NS_PER_S

/* Each lane lowers it to its own chunk size (max_chunk). */
enum { CHUNK_MAX = 64 << 20 };
/* Payload that may wait for a buffer with its tag; NCCL's own use stays far below. */
enum { STASH_MAX = 64 << 20 };

const struct pvn_err *pvn_comm_err(const struct pvn_comm *c)
{
    static const struct pvn_err no_comm = {.code = -EINVAL,
                                           .fault = PVN_FAULT_ARGUMENT,
                                           .n = 1,
                                           .reason = {"not a comm of this plugin"}};

    if (c->magic != COMM_MAGIC)
        return &no_comm;
    return __atomic_load_n(&c->refused, __ATOMIC_RELAXED) ? &c->call_err : &c->err;
}

int comm_refuse(struct pvn_comm *c, int code, enum pvn_fault fault, const char *fmt, ...)
{
    char text[PVN_ERR_REASON_LEN];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    comm_set_refused(c, true);
    pvn_err_set(&c->call_err, code, "%s", text);
    pvn_err_set_fault(&c->call_err, fault);
    pvn_err_set_where(&c->call_err, "%s", c->conn->where);
    pvn_err_set_who(&c->call_err, "%s", c->conn->who);
    pvn_warn_err(&c->call_err);
    return code;
}

/* Not latched and not comm_refuse: the comm itself must not be touched. */
static int not_ours(struct pvn_comm *c, const char *call)
{
    comm_set_refused(c, true);
    pvn_err_set(
        &c->call_err, -ECHILD,
        "%s: this comm belongs to process %d; a forked child cannot use it, it has to make its own",
        call, pvn_fork_parent());
    pvn_err_set_fault(&c->call_err, PVN_FAULT_USAGE);
    pvn_warn_err(&c->call_err);
    return -ECHILD;
}

int comm_usable(struct pvn_comm *c, const char *call)
{
    if (c->magic != COMM_MAGIC)
        return -EINVAL;
    if (pvn_fork_alien(c->epoch))
        return not_ours(c, call);
    comm_set_refused(c, false);
    return c->failed ? c->err.code : 0;
}

/* What ended a comm that was up knows its own part only. */
static void complete(const struct pvn_comm *c, struct pvn_err *err)
{
    static const struct pvn_engine_stats none;
    const struct pvn_engine_stats *s = c->engine ? pvn_engine_get_stats(c->engine) : &none;
    char worked[128];

    pvn_err_add(err, "%s",
                pvn_worked_text(pvn_now_ns() - c->conn->entered_ns, s->msgs, s->bytes, worked,
                                sizeof(worked)));
    pvn_conn_locate(c->conn, 0, err);
}

static int end(struct pvn_comm *c, const struct pvn_err *err, bool warn)
{
    char text[PVN_ERR_TEXT_LEN];

    comm_set_refused(c, false);
    if (c->failed)
        return c->err.code;
    c->failed = true;
    c->sends = c->receives = NO_EPOCH;
    c->err = *err;
    if (c->err.code >= 0)
        c->err.code = -EIO;
    if (c->conn->state == PVN_CONN_UP)
        complete(c, &c->err);
    pvn_err_format(&c->err, text, sizeof(text));
    if (warn)
        pvn_warn_err(&c->err);
    else
        pvn_info(PVN_NET, "%s", text);
    if (c->engine)
        comm_publish_last(c);
    comm_failover_end(c);
    pvn_conn_fail(c->conn, &c->err);
    return c->err.code;
}

int comm_fail(struct pvn_comm *c, const struct pvn_err *err)
{
    return end(c, err, true);
}

int comm_end(struct pvn_comm *c, const struct pvn_err *err)
{
    return end(c, err, false);
}

static uint64_t now_for_engine(void *ctx)
{
    (void)ctx;
    return pvn_now_ns();
}

/* A lane's device as NCCL numbers it. */
static int device_of_lane(const struct pvn_conn *conn, int k)
{
    const struct pvn_device *all = conn->cfg.dev, *own = conn->lane_args[conn->lane_arg[k]].dev;
    int i;

    for (i = 0; i < all->nmembers; i++)
        if (pvn_device_get(all->members[i]) == own)
            return all->members[i];
    return -1;
}

void comm_profile(struct pvn_comm *c)
{
    int i, dev[PVN_MAX_LANES];

    for (i = 0; i < c->conn->nlanes; i++)
        dev[i] = device_of_lane(c->conn, i);
    c->profile = pvn_profile_new(c->conn->lane, dev, c->conn->nlanes);
}

static int start_engine(struct pvn_comm *c)
{
    struct pvn_engine_cfg cfg = {.sender = c->sender,
                                 .nlanes = c->conn->nlanes,
                                 .chunk = CHUNK_MAX,
                                 .stash_max = STASH_MAX,
                                 .now = now_for_engine,
                                 .owner = c,
                                 .outlives_lanes = pvn_conn_failover(c->conn)};
    struct pvn_err err = PVN_ERR_INIT;

    memcpy(cfg.lanes, c->conn->lane, sizeof(cfg.lanes));
    comm_profile(c);
    c->engine = pvn_engine_new(&cfg);
    if (!c->engine) {
        pvn_err_set(&err, -errno, "the message engine could not be made");
        return comm_fail(c, &err);
    }
    if (comm_mr_attach_all(c, &err) != 0)
        return comm_fail(c, &err);
    c->survives = pvn_conn_failover(c->conn);
    c->driven = c->survives;
    for (int i = 0; i < c->conn->nlanes; i++)
        c->driven |= (c->conn->lane[i]->caps & PVN_LANE_SENT_IS_COPIED) != 0;
    if (c->driven)
        comm_failover_join(c);
    if (c->sender)
        c->sends = c->epoch;
    else
        c->receives = c->epoch;
    return 0;
}

int comm_come_up(struct pvn_comm *c)
{
    int rc = c->listener ? pvn_listener_step(c->listener, c->conn) : pvn_conn_step(c->conn);

    if (rc == -EAGAIN)
        return rc;
    if (c->listener) {
        pvn_listener_leave(c->listener, c->conn);
        c->listener = NULL;
    }
    return rc ? comm_fail(c, &c->conn->err) : start_engine(c);
}

static uint64_t bytes_moved(const struct pvn_comm *c)
{
    const struct pvn_engine_stats *s = pvn_engine_get_stats(c->engine);

    return s->bytes + s->chunks;
}

/* By what the control connection has brought; nothing more will be said. */
static void fail_by_news(struct pvn_comm *c)
{
    pvn_engine_fail(c->engine, &c->ctrl_err);
    c->grace_ns = 1;
}

/* The path to the peer is lost, and not the peer. */
static bool is_loss(int code)
{
    return code == -ECONNRESET || code == -ETIMEDOUT || code == -EHOSTUNREACH ||
           code == -ENETUNREACH || code == -ENETDOWN || code == -ECONNABORTED;
}

/* The control connection has brought something. */
static void take_news(struct pvn_comm *c, int news)
{
    if (pvn_conn_failover(c->conn) && (news == 2 || is_loss(news))) {
        comm_failover_begin(c, &c->ctrl_err);
        return;
    }
    if (news == -EREMOTEIO || news == -EPROTO || (news < 0 && c->sender)) {
        fail_by_news(c);
        return;
    }
    if (news > 0) {
        /* What was sent before the goodbye is still on the data streams, and so is their end. */
        if (!c->sender && c->conn->lane[0]->caps & PVN_LANE_ENDS)
            return;
        pvn_err_set(&c->ctrl_err, -ECONNRESET, "the peer has closed its end of the comm");
        pvn_err_set_fault(&c->ctrl_err, PVN_FAULT_REMOTE);
    }
    c->lost_ns = pvn_now_ns();
    c->lost_bytes = bytes_moved(c);
}

static void check_lost(struct pvn_comm *c)
{
    uint64_t now = pvn_now_ns();

    /* Nobody may have called for long, and what has come meanwhile waits to be taken. */
    if (now - c->lost_ns > LOST_NS)
        pvn_engine_progress(c->engine);
    if (pvn_engine_pending(c->engine) == 0 || bytes_moved(c) != c->lost_bytes) {
        c->lost_ns = now;
        c->lost_bytes = bytes_moved(c);
    } else if (now - c->lost_ns > LOST_NS) {
        fail_by_news(c);
    }
}

/* Says once who keeps a request waiting, should it not move for long. */
static void check_stall(struct pvn_comm *c, uint64_t now)
{
    uint64_t patience = pvn_params_get()->stall_warn, bytes = bytes_moved(c);
    char text[256];

    c->look_ns = now + LOOK_NS;
    if (bytes != c->moved_bytes || pvn_engine_pending(c->engine) == 0 || c->moved_ns == 0) {
        c->moved_bytes = bytes;
        c->moved_ns = now;
        c->said_stall = false;
        return;
    }
    if (c->said_stall || patience == 0 || now - c->moved_ns < patience)
        return;
    /* The comm may have been idle until a moment ago. */
    if (pvn_engine_oldest(c->engine, text, sizeof(text)) < patience)
        return;
    c->said_stall = true;
    pvn_warn("%s %s %s: nothing has moved for %.0f s: %s; %d requests open", c->conn->where,
             c->sender ? "to" : "from", c->conn->who, (double)(now - c->moved_ns) / PVN_NS_PER_S,
             text, pvn_engine_pending(c->engine));
}

void comm_look_at_peer(struct pvn_comm *c)
{
    int news = pvn_conn_watch(c->conn, &c->ctrl_err);

    if (news)
        take_news(c, news);
}

/* Looks at the control connection. While it is silent: a reading of the clock and a few loads. */
static void attend(struct pvn_comm *c)
{
    uint64_t now = pvn_poller_poll(PVN_POLLER_CALM_NS);

    if (c->driven)
        comm_failover_drive(c, now);
    if (c->failover) {
        c->calm = 0;
        comm_failover_step(c);
        return;
    }
    c->calm = ATTEND_EVERY - 1;
    if (now - c->attended_ns > AWAY_NS)
        c->moved_ns = now;
    c->attended_ns = now;
    comm_look_at_peer(c);
    if (pvn_engine_paused(c->engine) && !c->failover)
        comm_failover_begin(c, pvn_engine_pause_reason(c->engine));
    if (c->lost_ns)
        check_lost(c);
    if (now >= c->look_ns) {
        check_stall(c, now);
        comm_publish(c, now);
    }
}

static bool from_the_wire(int code)
{
    return code == -ECONNRESET || code == -EPIPE || code == -ECONNABORTED || code == -ENOTCONN;
}

/* For the hint of an error: idle for longer than a firewall may bear, or at work. */
static enum pvn_past past_of(const struct pvn_comm *c)
{
    uint64_t moved = c->counts.moved_ns; /* 0: never, or there are no statistics */

    return moved && pvn_now_ns() - moved > (uint64_t)PVN_PAST_IDLE_S * PVN_NS_PER_S
               ? PVN_PAST_IDLE
               : PVN_PAST_WORKED;
}

int comm_engine_failed(struct pvn_comm *c)
{
    const struct pvn_err *e = pvn_engine_err(c->engine);
    struct pvn_err err;
    uint64_t now;

    comm_set_refused(c, false);
    if (c->failed)
        return c->err.code;
    if (c->grace_ns == 0)
        c->grace_ns = from_the_wire(e->code) ? pvn_now_ns() + GRACE_NS : 1;
    err = *e;
    if (c->grace_ns > 1) {
        int news = pvn_conn_listen(c->conn, &c->ctrl_err);

        now = pvn_now_ns();
        if (news == 0 && now < c->grace_ns && !c->conn->goodbye && !c->conn->ctrl.eof)
            return 0;
        if (c->conn->goodbye)
            pvn_err_add(&err, "the peer has closed its end of the comm");
        else if (c->ctrl_err.code == -EREMOTEIO)
            err = c->ctrl_err;
        else if (c->conn->ctrl.eof)
            pvn_err_add(
                &err,
                "the peer's process has ended or was killed: its control connection is gone too");
    }
    if (err.hint == 0)
        pvn_err_set_hint(
            &err, pvn_hint_id_find(PVN_HINT_ERRNO, err.code, PVN_PHASE_TRANSFER, past_of(c)));
    return comm_fail(c, &err);
}

/* What every data call begins with. 0 go on, -EAGAIN not up yet, else the comm's error. */
static int ready(struct pvn_comm *c, const char *call)
{
    int rc = comm_usable(c, call);

    if (rc)
        return rc;
    return c->engine ? 0 : comm_come_up(c);
}

/* An engine's answer becomes a call's. */
static int answer(struct pvn_comm *c, int rc, const char *call)
{
    if (rc == 0)
        return 0;
    if (pvn_engine_err(c->engine))
        return comm_engine_failed(c);
    return comm_refuse(c, rc, PVN_FAULT_ARGUMENT, "%s: wrong arguments", call);
}

/* A data call's answer to NCCL. */
static int result(const struct pvn_comm *c, int rc)
{
    return rc ? (int)pvn_result_of(rc, pvn_comm_err(c)) : PVN_RESULT_SUCCESS;
}

static int no_request(struct pvn_comm *c, int rc, const char *call)
{
    /* No room: the caller may call nothing but this until there is. */
    if (rc == 0 && comm_attends(c))
        attend(c);
    /* Nor will there be any when the receiver has closed. */
    if (rc == 0 && c->sender && c->conn->goodbye && pvn_engine_pending(c->engine) == 0)
        fail_by_news(c);
    return result(c, answer(c, rc, call));
}

static bool mr_ok(const struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    return !m || m->comm == c;
}

static int isend_ready(struct pvn_comm *c, const void *data, size_t size,
                       const struct pvn_comm_mr *mr)
{
    int rc = ready(c, "isend");

    if (rc)
        return rc;
    if (!mr_ok(c, mr))
        return comm_mr_refuse(c, mr);
    if (!c->sender || (!data && size))
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "isend: %s",
                           c->sender ? "bytes at address 0" : "this is the receiving end");
    return 0;
}

int comm_isend_slow(struct pvn_comm *c, const void *data, size_t size, int tag,
                    const struct pvn_comm_mr *mr, void **request)
{
    struct pvn_req *req;
    int rc = isend_ready(c, data, size, mr);

    *request = NULL;
    if (rc)
        return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    rc = pvn_engine_isend(c->engine, data, size, tag, mr ? &mr->mr : NULL, &req);
    *request = req;
    return req ? PVN_RESULT_SUCCESS : no_request(c, rc, "isend");
}

int comm_isend_not_posted(const struct send_msg *m, int rc, void **request)
{
    struct pvn_comm *c = m->req.owner;

    *request = NULL;
    /* No slot: the caller calls again, and only now and then is it worth more than a look. */
    if (rc == 0 && --c->calm >= 0)
        return PVN_RESULT_SUCCESS;
    if (rc < 0 && rc != -EAGAIN)
        return no_request(c, eng_fail_lane(c->engine, c->engine->cfg.lanes[0], rc), "isend");
    return comm_isend_slow(c, m->w.src, m->req.size, m->w.f.tag,
                           (const struct pvn_comm_mr *)m->w.mr, request);
}

int comm_isend_handle(struct pvn_comm *c, void *data, size_t size, int tag, struct pvn_comm_mr *mr,
                      void *handle, void **request)
{
    if (c->magic == COMM_MAGIC && c->engine)
        pvn_profile_send(c->profile, pvn_engine_next(c->engine), handle);
    return comm_isend_slow(c, data, size, tag, mr, request);
}

static int check_buffers(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                         void *const *mrs)
{
    int i;

    for (i = 0; i < n; i++) {
        if (mrs && !mr_ok(c, mrs[i]))
            return comm_mr_refuse(c, mrs[i]);
        if (!data[i] && sizes[i])
            return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "irecv: %zu bytes at address 0",
                               sizes[i]);
    }
    return 0;
}

int comm_irecv_handles(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void *const *handles, void **request)
{
    if (c->magic == COMM_MAGIC && c->engine)
        pvn_profile_receive(c->profile, pvn_engine_next(c->engine), n, data, sizes, handles);
    return comm_irecv_slow(c, n, data, sizes, tags, mrs, request);
}

int comm_irecv_not_published(struct recv_group *g, int rc, void **request)
{
    struct pvn_comm *c = g->req.owner;

    rc = eng_publish_later(c->engine, rc);
    *request = rc ? NULL : g;
    return rc ? no_request(c, rc, "irecv") : PVN_RESULT_SUCCESS;
}

static int irecv_ready(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       void *const *mrs)
{
    int rc = ready(c, "irecv");

    if (rc)
        return rc;
    if (c->sender || n < 1 || n > PVN_MAX_RECVS)
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "irecv of %d buffers: %s", n,
                           c->sender ? "this is the sending end" : "1 to 8 are possible");
    return check_buffers(c, n, data, sizes, mrs);
}

int comm_irecv_slow(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                    const int *tags, void *const *mrs, void **request)
{
    struct pvn_req *req;
    int rc = irecv_ready(c, n, data, sizes, mrs);

    *request = NULL;
    if (rc)
        return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    rc = pvn_engine_irecv(c->engine, n, data, sizes, tags, (const struct pvn_mr *const *)mrs, &req);
    *request = req;
    return req ? PVN_RESULT_SUCCESS : no_request(c, rc, "irecv");
}

int pvn_comm_iflush(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                    void *const *mrs, void **request)
{
    struct pvn_req *req;
    int i, rc;

    *request = NULL;
    rc = ready(c, "iflush");
    if (rc)
        return rc == -EAGAIN ? 0 : rc;
    if (n < 1 || n > PVN_MAX_RECVS)
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT,
                           "iflush of %d buffers: 1 to 8 are possible", n);
    for (i = 0; i < n; i++)
        if (mrs && !mr_ok(c, mrs[i]))
            return comm_mr_refuse(c, mrs[i]);
    rc = pvn_engine_iflush(c->engine, n, data, sizes, (const struct pvn_mr *const *)mrs, &req);
    if (rc == -EBUSY)
        return comm_refuse(c, rc, PVN_FAULT_USAGE, "iflush: %d flushes are in flight already",
                           PVN_MAX_REQS);
    if (rc)
        return answer(c, rc, "iflush");
    *request = req;
    return 0;
}

static int test_failed(struct pvn_req *req, int rc)
{
    struct pvn_comm *c = pvn_req_owner(req);

    if (pvn_engine_err(c->engine))
        return comm_engine_failed(c);
    return comm_refuse(c, rc, PVN_FAULT_ARGUMENT,
                       "test: request %p is not in use (it was completed before)", (void *)req);
}

/* sizes: PVN_MAX_RECVS of them. */
static int test(struct pvn_comm *c, struct pvn_req *req, int *n, size_t *sizes)
{
    int rc;

    *n = 0;
    if (!comm_surely(c->epoch) && (c->magic != COMM_MAGIC || pvn_fork_alien(c->epoch)))
        return comm_usable(c, "test");
    if (comm_attends(c))
        attend(c);
    rc = pvn_engine_test(req, n, sizes);
    return rc == 0 ? 0 : test_failed(req, rc);
}

int comm_test_any(void *request, int *done, int *sizes)
{
    struct pvn_comm *c = pvn_req_owner(request);
    size_t wide[PVN_MAX_RECVS];
    int i, n, rc = test(c, request, &n, wide);

    *done = n > 0;
    /* The caller's array has room for as many as the request has buffers. */
    for (i = 0; sizes && i < n; i++)
        sizes[i] = comm_size(wide[i]);
    return result(c, rc);
}

int comm_test_open(struct pvn_req *req, int *done, int *sizes)
{
    if (req->state != REQ_OPEN || pvn_engine_progress(req->e) != 0)
        return comm_test_any(req, done, sizes);
    if (eng_fast_is_done(req))
        return comm_finish(req, done, sizes);
    if (__builtin_expect(req->state == REQ_DONE, 0))
        return comm_test_any(req, done, sizes);
    *done = 0;
    return PVN_RESULT_SUCCESS;
}
