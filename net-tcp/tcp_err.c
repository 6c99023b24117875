/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The error that ends a TCP lane. */
#include "net-tcp/tcp_priv.h"

#include <errno.h>

/* Damaged bytes on a sealed stream count as a reset (-ECONNRESET), because another connection may
 * bring the right ones. */
int tcp_dead(struct tcp_lane *t, const struct stream *s, int code, const char *doing)
{
    char why[128];
    if (t->l.err.code == 0 && code == -EBADMSG)
        pvn_err_set(
            &t->l.err, -ECONNRESET,
            "TCP stream %d of %d on %s, %s: what came is not what the peer has sealed; it was "
            "damaged or forged on the network",
            (int)(s - t->s) + 1, t->nstreams, t->cfg.name, doing);
    if (t->l.err.code == 0)
        pvn_err_set(&t->l.err, code, "TCP stream %d of %d on %s, %s: %s", (int)(s - t->s) + 1,
                    t->nstreams, t->cfg.name, doing, pvn_strerror(code, why, sizeof(why)));
    return t->l.err.code;
}

int tcp_revoked(struct tcp_lane *t, const struct stream *s)
{
    if (t->l.err.code == 0) {
        pvn_err_set(&t->l.err, -ECANCELED,
                    "TCP stream %d of %d on %s, %s: deregMr has taken back the memory of a message "
                    "that was not complete",
                    (int)(s - t->s) + 1, t->nstreams, t->cfg.name,
                    t->cfg.sender ? "sending" : "receiving");
        pvn_err_set_fault(&t->l.err, PVN_FAULT_USAGE);
        t->l.wrong = true;
    }
    return t->l.err.code;
}
