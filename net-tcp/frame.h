/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The header in front of every chunk on a data stream: 64 bytes, little endian. A cache line, so that
 * payloads of whole lines lie in the kernel's buffers as they do in the sender's and the receiver's:
 * where source and destination of a copy differ in the low bits of their addresses, it is slower.
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
 *  40  u8  bits: 1: the sender's connection is paced; 2: the acknowledgement may come with later ones; 4: the kernel has
 *      a copy of the payload
 *  41  23 bytes of 0
 *
 * In the other direction of the same streams the receiver writes
 * - acknowledgements, on the stream of the chunks that request them: a byte from 1 to 255, the number of these chunks
 *   that have been received since the last one;
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
/* Flags of a header beside the engine's frame; any of them. */
enum {
    PVN_FRAME_NEEDS_ACK = 1,
    PVN_FRAME_PACED = 2, /* by the sender's congestion control: acknowledge without delay */
    /* Beside NEEDS_ACK: nobody waits for it, so it may come with those of later chunks. A peer that does not know
     * this sends it at once. */
    PVN_FRAME_ACK_LATER = 4,
    /* Beside NEEDS_ACK: what the stream brings of it is right, whatever has become of the sender since, so that it may
     * be reported before it is acknowledged. A peer that does not know this acknowledges it first. */
    PVN_FRAME_COPIED = 8
};
enum { PVN_FRAME_FLAGS = 15 }; /* all of them */

void pvn_frame_encode(const struct pvn_frame *f, unsigned flags, uint8_t out[PVN_FRAME_LEN]);
/* 0, or -EPROTO when these are not the bytes of a header. The engine checks the values' ranges. *flags:
 * those known here; a peer's others are left out. */
int pvn_frame_decode(const uint8_t in[PVN_FRAME_LEN], struct pvn_frame *f, unsigned *flags);

enum {
    PVN_CTS_HEAD = 2,
    PVN_CTS_BUFFER = 12,
    PVN_CTS_MAX = PVN_CTS_HEAD + PVN_MAX_RECVS * PVN_CTS_BUFFER
};

/* Bytes written: PVN_CTS_MAX at most. */
size_t pvn_cts_encode(int n, const struct pvn_buffer *b, uint8_t out[PVN_CTS_MAX]);
/* Takes the entry at the beginning of these bytes: its length, 0: it is not whole yet, or -EPROTO. The
 * slot's number is left as it is. */
int pvn_cts_decode(const uint8_t *in, size_t len, struct pvn_cts *c);

#endif
