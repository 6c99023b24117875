/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "net-tcp/frame.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define FRAME_MAGIC 0x70760002u
#define NEEDS_ACK   0x80 /* in recv */
#define PACED       1    /* in flags */
#define ACK_LATER   2
#define COPIED      4

struct wire {
    uint32_t magic, len;
    uint64_t seq, total, offset;
    uint32_t tag;
    uint16_t chunk;
    uint8_t recv, check;
    uint8_t flags, zero[23];
};
_Static_assert(sizeof(struct wire) == PVN_FRAME_LEN, "the header has no holes");

/* Xor of all bytes by words: a good header, its check byte included, gives 0. */
static uint8_t fold(const uint8_t *b)
{
    uint64_t w[PVN_FRAME_LEN / 8];
    memcpy(w, b, sizeof(w));
    uint64_t x = w[0] ^ w[1] ^ w[2] ^ w[3] ^ w[4] ^ w[5] ^ w[6] ^ w[7];
    x ^= x >> 32;
    x ^= x >> 16;
    x ^= x >> 8;
    return (uint8_t)x;
}

void pvn_frame_encode(const struct pvn_frame *f, unsigned flags, uint8_t out[PVN_FRAME_LEN])
{
    struct wire w = {.magic = htole32(FRAME_MAGIC),
                     .len = htole32(f->len),
                     .seq = htole64(f->seq),
                     .total = htole64(f->total),
                     .offset = htole64(f->offset),
                     .tag = htole32((uint32_t)f->tag),
                     .chunk = htole16(f->chunk),
                     .recv = (uint8_t)(f->recv | (flags & PVN_FRAME_NEEDS_ACK ? NEEDS_ACK : 0)),
                     .flags = (uint8_t)((flags & PVN_FRAME_PACED ? PACED : 0) |
                                        (flags & PVN_FRAME_ACK_LATER ? ACK_LATER : 0) |
                                        (flags & PVN_FRAME_COPIED ? COPIED : 0))};
    memcpy(out, &w, sizeof(w));
    out[offsetof(struct wire, check)] = fold(out);
}

int pvn_frame_decode(const uint8_t in[PVN_FRAME_LEN], struct pvn_frame *f, unsigned *flags)
{
    struct wire w;
    memcpy(&w, in, sizeof(w));
    if (le32toh(w.magic) != FRAME_MAGIC || fold(in) != 0)
        return -EPROTO;
    *f = (struct pvn_frame){.seq = le64toh(w.seq),
                            .total = le64toh(w.total),
                            .offset = le64toh(w.offset),
                            .len = le32toh(w.len),
                            .chunk = le16toh(w.chunk),
                            .recv = w.recv & (NEEDS_ACK - 1),
                            .tag = (int32_t)le32toh(w.tag)};
    *flags = (w.recv & NEEDS_ACK ? PVN_FRAME_NEEDS_ACK : 0u) |
             (w.flags & PACED ? PVN_FRAME_PACED : 0u) |
             (w.flags & ACK_LATER ? PVN_FRAME_ACK_LATER : 0u) |
             (w.flags & COPIED ? PVN_FRAME_COPIED : 0u);
    return 0;
}

size_t pvn_cts_encode(int n, const struct pvn_buffer *b, uint8_t out[PVN_CTS_MAX])
{
    uint8_t *at = out;
    *at++ = 0;
    *at++ = (uint8_t)n;
    for (int i = 0; i < n; i++, at += PVN_CTS_BUFFER) {
        uint64_t size = htole64(b[i].size);
        uint32_t tag = htole32((uint32_t)b[i].tag);
        memcpy(at, &size, sizeof(size));
        memcpy(at + sizeof(size), &tag, sizeof(tag));
    }
    return (size_t)(at - out);
}

int pvn_cts_decode(const uint8_t *in, size_t len, struct pvn_cts *c)
{
    if ((len > 0 && in[0] != 0) || (len > 1 && (in[1] < 1 || in[1] > PVN_MAX_RECVS)))
        return -EPROTO;
    if (len < PVN_CTS_HEAD || len < PVN_CTS_HEAD + (size_t)in[1] * PVN_CTS_BUFFER)
        return 0;
    c->n = in[1];
    in += PVN_CTS_HEAD;
    for (int i = 0; i < c->n; i++, in += PVN_CTS_BUFFER) {
        uint64_t size;
        uint32_t tag;
        memcpy(&size, in, sizeof(size));
        memcpy(&tag, in + sizeof(size), sizeof(tag));
        c->e[i] = (struct pvn_cts_entry){.size = le64toh(size), .tag = (int32_t)le32toh(tag)};
    }
    return PVN_CTS_HEAD + c->n * PVN_CTS_BUFFER;
}
