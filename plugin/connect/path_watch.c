/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/path_watch.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/param.h"

/* The pause between two looks, and the most time between two looks that counts. */
#define LOOK_NS (PVN_NS_PER_S / 2)
#define GAP_NS  (2 * PVN_NS_PER_S)
/* pvn_path_limit by default. */
#define LIMIT_NS (60 * PVN_NS_PER_S)
#define ALONE_NS (240 * PVN_NS_PER_S)
/* The kernel counts in ticks of up to 10 ms, and rounds. */
#define TICKS_NS (50 * PVN_NS_PER_MS)

static bool get_info(int fd, struct tcp_info *info)
{
    socklen_t len = sizeof(*info);

    memset(info, 0, sizeof(*info));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 &&
           len >= offsetof(struct tcp_info, tcpi_last_ack_recv) + sizeof(info->tcpi_last_ack_recv);
}

/*
 * True if a segment or a probe has had no answer. The kernel resets the counts of probes and of
 * retransmits when an answer comes. Segments in flight alone say less: a peer without room answers
 * each of them but accepts none, and the kernel may then wait two minutes before it retransmits. So
 * they count if they were sent, or retransmitted, after the last answer.
 */
static bool is_unanswered(const struct tcp_info *i)
{
    return i->tcpi_probes > 0 ||
           (i->tcpi_unacked > 0 &&
            (i->tcpi_retransmits > 0 || i->tcpi_last_data_sent < i->tcpi_last_ack_recv));
}

uint64_t pvn_path_silent(struct pvn_path_watch *w, int fd, uint64_t now)
{
    struct tcp_info info;
    uint64_t gap, heard_ns;

    if (w->looked_ns == 0) /* a new connection has nothing to report yet */
        w->looked_ns = now;
    gap = now - w->looked_ns;
    if (gap < LOOK_NS)
        return w->since_ns ? w->looked_ns - w->since_ns - w->skipped_ns : 0;
    if (gap > GAP_NS)
        w->skipped_ns += gap - GAP_NS;
    w->looked_ns = now;
    if (!get_info(fd, &info) || !is_unanswered(&info)) {
        w->since_ns = 0;
        return 0;
    }
    heard_ns = info.tcpi_last_ack_recv * PVN_NS_PER_MS;
    if (w->since_ns == 0 || heard_ns < now - w->since_ns + TICKS_NS) {
        w->since_ns = now;
        w->skipped_ns = 0;
    }
    return now - w->since_ns - w->skipped_ns;
}

bool pvn_path_answers(int fd)
{
    struct tcp_info info;

    return get_info(fd, &info) && info.tcpi_state == TCP_ESTABLISHED && info.tcpi_unacked == 0 &&
           info.tcpi_probes == 0;
}

bool pvn_path_repeats_nothing(int fd)
{
    struct tcp_info info;

    return get_info(fd, &info) && info.tcpi_state == TCP_ESTABLISHED &&
           info.tcpi_retransmits == 0 && info.tcpi_probes == 0;
}

uint64_t pvn_path_limit(bool failover)
{
    uint64_t limit = pvn_params_get()->tcp_user_timeout;

    if (limit != PVN_TCP_USER_TIMEOUT_AUTO)
        return limit;
    return failover ? LIMIT_NS : ALONE_NS;
}
