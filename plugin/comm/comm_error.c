/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Errors of a comm: the check before a call, an error of one call, and the error that ends the
 * comm. */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/log.h"
#include "connect/link_failover.h"

static void not_a_comm(struct pvn_err *err)
{
    pvn_err_set(err, -EINVAL, "not a comm of this plugin");
    pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
}

const struct pvn_err *pvn_comm_err(const struct pvn_comm *c)
{
    static const struct pvn_err no_comm = {.code = -EINVAL,
                                           .fault = PVN_FAULT_ARGUMENT,
                                           .n = 1,
                                           .reason = {"not a comm of this plugin"}};

    if (c->magic != COMM_MAGIC)
        return &no_comm;
    return c->end.refused ? &c->end.call_err : &c->end.err;
}

static int set_refusal(const struct pvn_comm *c, struct pvn_err *err, int code,
                       enum pvn_fault fault, const char *fmt, va_list ap)
{
    char text[PVN_ERR_REASON_LEN];

    vsnprintf(text, sizeof(text), fmt, ap);
    pvn_err_set(err, code, "%s", text);
    pvn_err_set_fault(err, fault);
    pvn_err_set_where(err, "%s", c->link.conn->where);
    pvn_err_set_who(err, "%s", c->link.conn->who);
    pvn_warn_err(err);
    return code;
}

int comm_refuse(struct pvn_comm *c, int code, enum pvn_fault fault, const char *fmt, ...)
{
    va_list ap;

    c->end.refused = true;
    va_start(ap, fmt);
    set_refusal(c, &c->end.call_err, code, fault, fmt, ap);
    va_end(ap);
    return code;
}

int comm_refuse_elsewhere(const struct pvn_comm *c, struct pvn_err *err, int code,
                          enum pvn_fault fault, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_refusal(c, err, code, fault, fmt, ap);
    va_end(ap);
    return code;
}

/* Does not latch the error, nor call comm_refuse, because the comm itself must not be touched. */
static int not_ours(const char *call, struct pvn_err *err)
{
    pvn_err_set(
        err, -ECHILD,
        "%s: this comm belongs to process %d; a forked child cannot use it, it has to make its own",
        call, pvn_fork_parent());
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    pvn_warn_err(err);
    return -ECHILD;
}

int comm_usable(struct pvn_comm *c, const char *call)
{
    if (c->magic != COMM_MAGIC)
        return -EINVAL;
    c->end.refused = pvn_fork_in_child(c->epoch);
    if (c->end.refused)
        return not_ours(call, &c->end.call_err);
    return c->end.failed ? c->end.err.code : 0;
}

int comm_usable_elsewhere(struct pvn_comm *c, const char *call, struct pvn_err *err)
{
    if (c->magic != COMM_MAGIC) {
        not_a_comm(err);
        return err->code;
    }
    if (pvn_fork_in_child(c->epoch))
        return not_ours(call, err);
    if (c->end.failed)
        *err = c->end.err;
    return err->code;
}

/* Adds what the error's origin does not know: for how long the comm worked, and where it is. */
static void complete(const struct pvn_comm *c, struct pvn_err *err)
{
    static const struct pvn_engine_stats none;
    const struct pvn_engine_stats *s = c->engine ? pvn_engine_get_stats(c->engine) : &none;
    char worked[128];

    pvn_err_add(err, "%s",
                pvn_worked_text(pvn_now_ns() - c->link.conn->entered_ns, s->msgs, s->bytes, worked,
                                sizeof(worked)));
    pvn_conn_locate(c->link.conn, 0, err);
}

static int end(struct pvn_comm *c, const struct pvn_err *err, bool warn)
{
    char text[PVN_ERR_TEXT_LEN];

    c->end.refused = false;
    if (c->end.failed)
        return c->end.err.code;
    c->end.err = *err;
    if (c->end.err.code >= 0)
        c->end.err.code = -EIO;
    if (c->link.conn->state == PVN_CONN_UP)
        complete(c, &c->end.err);
    c->end.failed = true;
    comm_note(c, PVN_LINK_END);
    /* For tests of open requests, which would find a paused engine if a failover has been given
     * up. */
    if (c->engine)
        pvn_engine_fail(c->engine, &c->end.err);
    pvn_err_format(&c->end.err, text, sizeof(text));
    if (warn)
        pvn_warn_err(&c->end.err);
    else
        pvn_info(PVN_NET, "%s", text);
    if (c->engine)
        comm_publish_last(c);
    comm_mr_detach_next(c);
    pvn_link_end(&c->link, &c->end.err, 0);
    pvn_conn_fail(c->link.conn, &c->end.err);
    return c->end.err.code;
}

int comm_fail(struct pvn_comm *c, const struct pvn_err *err)
{
    return end(c, err, true);
}

int comm_end(struct pvn_comm *c, const struct pvn_err *err)
{
    return end(c, err, false);
}
