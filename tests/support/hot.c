/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "support/hot.h"

#include <errno.h>

#include "engine/engine_fast.h"

int hot_isend(struct pvn_engine *e, const void *data, size_t size, int tag, const struct pvn_mr *mr,
              struct pvn_req **req)
{
    struct send_msg *m = eng_fast_message(e);
    /* The compiler relies on it. */
    if ((uintptr_t)m % _Alignof(struct send_msg))
        return -ENOTRECOVERABLE;
    int rc = m ? eng_fast_isend(e, m, data, size, tag, mr) : -EAGAIN;
    if (rc == -EAGAIN)
        return pvn_engine_isend(e, data, size, tag, mr, req);
    *req = rc == 1 ? &m->req : NULL;
    if (rc < 0)
        return eng_fail_lane(e, e->cfg.lanes[0], rc);
    return rc == 0 ? pvn_engine_progress(e) : 0;
}

int hot_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes, const int *tags,
              const struct pvn_mr *const *mrs, struct pvn_req **req)
{
    struct recv_group *g = n == 1 ? eng_fast_group(e) : NULL;
    if (!g)
        return pvn_engine_irecv(e, n, data, sizes, tags, mrs, req);
    int rc = eng_fast_irecv(e, g, data[0], sizes[0], tags[0], mrs[0]);
    if (rc != 0)
        rc = eng_publish_later(e, rc);
    *req = rc == 0 ? &g->req : NULL;
    return rc;
}

/* What no lane's words show. */
static bool has_more_to_do(const struct pvn_engine *e)
{
    return e->stopped || e->unposted || e->announced || e->several_lanes ||
           e->cfg.lanes[0]->kick_due;
}

int hot_test(struct pvn_req *req, int *done, size_t *sizes)
{
    *done = 0;
    if (eng_fast_is_still(req))
        return has_more_to_do(req->e) ? -ENOTRECOVERABLE : 0;
    if (!eng_fast_is_done(req))
        return pvn_engine_test(req, done, sizes);
    size_t size = eng_fast_finish(req);
    if (sizes)
        sizes[0] = size;
    *done = 1;
    return 0;
}
