/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: an attacker between two ends of a sealed stream, or in place of one of them. The
 * first byte chooses:
 *   0     two ends with the same secret, and a relay whose edits are the input, four bytes each:
 *           position (2 bytes, counted in one direction), direction and kind, value. Both ends do
 *           their handshake and send a message.
 *   1, 2  an acceptor, or a connector, that receives the input unchanged.
 * For any input, an end receives only a prefix of the bytes that the other end has sent, all calls
 * return, and the process's queue of OpenSSL errors stays empty.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

#include "fuzz/fuzz.h"
#include "fuzz/hex.h"
#include "seal/seal.h"
#include "seal/ssl_dl.h"

enum { MESSAGE = 40000, EDITS = 16, ROUNDS = 200 };
enum kind { FLIP, DROP, REPEAT, END };

struct edit {
    size_t at;
    int from; /* the end whose bytes are edited */
    enum kind kind;
    uint8_t value; /* FLIP: bits; DROP, REPEAT: number of bytes less one */
};

struct ends {
    struct pvn_seal *s[2];
    int near[2], far[2];
    int rc[2];           /* result of the handshake */
    size_t sent[2];      /* bytes of the message */
    size_t got[2];       /* bytes received of the other end's message */
    ssize_t received[2]; /* result of the last receive */
    size_t passed[2];    /* bytes that the relay has received from this end */
    bool over[2];        /* the relay passes no more bytes of this end */
};

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 31 + at / 253);
}

static bool open_ends(struct ends *e)
{
    uint8_t secret[PVN_SEAL_SECRET];
    struct pvn_err err = PVN_ERR_INIT;

    memset(e, 0, sizeof(*e));
    memset(secret, 7, sizeof(secret));
    fuzz_require(pvn_ssl_load("libssl.so.3", &err) != NULL, "OpenSSL is there");
    for (int i = 0; i < 2; i++) {
        int sv[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) != 0)
            return false;
        e->near[i] = sv[0];
        e->far[i] = sv[1];
        e->rc[i] = -EAGAIN;
        e->received[i] = -EAGAIN;
        e->s[i] = pvn_seal_new(sv[0], i == 1, secret, &err);
        fuzz_require(e->s[i] != NULL, "a stream is made");
    }
    return true;
}

static void close_ends(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        pvn_seal_free(e->s[i]);
        close(e->near[i]);
        close(e->far[i]);
    }
    fuzz_require(ERR_peek_error() == 0, "no error is left for the host process");
}

/* One end does its handshake, then sends its message and receives. */
static void act(struct ends *e, int i)
{
    struct pvn_err err = PVN_ERR_INIT;
    uint8_t buf[5000];

    if (e->rc[i] == -EAGAIN)
        e->rc[i] = pvn_seal_handshake(e->s[i], &err);
    if (e->rc[i] != 0)
        return;
    if (e->sent[i] < MESSAGE) {
        uint8_t message[MESSAGE];
        size_t left = MESSAGE - e->sent[i];
        struct iovec iov[2] = {{message, 1}, {message + 1, left - 1}};
        ssize_t n;

        for (size_t k = 0; k < left; k++)
            message[k] = pattern(e->sent[i] + k);
        n = pvn_seal_sendv(e->s[i], iov, left > 1 ? 2 : 1);
        e->sent[i] += n > 0 ? (size_t)n : 0;
    }
    while (e->received[i] > 0 || e->received[i] == -EAGAIN) {
        struct iovec iov = {buf, sizeof(buf)};
        ssize_t n = pvn_seal_recvv(e->s[i], &iov, 1);

        e->received[i] = n;
        for (ssize_t k = 0; k < n; k++)
            fuzz_require(e->got[i] < MESSAGE && buf[k] == pattern(e->got[i]++),
                         "only what the other end has sealed is received");
        if (n == -EAGAIN)
            break;
    }
}

/* Forwards the bytes that an end has sent, with the edits for their positions. True: there were
 * bytes. */
static bool relay(struct ends *e, int from, const struct edit *edits, int n)
{
    uint8_t in[20000], out[2 * sizeof(in) + EDITS * 256];
    ssize_t got = recv(e->far[from], in, sizeof(in), MSG_DONTWAIT);
    size_t len = 0;

    if (got <= 0)
        return false;
    for (ssize_t i = 0; i < got && !e->over[from]; i++) {
        size_t at = e->passed[from] + (size_t)i, drop = 0;

        out[len] = in[i];
        for (int k = 0; k < n; k++) {
            if (edits[k].from != from)
                continue;
            if (edits[k].kind == FLIP && edits[k].at == at)
                out[len] ^= edits[k].value;
            drop +=
                edits[k].kind == DROP && at >= edits[k].at && at - edits[k].at <= edits[k].value;
            e->over[from] |= edits[k].kind == END && edits[k].at == at;
        }
        len += drop == 0;
        for (int k = 0; k < n; k++)
            if (edits[k].from == from && edits[k].kind == REPEAT && edits[k].at == at) {
                size_t again = edits[k].value < len ? edits[k].value + 1u : len;

                if (len + again <= sizeof(out)) {
                    memmove(out + len, out + len - again, again);
                    len += again;
                }
            }
    }
    e->passed[from] += (size_t)got;
    if (len && send(e->far[!from], out, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
        e->over[from] = true;
    if (e->over[from])
        shutdown(e->far[!from], SHUT_WR);
    return true;
}

static void with_relay(const uint8_t *bytes, size_t n)
{
    struct edit edits[EDITS];
    struct ends e;
    int count = 0;
    bool clean = true;

    for (; count < EDITS && n >= 4; bytes += 4, n -= 4) {
        edits[count] = (struct edit){.at = bytes[0] | (size_t)bytes[1] << 8,
                                     .from = bytes[2] & 1,
                                     .kind = (enum kind)(bytes[2] >> 1 & 3),
                                     .value = bytes[3]};
        clean &= edits[count].kind == FLIP && edits[count].value == 0;
        count++;
    }
    if (!open_ends(&e))
        return;
    for (int round = 0, moved = 1; moved && round < ROUNDS; round++) {
        act(&e, 0);
        act(&e, 1);
        moved = relay(&e, 0, edits, count);
        moved |= relay(&e, 1, edits, count);
    }
    if (clean)
        fuzz_require(e.got[0] == MESSAGE && e.got[1] == MESSAGE, "an honest relay is none");
    close_ends(&e);
}

static void alone(int end, const uint8_t *bytes, size_t n)
{
    struct ends e;

    if (!open_ends(&e))
        return;
    for (int part = 0; part < 2; part++) {
        size_t len = part ? n - n / 2 : n / 2;

        if (len &&
            send(e.far[end], bytes + (part ? n / 2 : 0), len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        act(&e, end);
    }
    shutdown(e.far[end], SHUT_WR);
    act(&e, end);
    fuzz_require(e.rc[end] != 0, "nobody without the secret is a peer");
    fuzz_require(e.rc[end] != -EAGAIN, "the end of the connection ends the handshake");
    close_ends(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    uint8_t *bytes = fuzz_bytes(data, size, &n);

    if (n > 0 && bytes[0] % 3 == 0)
        with_relay(bytes + 1, n - 1);
    else if (n > 0)
        alone(bytes[0] % 3 == 1, bytes + 1, n - 1);
    free(bytes);
    return 0;
}
