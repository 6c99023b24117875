/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Set-up of a TCP lane's streams: offer, bind, dial or adopt, preamble, seal, large packets,
 * echo. */
#include "net-tcp/sockopt.h"
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "connect/retry.h"
#include "connect/route.h"
#include "connect/sock.h"

/*
 * The offer has the version, the number of streams requested and, from the acceptor, the address to
 * dial:
 *   0 u8 version   1 u8 streams   2 u8 length of dial_to   3 u8 features   4.. dial_to
 */
enum { OFFER_VERSION = 1, OFFER_HEAD = 4, ECHO_BYTE = 0x70 };
/* Features of a receiver. */
enum { OFFER_ZEROCOPY_ACKS = 1 }; /* the receiver acknowledges chunks whose header requests it */

int tcp_offer(struct pvn_lane *l, void *buf, size_t cap)
{
    struct tcp_lane *t = tcp_of(l);
    size_t len = OFFER_HEAD + t->cfg.dial_to_len;
    if (cap < len)
        return -ENOBUFS;
    uint8_t *b = buf;
    b[0] = OFFER_VERSION;
    b[1] = (uint8_t)t->cfg.streams;
    b[2] = (uint8_t)t->cfg.dial_to_len;
    b[3] = t->cfg.sender ? 0 : OFFER_ZEROCOPY_ACKS;
    memcpy(b + OFFER_HEAD, t->cfg.dial_to, t->cfg.dial_to_len);
    return (int)len;
}

/* The lane is dead: the last of several attempts has failed, or nothing has answered it in time. */
static int give_up(struct tcp_lane *t, const struct stream *s)
{
    t->l.err = *t->dial_err;
    pvn_err_add(&t->l.err, "tried %u times within half of NCCL_PVRDMA_VERIFY_TIMEOUT",
                s->redials + 1);
    return t->l.err.code;
}

/* A stream's connection has failed with `code`, and t->l.err may have the reason. -EAGAIN: the
 * stream is dialled again after a pause. Anything else: the lane is dead. */
static int dial_failed(struct tcp_lane *t, struct stream *s, int code)
{
    uint64_t now = pvn_now_ns();
    char text[PVN_ERR_TEXT_LEN];
    int rc = tcp_dead(t, s, code, "connecting");

    if (t->l.retry_until_ns == 0 || !pvn_retry_may_help(code))
        return rc;
    if (!t->dial_err)
        t->dial_err = malloc(sizeof(*t->dial_err));
    if (!t->dial_err)
        return rc;
    *t->dial_err = t->l.err;
    if (now >= t->l.retry_until_ns)
        return give_up(t, s);
    if (s->redials == 0) {
        pvn_err_format(&t->l.err, text, sizeof(text));
        pvn_info(PVN_NET, "%s; trying again until half of NCCL_PVRDMA_VERIFY_TIMEOUT is over",
                 text);
    }
    pvn_err_clear(&t->l.err);
    if (s->fd >= 0)
        pvn_sock_close(s->fd);
    s->fd = -1;
    s->step = ST_DIAL;
    s->redial_ns = now + pvn_retry_pause_ns(PVN_RETRY_DIAL, s->redials++);
    return -EAGAIN;
}

static int dial(struct tcp_lane *t, struct stream *s)
{
    int stream = (int)(s - t->s), fd;

    if (s->redials > 0 && pvn_now_ns() < s->redial_ns)
        return -EAGAIN;
    s->leaves_by = 0;
    fd = t->cfg.dial(t->cfg.ctx, t->cfg.dial_to, t->cfg.dial_to_len, t->l.idx, stream,
                     &s->leaves_by, &t->l.err);
    if (fd < 0)
        return dial_failed(t, s, fd);
    s->fd = fd;
    s->step = ST_CONNECTING;
    s->pre_len = t->cfg.preamble(t->cfg.ctx, t->l.idx, stream, s->pre);
    return 0;
}

static int dial_all(struct tcp_lane *t, const uint8_t *to, size_t len)
{
    memcpy(t->cfg.dial_to, to, len);
    t->cfg.dial_to_len = len;
    for (int i = 0; i < t->nstreams; i++) {
        int rc;

        t->s[i].step = ST_DIAL;
        rc = dial(t, &t->s[i]);
        if (rc && rc != -EAGAIN)
            return rc;
    }
    return 0;
}

int tcp_bind(struct pvn_lane *l, const void *peer, size_t len)
{
    struct tcp_lane *t = tcp_of(l);
    const uint8_t *b = peer;
    if (len < OFFER_HEAD || b[0] != OFFER_VERSION || b[1] < 1 || b[1] > PVN_TCP_MAX_STREAMS ||
        b[2] != len - OFFER_HEAD || b[2] > PVN_TCP_DIAL_MAX)
        return pvn_err_set(&l->err, -EPROTO, "the peer's offer of a TCP lane on %s is malformed",
                           t->cfg.name);
    t->nstreams = b[1] < t->cfg.streams ? b[1] : t->cfg.streams;
    if (t->nstreams == 1 && t->cfg.lone_chunk > t->cfg.chunk)
        t->l.max_chunk = t->l.lone_chunk = t->cfg.lone_chunk;
    /* No zero-copy with worker threads, which copy large chunks, nor on sealed streams, where
     * encryption copies. */
    if (b[3] & OFFER_ZEROCOPY_ACKS && !t->has_workers && !t->cfg.secret)
        t->zerocopy_min = t->cfg.zerocopy_min;
    return t->cfg.sender ? dial_all(t, b + OFFER_HEAD, b[2]) : 0;
}

int tcp_adopt(struct pvn_lane *l, int stream, int fd)
{
    struct tcp_lane *t = tcp_of(l);
    if (t->cfg.sender || stream < 0 || stream >= t->nstreams || t->s[stream].step != ST_NONE)
        return -EINVAL;
    pvn_tcp_sockopt_data(fd, pvn_params_get());
    struct stream *s = &t->s[stream];
    s->fd = fd;
    s->step = ST_SEAL;
    return 0;
}

static int connected(struct tcp_lane *t, struct stream *s)
{
    int rc = pvn_sock_connected(s->fd);
    if (rc == -EAGAIN && s->redials > 0 && pvn_now_ns() >= t->l.retry_until_ns)
        return give_up(t, s);
    return rc && rc != -EAGAIN ? dial_failed(t, s, rc) : rc;
}

/* bbr is slower with zero-copy chunks and with late acknowledgements. A route may have selected it,
 * so the congestion control is known only when the socket is connected. */
static void check_pacing(struct tcp_lane *t, const struct stream *s)
{
    bool paced;
    if (pvn_tcp_sockopt_paced(s->fd, &paced) < 0 || !paced)
        return;
    t->paced = true;
    t->zerocopy_min = 0;
}

static int send_preamble(struct tcp_lane *t, struct stream *s)
{
    while (s->pre_done < s->pre_len) {
        ssize_t n = send(s->fd, s->pre + s->pre_done, (size_t)(s->pre_len - s->pre_done),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return -EAGAIN;
        if (n < 0)
            return tcp_dead(t, s, -errno, "opening a stream");
        s->pre_done += (int)n;
    }
    return 0;
}

/* Begins the TLS handshake of the stream. Only the two ends of its control connection know the
 * secret. */
static int begin_seal(struct tcp_lane *t, struct stream *s)
{
    uint8_t secret[PVN_SEAL_SECRET];
    int stream = (int)(s - t->s);
    int rc = t->cfg.secret(t->cfg.ctx, t->l.idx, stream, secret, &t->l.err);

    if (rc == 0)
        s->seal = pvn_seal_new(s->fd, !t->cfg.sender, secret, &t->l.err);
    explicit_bzero(secret, sizeof(secret));
    if (!s->seal)
        return t->l.err.code;
    pvn_seal_expect_bulk(s->seal,
                         t->cfg.sealed_by_kernel && (!t->cfg.sender || t->cfg.acknowledged));
    return 0;
}

static int seal(struct tcp_lane *t, struct stream *s)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = 0;

    if (!t->cfg.secret)
        return 0;
    if (!s->seal)
        rc = begin_seal(t, s);
    if (rc == 0)
        rc = pvn_seal_handshake(s->seal, &err);
    if (rc == 0) {
        s->io = pvn_sockio_of(s->seal);
    } else if (rc != -EAGAIN && t->l.err.code == 0) {
        t->l.err = err;
        pvn_err_add(&t->l.err, "TCP stream %d of %d on %s, proving the key", (int)(s - t->s) + 1,
                    t->nstreams, t->cfg.name);
    }
    return rc;
}

/* A path may carry small packets and lose large ones. So the set-up sends LARGE_BYTES, more than
 * any packet holds, in both directions. The content is ignored. */
enum { LARGE_BYTES = 256 * 1024, LARGE_PIECE = 16 * 1024 };

static int large(struct tcp_lane *t, struct stream *s, bool out)
{
    static const uint8_t zeros[LARGE_PIECE];
    uint8_t in[LARGE_PIECE];

    while (t->cfg.large && s->large_done < LARGE_BYTES) {
        size_t left = LARGE_BYTES - s->large_done, len = left < LARGE_PIECE ? left : LARGE_PIECE;
        ssize_t n = out ? pvn_sockio_send(s->io, s->fd, s->seal, zeros, len)
                        : pvn_sockio_recv(s->io, s->fd, s->seal, in, len);
        if (n == -EAGAIN)
            return -EAGAIN;
        if (n < 0)
            return tcp_dead(t, s, (int)n, "verifying a stream with large packets");
        if (n == 0)
            return tcp_dead(t, s, -ECONNRESET,
                            "verifying a stream with large packets: the peer closed it");
        s->large_done += (size_t)n;
    }
    s->large_done = 0;
    return 0;
}

/* The acceptor answers each stream's preamble with one byte, which completes the lane's round
 * trip. */
static int echo(struct tcp_lane *t, struct stream *s)
{
    uint8_t b = ECHO_BYTE;
    ssize_t n = t->cfg.sender ? pvn_sockio_recv(s->io, s->fd, s->seal, &b, 1)
                              : pvn_sockio_send(s->io, s->fd, s->seal, &b, 1);
    if (n == -EAGAIN)
        return -EAGAIN;
    if (n < 0)
        return tcp_dead(t, s, (int)n, "verifying a stream");
    if (n == 0)
        return tcp_dead(t, s, -ECONNRESET, "verifying a stream: the peer closed it");
    if (b != ECHO_BYTE)
        return tcp_dead(t, s, -EPROTO,
                        "verifying a stream: the answer is not the byte that this plugin sends");
    return 0;
}

static void come_up(const struct tcp_lane *t, struct stream *s)
{
    s->step = ST_UP;
    if (t->cfg.sender)
        return;
    pvn_tcp_sockopt_answers(s->fd);
    pvn_tcp_sockopt_one_way(s->fd);
}

static int step_up(struct tcp_lane *t, struct stream *s)
{
    int rc = 0;
    while (rc == 0 && s->step != ST_UP) {
        switch (s->step) {
        case ST_DIAL:
            rc = dial(t, s);
            break;
        case ST_CONNECTING:
            rc = connected(t, s);
            if (rc == 0) {
                check_pacing(t, s);
                s->step = ST_PREAMBLE;
            }
            break;
        case ST_PREAMBLE:
            rc = send_preamble(t, s);
            s->step = rc == 0 ? ST_SEAL : s->step;
            break;
        case ST_SEAL:
            rc = seal(t, s);
            s->step = rc == 0 ? ST_LARGE : s->step;
            break;
        case ST_LARGE:
            rc = large(t, s, t->cfg.sender);
            s->step = rc == 0 ? ST_ECHO : s->step;
            break;
        case ST_ECHO:
            rc = echo(t, s);
            s->step = rc == 0 ? ST_LARGE_BACK : s->step;
            break;
        case ST_LARGE_BACK:
            rc = large(t, s, !t->cfg.sender);
            if (rc == 0)
                come_up(t, s);
            break;
        default:
            return -EAGAIN; /* the acceptor waits for the peer's dial */
        }
    }
    return rc;
}

/* The routes of both hosts decide which interface carries the connections. If it is not the
 * device's own, this renames the lane. A peer on this machine is reached by loopback, which leaves
 * the name as it is. */
static void name_carrier(struct tcp_lane *t)
{
    unsigned by = t->s[0].leaves_by;
    char name[IF_NAMESIZE], device[38];

    if (by == 0 && t->cfg.ifindex)
        by = pvn_route_of_socket(t->s[0].fd, !t->cfg.sender);
    if (by == 0 || by == t->cfg.ifindex || by == t->cfg.master || by == if_nametoindex("lo") ||
        !if_indextoname(by, name))
        return;
    snprintf(device, sizeof(device), "%.37s", t->cfg.name);
    snprintf(t->cfg.name, sizeof(t->cfg.name), "%s (device %s)", name, device);
    t->cfg.ifindex = by;
}

int tcp_verify(struct pvn_lane *l)
{
    struct tcp_lane *t = tcp_of(l);
    int up = 0;
    for (int i = 0; i < t->nstreams; i++) {
        int rc = step_up(t, &t->s[i]);
        if (rc < 0 && rc != -EAGAIN)
            return rc;
        up += rc == 0;
    }
    if (up < t->nstreams || up == 0)
        return -EAGAIN;
    name_carrier(t);
    return 0;
}
