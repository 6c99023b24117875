/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What stops an engine: an error, or the loss of a lane that a failover replaces. */
#include "engine/engine_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

bool pvn_engine_may_pause(const struct pvn_engine *e)
{
    bool delivered = true;
    for (int i = 0; i < e->cfg.nlanes; i++)
        delivered &= (e->cfg.lanes[i]->caps & PVN_LANE_SENT_IS_DELIVERED) != 0;
    return e->cfg.outlives_lanes && delivered;
}

bool pvn_engine_paused(const struct pvn_engine *e)
{
    return e->paused;
}

const struct pvn_err *pvn_engine_pause_reason(const struct pvn_engine *e)
{
    return &e->pause_err;
}

/* The lanes are left alone, and may be closed while requests are still tested. */
static void stop(struct pvn_engine *e)
{
    e->stopped = true;
    e->watch = &e->no_watch;
}

void pvn_engine_pause(struct pvn_engine *e, const struct pvn_err *why)
{
    if (e->paused || e->failed)
        return;
    e->paused = e->unposted = true;
    stop(e);
    e->pause_err = *why;
}

int eng_fail(struct pvn_engine *e, int code, enum pvn_fault fault, const char *fmt, ...)
{
    if (e->failed)
        return e->err.code;
    char text[PVN_ERR_REASON_LEN];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    e->failed = true;
    stop(e);
    pvn_err_set(&e->err, code, "%s", text);
    pvn_err_set_fault(&e->err, fault);
    return code;
}

/* What another lane may do better, and not what the peer or the caller did wrong. */
static bool is_loss(const struct pvn_err *err)
{
    return err->code != -EPROTO && err->code != -EMSGSIZE && err->code != -EBADMSG &&
           err->fault != PVN_FAULT_ARGUMENT && err->fault != PVN_FAULT_INTERNAL;
}

int eng_fail_lane(struct pvn_engine *e, struct pvn_lane *l, int code)
{
    if (l->err.code == 0)
        return eng_fail(e, code, PVN_FAULT_INTERNAL, "lane %d (%s) failed without a reason", l->idx,
                        l->ops->name);
    if (!e->failed && !l->wrong && is_loss(&l->err) && pvn_engine_may_pause(e)) {
        pvn_engine_pause(e, &l->err);
        return 0;
    }
    pvn_engine_fail(e, &l->err);
    return e->err.code;
}

void pvn_engine_fail(struct pvn_engine *e, const struct pvn_err *err)
{
    if (e->failed)
        return;
    e->failed = true;
    stop(e);
    e->err = *err;
    if (e->err.code >= 0)
        e->err.code = -EIO;
}

const struct pvn_err *pvn_engine_err(const struct pvn_engine *e)
{
    return e->failed ? &e->err : NULL;
}
