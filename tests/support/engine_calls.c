/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/engine_calls.h"

#include <errno.h>

#include "engine/engine_calls.h"

int pvn_engine_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                     const struct pvn_mr *mr, struct pvn_req **req)
{
    /* The compiler relies on this alignment. */
    if (e->tx && (uintptr_t)e->tx->msg % _Alignof(struct send_msg))
        return -ENOTRECOVERABLE;
    return eng_isend(e, data, size, tag, mr, req);
}

int pvn_engine_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                     const int *tags, const struct pvn_mr *const *mrs, struct pvn_req **req)
{
    return eng_irecv(e, n, data, sizes, tags, mrs, req);
}

static bool is_still(const struct pvn_lane_watch *w)
{
    struct pvn_lane_watch unused = *w;

    return eng_watch_is_still(&unused);
}

bool pvn_engine_is_still(const struct pvn_req *req)
{
    return eng_is_still(req);
}

/* True if there is work that the lanes' watched words do not show. */
static bool has_more_to_do(const struct pvn_engine *e)
{
    return e->state != ENG_RUNS || e->unposted || e->cfg.nlanes > 1 || e->cfg.lanes[0]->kick_due;
}

int pvn_engine_test(struct pvn_req *req, int *done, size_t *sizes)
{
    *done = 0;
    if (req->state == REQ_OPEN && is_still(req->e->watch) && has_more_to_do(req->e))
        return -ENOTRECOVERABLE;
    if (eng_is_still(req))
        return 0;
    int rc = eng_progress_for(req);
    if (!eng_is_done(req))
        return rc;
    *done = req->sizes;
    for (int i = 0; sizes && i < req->sizes; i++)
        sizes[i] = eng_size(req, i);
    eng_finish(req);
    return 0;
}
