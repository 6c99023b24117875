/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the bytes that RDMA lanes write into each other's memory and into their offers. Little
 * endian. Both ends use the same layout; the offer has its version.
 *
 * One buffer of a clear-to-send slot, struct cts_line, 64 bytes, written by the receiver:
 *   0  u64 address of the buffer
 *   8  u64 its size
 *  16  u32 x 8 remote key of the buffer for each lane
 *  48  u64 tag:32 | number of lines of the slot:8 | bit 40: the buffer accepts short messages
 *  56  u32 sum of bytes 0..55
 *  60  u32 stamp: number of the slot, plus one
 *
 * The acknowledgements, struct ack_line, 64 bytes, written by the receiver. The comm's first lane has one
 * line for each lane of the comm:
 *   0  u32 x 8 chunks seen on each queue pair
 *  32  u32 lines of short messages read
 *  36  u32 number of this write of acknowledgements, free-running
 *  40  u16 x 8 microseconds since the last chunk of each queue pair was seen, not counting short messages;
 *      65535: longer ago, or no chunk yet
 *  56  8 bytes of zero
 *
 * A record, 32 bytes, written by the sender after a chunk's data (record mode):
 *   0  u64 bytes of the whole message
 *   8  u32 id: slot:8 | generation:12 | buffer:3 | chunk:9
 *  12  u32 bytes of this chunk
 *  16  8 bytes of zero
 *  24  u32 sum of bytes 0..15
 *  28  u32 stamp: number of the record, plus one
 *
 * A short message's first line, struct short_head, 64 bytes, written by the sender:
 *   0  52 bytes of data; a message of one line ends at byte 52
 *  52  u32 id, as in a record
 *  56  u16 bytes of the message
 *  58  u16 sum of all lines; used in a message of one line only if both devices are software (offers)
 *  60  u32 stamp: number of the line, plus one
 * Each further line, struct short_more, has 60 bytes of data and the same stamp at byte 60.
 *
 * A message buffer of the two-sided mode begins with struct piece_head, 64 bytes:
 *   0  u64 message number
 *   8  u64 bytes of the whole message
 *  16  u64 offset of this chunk
 *  24  u32 bytes of this chunk
 *  28  i32 tag
 *  32  u16 chunk index
 *  34  u8  kind: 0 probe, 1 first buffer of a chunk, 2 further buffer of a chunk
 *  35  21 bytes of zero
 *  56  u32 stamp: number of the buffer, plus one
 *  60  u32 zero
 */
#ifndef PVN_NET_PVRDMA_RDMA_WIRE_H
#define PVN_NET_PVRDMA_RDMA_WIRE_H

#include <assert.h>
#include <endian.h>

#include "engine/lane.h"
#include "net-pvrdma/rdma_lane.h"

enum {
    /* Slots whose entries a sender can need at the same time. It takes all buffers of a slot and posts their
     * messages before it begins the next slot. So all slots from its current one on are open, and a receiver
     * has at most this many open slots. */
    CTS_SLOTS = PVN_MAX_REQS,
    CTS_LINES = CTS_SLOTS * PVN_MAX_RECVS, /* ring of the slots' lines in the sender's memory */
    /* Message sizes: the receiver needs those of a slot while the slot is open. */
    TOTALS = PVN_SLOT_SPAN * PVN_MAX_RECVS,
    RECORD_RING_LOG2 = 8,
    /* Records per queue pair; it limits the chunks in flight on a queue pair. */
    RECORD_RING = 1 << RECORD_RING_LOG2,
    PIECE = 32768,   /* bytes of a message buffer of the two-sided mode */
    PIECES_LOG2 = 5, /* log2 of the largest number of message buffers on a queue pair */
    /* Receives of a sender in the two-sided mode; the peer has at most four credit messages in flight. */
    CREDIT_RECVS = 16,
    /* Lines of the ring in which a short message may begin. With this number the rings of a lane with one
     * queue pair fill ten pages. */
    SHORT_LINES = 240,
    SHORT_MAX_LINES = 5, /* of one short message */
    RDMA_OFFER_VERSION = 9,
    RDMA_OFFER_MAX = 1024 /* bytes of an encoded offer */
};

/*
 * Both ends poll stamps. When a stamp is visible, the rest of its write depends on the length of the write:
 * - A write within one cache line is complete, because its last word becomes visible last. Adapters write
 *   whole lines. Devices that copy by processor (rdma_rxe, a hypervisor between two machines of one host)
 *   write them in a few ascending pieces.
 * - A longer write may be incomplete, because it becomes visible in any order. A processor may store the end
 *   of a copy before its middle (glibc's memcpy does so above 64 bytes, string instructions may). A line's
 *   stamp may then follow bytes of the ring's previous round.
 * So an entry that may be written together with other lines also has a sum, and has arrived when the sum is
 * right. A record has a sum as well, since it costs next to nothing. A message of one line has a sum only
 * between two devices that both copy by processor.
 */

/* The upper half of a product depends on all bits of the factor, so sums are taken from the upper half. */
#define SUM_FACTOR UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t sum_turn(uint64_t x, unsigned bits)
{
    return x << bits | x >> (-bits & 63);
}

/* One buffer of a slot. The slots follow each other in the ring without gaps, each with one line per buffer,
 * so that one write can publish several slots. */
struct cts_line {
    uint64_t addr;
    uint64_t size;
    uint64_t keys[PVN_MAX_LANES / 2]; /* cts_keys() of two lanes each; 0 beyond the comm's lanes */
    uint64_t what;                    /* cts_what() */
    uint32_t sum;                     /* cts_sum() */
    uint32_t stamp;                   /* number of the slot, plus one */
};
static_assert(sizeof(struct cts_line) == 64, "a clear-to-send entry is one cache line");

static inline uint64_t cts_keys(uint32_t even, uint32_t odd)
{
    return even | (uint64_t)odd << 32;
}
/* Combines all words of keys into one: `keys` of the words so far, and the i-th word. */
static inline uint64_t cts_more_keys(uint64_t keys, uint64_t word, int i)
{
    return keys ^ sum_turn(word, (unsigned)i);
}
/* n: lines of the slot; copies: CTS_COPIES if the buffer also accepts a short message, else 0. */
#define CTS_COPIES (UINT64_C(1) << 40)
static inline uint64_t cts_what(int32_t tag, int n, uint64_t copies)
{
    return (uint32_t)tag | (uint64_t)(unsigned)n << 32 | copies;
}
static inline int cts_n(uint64_t what)
{
    return what >> 32 & 0xff;
}
static inline bool cts_copies(uint64_t what)
{
    return (what & CTS_COPIES) != 0;
}
/* The sum of a line without its last word, which becomes visible as a whole. Addresses have less than 61
 * bits. */
static inline uint32_t cts_sum(uint64_t addr, uint64_t size, uint64_t keys, uint64_t what)
{
    return (size + 8 * addr + (keys ^ what)) * SUM_FACTOR >> 32;
}

/* The acknowledgements of one lane; all counts are free-running. */
struct ack_line {
    uint32_t seen[PVN_RDMA_MAX_QPS]; /* chunks that the receiver has seen on each queue pair */
    uint32_t lines;                  /* lines of short messages that the receiver has read */
    uint32_t turn;                   /* changes with every write; the sender watches it */
    uint16_t age[PVN_RDMA_MAX_QPS];  /* us since the last chunk; 0 in lanes with one queue pair */
    uint32_t zero[2];
};
#define AGE_UNKNOWN UINT16_MAX
static_assert(sizeof(struct ack_line) == 64, "the acknowledgements are one cache line");

/*
 * A short message: the sender writes payload and record together into a ring in the receiver's memory, and
 * the receiver's processor copies the payload to its buffer. It is one request, without a receive request or
 * a completion, and for host memory only. All short messages of a lane use its first queue pair.
 *
 * Each line has a stamp: the number of lines of all earlier messages, plus one. A message of several lines
 * also has a sum. A message is contiguous: one that begins in the last lines of the ring ends in spare lines
 * after them, and the next message begins at the ring's first line.
 */
enum { SHORT_HEAD_BYTES = 52, SHORT_MORE_BYTES = 60 };
struct short_head {
    uint8_t data[SHORT_HEAD_BYTES];
    uint32_t imm; /* imm_make(), chunk 0 */
    uint16_t bytes;
    uint16_t sum; /* short_sum() of a message of several lines */
    uint32_t stamp;
};
/* A message of one line lies at the end of `data`, so that the bytes before it need not be written. */
static inline uint32_t short_skip(uint32_t bytes)
{
    return SHORT_HEAD_BYTES - ((bytes + 3) & ~3u);
}
struct short_more {
    uint8_t data[SHORT_MORE_BYTES];
    uint32_t stamp;
};
static_assert(sizeof(struct short_head) == 64 && sizeof(struct short_more) == 64,
              "a line of a short message is one cache line");
enum {
    SHORT_MAX = SHORT_HEAD_BYTES + (SHORT_MAX_LINES - 1) * SHORT_MORE_BYTES,
    SHORT_RING_BYTES = (SHORT_LINES + SHORT_MAX_LINES - 1) * 64
};
static_assert((int)SHORT_MAX == (int)PVN_RDMA_SHORT_MAX, "what the parameter says");
static inline uint32_t short_lines(uint32_t bytes)
{
    return bytes <= SHORT_HEAD_BYTES
               ? 1
               : 1 + (bytes - SHORT_HEAD_BYTES + SHORT_MORE_BYTES - 1) / SHORT_MORE_BYTES;
}

/* The sum of all lines of a message, without the sum field itself. Each word is read once, with acquire order,
 * so that everything stored before the word is visible afterwards. */
typedef uint64_t __attribute__((may_alias)) short_word;
static inline uint16_t short_sum(const struct short_head *h, uint32_t lines)
{
    enum {
        OF_SUM = 7,
        WORDS = sizeof(*h) / sizeof(short_word)
    }; /* OF_SUM: index of the sum's word */
    const short_word *w = (const short_word *)h;
    uint64_t x = le64toh(__atomic_load_n(&w[OF_SUM], __ATOMIC_ACQUIRE)) & ~UINT64_C(0xffff0000);
    for (uint32_t i = 0; i < lines * WORDS; i++)
        if (i != OF_SUM)
            x = sum_turn(x, 9) + le64toh(__atomic_load_n(&w[i], __ATOMIC_ACQUIRE));
    return (uint16_t)(x * SUM_FACTOR >> 48);
}

/* The sum of a message of one line. It covers the words that hold the message, at least two, but not the last
 * word, which becomes visible together with the stamp. Such a message is written from the first covered word on.
 * Messages of up to SHORT_TWO_WORDS bytes, the most frequent ones, need only two words. */
enum { SHORT_TWO_WORDS = 12 };
static inline uint32_t short_sum_from(uint32_t bytes)
{
    uint32_t skip = short_skip(bytes), two_words = short_skip(SHORT_TWO_WORDS);
    return (skip < two_words ? skip : two_words) & ~7u;
}
static inline uint16_t short_line_sum(const struct short_head *h, uint32_t bytes)
{
    enum { WORDS = 7 };
    const short_word *w = (const short_word *)h;
    uint64_t x = le64toh(__atomic_load_n(&w[WORDS - 2], __ATOMIC_ACQUIRE));
    if (__builtin_expect(bytes > SHORT_TWO_WORDS, 0))
        for (uint32_t i = short_sum_from(bytes) / 8; i < WORDS - 2; i++)
            x = sum_turn(x, 9) + le64toh(__atomic_load_n(&w[i], __ATOMIC_ACQUIRE));
    x = sum_turn(x, 9) + le64toh(__atomic_load_n(&w[WORDS - 1], __ATOMIC_ACQUIRE));
    return (uint16_t)(x * SUM_FACTOR >> 48);
}

/* Written after a chunk's data. The record is valid when its stamp is its number on the queue pair, plus one. */
struct record {
    uint64_t total; /* bytes of the whole message */
    uint32_t imm;   /* imm_make() */
    uint32_t bytes; /* of this chunk */
    uint32_t zero[2];
    uint32_t sum; /* record_sum(); visible together with the stamp, because both are one word */
    uint32_t stamp;
};
static inline uint32_t record_sum(uint64_t total, uint32_t imm, uint32_t bytes)
{
    return (total ^ sum_turn(imm | (uint64_t)bytes << 32, 23)) * SUM_FACTOR >> 32;
}
/* True if a record whose stamp is visible is complete. Each word is read once, with acquire order. */
static inline bool record_is_whole(const struct record *r)
{
    const short_word *w = (const short_word *)r;
    uint64_t total = le64toh(__atomic_load_n(&w[0], __ATOMIC_ACQUIRE)),
             what = le64toh(__atomic_load_n(&w[1], __ATOMIC_ACQUIRE));
    return le32toh(r->sum) == record_sum(total, (uint32_t)what, (uint32_t)(what >> 32));
}
static_assert(sizeof(struct record) == 32, "two records share a cache line, none crosses one");

/* Two-sided mode: the header of a message buffer. The payload follows. */
enum piece_kind { PIECE_PROBE, PIECE_FIRST, PIECE_MORE };
struct piece_head {
    uint64_t seq, total, offset; /* of the chunk: see struct pvn_frame */
    uint32_t len;
    int32_t tag;
    uint16_t chunk;
    uint8_t kind;
    uint8_t zero[21];
    uint32_t stamp; /* number of the buffer on the queue pair, plus one */
    uint32_t zero2;
};
static_assert(sizeof(struct piece_head) == 64, "the payload begins at a cache line");

/* Two-sided mode: a credit message. */
struct credit {
    uint32_t returned; /* receives posted again, free-running */
    uint32_t stamp;    /* number of the credit message, plus one */
};

/* The id of a chunk: the immediate data in imm mode, a field of records and short messages.
 * slot:8 | generation:12 | buffer:3 | chunk:9. CHUNK_WHOLE (imm mode) means that the message is one chunk,
 * so its size is the length in the completion. */
enum { CHUNK_WHOLE = 511 };
static_assert((int)CHUNK_WHOLE >= (int)PVN_MAX_CHUNKS,
              "no chunk has the number that means a whole message");
static inline uint32_t imm_make(uint64_t slot, unsigned recv, unsigned chunk)
{
    return pvn_id(slot) << 12 | recv << 9 | chunk;
}
static inline uint32_t imm_id(uint32_t imm)
{
    return imm >> 12;
}
static inline uint8_t imm_recv(uint32_t imm)
{
    return imm >> 9 & 7;
}
static inline uint16_t imm_chunk(uint32_t imm)
{
    return imm & 511;
}

/* Each end sends an offer to the other one before the queue pairs are connected. */
struct rdma_offer {
    uint8_t mode, nqps, mtu, max_rd_atomic;
    uint8_t window_log2; /* log2 of the sender's limit of unacknowledged chunks per queue pair */
    uint8_t ngids;
    uint8_t modes; /* modes that this end accepts, a bit each */
    /* log2 of the two-sided mode's receives per queue pair; the sender's credits */
    uint8_t pieces_log2;
    bool shorts; /* this end supports short messages */
    bool ethernet;
    bool software; /* a processor copies the data of this end's device */
    /* this end's completions are expensive to poll for, so the peer acknowledges soon */
    bool needs_acks;
    bool counts; /* this end supports the counts of imm mode, see MEM_COUNTS */
    uint16_t lid;
    uint32_t mem_rkey;
    uint64_t mem_addr;
    uint32_t qpn[PVN_RDMA_MAX_QPS], psn[PVN_RDMA_MAX_QPS];
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS];
};
/* Returns the number of bytes written, or -ENOBUFS. */
int pvn_rdma_offer_encode(const struct rdma_offer *o, void *buf, size_t cap);
/* Checks all values. 0, or -EPROTO with *err. */
int pvn_rdma_offer_decode(const void *buf, size_t len, struct rdma_offer *o, struct pvn_err *err);

/*
 * The registered block at both ends: ring of clear-to-send lines, acknowledgement lines, counts, record
 * rings or (imm mode) message sizes, ring of short messages. One end writes from each part of its block into
 * the same part of the peer's block. Both blocks have the same layout, so that one address and key describe
 * a block. Only the offset of the last ring depends on the number of queue pairs in its owner's offer.
 */
enum {
    MEM_CTS = 0,
    MEM_ACK = MEM_CTS + CTS_LINES * 64,
    MEM_HELLO = MEM_ACK + PVN_MAX_LANES * 64, /* u64; 1: the sender is connected */
    /* Imm mode, only if polls of the receiver are expensive: a u32 for each queue pair, the number of chunks
     * that the sender has written on it without short messages, free-running. */
    MEM_COUNTS = MEM_HELLO + 8,
    MEM_RECORD = MEM_HELLO + 64,
    MEM_TOTALS = MEM_RECORD
};
static inline size_t mem_short(int nqps)
{
    return MEM_RECORD + (size_t)nqps * RECORD_RING * sizeof(struct record);
}
static inline size_t mem_size(int nqps)
{
    return mem_short(nqps) + SHORT_RING_BYTES;
}
static_assert(MEM_COUNTS + PVN_RDMA_MAX_QPS * sizeof(uint32_t) <= MEM_RECORD,
              "the counts of all queue pairs are one cache line");
static_assert(TOTALS * sizeof(uint64_t) <= RECORD_RING / 2 * sizeof(struct record),
              "message sizes take no more than half the records of one queue pair");
static_assert(MEM_RECORD % 64 == 0 && RECORD_RING * sizeof(struct record) % 64 == 0,
              "a short message begins at a cache line");

#endif
