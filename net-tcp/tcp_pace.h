/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the calling thread had nothing to do since a message was sent.
 *
 * NCCL's proxy thread serves all comms of a rank in turn. A message that is posted after the thread
 * has polled its receivers without an event is alone: its peer is likely to wait for it. One that
 * is posted before has company: more messages follow, on this comm or on others, and may share a
 * system call. No clock distinguishes the two, since a pass over many comms takes longer than a
 * lone round trip.
 *
 * Threads: the counts are the calling thread's own.
 */
#ifndef PVN_NET_TCP_PACE_H
#define PVN_NET_TCP_PACE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Empty polls in a row after which the thread counts as idle. A round trip over loopback takes some
 * ten of them; between two messages of a busy thread there are fewer. */
enum { TCP_IDLE_POLLS = 3 };

struct tcp_pace {
    unsigned empty;  /* empty polls in a row, saturated at TCP_IDLE_POLLS */
    unsigned spells; /* times that this many were reached; free-running (wraps modulo 2^32) */
};

extern __thread struct tcp_pace tcp_pace;

/* A receiving lane has been polled. */
static inline void tcp_pace_polled(bool empty)
{
    struct tcp_pace *p = &tcp_pace;
    if (!empty)
        p->empty = 0;
    else if (p->empty < TCP_IDLE_POLLS && ++p->empty == TCP_IDLE_POLLS)
        p->spells++;
}

/* A message is posted. The value changes between two messages if the thread was idle. */
static inline unsigned tcp_pace_posted(void)
{
    struct tcp_pace *p = &tcp_pace;
    p->empty = 0;
    return p->spells;
}

#ifdef __cplusplus
}
#endif

#endif
