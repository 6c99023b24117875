/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that RDMA lanes put into each other's memory and into their offers. Little endian; both ends
 * of a lane run the same layout, which the offer's version says.
 *
 * One buffer of a clear-to-send slot, struct cts_line, 64 bytes, written by the receiver:
 *   0  u64 address of the buffer
 *   8  u64 its size
 *  16  u32 x 8 remote key of the buffer for each lane
 *  48  u64 tag:32 | number of lines of the slot:8 | bit 40: short messages are taken
 *  56  u32 sum of bytes 0..55
 *  60  u32 stamp: number of the slot, plus one
 *
 * The acknowledgements, struct ack_line, 64 bytes, written by the receiver; the comm's first lane has
 * one for each of its lanes:
 *   0  u32 x 8 chunks seen on each queue pair
 *  32  u32 lines of short messages read
 *  36  u32 number of this write of acknowledgements, free-running
 *  40  u16 x 8 microseconds since the last chunk of each queue pair was seen, short messages apart;
 *      65535: more, or none was
 *  56  8 bytes of zero
 *
 * A record, 32 bytes, written by the sender behind a chunk's data (record mode):
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
 *  58  u16 sum of all lines; of a single one where both ends are software (the offers say so)
 *  60  u32 stamp: number of the line, plus one
 * and each further line, struct short_more: 60 bytes of data, then the same stamp at byte 60.
 *
 * A message buffer of the two-sided mode begins with struct piece_head, 64 bytes:
 *   0  u64 message number
 *   8  u64 bytes of the whole message
 *  16  u64 offset of this chunk
 *  24  u32 bytes of this chunk
 *  28  i32 tag
 *  32  u16 chunk index
 *  34  u8  kind: 0 probe, 1 first buffer of a chunk, 2 a further one
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
    /* Slots that matter to a sender at a time: it takes all buffers of a slot, and posts what goes
     * there, before it begins the next one. So those behind it are open, and a receiver opens no
     * more than this. */
    CTS_SLOTS = PVN_MAX_REQS,
    CTS_LINES = CTS_SLOTS * PVN_MAX_RECVS, /* ring of their lines in the sender's memory */
    /* Message sizes: the receiver needs those of a slot as long as that is open. */
    TOTALS = PVN_SLOT_SPAN * PVN_MAX_RECVS,
    RECORD_RING_LOG2 = 8,
    RECORD_RING =
        1 << RECORD_RING_LOG2, /* records per queue pair, and so chunks in flight on one */
    PIECE = 32768,             /* bytes of a message buffer of the two-sided mode */
    PIECES_LOG2 = 5,           /* of them on a queue pair at most */
    CREDIT_RECVS = 16, /* receives of its sender; the peer has four messages in flight at most */
    /* Lines in the ring at which a short message may begin. With so many the rings of a lane with
     * one queue pair fill ten pages. */
    SHORT_LINES = 240,
    SHORT_MAX_LINES = 5, /* that one may have */
    RDMA_OFFER_VERSION = 9,
    RDMA_OFFER_MAX = 1024 /* bytes of an encoded offer */
};

/*
 * Both ends poll stamps. A stamp that has come says how much of the entry before it has come, too:
 * - A write within one cache line becomes visible with its last word last: adapters write lines whole, and
 *   devices that copy by processor (rdma_rxe, a hypervisor between two machines of one host) write them in
 *   few and ascending pieces.
 * - A longer write is visible in any order: a processor may store the end of a copy before its middle
 *   (glibc's memcpy does above 64 bytes, string instructions may). A line's stamp may then stand behind bytes of
 *   the ring's previous round.
 * So an entry that is written several lines at a time has a sum besides, and has come when that is right. A
 * record has one as well, since it costs next to nothing, and so has a message of one line between two ends that
 * both copy by processor.
 */

/* A product's upper half depends on all bits of the factor, so sums are taken from there. */
#define SUM_FACTOR UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t sum_turn(uint64_t x, unsigned bits)
{
    return x << bits | x >> (-bits & 63);
}

/* One buffer of a slot. Slots lie in the ring one behind the other, each with as many lines as it
 * has buffers, so that what is published together is one write. */
struct cts_line {
    uint64_t addr;
    uint64_t size;
    uint64_t keys[PVN_MAX_LANES / 2]; /* cts_keys() of two lanes each, 0 for those there are not */
    uint64_t what;                    /* cts_what() */
    uint32_t sum;                     /* cts_sum() */
    uint32_t stamp;                   /* the number of its slot, plus one */
};
static_assert(sizeof(struct cts_line) == 64, "a clear-to-send entry is one cache line");

static inline uint64_t cts_keys(uint32_t even, uint32_t odd)
{
    return even | (uint64_t)odd << 32;
}
/* All words of keys as one: of those so far and the i-th. */
static inline uint64_t cts_more_keys(uint64_t keys, uint64_t word, int i)
{
    return keys ^ sum_turn(word, (unsigned)i);
}
/* n: lines of this slot; copies: CTS_COPIES, the buffer takes a short message, too, or 0. */
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
/* The sum of a line but for its last word, of which either all is there or nothing. Addresses have less
 * than 61 bits. */
static inline uint32_t cts_sum(uint64_t addr, uint64_t size, uint64_t keys, uint64_t what)
{
    return (size + 8 * addr + (keys ^ what)) * SUM_FACTOR >> 32;
}

/* How many chunks of each queue pair the receiver has seen, and how many lines of short messages it
 * has no more use for; counts free-running. */
struct ack_line {
    uint32_t seen[PVN_RDMA_MAX_QPS];
    uint32_t lines;
    uint32_t turn;                  /* changes with every write: what the sender watches */
    uint16_t age[PVN_RDMA_MAX_QPS]; /* of lanes with several queue pairs, or 0 */
    uint32_t zero[2];
};
#define AGE_UNKNOWN UINT16_MAX
static_assert(sizeof(struct ack_line) == 64, "the acknowledgements are one cache line");

/*
 * A short message: one that is written whole, with what a record holds, into a ring in the
 * receiver's memory, from where the processor copies it into its buffer. It is one request and
 * needs no receive request nor completion; for host memory only. All of a lane's travel on its first
 * queue pair.
 *
 * Each line has a stamp: the lines of the messages before this one, plus one; a
 * message of several has a sum, too. A message lies in one piece: one that begins in the ring's
 * last lines ends behind them, and the next one begins at the ring's first.
 */
enum { SHORT_HEAD_BYTES = 52, SHORT_MORE_BYTES = 60 };
struct short_head {
    uint8_t data[SHORT_HEAD_BYTES];
    uint32_t imm; /* imm_make(), chunk 0 */
    uint16_t bytes;
    uint16_t sum; /* short_sum() of a message of several lines */
    uint32_t stamp;
};
/* A message of one line lies at the end of data, so that what is before it need not be written. */
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

/* The sum of all its lines, but for the sum itself. Each word is read once, and what was stored before it
 * is then visible. */
typedef uint64_t __attribute__((may_alias)) short_word;
static inline uint16_t short_sum(const struct short_head *h, uint32_t lines)
{
    enum { OF_SUM = 7, WORDS = sizeof(*h) / sizeof(short_word) }; /* the word that has it */
    const short_word *w = (const short_word *)h;
    uint64_t x = le64toh(__atomic_load_n(&w[OF_SUM], __ATOMIC_ACQUIRE)) & ~UINT64_C(0xffff0000);
    for (uint32_t i = 0; i < lines * WORDS; i++)
        if (i != OF_SUM)
            x = sum_turn(x, 9) + le64toh(__atomic_load_n(&w[i], __ATOMIC_ACQUIRE));
    return (uint16_t)(x * SUM_FACTOR >> 48);
}

/* The sum of a message of one line, which is then written from the first word of the sum on: of the words that the
 * message is in, at least two, but for the last one, which is there with the stamp. Most messages of
 * one line are short. */
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

/* Written behind a chunk's data. Valid when the stamp is its position in the queue pair's count of
 * records, plus one. */
struct record {
    uint64_t total; /* bytes of the whole message */
    uint32_t imm;   /* imm_make() */
    uint32_t bytes; /* of this chunk */
    uint32_t zero[2];
    uint32_t sum; /* record_sum(); in one word with the stamp, so that it is there with it */
    uint32_t stamp;
};
static inline uint32_t record_sum(uint64_t total, uint32_t imm, uint32_t bytes)
{
    return (total ^ sum_turn(imm | (uint64_t)bytes << 32, 23)) * SUM_FACTOR >> 32;
}
/* True if a record whose stamp has arrived is complete. Each word is read once, and then visible. */
static inline bool record_is_whole(const struct record *r)
{
    const short_word *w = (const short_word *)r;
    uint64_t total = le64toh(__atomic_load_n(&w[0], __ATOMIC_ACQUIRE)),
             what = le64toh(__atomic_load_n(&w[1], __ATOMIC_ACQUIRE));
    return le32toh(r->sum) == record_sum(total, (uint32_t)what, (uint32_t)(what >> 32));
}
static_assert(sizeof(struct record) == 32, "two records share a cache line, none crosses one");

/* Two-sided mode: what a message buffer begins with. The payload follows. */
enum piece_kind { PIECE_PROBE, PIECE_FIRST, PIECE_MORE };
struct piece_head {
    uint64_t seq, total, offset; /* of the chunk: see struct pvn_frame */
    uint32_t len;
    int32_t tag;
    uint16_t chunk;
    uint8_t kind;
    uint8_t zero[21];
    uint32_t stamp; /* its position in the queue pair's count, plus one */
    uint32_t zero2;
};
static_assert(sizeof(struct piece_head) == 64, "the payload begins at a cache line");

/* Two-sided mode: receives posted again, free-running. */
struct credit {
    uint32_t returned;
    uint32_t stamp; /* its position, plus one */
};

/* The id of a chunk: immediate data in imm mode, a field of records and short messages.
 * slot:8 | generation:12 | buffer:3 | chunk:9. CHUNK_WHOLE, imm mode: the message is one chunk, so
 * the completion's own length is its size. */
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

/* Sent by one end to the other before the queue pairs are connected. */
struct rdma_offer {
    uint8_t mode, nqps, mtu, max_rd_atomic;
    /* Chunks of a queue pair that a sending end leaves unacknowledged at most */
    uint8_t window_log2;
    uint8_t ngids;
    uint8_t modes;       /* that this end can do: a bit for each */
    uint8_t pieces_log2; /* receives of a queue pair in the two-sided mode; the sender's credits */
    bool shorts;         /* this end knows short messages */
    bool ethernet;
    bool software;   /* its device is software: it copies by processor */
    bool needs_acks; /* completions are expensive to poll for: the peer acknowledges soon */
    bool counts;     /* this end knows the counts of imm mode, see MEM_COUNTS */
    uint16_t lid;
    uint32_t mem_rkey;
    uint64_t mem_addr;
    uint32_t qpn[PVN_RDMA_MAX_QPS], psn[PVN_RDMA_MAX_QPS];
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS];
};
/* Bytes written, or -ENOBUFS. */
int pvn_rdma_offer_encode(const struct rdma_offer *o, void *buf, size_t cap);
/* 0 or -EPROTO with *err; nothing is trusted before it is checked. */
int pvn_rdma_offer_decode(const void *buf, size_t len, struct rdma_offer *o, struct pvn_err *err);

/*
 * The registered block at both ends: cts ring (sender: the peer writes it; receiver: it writes from
 * it), ack lines, counts, record rings or (imm mode) message sizes, the ring of short messages. The
 * same layout everywhere, so that one address and key describe it; only where the last one begins
 * depends on the number of queue pairs in its owner's offer.
 */
enum {
    MEM_CTS = 0,
    MEM_ACK = MEM_CTS + CTS_LINES * 64,
    MEM_HELLO = MEM_ACK + PVN_MAX_LANES * 64, /* 1: the sender is connected */
    /* Imm mode, of a receiver that needs acknowledgements: u32 for each queue pair, the chunks that
     * the sender has written on it, short messages apart, free-running */
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
