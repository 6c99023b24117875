/*
 * What every message passes through between NCCL's interface and the engine, inline: whether the
 * comm may be used and the handles are its own. Whatever is not as usual goes to comm.c.
 *
 * Only the adapters include this; what the calls promise is in comm.h.
 */
#ifndef PVN_CORE_COMM_HOT_H
#define PVN_CORE_COMM_HOT_H

#include <assert.h>
#include <stddef.h>

#include "core/comm_priv.h"
#include "core/fork.h"

static_assert(offsetof(struct pvn_comm_mr, mr) == 0, "a handle is the engine's registration");

/* comm.c: the same calls in every other case, and what follows an engine's answer that is not
 * simply a request. */
int comm_isend_unusual(struct pvn_comm *c, void *data, size_t size, int tag, struct pvn_comm_mr *mr,
                       void **request);
int comm_irecv_unusual(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                       const int *tags, void *const *mrs, void **request);
int comm_test_unusual(struct pvn_req *req, int *done, size_t *sizes);
int comm_no_request(struct pvn_comm *c, int rc, const char *call);
int comm_test_failed(struct pvn_req *req, int rc);
void comm_attend(struct pvn_comm *c);

static inline bool comm_ours(const struct pvn_comm *c)
{
    return __builtin_expect(c->magic == COMM_MAGIC && !pvn_fork_alien(c->epoch), 1);
}

static inline bool comm_mr_ok(const struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    return !m || (m->magic == MR_MAGIC && m->comm == c);
}

static inline int pvn_comm_isend(struct pvn_comm *c, void *data, size_t size, int tag,
                                 struct pvn_comm_mr *mr, void **request)
{
    struct pvn_engine *e = comm_ours(c) ? c->sends : NULL;
    struct pvn_req *req;

    if (__builtin_expect(!e || !comm_mr_ok(c, mr) || (!data && size), 0))
        return comm_isend_unusual(c, data, size, tag, mr, request);
    int rc = pvn_engine_isend(e, data, size, tag, (const struct pvn_mr *)mr, &req);
    *request = req;
    return __builtin_expect(req != NULL, 1) ? 0 : comm_no_request(c, rc, "isend");
}

static inline bool comm_buffers_ok(const struct pvn_comm *c, int n, void *const *data,
                                   const size_t *sizes, void *const *mrs)
{
    for (int i = 0; i < n; i++)
        if (!comm_mr_ok(c, mrs[i]) || (!data[i] && sizes[i]))
            return false;
    return true;
}

static inline int pvn_comm_irecv(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                                 const int *tags, void *const *mrs, void **request)
{
    struct pvn_engine *e = comm_ours(c) ? c->receives : NULL;
    struct pvn_req *req;

    if (__builtin_expect(!e || n < 1 || n > PVN_MAX_RECVS || !mrs ||
                             !comm_buffers_ok(c, n, data, sizes, mrs),
                         0))
        return comm_irecv_unusual(c, n, data, sizes, tags, mrs, request);
    int rc = pvn_engine_irecv(e, n, data, sizes, tags, (const struct pvn_mr *const *)mrs, &req);
    *request = req;
    return __builtin_expect(req != NULL, 1) ? 0 : comm_no_request(c, rc, "irecv");
}

static inline int pvn_comm_test(void *request, int *done, size_t *sizes)
{
    struct pvn_req *req = request;

    if (__builtin_expect(!req || !comm_ours(pvn_req_owner(req)), 0))
        return comm_test_unusual(req, done, sizes);
    struct pvn_comm *c = pvn_req_owner(req);
    /* Whether done or not: a sender whose every message fits into the kernel's buffer must hear of
     * its peer's end too. */
    if (__builtin_expect((c->calls++ & (ATTEND_EVERY - 1)) == 0, 0))
        comm_attend(c);
    int rc = pvn_engine_test(req, done, sizes);
    return __builtin_expect(rc == 0, 1) ? 0 : comm_test_failed(req, rc);
}

#endif
