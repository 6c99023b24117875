/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/wire.h"
#include "engine/engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* "PVNh" and "PVNp" as bytes, so that a capture shows what it is. */
static const uint8_t handle_magic[4] = {'P', 'V', 'N', 'h'};
static const uint8_t preamble_magic[4] = {'P', 'V', 'N', 'p'};

/* Offsets in the handle. */
enum {
    H_VERSION = 4,
    H_FAMILY = 6,
    H_SESSION = 8,
    H_BITS = 7,
    H_ADDR = 16,
    H_PORT = 32,
    H_MORE = 34,
    H_MORE_BYTES = 6, /* each */
    H_SUM = 48,
    H_MORE_END = 52,
    H_COOKIE = 56
};
_Static_assert(H_COOKIE + 8 == PVN_HANDLE_BYTES, "the cookie ends the handle");
_Static_assert(H_MORE + PVN_MORE_ADDRS * (int)H_MORE_BYTES <= H_SUM, "the checksum covers them");
_Static_assert(PVN_HANDLE_BYTES <= 64, "NCCL_NET_HANDLE_MAXSIZE of NCCL 2.8 to 2.11");

/* Bits of the byte at H_BITS. */
enum { H_NMORE = 0x03, H_HAS_KEY = 0x80 };

static const struct {
    uint8_t bit;
    uint64_t feature;
} handle_features[] = {
    {0x04, PVN_FEATURE_FAILOVER},
    {0x08, PVN_FEATURE_SHARED},
    {0x10, PVN_FEATURE_SEALS_DATA},
};
enum { H_FEATURES = sizeof(handle_features) / sizeof(handle_features[0]) };

/* Offsets in the preamble. */
enum {
    P_VERSION = 4,
    P_KIND = 6,
    P_LANE = 7,
    P_STREAM = 8,
    P_ZERO = 10,
    P_SESSION = 16,
    P_NONCE = 24,
    P_TOKEN = 32
};
_Static_assert(P_NONCE + 8 == PVN_PREAMBLE_BYTES, "the nonce ends the preamble");

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)v);
    put16(p + 2, (uint16_t)(v >> 16));
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | (uint32_t)get16(p + 2) << 16;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* CRC-32 (IEEE 802.3), bit by bit: it runs over 48 bytes once per connection. */
static uint32_t crc32(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    int bit;

    while (n--) {
        crc ^= *p++;
        for (bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

int pvn_wire_addr_from_sockaddr(struct pvn_wire_addr *a, const struct sockaddr *sa)
{
    memset(a, 0, sizeof(*a));
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

        a->family = 4;
        a->port = ntohs(in->sin_port);
        memcpy(a->bytes, &in->sin_addr, 4);
        return 0;
    }
    if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

        a->family = 6;
        a->port = ntohs(in6->sin6_port);
        memcpy(a->bytes, &in6->sin6_addr, 16);
        return 0;
    }
    return -EAFNOSUPPORT;
}

socklen_t pvn_wire_addr_to_sockaddr(const struct pvn_wire_addr *a, uint32_t scope_id,
                                    struct sockaddr_storage *ss)
{
    memset(ss, 0, sizeof(*ss));
    if (a->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)ss;

        in->sin_family = AF_INET;
        in->sin_port = htons(a->port);
        memcpy(&in->sin_addr, a->bytes, 4);
        return sizeof(*in);
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(a->port);
        memcpy(&in6->sin6_addr, a->bytes, 16);
        if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            in6->sin6_scope_id = scope_id;
        return sizeof(*in6);
    }
}

int pvn_handle_room(const struct pvn_wire_addr *first)
{
    return first->family == 4 ? PVN_MORE_ADDRS : 1;
}

static uint8_t handle_bits(const struct pvn_handle *h)
{
    int bits = h->nmore | (h->has_key ? H_HAS_KEY : 0);

    for (int i = 0; i < H_FEATURES; i++)
        bits |= h->features & handle_features[i].feature ? handle_features[i].bit : 0;
    return (uint8_t)bits;
}

static void write_more(uint8_t *out, const struct pvn_handle *h)
{
    for (int i = 0; h->addr.family == 4 && i < h->nmore; i++) {
        memcpy(out + H_MORE + i * H_MORE_BYTES, h->more[i].bytes, 4);
        put16(out + H_MORE + i * H_MORE_BYTES + 4, h->more[i].port);
    }
    if (h->addr.family == 6 && h->nmore > 0) {
        memcpy(out + H_MORE, h->more[0].bytes, H_SUM - H_MORE);
        memcpy(out + H_MORE_END, h->more[0].bytes + (H_SUM - H_MORE), 2);
        put16(out + H_MORE_END + 2, h->more[0].port);
    }
}

void pvn_handle_encode(uint8_t out[PVN_HANDLE_BYTES], const struct pvn_handle *h)
{
    memset(out, 0, PVN_HANDLE_BYTES);
    memcpy(out, handle_magic, sizeof(handle_magic));
    put16(out + H_VERSION, h->version);
    out[H_FAMILY] = h->addr.family;
    put64(out + H_SESSION, h->session);
    memcpy(out + H_ADDR, h->addr.bytes, sizeof(h->addr.bytes));
    put16(out + H_PORT, h->addr.port);
    write_more(out, h);
    out[H_BITS] = handle_bits(h);
    put32(out + H_SUM, crc32(out, H_SUM));
    put64(out + H_COOKIE, h->cookie);
}

/* Reads the further addresses. Those without a port are left out; the first address is enough. */
static void read_more(const uint8_t *in, struct pvn_handle *h)
{
    int n = in[H_BITS] & H_NMORE;

    for (int i = 0; i < n && i < pvn_handle_room(&h->addr); i++) {
        const uint8_t *p = in + H_MORE + i * H_MORE_BYTES;
        struct pvn_wire_addr a = {.family = h->addr.family};

        if (a.family == 4) {
            memcpy(a.bytes, p, 4);
            a.port = get16(p + 4);
        } else {
            memcpy(a.bytes, p, H_SUM - H_MORE);
            memcpy(a.bytes + (H_SUM - H_MORE), in + H_MORE_END, 2);
            a.port = get16(in + H_MORE_END + 2);
        }
        if (a.port)
            h->more[h->nmore++] = a;
    }
}

int pvn_handle_decode(const uint8_t *in, size_t len, struct pvn_handle *h, struct pvn_err *err)
{
    uint32_t sum, want;

    memset(h, 0, sizeof(*h));
    if (len < PVN_HANDLE_BYTES)
        return pvn_err_set(err, -EINVAL, "connection handle is truncated: %zu of %d bytes", len,
                           PVN_HANDLE_BYTES);
    if (memcmp(in, handle_magic, sizeof(handle_magic)) != 0)
        return pvn_err_set(
            err, -EINVAL,
            "connection handle is not one of this plugin (it begins %02x%02x%02x%02x): the other "
            "rank uses another network plugin or NCCL's own transport",
            in[0], in[1], in[2], in[3]);
    sum = get32(in + H_SUM);
    want = crc32(in, H_SUM);
    if (sum != want)
        return pvn_err_set(
            err, -EINVAL, "connection handle is damaged or truncated: checksum %08x, computed %08x",
            sum, want);
    h->version = get16(in + H_VERSION);
    if (h->version < PVN_WIRE_VERSION_MIN)
        return pvn_err_set(
            err, -EPROTONOSUPPORT,
            "connection handle is from wire version %u, this plugin speaks %d to %d: install the "
            "same release on all nodes",
            h->version, PVN_WIRE_VERSION_MIN, PVN_WIRE_VERSION);
    h->session = get64(in + H_SESSION);
    h->addr.family = in[H_FAMILY];
    h->addr.port = get16(in + H_PORT);
    memcpy(h->addr.bytes, in + H_ADDR, sizeof(h->addr.bytes));
    read_more(in, h);
    h->has_key = in[H_BITS] & H_HAS_KEY;
    for (int i = 0; i < H_FEATURES; i++)
        h->features |= in[H_BITS] & handle_features[i].bit ? handle_features[i].feature : 0;
    h->cookie = get64(in + H_COOKIE);
    if ((h->addr.family != 4 && h->addr.family != 6) || h->addr.port == 0 || h->session == 0)
        return pvn_err_set(
            err, -EINVAL,
            "connection handle has no usable address: family %u, port %u, session %llx",
            h->addr.family, h->addr.port, (unsigned long long)h->session);
    return 0;
}

uint64_t pvn_handle_cookie(const uint8_t *handle)
{
    return get64(handle + H_COOKIE);
}

void pvn_handle_set_cookie(uint8_t *handle, uint64_t cookie)
{
    put64(handle + H_COOKIE, cookie);
}

bool pvn_preamble_has_token(int kind)
{
    return kind == PVN_PREAMBLE_CTRL_KEY || kind == PVN_PREAMBLE_STREAM_KEY;
}

size_t pvn_preamble_bytes(const uint8_t *in, size_t len)
{
    return len > P_KIND && pvn_preamble_has_token(in[P_KIND]) ? PVN_PREAMBLE_MOST
                                                              : PVN_PREAMBLE_BYTES;
}

int pvn_preamble_encode(uint8_t out[PVN_PREAMBLE_MOST], const struct pvn_preamble *p)
{
    memset(out, 0, PVN_PREAMBLE_BYTES);
    memcpy(out, preamble_magic, sizeof(preamble_magic));
    put16(out + P_VERSION, p->version);
    out[P_KIND] = p->kind;
    out[P_LANE] = p->lane;
    put16(out + P_STREAM, p->stream);
    put64(out + P_SESSION, p->session);
    put64(out + P_NONCE, p->nonce);
    if (!pvn_preamble_has_token(p->kind))
        return PVN_PREAMBLE_BYTES;
    memcpy(out + P_TOKEN, p->token, sizeof(p->token));
    return PVN_PREAMBLE_MOST;
}

int pvn_preamble_decode(const uint8_t *in, size_t len, uint64_t session, struct pvn_preamble *p,
                        struct pvn_err *err)
{
    size_t n = len < sizeof(preamble_magic) ? len : sizeof(preamble_magic);

    memset(p, 0, sizeof(*p));
    if (len == 0)
        return 0;
    if (memcmp(in, preamble_magic, n) != 0)
        return pvn_err_set(err, -EINVAL,
                           "not a peer of this plugin: its first bytes are something else");
    if (len > P_KIND && (in[P_KIND] < PVN_PREAMBLE_CTRL || in[P_KIND] > PVN_PREAMBLE_STREAM_KEY))
        return pvn_err_set(err, -EPROTO, "connection of unknown kind %u", in[P_KIND]);
    if (len > P_LANE && in[P_LANE] >= PVN_MAX_LANES)
        return pvn_err_set(err, -EPROTO, "data connection of lane %u, there are at most %d",
                           in[P_LANE], PVN_MAX_LANES);
    if (len < pvn_preamble_bytes(in, len))
        return 0;
    /* The session is a secret. It is compared as a whole, because otherwise each of its bytes could
     * be guessed alone. */
    if ((get64(in + P_SESSION) ^ session) != 0)
        return pvn_err_set(
            err, -EACCES,
            "connection for another listener (its session id is not ours): an old or "
            "misdirected handle");
    p->version = get16(in + P_VERSION);
    p->kind = in[P_KIND];
    p->lane = in[P_LANE];
    p->stream = get16(in + P_STREAM);
    p->session = get64(in + P_SESSION);
    p->nonce = get64(in + P_NONCE);
    if (pvn_preamble_has_token(p->kind))
        memcpy(p->token, in + P_TOKEN, sizeof(p->token));
    if (p->nonce == 0)
        return pvn_err_set(err, -EPROTO, "connection without a nonce");
    return 1;
}

static const struct {
    const char *name;
    uint32_t min, max; /* bytes of the body */
} frames[PVN_FRAME_TYPES] = {
    [PVN_FRAME_HELLO] = {"HELLO", 30, PVN_FRAME_BODY_MAX},
    [PVN_FRAME_OFFER] = {"OFFER", 2, PVN_FRAME_BODY_MAX},
    [PVN_FRAME_READY] = {"READY", 4, 64},
    [PVN_FRAME_ERROR] = {"ERROR", 2, PVN_REASON_MAX + 2},
    [PVN_FRAME_GOODBYE] = {"GOODBYE", 0, 64},
    [PVN_FRAME_LANE_DOWN] = {"LANE_DOWN", 2, PVN_REASON_MAX + 2},
    [PVN_FRAME_REPORT] = {"REPORT", 14, 512},
    [PVN_FRAME_ANSWER] = {"ANSWER", 48, 64},
    [PVN_FRAME_ASK] = {"ASK", 0, 64},
    [PVN_FRAME_ALIVE] = {"ALIVE", 4, 64},
    [PVN_FRAME_SWITCH] = {"SWITCH", 2, PVN_REASON_MAX + 2},
    [PVN_FRAME_BEAT] = {"BEAT", 0, 64},
};

const char *pvn_frame_name(int type)
{
    return type > 0 && type < PVN_FRAME_TYPES ? frames[type].name : "unknown";
}

void pvn_frame_header_encode(uint8_t out[PVN_FRAME_HEADER_BYTES], const struct pvn_frame_header *h)
{
    memset(out, 0, PVN_FRAME_HEADER_BYTES);
    out[0] = h->type;
    put32(out + 4, h->len);
}

int pvn_frame_header_decode(const uint8_t in[PVN_FRAME_HEADER_BYTES], struct pvn_frame_header *h,
                            struct pvn_err *err)
{
    h->type = in[0];
    h->len = get32(in + 4);
    if (h->type == 0 || h->type >= PVN_FRAME_TYPES)
        return pvn_err_set(err, -EPROTO, "frame of unknown type %u on the control connection",
                           h->type);
    if (h->len < frames[h->type].min || h->len > frames[h->type].max)
        return pvn_err_set(err, -EPROTO, "%s frame of %u bytes, allowed are %u to %u",
                           frames[h->type].name, h->len, frames[h->type].min, frames[h->type].max);
    return 0;
}

/* Bytes to be written; `full` once something did not fit. */
struct writer {
    uint8_t *p;
    size_t left;
    size_t used;
    int full;
};

static uint8_t *room(struct writer *w, size_t n)
{
    uint8_t *p = w->p;

    if (w->full || n > w->left) {
        w->full = 1;
        return NULL;
    }
    w->p += n;
    w->left -= n;
    w->used += n;
    return p;
}

static void write_int(struct writer *w, uint64_t v, size_t bytes)
{
    uint8_t *p = room(w, bytes);
    size_t i;

    for (i = 0; p && i < bytes; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static void write_bytes(struct writer *w, const void *src, size_t n)
{
    uint8_t *p = room(w, n);

    if (p && n)
        memcpy(p, src, n);
}

/* Writes the length in one byte, then the characters. */
static void write_name(struct writer *w, const char *s)
{
    size_t n = strnlen(s, PVN_NAME_MAX - 1);

    write_int(w, n, 1);
    write_bytes(w, s, n);
}

static void write_addr(struct writer *w, const struct pvn_wire_addr *a)
{
    write_int(w, a->family, 1);
    write_int(w, a->port, 2);
    write_bytes(w, a->bytes, sizeof(a->bytes));
}

static int written(const struct writer *w)
{
    return w->full ? -ENOSPC : (int)w->used;
}

/* Bytes to be read; `bad` once something ran past the end. Reads after that give zeros. */
struct reader {
    const uint8_t *p;
    size_t left;
    int bad;
};

static const uint8_t *next_bytes(struct reader *r, size_t n)
{
    const uint8_t *p = r->p;

    if (r->bad || n > r->left) {
        r->bad = 1;
        return NULL;
    }
    r->p += n;
    r->left -= n;
    return p;
}

static uint64_t read_int(struct reader *r, size_t bytes)
{
    const uint8_t *p = next_bytes(r, bytes);
    uint64_t v = 0;
    size_t i;

    for (i = 0; p && i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* Text from the wire ends up in logs, so it loses its control characters. */
static void clean_copy(char *dst, const uint8_t *src, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        dst[i] = src[i] < 0x20 || src[i] == 0x7f ? '?' : (char)src[i];
    dst[n] = '\0';
}

static void read_name(struct reader *r, char dst[PVN_NAME_MAX])
{
    size_t n = read_int(r, 1);
    const uint8_t *p;

    dst[0] = '\0';
    if (n >= PVN_NAME_MAX) {
        r->bad = 1;
        return;
    }
    p = next_bytes(r, n);
    if (p)
        clean_copy(dst, p, n);
}

/* Keeps as many addresses as this build has room for, and skips the others. */
static void read_others(struct reader *r, struct pvn_hello *h)
{
    int n = r->left > 0 ? (int)read_int(r, 1) : 0;

    for (int i = 0; i < n && !r->bad; i++) {
        struct pvn_wire_addr a = {.family = (uint8_t)read_int(r, 1),
                                  .port = (uint16_t)read_int(r, 2)};
        const uint8_t *bytes = next_bytes(r, sizeof(a.bytes));

        if (bytes)
            memcpy(a.bytes, bytes, sizeof(a.bytes));
        if (bytes && h->nothers < PVN_OTHER_ADDRS)
            h->other[h->nothers++] = a;
    }
}

int pvn_hello_encode(uint8_t *out, size_t cap, const struct pvn_hello *h)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, h->version_min, 2);
    write_int(&w, h->version_max, 2);
    write_int(&w, h->pid, 4);
    write_int(&w, h->session, 8);
    write_int(&w, h->features, 8);
    write_int(&w, (uint16_t)h->traffic_class, 2);
    write_int(&w, h->service_level, 1);
    write_name(&w, h->plugin_version);
    write_name(&w, h->host);
    write_name(&w, h->device);
    write_int(&w, h->resumes, 8);
    write_int(&w, h->received, 8);
    write_int(&w, (uint64_t)h->nothers, 1);
    for (int i = 0; i < h->nothers; i++)
        write_addr(&w, &h->other[i]);
    return written(&w);
}

int pvn_hello_decode(const uint8_t *in, size_t len, struct pvn_hello *h, struct pvn_err *err)
{
    struct reader r = {in, len, 0};

    memset(h, 0, sizeof(*h));
    h->version_min = (uint16_t)read_int(&r, 2);
    h->version_max = (uint16_t)read_int(&r, 2);
    h->pid = (uint32_t)read_int(&r, 4);
    h->session = read_int(&r, 8);
    h->features = read_int(&r, 8);
    h->traffic_class = (int16_t)read_int(&r, 2);
    h->service_level = (uint8_t)read_int(&r, 1);
    read_name(&r, h->plugin_version);
    read_name(&r, h->host);
    read_name(&r, h->device);
    if (r.left > 0)
        h->resumes = read_int(&r, 8);
    if (r.left > 0)
        h->received = read_int(&r, 8);
    read_others(&r, h);
    if (r.bad)
        return pvn_err_set(err, -EPROTO, "HELLO of %zu bytes ends too early", len);
    if (h->version_min == 0 || h->version_min > h->version_max)
        return pvn_err_set(err, -EPROTO, "HELLO with the impossible version range %u to %u",
                           h->version_min, h->version_max);
    if (h->traffic_class < -1 || h->traffic_class > 255)
        return pvn_err_set(err, -EPROTO, "HELLO with the impossible traffic class %d",
                           h->traffic_class);
    for (int i = 0; i < h->nothers; i++)
        if ((h->other[i].family != 4 && h->other[i].family != 6) || h->other[i].port == 0)
            return pvn_err_set(err, -EPROTO, "HELLO with an impossible address: family %u, port %u",
                               h->other[i].family, h->other[i].port);
    return 0;
}

int pvn_offer_encode(uint8_t *out, size_t cap, const struct pvn_offer *o)
{
    struct writer w = {out, cap, 0, 0};
    int i;

    if (o->n < 0 || o->n > PVN_MAX_LANES)
        return -EINVAL;
    write_int(&w, (uint64_t)o->n, 1);
    write_int(&w, 0, 1); /* reserved */
    for (i = 0; i < o->n; i++) {
        const struct pvn_lane_offer *l = &o->lane[i];

        if (l->index >= PVN_MAX_LANES || l->rail < -1 || l->len > PVN_OFFER_BLOB_MAX)
            return -EINVAL;
        write_int(&w, l->index, 1);
        write_int(&w, (uint16_t)l->rail, 2);
        write_name(&w, l->kind);
        write_name(&w, l->name);
        write_int(&w, l->len, 2);
        write_bytes(&w, l->blob, l->len);
    }
    return written(&w);
}

int pvn_offer_decode(const uint8_t *in, size_t len, struct pvn_offer *o, struct pvn_err *err)
{
    struct reader r = {in, len, 0};
    unsigned seen = 0, n;
    int i;

    memset(o, 0, sizeof(*o));
    n = (unsigned)read_int(&r, 1);
    read_int(&r, 1);
    if (!r.bad && n > PVN_MAX_LANES)
        return pvn_err_set(err, -EPROTO, "OFFER of %u lanes, at most %d are possible", n,
                           PVN_MAX_LANES);
    for (i = 0; i < (int)n && !r.bad; i++) {
        struct pvn_lane_offer *l = &o->lane[i];

        l->index = (uint8_t)read_int(&r, 1);
        l->rail = (int16_t)read_int(&r, 2);
        read_name(&r, l->kind);
        read_name(&r, l->name);
        l->len = (uint16_t)read_int(&r, 2);
        if (l->len > PVN_OFFER_BLOB_MAX)
            return pvn_err_set(err, -EPROTO,
                               "OFFER with %u bytes for one lane, at most %d are possible", l->len,
                               PVN_OFFER_BLOB_MAX);
        l->blob = next_bytes(&r, l->len);
        if (!r.bad && (l->index >= PVN_MAX_LANES || seen & 1u << l->index))
            return pvn_err_set(err, -EPROTO, "OFFER names lane %u twice or out of range", l->index);
        seen |= 1u << (l->index % PVN_MAX_LANES);
        if (l->rail < -1)
            return pvn_err_set(err, -EPROTO, "OFFER with the impossible rail %d", l->rail);
    }
    if (r.bad || r.left)
        return pvn_err_set(err, -EPROTO, "OFFER of %zu bytes does not add up", len);
    o->n = (int)n;
    return 0;
}

int pvn_ready_encode(uint8_t *out, size_t cap, uint32_t lanes)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, lanes, 4);
    return written(&w);
}

int pvn_ready_decode(const uint8_t *in, size_t len, uint32_t *lanes, struct pvn_err *err)
{
    struct reader r = {in, len, 0};

    *lanes = (uint32_t)read_int(&r, 4);
    if (r.bad || *lanes >> PVN_MAX_LANES)
        return pvn_err_set(err, -EPROTO, "READY of %zu bytes with lanes %#x", len, *lanes);
    return 0;
}

int pvn_alive_encode(uint8_t *out, size_t cap, uint32_t open)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, open, 4);
    return written(&w);
}

int pvn_alive_decode(const uint8_t *in, size_t len, uint32_t *open, struct pvn_err *err)
{
    struct reader r = {in, len, 0};

    *open = (uint32_t)read_int(&r, 4);
    if (r.bad || *open > PVN_MAX_SENDS)
        return pvn_err_set(err, -EPROTO, "ALIVE of %zu bytes with %u open requests", len, *open);
    return 0;
}

int pvn_goodbye_encode(uint8_t *out, size_t cap, uint64_t received)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, received, 8);
    return written(&w);
}

uint64_t pvn_goodbye_decode(const uint8_t *in, size_t len)
{
    return len < 8 ? 0 : get64(in);
}

int pvn_reason_encode(uint8_t *out, size_t cap, const char *text)
{
    struct writer w = {out, cap, 0, 0};
    size_t n = strnlen(text, PVN_REASON_MAX - 1);

    write_int(&w, n, 2);
    write_bytes(&w, text, n);
    return written(&w);
}

int pvn_reason_decode(const uint8_t *in, size_t len, char text[PVN_REASON_MAX], struct pvn_err *err)
{
    struct reader r = {in, len, 0};
    size_t n = read_int(&r, 2);
    const uint8_t *p = next_bytes(&r, n);

    text[0] = '\0';
    if (!p || n >= PVN_REASON_MAX)
        return pvn_err_set(err, -EPROTO, "ERROR of %zu bytes with a text of %zu", len, n);
    clean_copy(text, p, n);
    return 0;
}

int pvn_report_encode(uint8_t *out, size_t cap, const struct pvn_engine_report *r)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, r->epoch, 4);
    write_int(&w, r->by_slot, 1);
    write_int(&w, (uint64_t)r->n, 1);
    write_int(&w, r->next, 8);
    for (int i = 0; i < r->n; i++) {
        write_int(&w, r->open[i].slot, 8);
        write_int(&w, r->open[i].buffers, 1);
        write_int(&w, r->open[i].done, 1);
    }
    for (size_t i = 0; !r->by_slot && i < PVN_REPORT_WORDS; i++)
        write_int(&w, r->have[i], 8);
    return written(&w);
}

/* Checks only the form; the engine checks the contents. */
int pvn_report_decode(const uint8_t *in, size_t len, struct pvn_engine_report *r,
                      struct pvn_err *err)
{
    struct reader rd = {in, len, 0};

    memset(r, 0, sizeof(*r));
    r->epoch = (uint32_t)read_int(&rd, 4);
    r->by_slot = read_int(&rd, 1) != 0;
    r->n = (int)read_int(&rd, 1);
    r->next = read_int(&rd, 8);
    if (r->n > PVN_MAX_REQS)
        return pvn_err_set(err, -EPROTO, "REPORT of %d open receives, at most %d are possible",
                           r->n, PVN_MAX_REQS);
    for (int i = 0; i < r->n; i++) {
        r->open[i].slot = read_int(&rd, 8);
        r->open[i].buffers = (uint8_t)read_int(&rd, 1);
        r->open[i].done = (uint8_t)read_int(&rd, 1);
    }
    for (size_t i = 0; !r->by_slot && i < PVN_REPORT_WORDS; i++)
        r->have[i] = read_int(&rd, 8);
    return rd.bad ? pvn_err_set(err, -EPROTO, "REPORT of %zu bytes ends too early", len) : 0;
}

int pvn_answer_encode(uint8_t *out, size_t cap, const struct pvn_engine_answer *a)
{
    struct writer w = {out, cap, 0, 0};

    write_int(&w, a->first, 8);
    write_int(&w, a->next, 8);
    for (size_t i = 0; i < PVN_ANSWER_WORDS; i++)
        write_int(&w, a->done[i], 8);
    return written(&w);
}

int pvn_answer_decode(const uint8_t *in, size_t len, struct pvn_engine_answer *a,
                      struct pvn_err *err)
{
    struct reader rd = {in, len, 0};

    a->first = read_int(&rd, 8);
    a->next = read_int(&rd, 8);
    for (size_t i = 0; i < PVN_ANSWER_WORDS; i++)
        a->done[i] = read_int(&rd, 8);
    return rd.bad ? pvn_err_set(err, -EPROTO, "ANSWER of %zu bytes ends too early", len) : 0;
}

int pvn_wire_agree(const struct pvn_hello *mine, const struct pvn_hello *theirs,
                   struct pvn_err *err)
{
    int best = mine->version_max < theirs->version_max ? mine->version_max : theirs->version_max;
    int least = mine->version_min > theirs->version_min ? mine->version_min : theirs->version_min;

    if (best >= least)
        return best;
    return pvn_err_set(
        err, -EPROTONOSUPPORT,
        "wire versions do not meet: plugin %s on %s speaks %u to %u, plugin %s on %s speaks %u to "
        "%u; install the same release on all nodes",
        mine->plugin_version, mine->host, mine->version_min, mine->version_max,
        theirs->plugin_version, theirs->host, theirs->version_min, theirs->version_max);
}
