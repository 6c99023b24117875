/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/paths.h"

#include <stdlib.h>

#include "base/addr.h"
#include "base/clock.h"
#include "connect/route.h"
#include "connect/sock.h"

#define LIVED_NS (60 * PVN_NS_PER_S)

void pvn_paths_init(struct pvn_paths *p, const struct pvn_conn *first, uint64_t id,
                    const struct pvn_device *const *beside, int n)
{
    const struct pvn_hello *theirs = &first->theirs;

    p->home = first->cfg;
    p->home.nonce = 0;
    p->home.resumes = id;
    p->home.has_instead = false;
    p->best = pvn_conn_worth(first);
    p->since_ns = pvn_now_ns();
    for (p->nothers = 0; p->nothers < theirs->nothers; p->nothers++)
        p->other[p->nothers] = theirs->other[p->nothers];
    p->beside = n > 0 ? malloc((size_t)n * sizeof(const struct pvn_device *)) : NULL;
    for (p->nbeside = 0; p->beside && p->nbeside < n; p->nbeside++)
        p->beside[p->nbeside] = beside[p->nbeside];
}

void pvn_paths_free(struct pvn_paths *p)
{
    free(p->beside);
    p->beside = NULL;
    p->nbeside = 0;
}

bool pvn_paths_count_loss(struct pvn_paths *p, uint64_t messages, bool open, uint64_t now)
{
    if (messages != p->losses_messages || now - p->since_ns >= LIVED_NS) {
        p->losses_messages = messages;
        p->losses = 0;
    }
    p->losses += open;
    return p->losses > PVN_LOSSES_MAX;
}

bool pvn_paths_more(const struct pvn_paths *p)
{
    return p->nothers > 0 || p->nbeside > 0;
}

/* The device with this address, among those that the comm may use; NULL: there is none. */
static const struct pvn_device *device_at(const struct pvn_paths *p, const struct sockaddr *addr)
{
    for (int i = 0; i < p->home.nports; i++)
        if (pvn_route_is_own(p->home.port[i], addr))
            return p->home.port[i];
    for (int i = 0; i < p->nbeside; i++)
        if (pvn_route_is_own(p->beside[i], addr))
            return p->beside[i];
    return NULL;
}

/* Sets cfg to the path to *peer that the kernel would take. False: it leads nowhere. If it leads to
 * another process, because hosts behind a bridge have the same address, that process refuses the
 * session's number. */
static bool by_route(const struct pvn_paths *p, const struct sockaddr_storage *peer,
                     socklen_t peer_len, struct pvn_conn_cfg *cfg)
{
    struct sockaddr_storage from;
    const struct pvn_device *dev;

    if (pvn_sock_route(peer, peer_len, &from) != 0)
        return false;
    dev = device_at(p, (const struct sockaddr *)&from);
    if (!dev)
        return false;
    cfg->dev = cfg->port[0] = dev;
    cfg->nports = 1;
    cfg->peer = *peer;
    cfg->peer_len = peer_len;
    cfg->away = true;
    return true;
}

static bool path(const struct pvn_paths *p, unsigned n, struct pvn_conn_cfg *cfg)
{
    struct sockaddr_storage peer;
    socklen_t len;

    if (n == 0)
        return true;
    if (n == 1)
        return by_route(p, &p->home.peer, p->home.peer_len, cfg) && cfg->dev != p->home.port[0];
    len = pvn_wire_addr_to_sockaddr(&p->other[n - 2], p->home.port[0]->ifindex, &peer);
    return by_route(p, &peer, len, cfg);
}

static unsigned paths(const struct pvn_paths *p)
{
    return 2 + (unsigned)p->nothers;
}

unsigned pvn_paths_index(const struct pvn_paths *p, unsigned attempt)
{
    return attempt % paths(p);
}

bool pvn_paths_are_all(const struct pvn_paths *p, unsigned set)
{
    for (unsigned n = 0; n < paths(p); n++) {
        struct pvn_conn_cfg cfg = p->home;

        if (!(set >> n & 1) && path(p, n, &cfg))
            return false;
    }
    return true;
}

struct pvn_conn_cfg pvn_paths_next(const struct pvn_paths *p, unsigned *attempt)
{
    struct pvn_conn_cfg cfg;

    for (;; ++*attempt) {
        cfg = p->home;
        if (path(p, pvn_paths_index(p, *attempt), &cfg))
            return cfg;
    }
}

/* For the first round: true if the path leads somewhere, and not all of its lanes were lost. */
static bool is_allowed(const struct pvn_paths *p, unsigned n, struct pvn_conn_cfg *cfg)
{
    *cfg = p->home;
    return path(p, n, cfg) && pvn_path_memory_allows(&p->memory, n, cfg);
}

struct pvn_conn_cfg pvn_paths_choose(struct pvn_paths *p, unsigned *attempt)
{
    struct pvn_conn_cfg cfg;

    for (unsigned n = *attempt; n < paths(p); n++)
        if (is_allowed(p, n, &cfg)) {
            *attempt = n;
            return cfg;
        }
    if (*attempt == 0)
        pvn_path_memory_forget(&p->memory);
    else if (*attempt < paths(p))
        *attempt = paths(p);
    return pvn_paths_next(p, attempt);
}
