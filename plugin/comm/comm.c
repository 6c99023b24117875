/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The data calls: isend, irecv, iflush and test. */
#include "config.h"
#include "comm/comm_priv.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>

#include "base/fork.h"
#include "base/result.h"
#include "comm/profile.h"
#include "engine/engine_calls.h"

static_assert(offsetof(struct pvn_comm_mr, mr) == 0, "a handle is the engine's registration");

/* True if a comm's epoch, or its `sends`, `receives` or `tests`, is this process's. Memory that is
 * no comm hardly has that number, so this also checks the pointer. If false, the comm may be ours
 * nevertheless; comm_usable() finds out. */
static inline bool is_ours(const unsigned *epoch)
{
    return __builtin_expect(pvn_fork_surely() == *epoch, 1);
}

/* True if the comm has to poll its control connection now. */
static inline bool attends(struct pvn_comm *c)
{
    return __builtin_expect(--c->attend_in < 0, 0);
}

/* Begins every data call that needs a check. 0: go on; -EAGAIN: not up yet; else the comm's
 * error. */
static int ready(struct pvn_comm *c, const char *call)
{
    int rc = comm_usable(c, call);

    if (rc || c->engine)
        return rc;
    rc = comm_come_up(c);
    return rc == 0 && c->help ? -EAGAIN : rc; /* this call has not taken the comm */
}

/* Turns the engine's result into that of a data call. */
static int answer(struct pvn_comm *c, int rc, const char *call)
{
    if (rc == 0)
        return 0;
    if (pvn_engine_err(c->engine))
        return comm_engine_failed(c);
    if (rc == -EMSGSIZE)
        return comm_refuse(c, rc, PVN_FAULT_ARGUMENT,
                           "%s: a message may have 2^%d bytes less one at most", call,
                           (int)MAX_TOTAL_LOG2);
    return comm_refuse(c, rc, PVN_FAULT_ARGUMENT, "%s: wrong arguments", call);
}

/* Turns the result of a data call into NCCL's. */
static int result(const struct pvn_comm *c, int rc)
{
    return rc ? (int)pvn_result_of(rc, pvn_comm_err(c)) : PVN_RESULT_SUCCESS;
}

static int no_request(struct pvn_comm *c, int rc, const char *call)
{
    /* There was no room, and the caller may make only this call until there is. */
    if (rc == 0 && attends(c))
        comm_attend(c);
    /* There will never be room if the receiver has closed. */
    if (rc == 0 && c->link.sender && c->link.conn->goodbye && pvn_engine_pending(c->engine) == 0)
        comm_fail_by_peer(c);
    return result(c, answer(c, rc, call));
}

static bool mr_ok(const struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    return !m || m->comm == c;
}

/* True if the registration has these bytes, or the lanes need none: lanes that write into memory
 * reach only what is registered. */
static inline bool covers(const struct pvn_comm *c, const struct pvn_mr *m, const void *data,
                          size_t size)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)m->addr;

    return (at <= m->len && size <= m->len - at) || size == 0 ||
           (!pvn_engine_needs_registration(c->engine) && !(size >> MAX_TOTAL_LOG2));
}

/* Checks a buffer without a memory handle. The lanes may be TCP's now, and an adapter's when a late
 * peer comes. */
__attribute__((noinline, cold)) static int check_unregistered(struct pvn_comm *c, const char *call,
                                                              size_t size)
{
    bool comes_back = c->dev->nvia > 1 && pvn_conn_failover(c->link.conn);

    if (size == 0)
        return 0;
    if (size >> MAX_TOTAL_LOG2)
        return answer(c, -EMSGSIZE, call);
    if (!comes_back && !pvn_engine_needs_registration(c->engine))
        return 0;
    return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT,
                       "%s: %zu bytes without a memory handle: device %s reaches only what regMr "
                       "has registered on this comm",
                       call, size, c->dev->name);
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

/* NCCL's array of memory handles as the engine's: each handle points to a struct pvn_mr, see struct
 * pvn_comm_mr. C does not convert the type by itself. */
static const struct pvn_mr *const *mr_list(void *const *mrs)
{
    return (const struct pvn_mr *const *)mrs;
}

/* The checks that a healthy comm and a message with bytes and a registration do not need. 0;
 * -EAGAIN: not now; -EBUSY: no new sends now; or an error. */
__attribute__((noinline)) static int isend_ready(struct pvn_comm *c, const void *data, size_t size,
                                                 const struct pvn_comm_mr *mr, void *handle)
{
    int rc = ready(c, "isend");

    if (rc)
        return rc;
    if (!mr_ok(c, mr))
        return comm_mr_refuse(c, mr);
    if (!c->link.sender || (!data && size))
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "isend: %s",
                           c->link.sender ? "bytes at address 0" : "this is the receiving end");
    if (!mr && (rc = check_unregistered(c, "isend", size)) != 0)
        return rc;
    if (c->link.state == PVN_LINK_DRAINS)
        return -EBUSY;
    if (c->profile)
        pvn_profile_send(c->profile, pvn_engine_next(c->engine), handle);
    return 0;
}

/* Sends a message that has passed the other checks. This is a function of its own, so that the call
 * of a healthy comm ends in a jump to it. */
__attribute__((noinline)) static int isend(struct pvn_comm *c, const void *data, size_t size,
                                           int tag, const struct pvn_comm_mr *mr, void **request)
{
    struct pvn_req *req;
    int rc;

    if (mr && !covers(c, &mr->mr, data, size)) {
        *request = NULL;
        return result(c, refuse_range(c, "isend", &mr->mr, data, size));
    }
    rc = eng_isend(c->engine, data, size, tag, mr ? &mr->mr : NULL, &req);
    *request = req;
    return __builtin_expect(req != NULL, 1) ? PVN_RESULT_SUCCESS : no_request(c, rc, "isend");
}

static int isend_checked(struct pvn_comm *c, const void *data, size_t size, int tag,
                         const struct pvn_comm_mr *mr, void *handle, void **request)
{
    int rc = isend_ready(c, data, size, mr, handle);

    if (rc == -EBUSY)
        return no_request(c, 0, "isend");
    if (rc)
        return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    return isend(c, data, size, tag, mr, request);
}

/* Sends after the checks of isend_ready(). A comm with help is taken before. */
__attribute__((noinline)) static int isend_in_turn(struct pvn_comm *c, const void *data,
                                                   size_t size, int tag,
                                                   const struct pvn_comm_mr *mr, void *handle,
                                                   void **request)
{
    int rc;

    *request = NULL;
    if (c->magic != COMM_MAGIC || !c->help)
        return isend_checked(c, data, size, tag, mr, handle, request);
    if (!comm_help_take(c->help))
        return PVN_RESULT_SUCCESS;
    rc = isend_checked(c, data, size, tag, mr, handle, request);
    comm_help_give(c->help);
    return rc;
}

int pvn_comm_isend(struct pvn_comm *c, const void *data, size_t size, int tag,
                   const struct pvn_comm_mr *mr, void *handle, void **request)
{
    if (__builtin_expect(is_ours(&c->sends) && mr && mr->comm == c && data, 1))
        return isend(c, data, size, tag, mr, request);
    return isend_in_turn(c, data, size, tag, mr, handle, request);
}

/* The checks of isend_ready(), for irecv. */
__attribute__((noinline)) static int irecv_ready(struct pvn_comm *c, int n, void *const *data,
                                                 const size_t *sizes, void *const *handles)
{
    int rc = ready(c, "irecv");

    if (rc)
        return rc;
    if (c->link.sender || n < 1 || n > PVN_MAX_RECVS)
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "irecv of %d buffers: %s", n,
                           c->link.sender ? "this is the sending end" : "1 to 8 are possible");
    if (c->profile && handles)
        pvn_profile_receive(c->profile, pvn_engine_next(c->engine), n, data, sizes, handles);
    return 0;
}

/* Memory behind data that the registration has. */
static size_t reach(const struct pvn_mr *m, const void *data)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)m->addr;

    return at < m->len ? m->len - at : 0;
}

/* Result of check_buffer if only the first bytes of the buffer are registered. Its others are 0 and the
 * error of the call. */
enum { CUT = 1 };

__attribute__((noinline, cold)) static int check_in_full(struct pvn_comm *c, void *data,
                                                         size_t size, const struct pvn_comm_mr *mr)
{
    if (!mr_ok(c, mr))
        return comm_mr_refuse(c, mr);
    if (!data && size)
        return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "irecv: %zu bytes at address 0", size);
    if (!mr)
        return check_unregistered(c, "irecv", size);
    if (covers(c, &mr->mr, data, size))
        return 0;
    if (reach(&mr->mr, data) && !(size >> MAX_TOTAL_LOG2))
        return CUT;
    return refuse_range(c, "irecv", &mr->mr, data, size);
}

static inline int check_buffer(struct pvn_comm *c, void *data, size_t size,
                               const struct pvn_comm_mr *mr)
{
    if (__builtin_expect(mr && mr->comm == c && data && covers(c, &mr->mr, data, size), 1))
        return 0;
    return check_in_full(c, data, size, mr);
}

__attribute__((noinline)) static int check_more(struct pvn_comm *c, int n, void *const *data,
                                                const size_t *sizes, void *const *mrs, int first)
{
    int all = first;

    for (int i = 1; i < n; i++) {
        int rc = check_buffer(c, data[i], sizes[i], mrs ? mrs[i] : NULL);

        if (rc < 0)
            return rc;
        all |= rc;
    }
    return all;
}

/* Receives into the parts of the buffers that are registered. NCCL 2.12 and 2.13 post a receive of the
 * shared buffers with the size of the whole message, which may be beyond their end; what arrives is
 * one slot (recvProxyProgress in src/transport/net.cc of 2.13.4). A message that is really longer ends
 * with an error when it comes. */
__attribute__((noinline, cold)) static int receive_cut(struct pvn_comm *c, int n, void *const *data,
                                                       const size_t *sizes, const int *tags,
                                                       void *const *mrs, void **request)
{
    size_t cut[PVN_MAX_RECVS];

    for (int i = 0; i < n; i++) {
        const struct pvn_comm_mr *mr = mrs[i];
        size_t most = mr ? reach(&mr->mr, data[i]) : sizes[i];

        cut[i] = sizes[i] < most ? sizes[i] : most;
    }
    return pvn_comm_irecv(c, n, data, cut, tags, mrs, NULL, request);
}

int pvn_comm_irecv(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                   const int *tags, void *const *mrs, void *const *handles, void **request)
{
    struct pvn_req *req;
    int rc;

    *request = NULL;
    if (__builtin_expect(!is_ours(&c->receives) || n < 1 || n > PVN_MAX_RECVS, 0)) {
        rc = irecv_ready(c, n, data, sizes, handles);
        if (rc)
            return rc == -EAGAIN ? PVN_RESULT_SUCCESS : result(c, rc);
    }
    rc = check_buffer(c, data[0], sizes[0], mrs ? mrs[0] : NULL);
    if (__builtin_expect(rc >= 0 && n > 1, 0))
        rc = check_more(c, n, data, sizes, mrs, rc);
    if (__builtin_expect(rc != 0, 0))
        return rc == CUT ? receive_cut(c, n, data, sizes, tags, mrs, request) : result(c, rc);
    rc = eng_irecv(c->engine, n, data, sizes, tags, mr_list(mrs), &req);
    *request = req;
    return __builtin_expect(req != NULL, 1) ? PVN_RESULT_SUCCESS : no_request(c, rc, "irecv");
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
    for (i = 0; i < n; i++) {
        const struct pvn_comm_mr *mr = mrs ? mrs[i] : NULL;

        if (!mr_ok(c, mr))
            return comm_mr_refuse(c, mr);
        if (!mr && (rc = check_unregistered(c, "iflush", sizes[i])) != 0)
            return rc;
        if (mr && !covers(c, &mr->mr, data[i], sizes[i]))
            return refuse_range(c, "iflush", &mr->mr, data[i], sizes[i]);
    }
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

static inline int size_of(size_t size)
{
    return size > INT_MAX ? INT_MAX : (int)size;
}

/* Writes the sizes of a receive of several buffers, except the first one. */
__attribute__((noinline)) static int more_sizes(const struct pvn_req *req, int *sizes)
{
    for (int i = 1; i < req->sizes; i++)
        sizes[i] = size_of(eng_size(req, i));
    return PVN_RESULT_SUCCESS;
}

/* Gives back a request that is done. It stays as it is until the next irecv. The caller's array has
 * room for as many sizes as the request has buffers. */
static inline int finish(struct pvn_req *req, int *done, int *sizes)
{
    *done = 1;
    eng_finish(req);
    if (!sizes)
        return PVN_RESULT_SUCCESS;
    sizes[0] = size_of(eng_size(req, 0));
    return __builtin_expect(req->sizes > 1, 0) ? more_sizes(req, sizes) : PVN_RESULT_SUCCESS;
}

/* A test that does not end at once: attends to the comm if it is time, and polls its lanes. */
__attribute__((noinline)) static int test(struct pvn_comm *c, struct pvn_req *req, int *done,
                                          int *sizes)
{
    int rc;

    *done = 0;
    if (!is_ours(&c->epoch)) {
        if (c->magic != COMM_MAGIC || pvn_fork_in_child(c->epoch))
            return result(c, comm_usable(c, "test"));
        /* This call has not been counted: pvn_comm_test counts if it is certain of the process,
         * test_in_turn if there is help. */
        if (!c->help)
            (void)attends(c);
    }
    /* A request that is done attends as well: a sender whose every message fits into the kernel's buffer must notice
     * its peer's end, too. */
    if (c->attend_in < 0)
        comm_attend(c);
    rc = eng_progress_for(req);
    if (eng_is_done(req))
        return finish(req, done, sizes);
    return rc ? result(c, test_failed(req, rc)) : PVN_RESULT_SUCCESS;
}

__attribute__((noinline)) static int test_in_turn(struct pvn_comm *c, struct pvn_req *req,
                                                  int *done, int *sizes)
{
    int rc;

    *done = 0;
    if (!comm_help_take(c->help))
        return PVN_RESULT_SUCCESS;
    (void)attends(c);
    rc = test(c, req, done, sizes);
    comm_help_give(c->help);
    return rc;
}

int pvn_comm_test(void *request, int *done, int *sizes)
{
    struct pvn_req *req = request;
    struct pvn_comm *c = pvn_req_owner(req);

    /* Nearly all calls end here. They need no registers except those of their arguments. */
    if (is_ours(&c->tests) && !attends(c)) {
        if (eng_is_still(req)) {
            *done = 0;
            return PVN_RESULT_SUCCESS;
        }
        if (eng_is_done(req))
            return finish(req, done, sizes);
    }
    return c->help ? test_in_turn(c, req, done, sizes) : test(c, req, done, sizes);
}
