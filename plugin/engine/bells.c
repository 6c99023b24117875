/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "engine/bells.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CLOSED ": closed after "
#define BELLS  "; doorbells: "

int pvn_bells_text(bool sender, uint64_t msgs, uint64_t bytes, const struct pvn_lane_counters *n,
                   char *buf, size_t cap)
{
    char bells[96] = "";

    if (n->doorbells_known)
        snprintf(bells, sizeof(bells),
                 BELLS "%" PRIu64 " send, %" PRIu64 " receive, %" PRIu64 " empty polls",
                 n->bells_send, n->bells_recv, n->bells_empty);
    return snprintf(buf, cap, CLOSED "%s %" PRIu64 " messages, %" PRIu64 " bytes%s",
                    sender ? "sending" : "receiving", msgs, bytes, bells);
}

bool pvn_bells_read(const char *message, struct pvn_bells *sum)
{
    const char *closed = strstr(message, CLOSED), *bells = closed ? strstr(closed, BELLS) : NULL;
    uint64_t msgs = 0, send, recv, empty;

    if (!bells ||
        sscanf(bells, BELLS "%" SCNu64 " send, %" SCNu64 " receive, %" SCNu64 " empty polls", &send,
               &recv, &empty) != 3)
        return false;
    /* A message is counted once: by its sender. */
    if (sscanf(closed, CLOSED "sending %" SCNu64 " messages", &msgs) == 1)
        sum->msgs += msgs;
    sum->comms++;
    sum->send += send;
    sum->recv += recv;
    sum->empty += empty;
    return true;
}
