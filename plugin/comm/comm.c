/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The data calls: isend, irecv, iflush and test, as far as comm_fast.h does not do them inline. */
#include "config.h"
#include "comm/comm_fast.h"

#include <errno.h>

#include "base/fork.h"
#include "base/result.h"
#include "comm/profile.h"

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
        comm_attend(c);
    /* Nor will there be any when the receiver has closed. */
    if (rc == 0 && c->sender && c->conn->goodbye && pvn_engine_pending(c->engine) == 0)
        comm_fail_by_peer(c);
    return result(c, answer(c, rc, call));
}

static bool mr_ok(const struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    return !m || m->comm == c;
}

/* Lanes that write into memory reach what is registered and nothing else. */
static inline bool covers(const struct pvn_comm *c, const struct pvn_mr *m, const void *data,
                          size_t size)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)m->addr;

    return !eng_needs_registration(c->engine) || size == 0 || (at <= m->len && size <= m->len - at);
}

__attribute__((noinline, cold)) static int refuse_range(struct pvn_comm *c, const char *call,
                                                        const struct pvn_mr *m, const void *data,
                                                        size_t size)
{
    return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT,
                       "%s: %zu bytes at %p are not in the registration given with them, which "
                       "has %zu bytes at %p",
                       call, size, data, m->len, m->addr);
}

/* NCCL's array of memory handles as the engine's, see struct pvn_comm_mr; C converts no pointer to
 * pointers by itself. */
static const struct pvn_mr *const *mr_list(void *const *mrs)
{
    return (const struct pvn_mr *const *)mrs;
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

int comm_isend_checked(struct pvn_comm *c, const void *data, size_t size, int tag,
                       const struct pvn_mr *mr, void **request)
{
    struct pvn_req *req;
    int rc;

    *request = NULL;
    if (mr && !covers(c, mr, data, size))
        return result(c, refuse_range(c, "isend", mr, data, size));
    rc = pvn_engine_isend(c->engine, data, size, tag, mr, &req);
    *request = req;
    return req ? PVN_RESULT_SUCCESS : no_request(c, rc, "isend");
}

int comm_isend_slow(struct pvn_comm *c, const void *data, size_t size, int tag,
                    const struct pvn_comm_mr *mr, void *handle, void **request)
{
    int rc = isend_ready(c, data, size, mr);

    *request = NULL;
    if (rc)
        return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    if (c->drains)
        return no_request(c, 0, "isend");
    if (c->profile)
        pvn_profile_send(c->profile, pvn_engine_next(c->engine), handle);
    return comm_isend_checked(c, data, size, tag, mr ? &mr->mr : NULL, request);
}

int comm_isend_not_posted(const struct send_msg *m, int rc, void **request)
{
    struct pvn_comm *c = m->req.owner;

    *request = NULL;
    /* No slot: the caller calls again, and only now and then is it worth more than a look. */
    if (rc == 0 && --c->attend_in >= 0)
        return PVN_RESULT_SUCCESS;
    if (rc < 0 && rc != -EAGAIN)
        return no_request(c, eng_fail_lane(c->engine, c->engine->cfg.lanes[0], rc), "isend");
    return comm_isend_checked(c, m->w.src, m->req.size, m->w.f.tag, m->w.mr, request);
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

int comm_irecv_not_published(struct recv_group *g, int rc, void **request)
{
    struct pvn_comm *c = g->req.owner;

    *request = NULL;
    if (rc == -EFAULT) {
        const struct pvn_buffer *b = &g->buf[0];

        eng_take_back(c->engine, g);
        return result(c, refuse_range(c, "irecv", b->mr, b->addr, b->size));
    }
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

int comm_irecv_checked(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void **request)
{
    struct pvn_req *req;
    int i, rc;

    *request = NULL;
    for (i = 0; mrs && i < n; i++) {
        const struct pvn_mr *m = mrs[i];

        if (m && !covers(c, m, data[i], sizes[i]))
            return result(c, refuse_range(c, "irecv", m, data[i], sizes[i]));
    }
    rc = pvn_engine_irecv(c->engine, n, data, sizes, tags, mr_list(mrs), &req);
    *request = req;
    return req ? PVN_RESULT_SUCCESS : no_request(c, rc, "irecv");
}

int comm_irecv_slow(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                    const int *tags, void *const *mrs, void *const *handles, void **request)
{
    int rc = irecv_ready(c, n, data, sizes, mrs);

    *request = NULL;
    if (rc)
        return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    if (c->profile && handles)
        pvn_profile_receive(c->profile, pvn_engine_next(c->engine), n, data, sizes, handles);
    return comm_irecv_checked(c, n, data, sizes, tags, mrs, request);
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
        else if (mrs && mrs[i] && sizes && !covers(c, mrs[i], data[i], sizes[i]))
            return refuse_range(c, "iflush", mrs[i], data[i], sizes[i]);
    rc = pvn_engine_iflush(c->engine, n, data, sizes, mr_list(mrs), &req);
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
    if (!comm_is_ours(&c->epoch) && (c->magic != COMM_MAGIC || pvn_fork_in_child(c->epoch)))
        return comm_usable(c, "test");
    if (comm_attends(c))
        comm_attend(c);
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
    struct pvn_comm *c = pvn_req_owner(req);

    /* The calls that ended without this one count, too. */
    c->attend_in -= pvn_lane_watch_left_out(req->e->watch);
    if (req->state != REQ_OPEN || pvn_engine_progress(req->e) != 0)
        return comm_test_any(req, done, sizes);
    if (eng_fast_is_done(req))
        return comm_finish(req, done, sizes);
    if (__builtin_expect(req->state == REQ_DONE, 0))
        return comm_test_any(req, done, sizes);
    *done = 0;
    return PVN_RESULT_SUCCESS;
}
