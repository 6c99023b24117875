/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank/slots.h"

#include <string.h>

uint64_t pvn_in_steps(const struct pvn_in *in)
{
    uint64_t most = 0;

    for (int i = 0; i < in->streams; i++)
        most = in->total[i] > most ? in->total[i] : most;
    return most;
}

void pvn_out_start(struct pvn_out *o)
{
    o->filled = o->posted = o->done = 0;
}

void pvn_in_start(struct pvn_in *in)
{
    in->posted = in->arrived = in->done = 0;
    memset(in->used, 0, sizeof(in->used));
}

int pvn_out_progress(struct pvn_rank *r, struct pvn_out *o)
{
    uint64_t k = o->posted % o->steps;
    int moved = 0, done = 0;
    ncclResult_t rc;

    if (o->posted < o->filled) {
        pvn_rank_at(r, "isend");
        rc = pvn_netdrv_isend(r->drv, o->comm, o->buf + o->stride * k, o->size[k], o->tag, o->mh,
                              NULL, &o->req[k]);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(r, "isend", rc);
        moved = o->req[k] ? 1 : 0;
        o->posted += (uint64_t)moved;
    }
    if (o->done == o->posted)
        return moved;
    pvn_rank_at(r, "test");
    rc = pvn_netdrv_test(r->drv, o->req[o->done % o->steps], &done, NULL);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(r, "test", rc);
    o->done += (uint64_t)(done != 0);
    return moved | (done != 0);
}

/* Lists the streams that take part in step `step`, in order. Returns their number; 0 if there are
 * none, or if one has no free slot. */
static int take_part(const struct pvn_in *in, uint64_t step, int *stream)
{
    int n = 0;

    for (int i = 0; i < in->streams; i++) {
        if (step >= in->total[i])
            continue;
        if (step - in->used[i] >= in->steps)
            return 0;
        stream[n++] = i;
    }
    return n;
}

/* Posts a receive for the next step, if it has room. */
static int post(struct pvn_rank *r, struct pvn_in *in)
{
    uint64_t k = in->posted % in->steps;
    void *data[PVN_STREAMS_MAX], *mh[PVN_STREAMS_MAX];
    size_t size[PVN_STREAMS_MAX];
    int tag[PVN_STREAMS_MAX], stream[PVN_STREAMS_MAX];
    int n = take_part(in, in->posted, stream);
    ncclResult_t rc;

    if (!n)
        return 0;
    for (int i = 0; i < n; i++) {
        data[i] = in->buf + in->stride * k + in->slot * (size_t)stream[i];
        size[i] = in->slot;
        tag[i] = in->tag + stream[i];
        mh[i] = in->mh;
    }
    in->req[k] = NULL;
    pvn_rank_at(r, "irecv");
    rc = pvn_netdrv_irecv(r->drv, in->comm, n, data, size, tag, mh, NULL, &in->req[k]);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(r, "irecv", rc);
    if (!in->req[k])
        return 0;
    in->posted++;
    return 1;
}

/* Makes received data visible before it is used: *request becomes the flush, if one is needed. */
static int flush(struct pvn_rank *r, struct pvn_in *in, uint64_t step, int *sizes, void **request)
{
    void *data[PVN_STREAMS_MAX], *mh[PVN_STREAMS_MAX];
    int n = 0;

    for (int i = 0; i < in->streams; i++) {
        if (step >= in->total[i])
            continue;
        data[n] = in->buf + in->stride * (step % in->steps) + in->slot * (size_t)i;
        mh[n++] = in->mh;
    }
    return pvn_messages_flush(r, in->comm, n, data, sizes, mh, request);
}

/* Tests the oldest receive: 1 if it has arrived, 0, or -1. */
static int arrive(struct pvn_rank *r, struct pvn_in *in)
{
    int done = 0, got[PVN_STREAMS_MAX], at = 0;
    uint64_t k = in->arrived % in->steps;
    ncclResult_t rc;

    if (in->arrived == in->posted)
        return 0;
    memset(got, 0xff, sizeof(got));
    pvn_rank_at(r, "test");
    rc = pvn_netdrv_test(r->drv, in->req[k], &done, got);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(r, "test", rc);
    if (!done)
        return 0;
    for (int i = 0; i < in->streams; i++) {
        if (in->arrived >= in->total[i])
            continue;
        if (got[at] == -1)
            r->sizes_missing = 1;
        in->size[k][i] = got[at] == -1 ? PVN_SIZE_UNSAID : (size_t)got[at];
        at++;
    }
    return flush(r, in, in->arrived++, got, &in->req[k]) ? -1 : 1;
}

/* Tests the oldest arrived receive: 1 if its data is visible, 0, or -1. */
static int complete_oldest(struct pvn_rank *r, struct pvn_in *in)
{
    void *request = in->req[in->done % in->steps];
    int done = request == NULL;
    ncclResult_t rc;

    if (in->done == in->arrived)
        return 0;
    if (request) {
        pvn_rank_at(r, "test");
        rc = pvn_netdrv_test(r->drv, request, &done, NULL);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(r, "test", rc);
    }
    in->done += (uint64_t)(done != 0);
    return done != 0;
}

int pvn_in_progress(struct pvn_rank *r, struct pvn_in *in)
{
    int moved = post(r, in), a, b;

    if (moved < 0)
        return moved;
    a = arrive(r, in);
    b = a < 0 ? -1 : complete_oldest(r, in);
    return b < 0 ? -1 : moved | a | b;
}
