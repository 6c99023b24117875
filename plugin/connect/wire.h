/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of connection set-up, version 1: everything two processes say to each other
 * outside the lanes' own data. Integers are little endian; nothing here depends on the compiler's
 * layout. The functions are pure: they look at bytes and write bytes, so they can be tested and
 * fuzzed alone.
 *
 * The handle, which NCCL's bootstrap carries from listener to connector:
 *
 *    0  u8[4] "PVNh"
 *    4  u16   version that the listener speaks best
 *    6  u8    address family: 4 or 6
 *    7  u8    further addresses of the interface: 0 to 2 of IPv4, 0 or 1 of IPv6; older builds have 0,
 *             and do not read it; bit 7: the listener has a key
 *    8  u64   session
 *   16  u8[16] address, network byte order; IPv4 in the first 4
 *   32  u16   port
 *   34  IPv4: two times u8[4] further address, network byte order, u16 port; u8[2] zero
 *       IPv6: u8[14] further address, but for its end
 *   48  u32   CRC-32 (IEEE 802.3) of bytes 0..47
 *   52  IPv4: u8[4] zero; IPv6: u8[2] end of the further address, u16 its port
 *   56  u64   the connector's cookie; zero in what the listener gives out
 *
 * The preamble, the first bytes of every connection to a listener:
 *
 *    0  u8[4] "PVNp"
 *    4  u16   version
 *    6  u8    1 control connection, 2 data connection (stream); 3 and 4: the same of a connector with a
 *             key, which older builds refuse
 *    7  u8    stream: index of its lane
 *    8  u16   stream: index within the lane
 *   10  u8[6] zero
 *   16  u64   session, from the handle
 *   24  u64   nonce of the comm
 *   32  kinds 3 and 4: u8[16] token (token.h); behind that of kind 3 everything is sealed (seal.h), or one
 *       ERROR frame in the clear comes back
 *
 * Then, on the control connection, frames in both directions. A header and its body:
 *
 *    0  u8    type
 *    1  u8[3] zero
 *    4  u32   bytes of the body
 *
 *   HELLO                             OFFER, of n lanes
 *    0  u16  oldest version spoken      0  u8   n
 *    2  u16  newest version spoken      1  u8   zero
 *    4  u32  pid                       then n times:
 *    8  u64  session                       u8   index of the connector's lane
 *   16  u64  feature bits                  i16  rail, -1: not known
 *   24  i16  traffic class, -1: none       name of the kind ("tcp", "rdma")
 *   26  u8   zero                          name of the device
 *   27  names: plugin version,             u16  bytes of the lane's own data (blob)
 *       host, device                       that data
 *       u64  comm that is resumed
 *       u64  messages it has received
 *       u8   n, then n times:
 *       u8   address family: 4 or 6
 *       u16  port
 *       u8[16] address
 *
 *   READY: u32, a bit per lane        ERROR: u16 length, text
 *   GOODBYE: u64, messages that the sender of the frame has received, as far as is known, 0: not;
 *            older builds send none and skip it
 *   ASK, BEAT: empty                  ALIVE: u32, open requests
 *
 * And, where both ends agreed on failover (structures: engine.h):
 *
 *   REPORT                            ANSWER
 *    0  u32  epoch                     0  u64     oldest message that is sent again
 *    4  u8   1: counted by slot        8  u64     next new message
 *    5  u8   n open receives          16  u64[4]  bit per message: not sent again
 *    6  u64  next slot or message
 *   then n times: u64 slot,           LANE_DOWN and SWITCH: u16 length, text
 *       u8 buffers, u8 bit per full one
 *   counted by message: u64[8], bit per message received
 *
 * A name is a u8 length and as many bytes, without a terminating zero.
 *
 * Nothing decoded is used before its length and range were checked. A decoder returns 0, or a
 * negative errno with the reason in err: -EINVAL the bytes are not ours or damaged,
 * -EPROTONOSUPPORT another version, -EPROTO against the rules of the format.
 *
 * Compatibility: the handle, the preamble and the frame header never change; HELLO only grows at
 * its end, an old reader skips what it does not know; ERROR stays as it is. Everything else may
 * change with the version, on which HELLO agrees first.
 */
#ifndef PVN_CONNECT_WIRE_H
#define PVN_CONNECT_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "engine/lane.h"

enum {
    PVN_WIRE_VERSION = 1,     /* what this code speaks best */
    PVN_WIRE_VERSION_MIN = 1, /* and the oldest it still speaks */

    PVN_HANDLE_BYTES =
        64, /* NCCL_NET_HANDLE_MAXSIZE of the oldest supported release (nccl/types.h) */
    PVN_PREAMBLE_BYTES = 32,
    PVN_TOKEN_BYTES = 16, /* behind the preamble where there is a key */
    PVN_PREAMBLE_MOST = PVN_PREAMBLE_BYTES + PVN_TOKEN_BYTES,
    PVN_SECRET_BYTES = 32, /* that both ends have and nobody else */
    PVN_FRAME_HEADER_BYTES = 8,
    PVN_FRAME_BODY_MAX = 16384,
    PVN_OFFER_BLOB_MAX = 1024, /* of one lane */
    PVN_NAME_MAX = 64,         /* host, device and interface names, with the terminating zero */
    PVN_OTHER_ADDRS = 3,       /* that a HELLO's reader takes */
    PVN_MORE_ADDRS = 2,        /* of the interface, in the handle */
    PVN_REASON_MAX = 1024      /* text of an ERROR frame, with the terminating zero */
};

/* An address as it travels: no scope, for an interface number means nothing on another machine. */
struct pvn_wire_addr {
    uint8_t family;    /* 4 or 6 */
    uint16_t port;     /* host byte order */
    uint8_t bytes[16]; /* network byte order, the first 4 for IPv4 */
};

/* -EAFNOSUPPORT for any other family. */
int pvn_wire_addr_from_sockaddr(struct pvn_wire_addr *a, const struct sockaddr *sa);
/* scope_id: of the local interface, used for link-local IPv6 addresses only. Returns the length. */
socklen_t pvn_wire_addr_to_sockaddr(const struct pvn_wire_addr *a, uint32_t scope_id,
                                    struct sockaddr_storage *ss);

/*
 * The handle that listen() gives to NCCL. The cookie is the connector's own note between two calls of
 * connect() with the same handle: zero when it leaves the listener, outside the checksum, and never
 * trusted as a pointer.
 */
struct pvn_handle {
    uint16_t version; /* of the wire format the listener speaks best */
    uint64_t session; /* random, one per listener */
    struct pvn_wire_addr addr;
    /* Further addresses of the same interface and family, where the listener waits, too. */
    int nmore;
    struct pvn_wire_addr more[PVN_MORE_ADDRS];
    bool has_key; /* the listener has, so the connector needs it, too */
    uint64_t cookie;
};

/* How many further addresses a handle with this first one has room for. */
int pvn_handle_room(const struct pvn_wire_addr *first);
void pvn_handle_encode(uint8_t out[PVN_HANDLE_BYTES], const struct pvn_handle *h);
int pvn_handle_decode(const uint8_t *in, size_t len, struct pvn_handle *h, struct pvn_err *err);
/* The cookie alone, in place. */
uint64_t pvn_handle_cookie(const uint8_t *handle);
void pvn_handle_set_cookie(uint8_t *handle, uint64_t cookie);

enum pvn_preamble_kind {
    PVN_PREAMBLE_CTRL = 1,
    PVN_PREAMBLE_STREAM = 2,
    PVN_PREAMBLE_CTRL_KEY = 3,
    PVN_PREAMBLE_STREAM_KEY = 4
};

struct pvn_preamble {
    uint16_t version;
    uint8_t kind;     /* enum pvn_preamble_kind */
    uint8_t lane;     /* STREAM: index of the pair in the accepted offer */
    uint16_t stream;  /* STREAM: index within the lane */
    uint64_t session; /* of the listener, from its handle */
    uint64_t nonce;   /* random, one per connection; names the comm that a stream belongs to */
    uint8_t token[PVN_TOKEN_BYTES]; /* the kinds with a key */
};

/* Returns the number of bytes. */
int pvn_preamble_encode(uint8_t out[PVN_PREAMBLE_MOST], const struct pvn_preamble *p);
/* The number of bytes that a preamble of which these have come has at least; once they are there, exactly. */
size_t pvn_preamble_bytes(const uint8_t *in, size_t len);
/* True for the kinds with a key. */
bool pvn_preamble_has_token(int kind);
/*
 * Judges the bytes that have come so far: 1 complete and valid, 0 so far so good, negative not a
 * peer. Before the whole has come it depends on nothing that is secret. -EACCES: another session
 * than `session`, the listener's.
 */
int pvn_preamble_decode(const uint8_t *in, size_t len, uint64_t session, struct pvn_preamble *p,
                        struct pvn_err *err);

enum pvn_frame_type {
    PVN_FRAME_HELLO = 1,
    PVN_FRAME_OFFER = 2,     /* connector: its lanes; acceptor: the pairs it chose */
    PVN_FRAME_READY = 3,     /* lanes that passed verification */
    PVN_FRAME_ERROR = 4,     /* why the sender of the frame gives up; it closes behind it */
    PVN_FRAME_GOODBYE = 5,   /* the sender of the frame closes its comm in good order */
    PVN_FRAME_LANE_DOWN = 6, /* why the sender of the frame pauses the comm (failover) */
    PVN_FRAME_REPORT = 7,    /* acceptor, on new lanes: what it has received (engine.h) */
    PVN_FRAME_ANSWER = 8,    /* connector: what it will not send again */
    PVN_FRAME_ASK = 9,       /* whether the peer is alive and takes what comes (lane.h, overdue) */
    PVN_FRAME_ALIVE = 10,    /* its answer: the number of requests that are open there */
    PVN_FRAME_SWITCH = 11,   /* connector: pauses the comm for a better connection, and why */
    PVN_FRAME_BEAT = 12,     /* set-up: the caller of the end that sends it drives it */
    PVN_FRAME_TYPES
};

struct pvn_frame_header {
    uint8_t type; /* enum pvn_frame_type */
    uint32_t len; /* bytes of the body */
};

void pvn_frame_header_encode(uint8_t out[PVN_FRAME_HEADER_BYTES], const struct pvn_frame_header *h);
/* Checks the type's range and the length against the type's bounds. */
int pvn_frame_header_decode(const uint8_t in[PVN_FRAME_HEADER_BYTES], struct pvn_frame_header *h,
                            struct pvn_err *err);
const char *pvn_frame_name(int type);

/* Feature bits of HELLO. Unknown ones are ignored. */
enum {
    /* This end is driven by isend, irecv and test only, once HELLO is through (NCCL's v4
     * interface): it may be away for as long as its user computes. */
    PVN_FEATURE_LAZY = 1 << 0,
    /* The comm is to outlive its lanes; where both ends say so, a connection may be made again. */
    PVN_FEATURE_FAILOVER = 1 << 1,
    /* This end answers PVN_FRAME_ASK. */
    PVN_FEATURE_ALIVE = 1 << 2,
    /* Only with FAILOVER: a connection may be set up beside the one in use, and the comm switch to it. */
    PVN_FEATURE_FAILBACK = 1 << 3,
    /* A connection that resumes a comm: it is set up beside the one in use. */
    PVN_FEATURE_BESIDE = 1 << 4,
    /* A connection that resumes a comm: it takes another path than the comm's first one, which
     * is preferred once that works again. */
    PVN_FEATURE_AWAY = 1 << 5,
    /* NCCL may let several ranks share this comm and post receives of several buffers. Where both ends
     * say so, lanes of every kind have clear-to-send. */
    PVN_FEATURE_SHARED = 1 << 6,
    /* This end sends and takes PVN_FRAME_BEAT. */
    PVN_FEATURE_BEATS = 1 << 7,
    /* Only with FAILOVER: a comm of this end takes a new control connection for the lanes that it has. */
    PVN_FEATURE_KEEPS = 1 << 8,
    /* A connection that replaces the control connection, and nothing else, of the one whose nonce
     * `resumes` has. */
    PVN_FEATURE_CONTROL = 1 << 9,
    /* Lanes made beside those in use are verified with full-size packets, see pvn_lane_args. */
    PVN_FEATURE_LARGE = 1 << 10,
    /* Data connections of TCP are sealed, too, if one of the two ends says so. With a key only. */
    PVN_FEATURE_SEALS_DATA = 1 << 11
};

struct pvn_hello {
    uint16_t version_min, version_max; /* of the wire format */
    uint32_t pid;
    uint64_t session;
    uint64_t features;
    int16_t traffic_class; /* requested by the sender for both directions, -1: none */
    char plugin_version[PVN_NAME_MAX];
    char host[PVN_NAME_MAX];
    char device[PVN_NAME_MAX];
    /* The comm whose lanes this connection replaces, by the nonce of its first connection; 0: none.
     * Older builds do not have the field, which is the last. */
    uint64_t resumes;
    /* Acceptor, of that comm: messages that it has received, as far as is known; 0: not. Older
     * builds do not have it either. */
    uint64_t received;
    /* Acceptor, where failover was agreed: where else its listener can be reached, on interfaces
     * that have nothing to do with the connection's. Connector that requests failover: where its process can
     * be seen (presence.h). Older builds do not have it either, and do not read a connector's. */
    int nothers;
    struct pvn_wire_addr other[PVN_OTHER_ADDRS];
};

/* One lane of an offer. The blob is the lane's business alone (lane.h, offer and bind). */
struct pvn_lane_offer {
    /* connector: own lane number, the port's place among the device's for the best lane of each; acceptor: which
     * of the connector's lanes it pairs */
    uint8_t index;
    int16_t rail;            /* of its device; -1: not known */
    char kind[PVN_NAME_MAX]; /* lane->ops->name */
    char name[PVN_NAME_MAX]; /* interface or port, for messages */
    uint16_t len;
    const uint8_t *blob; /* borrowed: from the lane when encoding, from the frame when decoded */
};

struct pvn_offer {
    int n;
    struct pvn_lane_offer lane[PVN_MAX_LANES];
};

/*
 * Bodies. Encoders return the number of bytes, or -ENOSPC when cap is too small and -EINVAL for
 * what cannot be said. Names that do not fit are cut, names from the wire lose their control
 * characters.
 */
int pvn_hello_encode(uint8_t *out, size_t cap, const struct pvn_hello *h);
int pvn_hello_decode(const uint8_t *in, size_t len, struct pvn_hello *h, struct pvn_err *err);
int pvn_offer_encode(uint8_t *out, size_t cap, const struct pvn_offer *o);
int pvn_offer_decode(const uint8_t *in, size_t len, struct pvn_offer *o, struct pvn_err *err);
int pvn_ready_encode(uint8_t *out, size_t cap, uint32_t lanes);
int pvn_ready_decode(const uint8_t *in, size_t len, uint32_t *lanes, struct pvn_err *err);
int pvn_alive_encode(uint8_t *out, size_t cap, uint32_t open);
int pvn_alive_decode(const uint8_t *in, size_t len, uint32_t *open, struct pvn_err *err);
int pvn_goodbye_encode(uint8_t *out, size_t cap, uint64_t received);
/* 0 where the peer has not said it. */
uint64_t pvn_goodbye_decode(const uint8_t *in, size_t len);
int pvn_reason_encode(uint8_t *out, size_t cap, const char *text);
int pvn_reason_decode(const uint8_t *in, size_t len, char text[PVN_REASON_MAX],
                      struct pvn_err *err);

struct pvn_engine_report;
struct pvn_engine_answer;
int pvn_report_encode(uint8_t *out, size_t cap, const struct pvn_engine_report *r);
int pvn_report_decode(const uint8_t *in, size_t len, struct pvn_engine_report *r,
                      struct pvn_err *err);
int pvn_answer_encode(uint8_t *out, size_t cap, const struct pvn_engine_answer *a);
int pvn_answer_decode(const uint8_t *in, size_t len, struct pvn_engine_answer *a,
                      struct pvn_err *err);

/* The version both ends speak, or -EPROTONOSUPPORT with a text that names both ranges. */
int pvn_wire_agree(const struct pvn_hello *mine, const struct pvn_hello *theirs,
                   struct pvn_err *err);

#endif
