/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Clear-to-send entries over TCP, for comms that ranks may share: see frame.h for their form.
 *
 * An entry goes out at once if the sender has none left. Otherwise entries are held back while the
 * sender has more unused entries than are held, so that several share a system call. The sender
 * reads all that have arrived when it needs one. Acknowledgements of the same stream go with the
 * entries.
 */
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    CTS_OUT = PVN_MAX_REQS * PVN_CTS_MAX + 256 /* and room for acknowledgements */
};

struct tcp_cts {
    /* receiver */
    uint8_t out[CTS_OUT]; /* the kernel has not taken bytes [begin, end) */
    size_t begin, end;
    bool acks; /* some of these bytes are acknowledgements */
    int lost;  /* 0, or why the peer takes no more: -EPIPE if it has closed, or an error */
    /* slot after the newest in `out`, and after the newest that the kernel took */
    uint64_t posted, sent;
    uint64_t used; /* slot after the newest for which a chunk has arrived */
    /* sender */
    uint8_t in[PVN_CTS_MAX]; /* the first bytes of an entry that is not complete */
    size_t have;
    uint64_t arrived, taken;
    struct pvn_cts slot[PVN_SLOT_SPAN];
};

int tcp_cts_new(struct tcp_lane *t)
{
    t->cts = calloc(1, sizeof(*t->cts));
    return t->cts ? 0 : -ENOMEM;
}

void tcp_cts_free(struct tcp_lane *t)
{
    free(t->cts);
    t->cts = NULL;
}

/* ---- receiver ---- */

/* True if entries may be held back. Never with several lanes: messages arrive on the others, too,
 * so this lane does not know which slots the sender has used. */
static bool may_wait(const struct tcp_lane *t)
{
    const struct tcp_cts *c = t->cts;
    return t->l.nlanes == 1 && c->begin == 0 && !c->acks && c->sent > c->used &&
           c->sent - c->used > c->posted - c->sent;
}

/* Sends `out`. If the peer has gone, nobody needs the entries, so they are dropped: the receiver
 * first reports what the peer had sent, then the error, which the socket reports only once
 * (tcp_cts_lost). A lost acknowledgement is an error, see send_acks. */
static int flush(struct tcp_lane *t)
{
    struct tcp_cts *c = t->cts;
    while (c->begin != c->end) {
        const struct stream *s = &t->s[0];
        ssize_t n = pvn_sockio_send(s->io, s->fd, s->seal, c->out + c->begin, c->end - c->begin);
        t->stats.cts_calls++;
        if (n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM)
            return -EAGAIN;
        if (n < 0)
            c->lost = (int)n;
        if (n < 0 && c->acks)
            return c->lost == -EPIPE ? -ECONNRESET : c->lost;
        c->begin = n < 0 ? c->end : c->begin + (size_t)n;
    }
    c->begin = c->end = 0;
    c->acks = false;
    c->sent = c->posted;
    return 0;
}

int tcp_cts_lost(const struct tcp_lane *t)
{
    return t->cts->lost;
}

bool tcp_cts_is_due(const struct tcp_lane *t)
{
    return t->cts->begin != t->cts->end && !may_wait(t);
}

int tcp_cts_send(struct tcp_lane *t)
{
    return tcp_cts_is_due(t) ? flush(t) : 0;
}

int tcp_cts_acknowledge(struct tcp_lane *t, uint8_t chunks)
{
    struct tcp_cts *c = t->cts;
    if (c->end == CTS_OUT) {
        int rc = flush(t);
        if (rc)
            return rc;
    }
    c->out[c->end++] = chunks;
    c->acks = true;
    return 0;
}

int tcp_post_cts(struct pvn_lane *l, uint64_t slot, int n, const struct pvn_buffer *b)
{
    struct tcp_lane *t = tcp_of(l);
    struct tcp_cts *c = t->cts;
    if (!c)
        return -EOPNOTSUPP;
    if (CTS_OUT - c->end < PVN_CTS_MAX)
        return -EAGAIN;
    if (c->lost)
        return 0;
    c->end += pvn_cts_encode(n, b, c->out + c->end);
    c->posted = slot + 1;
    /* The next kick sends bytes that the kernel does not take now. */
    if (slot == c->used)
        (void)tcp_cts_send(t);
    return 0;
}

void tcp_cts_used(struct tcp_lane *t, uint64_t slot)
{
    if (slot >= t->cts->used)
        t->cts->used = slot + 1;
}

/* ---- sender ---- */

bool tcp_cts_is_next(const struct tcp_lane *t, uint8_t byte)
{
    return byte == 0 || t->cts->have > 0;
}

int tcp_cts_take(struct tcp_lane *t, uint8_t byte)
{
    struct tcp_cts *c = t->cts;
    struct pvn_cts *to = &c->slot[c->arrived % PVN_SLOT_SPAN];
    if (c->arrived - c->taken == PVN_SLOT_SPAN)
        return tcp_dead(
            t, &t->s[0], -EPROTO,
            "reading clear-to-send entries: these are for more receives than may be open");
    c->in[c->have++] = byte;
    int n = pvn_cts_decode(c->in, c->have, to);
    if (n < 0)
        return tcp_dead(t, &t->s[0], n, "reading clear-to-send entries: these bytes are not one");
    if (n == 0)
        return 0;
    c->arrived++;
    c->have = 0;
    return 0;
}

const struct pvn_cts *tcp_cts_next(struct tcp_lane *t)
{
    struct tcp_cts *c = t->cts;
    return c->taken == c->arrived ? NULL : &c->slot[c->taken++ % PVN_SLOT_SPAN];
}

void tcp_cts_drop(const struct stream *s)
{
    /* This reads into a buffer, because MSG_TRUNC without one is an error on a socket with kernel
     * TLS. */
    uint8_t unused[16384];

    /* No correct peer has more than 64 buffers full in flight. */
    for (int i = 0; i < 64 && recv(s->fd, unused, sizeof(unused), MSG_DONTWAIT) > 0; i++)
        ;
}
