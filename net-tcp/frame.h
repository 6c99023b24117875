/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The header before every chunk on a data stream: 64 bytes, little endian. A payload of whole cache
 * lines thus has the same alignment in the kernel's buffers as at the sender and the receiver. A
 * copy is slower if source and destination differ in the low bits of their addresses.
 *
 *   0  u32 magic and layout version
 *   4  u32 bytes of this chunk
 *   8  u64 message number
 *  16  u64 bytes of the whole message
 *  24  u64 offset of this chunk
 *  32  i32 tag
 *  36  u16 chunk index
 *  38  u8  buffer of the grouped receive; the top bit requests an acknowledgement
 *  39  u8  check: xor of all other bytes, so that a stream that lost its place is noticed at once
 *  40  u8  bits: 1: the sender's connection is paced; 2: the acknowledgement may come with later
 *          ones; 4: the kernel has a copy of the payload
 *  41  23 bytes of 0
 *
 * The receiver writes, in the other direction of the same streams,
 * - acknowledgements, on the stream of the chunks that request them: a byte from 1 to 255, the
 *   number of these chunks that have been received since the last acknowledgement;
 * - clear-to-send entries, on the first stream:
 *
 *   0  u8  0
 *   1  u8  buffers of the receive, 1 to PVN_MAX_RECVS
 *   2  for each of them: u64 bytes that it takes, i32 tag
 *
 * Entries come in the order of slots, without gaps, from slot 0 on.
 */
#ifndef PVN_NET_TCP_FRAME_H
#define PVN_NET_TCP_FRAME_H

#include "engine/lane.h"

enum { PVN_FRAME_LEN = 64 };
/* Flags of a header, in any combination. */
enum {
    PVN_FRAME_NEEDS_ACK = 1,
    PVN_FRAME_PACED = 2, /* the sender's congestion control paces it: acknowledge without delay */
    /* Set beside NEEDS_ACK: nobody waits for the acknowledgement, so it may come with those of later
     * chunks. A peer that does not know this flag acknowledges at once. */
    PVN_FRAME_ACK_LATER = 4,
    /* Set beside NEEDS_ACK: the kernel has a copy of the payload, so it arrives intact whatever happens
     * to the sender. The receiver may report it before it acknowledges it. A peer that does not
     * know this flag acknowledges first. */
    PVN_FRAME_COPIED = 8
};
enum { PVN_FRAME_FLAGS = 15 }; /* the union of all flags */

void pvn_frame_encode(const struct pvn_frame *f, unsigned flags, uint8_t out[PVN_FRAME_LEN]);
/* 0, or -EPROTO if these bytes are not a header. The engine checks the values' ranges. *flags: the
 * flags known here; others that a peer may set are ignored. */
int pvn_frame_decode(const uint8_t in[PVN_FRAME_LEN], struct pvn_frame *f, unsigned *flags);

enum {
    PVN_CTS_HEAD = 2,
    PVN_CTS_BUFFER = 12,
    PVN_CTS_MAX = PVN_CTS_HEAD + PVN_MAX_RECVS * PVN_CTS_BUFFER
};

/* Returns the number of bytes written, at most PVN_CTS_MAX. */
size_t pvn_cts_encode(int n, const struct pvn_buffer *b, uint8_t out[PVN_CTS_MAX]);
/* Decodes the entry at the beginning of these bytes. Returns its length, 0 if it is not complete,
 * or -EPROTO. Does not set the slot's number. */
int pvn_cts_decode(const uint8_t *in, size_t len, struct pvn_cts *c);

#endif
