/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The trouble of a connection, and the state of its process. */
#include <stdio.h>
#include <string.h>

#include "plugin/base/clock.h"
#include "topo/tool/stat/stat.h"

double stat_age(const struct pvn_stats *f, uint64_t stamp)
{
    if (stamp == 0)
        return -1;
    return f->now_ns > stamp ? (double)(f->now_ns - stamp) / PVN_NS_PER_S : 0;
}

double stat_wall(const struct pvn_stats *f, uint64_t stamp)
{
    return (double)f->head.real_ns / PVN_NS_PER_S +
           ((double)stamp - (double)f->head.mono_ns) / PVN_NS_PER_S;
}

bool stat_is_comm(const struct pvn_stat_row *r)
{
    return r->phase != PVN_STAT_LISTEN;
}

double stat_stalled(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    bool waits = r->phase == PVN_STAT_SETUP ||
                 (r->phase == PVN_STAT_LISTEN && strcmp(r->state, "ACCEPT") == 0);
    uint64_t since = r->phase == PVN_STAT_UP ? r->n.stuck_ns : waits ? r->state_ns : 0;
    return r->ended_ns || since == 0 ? 0 : stat_age(f, since);
}

enum stat_trouble stat_trouble(const struct pvn_stats *f, const struct pvn_stat_row *r)
{
    if (r->phase == PVN_STAT_FAILED)
        return STAT_FAILED;
    if (r->ended_ns)
        return STAT_FINE;
    if (f->life == PVN_STATS_DEAD)
        return stat_is_comm(r) ? STAT_LOST : STAT_FINE;
    return stat_stalled(f, r) >= (r->phase == PVN_STAT_UP ? STAT_STALLED_S : STAT_SETUP_S)
               ? STAT_STALLED
               : STAT_FINE;
}

const char *stat_sealed_name(const struct pvn_stat_row *r)
{
    static const char *const names[] = {"none", "control", "data"};
    return names[r->sealed];
}

const char *stat_trouble_name(enum stat_trouble t)
{
    static const char *const names[] = {"fine", "stalled", "failed", "lost"};
    return names[t];
}

const char *stat_life_name(const struct pvn_stats *f)
{
    return f->life == PVN_STATS_ALIVE  ? "alive"
           : f->life == PVN_STATS_DEAD ? "dead"
                                       : "on another host";
}

bool stat_in_other_net(const struct pvn_stats *f)
{
    return !f->saved && f->life != PVN_STATS_ELSEWHERE && f->head.net_ns != 0 &&
           f->head.net_ns != pvn_stats_net_ns();
}

const char *stat_process_state(const struct pvn_stats *f)
{
    static const struct {
        char letter;
        const char *text;
    } states[] = {{'R', "running"},
                  {'S', "sleeping"},
                  {'D', "in the kernel"},
                  {'T', "stopped"},
                  {'t', "stopped by a tracer"}};
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (states[i].letter == f->state)
            return states[i].text;
    return "";
}

const char *stat_peer(const struct pvn_stat_row *r, char *buf, size_t len)
{
    if (r->peer_host[0])
        snprintf(buf, len, "%s pid %u at %s", r->peer_host, r->peer_pid, r->peer_addr);
    else
        snprintf(buf, len, "%s", r->peer_addr);
    return buf;
}

bool stat_has_addresses(const struct pvn_stats *f)
{
    return f->head.addrs[0] != '\0';
}

/* True if the list has the address of `len` bytes. */
static bool is_listed(const char *list, const char *addr, size_t len)
{
    const char *at = list;
    while (len > 0 && (at = strchr(at, ' '))) {
        at++;
        if (strcspn(at, " ") == len && strncmp(at, addr, len) == 0)
            return true;
    }
    return false;
}

bool stat_has_address(const struct pvn_stats *f, const char *addr)
{
    const char *end = strrchr(addr, ':');
    if (addr[0] == '[') {
        addr++;
        end = strchr(addr, ']');
    }
    return end && is_listed(f->head.addrs, addr, (size_t)(end - addr));
}

bool stat_are_apart(const struct pvn_stats *a, const struct pvn_stats *b)
{
    const char *at = a->head.addrs;
    while ((at = strchr(at, ' '))) {
        at++;
        if (is_listed(b->head.addrs, at, strcspn(at, " ")))
            return false;
    }
    return stat_has_addresses(a) && stat_has_addresses(b);
}
