/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/retry.h"

#include <errno.h>

#include "base/clock.h"

/* In ms. */
static const struct {
    unsigned first, longest, answer;
} limits[PVN_RETRIES] = {
    [PVN_RETRY_DIAL] = {10, 1000, 0},
    [PVN_RETRY_FAILOVER] = {10, 1000, 2000},
    [PVN_RETRY_LOSSES] = {100, 5000, 0},
    /* The kernel would send its SYN again less and less often, so a new attempt gets through
     * sooner. */
    [PVN_RETRY_RETURN] = {1000, 60000, 3000},
    /* A return that is useless stalls the job until the loss is noticed. */
    [PVN_RETRY_HOME] = {10000, 600000, 0},
    [PVN_RETRY_CONTROL] = {500, 500, 2000},
    [PVN_RETRY_PROBE] = {500, 500, 1000},
    [PVN_RETRY_RESOLVE] = {100, 1000, 0},
};

uint64_t pvn_retry_next_ns(enum pvn_retry kind, uint64_t pause)
{
    uint64_t longest = pvn_retry_longest_ns(kind);

    if (pause == 0)
        return limits[kind].first * PVN_NS_PER_MS;
    return 2 * pause < longest ? 2 * pause : longest;
}

uint64_t pvn_retry_pause_ns(enum pvn_retry kind, unsigned failures)
{
    uint64_t pause = pvn_retry_next_ns(kind, 0);

    while (failures-- > 0 && pause < pvn_retry_longest_ns(kind))
        pause = pvn_retry_next_ns(kind, pause);
    return pause;
}

uint64_t pvn_retry_longest_ns(enum pvn_retry kind)
{
    return limits[kind].longest * PVN_NS_PER_MS;
}

bool pvn_retry_may_help(int code)
{
    switch (code) {
    case -ETIMEDOUT:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ECONNRESET:
    case -EADDRNOTAVAIL:
    case -EADDRINUSE:
    case -EAGAIN:
    case -EMFILE:
    case -ENFILE:
    case -ENOBUFS:
    case -ENOMEM:
        return true;
    default:
        return false;
    }
}

uint64_t pvn_retry_answer_ns(enum pvn_retry kind)
{
    return limits[kind].answer * PVN_NS_PER_MS;
}
