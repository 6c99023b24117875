/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Stops an engine: for good after an error, or until a failover has replaced a lost lane. */
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
    return e->state == ENG_PAUSED;
}

const struct pvn_err *pvn_engine_pause_reason(const struct pvn_engine *e)
{
    return &e->pause_err;
}

/* The lanes may be closed while requests are still tested, so no test may read their watched words. */
static void stop(struct pvn_engine *e, enum eng_state state)
{
    e->state = state;
    e->watch = &e->no_watch;
}

void pvn_engine_pause(struct pvn_engine *e, const struct pvn_err *why)
{
    if (e->state != ENG_RUNS)
        return;
    e->unposted = true;
    stop(e, ENG_PAUSED);
    e->pause_err = *why;
}

void pvn_engine_pause_because(struct pvn_engine *e, const struct pvn_err *why)
{
    e->pause_err = *why;
}

int eng_fail(struct pvn_engine *e, int code, enum pvn_fault fault, const char *fmt, ...)
{
    if (e->state == ENG_FAILED)
        return e->err.code;
    char text[PVN_ERR_REASON_LEN];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    stop(e, ENG_FAILED);
    pvn_err_set(&e->err, code, "%s", text);
    pvn_err_set_fault(&e->err, fault);
    return code;
}

/* True for an error that may not occur on another lane. False for a mistake of the peer or the caller, e.g.
 * memory that does not exist or is not registered. */
static bool is_of_the_lane(const struct pvn_err *err)
{
    return err->code != -EPROTO && err->code != -EMSGSIZE && err->code != -EBADMSG &&
           err->code != -EFAULT && err->fault != PVN_FAULT_ARGUMENT &&
           err->fault != PVN_FAULT_INTERNAL;
}

/* True if an `unclear` error, which a wrong request or a lost adapter may have caused, counts as a loss.
 * After a loss the next lanes deliver messages. A wrong request fails on them as well, with no message
 * delivered in between. */
static bool may_be_a_loss(struct pvn_engine *e)
{
    uint64_t messages = pvn_engine_delivered(e);
    if (e->doubted && e->doubted_at == messages)
        return false;
    e->doubted = true;
    e->doubted_at = messages;
    return true;
}

int pvn_engine_fail_lane(struct pvn_engine *e, struct pvn_lane *l, int code)
{
    if (l->err.code == 0)
        return eng_fail(e, code, PVN_FAULT_INTERNAL, "lane %d (%s) failed without a reason", l->idx,
                        l->ops->name);
    struct pvn_err err = l->err;
    bool loss =
        e->state != ENG_FAILED && !l->wrong && is_of_the_lane(&err) && pvn_engine_may_pause(e);
    if (loss && l->unclear && e->state == ENG_RUNS && !may_be_a_loss(e)) {
        pvn_err_add(&err, "the next lanes failed alike, and no message was delivered "
                          "in between: the request itself is wrong");
        loss = false;
    }
    if (loss) {
        pvn_engine_pause(e, &err);
        return 0;
    }
    pvn_engine_fail(e, &err);
    return e->err.code;
}

void pvn_engine_fail(struct pvn_engine *e, const struct pvn_err *err)
{
    if (e->state == ENG_FAILED)
        return;
    stop(e, ENG_FAILED);
    e->err = *err;
    if (e->err.code >= 0)
        e->err.code = -EIO;
}

const struct pvn_err *pvn_engine_err(const struct pvn_engine *e)
{
    return e->state == ENG_FAILED ? &e->err : NULL;
}
