/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What every message passes through between NCCL's interface and the engine, inline: whether the
 * comm may be used and the handles are its own. Everything else takes the slow path, in comm.c.
 *
 * Only the adapters and comm.c include this; what the calls promise is in comm.h.
 */
#ifndef PVN_COMM_COMM_FAST_H
#define PVN_COMM_COMM_FAST_H

#include <assert.h>
#include <limits.h>
#include <stddef.h>

#include "comm/comm_priv.h"
#include "engine/engine_fast.h"
#include "base/fork.h"
#include "base/result.h"

static_assert(offsetof(struct pvn_comm_mr, mr) == 0, "a handle is the engine's registration");

/* comm.c: the same calls on the slow path: every case, with every check. */
int comm_isend_slow(struct pvn_comm *c, const void *data, size_t size, int tag,
                    const struct pvn_comm_mr *mr, void *handle, void **request);
int comm_irecv_slow(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                    const int *tags, void *const *mrs, void *const *handles, void **request);
/* The same for a comm that is up and may be used so, and registrations of its own. */
int comm_irecv_checked(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void **request);
int comm_isend_checked(struct pvn_comm *c, const void *data, size_t size, int tag,
                       const struct pvn_mr *mr, void **request);
/* What follows when eng_fast_isend has not sent the message, and eng_fast_irecv has not published
 * the slot. They take what the caller gave from the message, so that nothing of it has to be kept
 * in registers for them. */
int comm_isend_not_posted(const struct send_msg *m, int rc, void **request);
int comm_irecv_not_published(struct recv_group *g, int rc, void **request);
int comm_test_any(void *request, int *done, int *sizes);
/* Of a request that is not done yet, or that has several sizes. */
int comm_test_open(struct pvn_req *req, int *done, int *sizes);

/* Whether a comm's epoch (or the one that says what it may be used for) is this process's. The number
 * is hardly met by chance, so this is also the check that the pointer is a comm. False: it may be ours
 * nevertheless, and the slow path finds out. */
static inline bool comm_is_ours(const unsigned *epoch)
{
    return __builtin_expect(pvn_fork_surely() == *epoch, 1);
}

/* Whether the comm is to look at its control connection now. */
static inline bool comm_attends(struct pvn_comm *c)
{
    return __builtin_expect(--c->attend_in < 0, 0);
}

/* handle: NCCL's, for its profiler. A comm that has a profiler takes the slow path. */
static inline int pvn_comm_isend(struct pvn_comm *c, const void *data, size_t size, int tag,
                                 const struct pvn_comm_mr *mr, void *handle, void **request)
{
    if (__builtin_expect(!comm_is_ours(&c->sends) || !mr || mr->comm != c || !data, 0))
        return comm_isend_slow(c, data, size, tag, mr, handle, request);
    struct pvn_engine *e = c->engine;
    struct send_msg *m = eng_fast_message(e);
    if (__builtin_expect(!m, 0))
        return comm_isend_checked(c, data, size, tag, &mr->mr, request);
    int rc = eng_fast_isend(e, m, data, size, tag, &mr->mr);
    if (rc != 1)
        return comm_isend_not_posted(m, rc, request);
    *request = m;
    return PVN_RESULT_SUCCESS;
}

/* handles: NULL, or as many as buffers. */
static inline int pvn_comm_irecv(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                                 const int *tags, void *const *mrs, void *const *handles,
                                 void **request)
{
    if (__builtin_expect(!comm_is_ours(&c->receives) || n != 1 || !mrs, 0))
        return comm_irecv_slow(c, n, data, sizes, tags, mrs, handles, request);
    struct pvn_comm_mr *mr = mrs[0];
    if (__builtin_expect(!mr || mr->comm != c || !data[0], 0))
        return comm_irecv_slow(c, n, data, sizes, tags, mrs, handles, request);
    struct pvn_engine *e = c->engine;
    struct recv_group *g = eng_fast_group(e);
    if (__builtin_expect(!g, 0))
        return comm_irecv_checked(c, n, data, sizes, tags, mrs, request);
    int rc = eng_fast_irecv(e, g, data[0], sizes[0], tags[0], &mr->mr);
    if (__builtin_expect(rc != 0, 0))
        return comm_irecv_not_published(g, rc, request);
    *request = g;
    return PVN_RESULT_SUCCESS;
}

static inline int comm_size(size_t size)
{
    return size > INT_MAX ? INT_MAX : (int)size;
}

static inline int comm_finish(struct pvn_req *req, int *done, int *sizes)
{
    size_t size = eng_fast_finish(req);

    *done = 1;
    if (sizes)
        *sizes = comm_size(size);
    return PVN_RESULT_SUCCESS;
}

static inline int pvn_comm_test(void *request, int *done, int *sizes)
{
    struct pvn_req *req = request;

    struct pvn_comm *c = pvn_req_owner(req);
    if (!comm_is_ours(&c->epoch))
        return comm_test_any(request, done, sizes);
    /* Most calls end here: NCCL tests all its comms until something comes. */
    if (eng_fast_is_still(req)) {
        *done = 0;
        return PVN_RESULT_SUCCESS;
    }
    /* Whether done or not: a sender whose every message fits into the kernel's buffer must notice
     * its peer's end, too. */
    if (comm_attends(c))
        return comm_test_any(request, done, sizes);
    if (eng_fast_is_done(req))
        return comm_finish(req, done, sizes);
    return comm_test_open(req, done, sizes);
}

#endif
