/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/listen_sockets.h"

#include "base/addr.h"
#include "base/log.h"

int pvn_listen_sockets_add(struct pvn_listen_sockets *s, const struct pvn_device *dev,
                           const struct sockaddr_storage *addr, struct pvn_err *err)
{
    int at = s->n;

    s->addr[at] = *addr;
    s->dev[at] = dev;
    s->fd[at] = pvn_sock_listen(&s->addr[at], dev->addr_len, err);
    if (s->fd[at] >= 0) {
        s->n++;
        return 0;
    }
    pvn_err_set_where(err, "%s", dev->name);
    return s->fd[at];
}

int pvn_listen_sockets_others(struct pvn_listen_sockets *s, struct pvn_wire_addr *out)
{
    int n = 0;

    for (int i = 0; i < s->nothers && !s->others_open; i++) {
        struct pvn_err err = PVN_ERR_INIT;

        if (pvn_listen_sockets_add(s, s->other[i], &s->other[i]->addr, &err) != 0)
            pvn_trace(PVN_NET, "%s: %s", s->other[i]->name, err.reason[0]);
    }
    s->others_open = true;
    for (int i = s->nports + s->nmore; i < s->n; i++)
        if (!pvn_addr_is_link_local((const struct sockaddr *)&s->addr[i]) &&
            pvn_wire_addr_from_sockaddr(&out[n], (const struct sockaddr *)&s->addr[i]) == 0)
            n++;
    return n;
}

void pvn_listen_sockets_close(struct pvn_listen_sockets *s)
{
    for (int i = 0; i < s->n; i++)
        pvn_sock_close(s->fd[i]);
    s->n = 0;
}
