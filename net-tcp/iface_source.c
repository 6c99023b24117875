/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Chooses the source of interfaces (netlink, or the plain one if libnl is missing), and reads from
 * any source. */
#include "config.h"
#include "net-tcp/iface.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/hints.h"
#include "base/log.h"
#include "net-tcp/iface_priv.h"

const struct pvn_iface_source *pvn_iface_source_default(const char *nl_lib)
{
    char why[256] = "";
    const struct pvn_iface_source *source = pvn_iface_source_netlink(nl_lib, why, sizeof(why));

    if (source) {
        pvn_info(PVN_INIT | PVN_NET, "interfaces and routes by netlink (%s)", nl_lib);
        return source;
    }
    pvn_info(PVN_INIT | PVN_NET,
             "interfaces by getifaddrs and /sys, routes by trial, for libnl is not usable: %s",
             why);
    return &pvn_iface_source_plain;
}

static int by_index(const void *a, const void *b)
{
    unsigned x = ((const struct pvn_iface *)a)->ifindex, y = ((const struct pvn_iface *)b)->ifindex;

    return x < y ? -1 : x > y;
}

/* Marks the interface by which packets to the Internet leave. Nothing is sent to these addresses;
 * any ordinary public ones would do. */
static void mark_default_route(struct pvn_iface_table *table, const struct pvn_iface_source *source)
{
    static const char *const far[] = {"1.1.1.1", "2606:4700:4700::1111"};
    size_t i, k;

    for (k = 0; k < sizeof(far) / sizeof(far[0]); k++) {
        struct pvn_iface_route route;
        struct sockaddr_storage ss;

        if (pvn_addr_parse(far[k], &ss, NULL))
            continue;
        memset(&route, 0, sizeof(route));
        if (source->route(source->ctx, (struct sockaddr *)&ss, &route, NULL))
            continue;
        for (i = 0; i < table->n; i++)
            if (table->v[i].ifindex == route.ifindex)
                table->v[i].default_route = true;
    }
}

int pvn_iface_load(const struct pvn_iface_source *source, struct pvn_iface_table *table,
                   struct pvn_err *err)
{
    int rc;

    memset(table, 0, sizeof(*table));
    rc = source->load(source->ctx, table, err);
    if (rc) {
        pvn_iface_free(table);
        return rc;
    }
    if (table->n)
        qsort(table->v, table->n, sizeof(*table->v), by_index);
    mark_default_route(table, source);
    return 0;
}

int pvn_iface_for_peer(const struct pvn_iface_source *source, const struct sockaddr *peer,
                       struct pvn_iface_route *out, struct pvn_err *err)
{
    char text[PVN_ADDR_TEXT_LEN];
    int rc;

    memset(out, 0, sizeof(*out));
    if (!pvn_addr_len(peer)) {
        pvn_err_set(err, -EAFNOSUPPORT, "address family %d is neither IPv4 nor IPv6",
                    peer->sa_family);
        return -EAFNOSUPPORT;
    }
    rc = source->route(source->ctx, peer, out, err);
    if (rc) {
        pvn_err_set(err, rc, "no route to %s", pvn_addr_format_host(peer, text, sizeof(text)));
        pvn_err_set_fault(err, PVN_FAULT_SYSTEM);
        pvn_err_set_hint(err, pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_DIAL, PVN_PAST_ANY));
    }
    return rc;
}
