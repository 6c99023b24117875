/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A count that shows whether the calling thread was idle before a message was posted.
 *
 * NCCL's proxy thread serves all comms of a rank in turn. A message that is posted after an empty
 * poll of a receiver is a lone one: its peer is likely to wait for it. Without an empty poll since
 * the last message, more messages are likely to follow, on this comm or on others, and may share a
 * system call. No clock distinguishes the two, since a pass over many comms takes longer than a
 * lone round trip. One empty poll decides: a fast round trip has no more than one or two.
 */
#ifndef PVN_NET_TCP_PACE_H
#define PVN_NET_TCP_PACE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Polls of receiving lanes by the calling thread that brought no event; free-running (wraps modulo
 * 2^32). */
extern __thread unsigned tcp_empty_polls;

#ifdef __cplusplus
}
#endif

#endif
