/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes offers; see rdma_wire.h. */
#include "net-pvrdma/rdma_wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/*
 * Layout of an offer:
 *   0  u8 version, u8 mode, u8 number of queue pairs, u8 flags (FLAG_*)
 *   4  u8 MTU code, u8 max_rd_atomic, u8 window (log2), u8 number of GIDs
 *   8  u8 modes, u8 pieces (log2), u16 LID
 *  12  u32 rkey of the registered block
 *  16  u64 address of the registered block
 *  24  per queue pair: u32 number, u32 first packet number
 *      then per GID: 16 bytes, u8 type, u8 row, u8 prefix, u8 0
 *
 * A packet number has 24 bits, and older builds ignore the upper eight bits of the word. In the word of the first queue
 * pair these bits are further features (CAN_*).
 */
enum {
    HEAD = 24,
    PER_QP = 8,
    PER_GID = 20,
    FLAG_ETHERNET = 1,
    FLAG_NEEDS_ACKS = 2,
    FLAG_SOFTWARE = 4,
    CAN_SHORTS = 1,
    CAN_COUNTS = 2
};

static void put16(uint8_t *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

int pvn_rdma_offer_encode(const struct rdma_offer *o, void *buf, size_t cap)
{
    size_t len = HEAD + (size_t)o->nqps * PER_QP + (size_t)o->ngids * PER_GID;
    if (len > cap)
        return -ENOBUFS;
    uint8_t *b = buf;
    memset(b, 0, len);
    b[0] = RDMA_OFFER_VERSION;
    b[1] = o->mode;
    b[2] = o->nqps;
    b[3] = (uint8_t)((o->ethernet ? FLAG_ETHERNET : 0) | (o->needs_acks ? FLAG_NEEDS_ACKS : 0) |
                     (o->software ? FLAG_SOFTWARE : 0));
    b[4] = o->mtu;
    b[5] = o->max_rd_atomic;
    b[6] = o->window_log2;
    b[7] = o->ngids;
    b[8] = o->modes;
    b[9] = o->pieces_log2;
    put16(b + 10, o->lid);
    put32(b + 12, o->mem_rkey);
    uint64_t addr = htole64(o->mem_addr);
    memcpy(b + 16, &addr, sizeof(addr));
    uint8_t *p = b + HEAD;
    for (int i = 0; i < o->nqps; i++, p += PER_QP) {
        put32(p, o->qpn[i]);
        put32(p + 4, o->psn[i]);
    }
    b[HEAD + 7] = (uint8_t)((o->shorts ? CAN_SHORTS : 0) | (o->counts ? CAN_COUNTS : 0));
    for (int i = 0; i < o->ngids; i++, p += PER_GID) {
        memcpy(p, o->gids[i].raw, 16);
        p[16] = o->gids[i].type;
        p[17] = o->gids[i].index;
        p[18] = o->gids[i].prefix;
    }
    return (int)len;
}

int pvn_rdma_offer_decode(const void *buf, size_t len, struct rdma_offer *o, struct pvn_err *err)
{
    const uint8_t *b = buf;
    memset(o, 0, sizeof(*o));
    if (len < HEAD || b[0] != RDMA_OFFER_VERSION)
        return pvn_err_set(err, -EPROTO,
                           "the peer's RDMA offer has %zu bytes and version %u, not version %d",
                           len, len ? b[0] : 0, RDMA_OFFER_VERSION);
    o->mode = b[1];
    o->nqps = b[2];
    o->ethernet = b[3] & FLAG_ETHERNET;
    o->needs_acks = b[3] & FLAG_NEEDS_ACKS;
    o->software = b[3] & FLAG_SOFTWARE;
    o->mtu = b[4];
    o->max_rd_atomic = b[5];
    o->window_log2 = b[6];
    o->ngids = b[7];
    o->modes = b[8];
    o->pieces_log2 = b[9];
    if (o->mode > PVN_RDMA_SEND || o->modes == 0 || o->modes >> (PVN_RDMA_SEND + 1) ||
        o->pieces_log2 < 2 || o->pieces_log2 > PIECES_LOG2 || o->nqps < 1 ||
        o->nqps > PVN_RDMA_MAX_QPS || b[3] > (FLAG_ETHERNET | FLAG_NEEDS_ACKS | FLAG_SOFTWARE) ||
        o->mtu < IBV_MTU_256 || o->mtu > IBV_MTU_4096 || o->ngids > PVN_RDMA_MAX_GIDS ||
        o->window_log2 < 1 || o->window_log2 > RECORD_RING_LOG2 ||
        len != HEAD + (size_t)o->nqps * PER_QP + (size_t)o->ngids * PER_GID)
        return pvn_err_set(err, -EPROTO,
                           "the peer's RDMA offer is impossible: mode %u, %u queue pairs, MTU code "
                           "%u, %u GIDs, %zu bytes",
                           o->mode, o->nqps, o->mtu, o->ngids, len);
    o->lid = (uint16_t)(b[10] | b[11] << 8);
    o->mem_rkey = get32(b + 12);
    memcpy(&o->mem_addr, b + 16, sizeof(o->mem_addr));
    o->mem_addr = le64toh(o->mem_addr);
    o->shorts = b[HEAD + 7] & CAN_SHORTS;
    o->counts = b[HEAD + 7] & CAN_COUNTS;
    const uint8_t *p = b + HEAD;
    for (int i = 0; i < o->nqps; i++, p += PER_QP) {
        o->qpn[i] = get32(p);
        o->psn[i] = get32(p + 4) & 0xffffff;
        if (o->qpn[i] > 0xffffff)
            return pvn_err_set(
                err, -EPROTO, "the peer's queue pair number 0x%x has more than 24 bits", o->qpn[i]);
    }
    for (int i = 0; i < o->ngids; i++, p += PER_GID) {
        memcpy(o->gids[i].raw, p, 16);
        o->gids[i].type = p[16];
        o->gids[i].index = p[17];
        o->gids[i].prefix = p[18];
    }
    return 0;
}
