/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What every message passes through between NCCL's interface and the engine, inline: whether the
 * comm may be used and the handles are its own. Whatever is not as usual goes to comm.c.
 *
 * Only the adapters and comm.c include this; what the calls promise is in comm.h.
 */
#ifndef PVN_COMM_COMM_HOT_H
#define PVN_COMM_COMM_HOT_H

#include <assert.h>
#include <limits.h>
#include <stddef.h>

#include "comm/comm_priv.h"
#include "engine/engine_hot.h"
#include "base/fork.h"
#include "base/result.h"

static_assert(offsetof(struct pvn_comm_mr, mr) == 0, "a handle is the engine's registration");

/* comm.c: the same calls in every other case, with every check, and where nothing is left to be
 * checked. */
int comm_isend_unusual(struct pvn_comm *c, void *data, size_t size, int tag, struct pvn_comm_mr *mr,
                       void **request);
int comm_isend_general(struct pvn_comm *c, void *data, size_t size, int tag, struct pvn_comm_mr *mr,
                       void **request);
int comm_irecv_unusual(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void **request);
int comm_irecv_general(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void **request);
/* What follows an answer of eng_hot_isend and eng_hot_irecv. */
int comm_isend_later(struct send_msg *m, int rc, void **request);
int comm_irecv_later(struct recv_group *g, int rc, void **request);
int comm_test_any(void *request, int *done, int *sizes);
/* Of a request that has not been found to be done with one size,
 * and with nothing else to be said. */
int comm_test_open(struct pvn_req *req, int *done, int *sizes);

/* Of a comm's epoch, or the one that says what it may be used for. It is a number that
 * hardly anything but a comm has there, so this is also the check that it is one.
 * False: it may be ours nevertheless. */
static inline bool comm_surely(unsigned epoch)
{
    return __builtin_expect(pvn_fork_surely(epoch), 1);
}

/* Whether the comm is to look at its control connection now. */
static inline bool comm_attends(struct pvn_comm *c)
{
    return __builtin_expect(--c->calm < 0, 0);
}

static inline int pvn_comm_isend(struct pvn_comm *c, void *data, size_t size, int tag,
                                 struct pvn_comm_mr *mr, void **request)
{
    if (__builtin_expect(!comm_surely(c->sends) || !mr || mr->comm != c || !data, 0))
        return comm_isend_unusual(c, data, size, tag, mr, request);
    struct pvn_engine *e = c->engine;
    struct send_msg *m = eng_hot_place(e);
    if (__builtin_expect(!m, 0))
        return comm_isend_general(c, data, size, tag, mr, request);
    int rc = eng_hot_isend(e, m, data, size, tag, &mr->mr);
    if (rc != 1)
        return comm_isend_later(m, rc, request);
    *request = m;
    return PVN_RESULT_SUCCESS;
}

static inline int pvn_comm_irecv(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                                 const int *tags, void *const *mrs, void **request)
{
    if (__builtin_expect(!comm_surely(c->receives) || n != 1 || !mrs, 0))
        return comm_irecv_unusual(c, n, data, sizes, tags, mrs, request);
    struct pvn_comm_mr *mr = mrs[0];
    if (__builtin_expect(!mr || mr->comm != c || !data[0], 0))
        return comm_irecv_unusual(c, n, data, sizes, tags, mrs, request);
    struct pvn_engine *e = c->engine;
    struct recv_group *g = eng_hot_group(e);
    if (__builtin_expect(!g, 0))
        return comm_irecv_general(c, n, data, sizes, tags, mrs, request);
    int rc = eng_hot_irecv(e, g, data[0], sizes[0], tags[0], &mr->mr);
    if (__builtin_expect(rc != 0, 0))
        return comm_irecv_later(g, rc, request);
    *request = g;
    return PVN_RESULT_SUCCESS;
}

static inline int comm_size(size_t size)
{
    return size > INT_MAX ? INT_MAX : (int)size;
}

static inline int comm_finish(struct pvn_req *req, int *done, int *sizes)
{
    size_t size = eng_hot_finish(req);

    *done = 1;
    if (sizes)
        *sizes = comm_size(size);
    return PVN_RESULT_SUCCESS;
}

static inline int pvn_comm_test(void *request, int *done, int *sizes)
{
    struct pvn_req *req = request;

    /* Whether done or not: a sender whose every message fits into the kernel's buffer must hear of
     * its peer's end too. */
    struct pvn_comm *c = pvn_req_owner(req);
    if (!comm_surely(c->epoch) || comm_attends(c))
        return comm_test_any(request, done, sizes);
    if (eng_hot_is_done(req))
        return comm_finish(req, done, sizes);
    if (req->state != REQ_OPEN || !eng_hot_no_news(req))
        return comm_test_open(req, done, sizes);
    *done = 0;
    return PVN_RESULT_SUCCESS;
}

#endif
