/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths by which a connector reaches its peer again. Each attempt of a failover takes the next:
 *
 *     0     as the first connection was made: from the device that NCCL chose to the address in
 *           the handle; a failback knows this path only
 *     1     to the same address, from the device on which the kernel routes it now
 *     2..   to the peer's other addresses (HELLO), each from the device on which it is routed
 *
 * The comm then goes on with the lanes that this pair of devices has. A route that leads over an
 * interface which is none of the plugin's devices is not taken: the user may have excluded it.
 */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/addr.h"
#include "base/clock.h"
#include "comm/device.h"
#include "connect/route.h"
#include "connect/sock.h"

void comm_paths_init(struct pvn_comm *c)
{
    const struct pvn_hello *theirs = &c->conn->theirs;

    c->paths.home = c->conn->cfg;
    c->paths.home.nonce = 0;
    c->paths.home.has_instead = false;
    c->paths.since_ns = pvn_now_ns();
    for (c->paths.nothers = 0; c->paths.nothers < theirs->nothers; c->paths.nothers++)
        c->paths.other[c->paths.nothers] = theirs->other[c->paths.nothers];
}

bool comm_paths_more(const struct pvn_comm *c)
{
    const struct pvn_device *beside;

    return c->paths.nothers > 0 || pvn_devices_beside(c->paths.home.dev, &beside, 1) > 0;
}

/* The device with this address, of those that the comm may use. */
static const struct pvn_device *device_at(const struct pvn_comm *c, const struct sockaddr *addr)
{
    const struct pvn_device *beside[PVN_MAX_DEVICES];
    int n = pvn_devices_beside(c->paths.home.dev, beside, PVN_MAX_DEVICES);

    for (int i = 0; i < c->paths.home.nports; i++)
        if (pvn_route_is_own(c->paths.home.port[i], addr))
            return c->paths.home.port[i];
    for (int i = 0; i < n; i++)
        if (pvn_route_is_own(beside[i], addr))
            return beside[i];
    return NULL;
}

/* The path to *peer that the kernel would take. False: it leads nowhere. One that leads to another
 * process, because hosts behind a bridge have the same address, ends at the session's number. */
static bool by_route(const struct pvn_comm *c, const struct sockaddr_storage *peer,
                     socklen_t peer_len, struct pvn_conn_cfg *cfg)
{
    struct sockaddr_storage from;
    const struct pvn_device *dev;

    if (pvn_sock_route(peer, peer_len, &from) != 0)
        return false;
    dev = device_at(c, (const struct sockaddr *)&from);
    if (!dev)
        return false;
    cfg->dev = cfg->port[0] = dev;
    cfg->nports = 1;
    cfg->peer = *peer;
    cfg->peer_len = peer_len;
    cfg->away = true;
    return true;
}

static bool path(const struct pvn_comm *c, unsigned n, struct pvn_conn_cfg *cfg)
{
    struct sockaddr_storage peer;
    socklen_t len;

    if (n == 0)
        return true;
    if (n == 1)
        return by_route(c, &c->paths.home.peer, c->paths.home.peer_len, cfg) &&
               cfg->dev != c->paths.home.port[0];
    len = pvn_wire_addr_to_sockaddr(&c->paths.other[n - 2], c->paths.home.port[0]->ifindex, &peer);
    return by_route(c, &peer, len, cfg);
}

static unsigned paths(const struct pvn_comm *c)
{
    return 2 + (unsigned)c->paths.nothers;
}

unsigned comm_paths_index(const struct pvn_comm *c, unsigned attempt)
{
    return attempt % paths(c);
}

bool comm_paths_are_all(const struct pvn_comm *c, unsigned set)
{
    for (unsigned n = 0; n < paths(c); n++) {
        struct pvn_conn_cfg cfg = c->paths.home;

        if (!(set >> n & 1) && path(c, n, &cfg))
            return false;
    }
    return true;
}

struct pvn_conn_cfg comm_paths_next(const struct pvn_comm *c, unsigned *attempt)
{
    struct pvn_conn_cfg cfg;

    for (;; ++*attempt) {
        cfg = c->paths.home;
        cfg.resumes = c->id;
        if (path(c, comm_paths_index(c, *attempt), &cfg))
            return cfg;
    }
}

/* In the first round, as they were lost. */
static bool is_allowed(const struct pvn_comm *c, unsigned n, struct pvn_conn_cfg *cfg)
{
    *cfg = c->paths.home;
    cfg->resumes = c->id;
    return path(c, n, cfg) && path_memory_allows(&c->paths.memory, n, cfg);
}

struct pvn_conn_cfg comm_paths_choose(struct pvn_comm *c, unsigned *attempt)
{
    struct pvn_conn_cfg cfg;

    for (unsigned n = *attempt; n < paths(c); n++)
        if (is_allowed(c, n, &cfg)) {
            *attempt = n;
            return cfg;
        }
    if (*attempt == 0)
        path_memory_forget(&c->paths.memory);
    else if (*attempt < paths(c))
        *attempt = paths(c);
    return comm_paths_next(c, attempt);
}
