/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire format of connection set-up, version 1: all that two processes send each other
 * besides the lanes' own data. Integers are little endian; nothing here depends on the compiler's
 * layout. The functions are pure: they look at bytes and write bytes, so they can be tested and
 * fuzzed alone.
 *
 * The handle, which NCCL's bootstrap carries from listener to connector:
 *
 *    0  u8[4] "PVNh"
 *    4  u16   version that the listener speaks best
 *    6  u8    address family: 4 or 6
 *    7  u8    bits 0 and 1: number of further addresses of the interface, 0 to 2 of IPv4, 0 or 1 of
 *             IPv6; features of the listener: bit 2 FAILOVER, bit 3 SHARED, bit 4 SEALS_DATA;
 *             bit 7: it has a key
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
 *   32  kinds 3 and 4: u8[16] token (token.h); after kind 3 everything is sealed (seal.h), or
 *       one ERROR frame comes back in the clear
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
 *   26  u8   service level, 0: default     name of the device
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
 *   GOODBYE: u64, messages that the sender of the frame has received, 0: not known; older builds
 *            send no number and skip it
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
 * A decoder checks length and range of all that it returns. It returns 0, or a negative errno with
 * the reason in err: -EINVAL: the bytes are not ours or damaged; -EPROTONOSUPPORT: another version;
 * -EPROTO: a breach of the format.
 *
 * Compatibility: the handle, the preamble and the frame header never change; HELLO grows only at
 * its end, and an old reader skips fields that it does not know; ERROR stays as it is. Everything
 * else may change with the version, on which HELLO agrees. An OFFER that comes with the HELLO is of
 * a version that the listener speaks, as its handle says.
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
    PVN_WIRE_VERSION = 1,     /* newest version that this code speaks */
    PVN_WIRE_VERSION_MIN = 1, /* oldest version that it speaks */

    PVN_HANDLE_BYTES =
        64, /* NCCL_NET_HANDLE_MAXSIZE of the oldest supported release (nccl/types.h) */
    PVN_PREAMBLE_BYTES = 32,
    PVN_TOKEN_BYTES = 16, /* after the preamble, with a key */
    PVN_PREAMBLE_MOST = PVN_PREAMBLE_BYTES + PVN_TOKEN_BYTES,
    PVN_SECRET_BYTES = 32, /* known to both ends and to nobody else */
    PVN_FRAME_HEADER_BYTES = 8,
    PVN_FRAME_BODY_MAX = 16384,
    PVN_OFFER_BLOB_MAX = 1024, /* of one lane */
    PVN_NAME_MAX = 64,         /* host, device and interface names, with the terminating zero */
    PVN_OTHER_ADDRS = 3,       /* other addresses that the reader of a HELLO keeps */
    PVN_MORE_ADDRS = 2,        /* further addresses of the interface, in the handle */
    PVN_REASON_MAX = 1024      /* text of an ERROR frame, with the terminating zero */
};

/* An address on the wire. It has no scope, because an interface number means nothing on another
 * machine. */
struct pvn_wire_addr {
    uint8_t family;    /* 4 or 6 */
    uint16_t port;     /* host byte order */
    uint8_t bytes[16]; /* network byte order, the first 4 for IPv4 */
};

/* Returns 0, or -EAFNOSUPPORT for any other family. */
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
    uint16_t version; /* newest wire version that the listener speaks */
    uint64_t session; /* random, one per listener */
    struct pvn_wire_addr addr;
    /* Further addresses of the same interface and family, at which the listener waits, too. */
    int nmore;
    struct pvn_wire_addr more[PVN_MORE_ADDRS];
    bool has_key; /* the listener has one, so the connector needs the same one */
    /* PVN_FEATURES_IN_HANDLE of the listener, as they will be in its HELLO. So the connector can
     * make lanes before that has come. Encoding leaves out the others. */
    uint64_t features;
    uint64_t cookie;
};

/* Returns how many further addresses fit into a handle with this first one. */
int pvn_handle_room(const struct pvn_wire_addr *first);
void pvn_handle_encode(uint8_t out[PVN_HANDLE_BYTES], const struct pvn_handle *h);
int pvn_handle_decode(const uint8_t *in, size_t len, struct pvn_handle *h, struct pvn_err *err);
/* Reads or writes the cookie alone, in place. */
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
/* Returns the length of a preamble whose first `len` bytes are in `in`. It is exact once the kind
 * is among them, and the shortest possible length before. */
size_t pvn_preamble_bytes(const uint8_t *in, size_t len);
/* True for the kinds with a key. */
bool pvn_preamble_has_token(int kind);
/*
 * Checks the first `len` bytes of a preamble. 1: complete and valid; 0: valid so far; negative: not
 * a peer. Until the preamble is complete, the result depends on nothing that is secret. -EACCES: it
 * names another session than `session`, the listener's.
 */
int pvn_preamble_decode(const uint8_t *in, size_t len, uint64_t session, struct pvn_preamble *p,
                        struct pvn_err *err);

enum pvn_frame_type {
    PVN_FRAME_HELLO = 1,
    PVN_FRAME_OFFER = 2,   /* connector: its lanes; acceptor: the pairs it chose */
    PVN_FRAME_READY = 3,   /* lanes that passed verification */
    PVN_FRAME_ERROR = 4,   /* why its sender gives up; the sender closes the connection after it */
    PVN_FRAME_GOODBYE = 5, /* its sender closes its comm in good order */
    PVN_FRAME_LANE_DOWN = 6, /* why its sender pauses the comm (failover) */
    PVN_FRAME_REPORT = 7,    /* acceptor, on new lanes: what it has received (engine.h) */
    PVN_FRAME_ANSWER = 8,    /* connector: messages that it will not send again */
    PVN_FRAME_ASK = 9, /* query: is the peer alive, and does it take messages (lane.h, overdue) */
    PVN_FRAME_ALIVE = 10,  /* answer to ASK: the number of open requests */
    PVN_FRAME_SWITCH = 11, /* connector: pauses the comm for a better connection, and why */
    PVN_FRAME_BEAT = 12,   /* set-up: shows that the caller of its sender drives the set-up */
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
    /* Once HELLO is through, only isend, irecv and test drive this end (NCCL's v4 interface). It
     * may be away for as long as its user computes. */
    PVN_FEATURE_LAZY = 1 << 0,
    /* This end requests that the comm outlive its lanes. If both ends do, a connection may be made
     * again. */
    PVN_FEATURE_FAILOVER = 1 << 1,
    /* This end answers PVN_FRAME_ASK. */
    PVN_FEATURE_ALIVE = 1 << 2,
    /* Only with FAILOVER: a connection may be set up beside the one in use, and the comm switch to it. */
    PVN_FEATURE_FAILBACK = 1 << 3,
    /* On a connection that resumes a comm: it is set up beside the connection in use. */
    PVN_FEATURE_BESIDE = 1 << 4,
    /* On a connection that resumes a comm: it takes another path than the comm's first one, which
     * is preferred once it works again. */
    PVN_FEATURE_AWAY = 1 << 5,
    /* NCCL may let several ranks share this comm and post receives of several buffers. If both ends
     * set this, lanes of every kind have clear-to-send. */
    PVN_FEATURE_SHARED = 1 << 6,
    /* This end sends and takes PVN_FRAME_BEAT. */
    PVN_FEATURE_BEATS = 1 << 7,
    /* Only with FAILOVER: this end can replace the control connection of a comm and keep the
     * lanes. */
    PVN_FEATURE_KEEPS = 1 << 8,
    /* This connection replaces the control connection, and nothing else, of the connection with the
     * nonce `resumes`. */
    PVN_FEATURE_CONTROL = 1 << 9,
    /* This end can verify lanes that are made beside those in use with full-size packets, see
     * pvn_lane_args. */
    PVN_FEATURE_LARGE = 1 << 10,
    /* The data of TCP connections are sealed, too, if either end sets this. With a key only. */
    PVN_FEATURE_SEALS_DATA = 1 << 11
};

/* The features that decide how lanes are made. */
#define PVN_FEATURES_IN_HANDLE                                                                     \
    ((uint64_t)(PVN_FEATURE_FAILOVER | PVN_FEATURE_SHARED | PVN_FEATURE_SEALS_DATA))

struct pvn_hello {
    uint16_t version_min, version_max; /* of the wire format */
    uint32_t pid;
    uint64_t session;
    uint64_t features;
    int16_t traffic_class; /* requested by the sender for both directions, -1: none */
    uint8_t service_level; /* as the traffic class, for RDMA; older builds send 0 */
    char plugin_version[PVN_NAME_MAX];
    char host[PVN_NAME_MAX];
    char device[PVN_NAME_MAX];
    /* The comm whose lanes this connection replaces, named by the nonce of its first connection; 0:
     * none. With CONTROL: the nonce of the connection whose control connection this one replaces.
     * The HELLO of older builds ends before this field. */
    uint64_t resumes;
    /* Acceptor: how many messages that comm has received, as far as is known; 0: not known. The
     * HELLO of older builds ends before this field. */
    uint64_t received;
    /* Acceptor, if failover is agreed: other addresses of its listener, on interfaces that have
     * nothing to do with the connection's. Connector that requests failover: addresses where its
     * process can be seen (presence.h). The HELLO of older builds ends before this field, and they
     * do not read a connector's. */
    int nothers;
    struct pvn_wire_addr other[PVN_OTHER_ADDRS];
};

/* One lane of an offer. The blob is private to the lane (lane.h, offer and bind). */
struct pvn_lane_offer {
    /* Connector: the lane's number. For the best lane of each port that is the port's index, for
     * the others a number after these. Acceptor: the number of the connector's lane that this one
     * is paired with. */
    uint8_t index;
    int16_t rail;            /* rail of its device; -1: not known */
    char kind[PVN_NAME_MAX]; /* lane->ops->name */
    char name[PVN_NAME_MAX]; /* interface or port, for messages */
    uint16_t len;
    /* Borrowed: points into the lane's buffer (encoding) or the frame (decoded). */
    const uint8_t *blob;
};

struct pvn_offer {
    int n;
    struct pvn_lane_offer lane[PVN_MAX_LANES];
};

/*
 * Frame bodies. Encoders return the number of bytes, -ENOSPC if cap is too small, or -EINVAL for
 * values that the format has no room for. Names that do not fit are cut off. Names from the wire
 * lose their control characters.
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
/* 0 if the peer has not sent a number. */
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

/* Returns the version that both ends speak, or -EPROTONOSUPPORT with a text that names both
 * ranges. */
int pvn_wire_agree(const struct pvn_hello *mine, const struct pvn_hello *theirs,
                   struct pvn_err *err);

#endif
