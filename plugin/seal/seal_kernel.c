/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Sealed streams whose bytes the kernel seals and opens, once OpenSSL has done the handshake. The
 * bytes on the wire are the same, so each end of a stream may use the kernel or OpenSSL. */
#include "config.h"
#include "seal/seal_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "seal/plain.h"

/* The message that announces a new key: KeyUpdate, which requests none of the other end (RFC 8446,
 * section 4.6.3). */
static const uint8_t key_update[] = {24, 0, 0, 1, 0};

static bool from_hex(const char *hex, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < 2 * len; i++) {
        const char *digits = "0123456789abcdef",
                   *at = hex[i] ? strchr(digits, hex[i] | 0x20) : NULL;

        if (!at)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (at - digits));
    }
    return true;
}

/* The line is LABEL RANDOM SECRET, the latter two in hexadecimal digits (NSS's key log format). */
void pvn_seal_note_secret(struct pvn_seal *seal, const char *line)
{
    static const char *const labels[] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};

    for (int of_acceptor = 0; of_acceptor < 2; of_acceptor++) {
        struct direction *d = of_acceptor == seal->acceptor ? &seal->out : &seal->in;

        if (strncmp(line, labels[of_acceptor], strlen(labels[of_acceptor])) == 0)
            d->has_secret = from_hex(strrchr(line, ' ') + 1, d->secret, sizeof(d->secret));
    }
}

static void forget_secrets(struct pvn_seal *seal)
{
    explicit_bzero(seal->out.secret, sizeof(seal->out.secret));
    explicit_bzero(seal->in.secret, sizeof(seal->in.secret));
}

/* The socket does not change until a key is set. Until then OpenSSL can keep the stream, afterwards
 * it cannot. */
int pvn_seal_to_kernel(struct pvn_seal *seal, struct pvn_err *err)
{
    int rc;

    if (!seal->out.has_secret || !seal->in.has_secret || pvn_kernel_tls_attach(seal->fd) != 0 ||
        pvn_kernel_tls_set_key(seal->fd, false, seal->in.secret) != 0) {
        forget_secrets(seal);
        return 0;
    }
    rc = pvn_kernel_tls_set_key(seal->fd, true, seal->out.secret);
    if (rc) {
        forget_secrets(seal);
        return pvn_err_set(err, rc, "the kernel seals only one direction of a connection");
    }
    seal->by = BY_KERNEL;
    pvn_ssl_get()->SSL_free(seal->ssl);
    seal->ssl = NULL;
    return 0;
}

static ssize_t end_direction(struct direction *d, ssize_t code)
{
    d->over = true;
    d->code = code;
    return code;
}

/* Announces a new key, and sets it. If there is no room for the message it is sent later. The old
 * key may seal more records than usual until then, but not twice as many. */
static ssize_t renew_out(struct pvn_seal *seal)
{
    ssize_t n =
        pvn_kernel_tls_send_record(seal->fd, PVN_RECORD_HANDSHAKE, key_update, sizeof(key_update));
    int rc;

    if (n == -EAGAIN || n == -ENOMEM || n == -ENOBUFS)
        return seal->records < 2 * seal->records_per_key ? 0 : -EAGAIN;
    if (n != (ssize_t)sizeof(key_update))
        return end_direction(&seal->out, n < 0 ? n : -EIO);
    rc = pvn_kernel_tls_next_secret(seal->out.secret);
    if (rc == 0)
        rc = pvn_kernel_tls_set_key(seal->fd, true, seal->out.secret);
    seal->records = 0;
    return rc ? end_direction(&seal->out, rc) : 0;
}

/* True for the kernel's errors of a record that the other end has not sent so: its version, its
 * length, its tag. */
static bool is_damage(ssize_t code)
{
    return code == -EINVAL || code == -EMSGSIZE || code == -EBADMSG;
}

ssize_t pvn_seal_kernel_sendv(int fd, struct pvn_seal *seal, struct iovec *iov, int n)
{
    ssize_t rc = 0;

    if (seal->out.over)
        return seal->out.code;
    if (seal->records >= seal->records_per_key)
        rc = renew_out(seal);
    if (rc == 0)
        rc = pvn_plain_sendv(fd, NULL, iov, n);
    if (rc > 0)
        seal->records += (uint64_t)rc / RECORD + 1;
    /* The kernel has no memory at the moment. */
    if (rc == -ENOMEM || rc == -ENOBUFS)
        rc = -EAGAIN;
    /* The kernel reports a record that it could not open as the error of the next call, in either
     * direction. */
    if (is_damage(rc))
        rc = end_direction(&seal->out, -EBADMSG);
    return rc;
}

/* Takes a record that is no data. 0: more data may follow; a negative errno ends the stream; *end:
 * in order. */
static int take_record(struct pvn_seal *seal, bool *end)
{
    uint8_t type, record[HELD];
    ssize_t n = pvn_kernel_tls_recv_record(seal->fd, &type, record, sizeof(record));
    int rc;

    if (n < 0)
        return (int)n;
    if (type == PVN_RECORD_ALERT && n == 2) {
        *end = record[1] == SSL_AD_CLOSE_NOTIFY;
        return -ECONNRESET;
    }
    if (type != PVN_RECORD_HANDSHAKE || n != (ssize_t)sizeof(key_update) ||
        memcmp(record, key_update, sizeof(key_update)) != 0)
        return -EBADMSG;
    rc = pvn_kernel_tls_next_secret(seal->in.secret);
    return rc ? rc : pvn_kernel_tls_set_key(seal->fd, false, seal->in.secret);
}

/* Like recvmsg, over records of any type. */
static ssize_t recv_some(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags,
                         bool *end)
{
    ssize_t rc;

    do {
        rc = pvn_plain_recvv(fd, NULL, iov, n, flags);
        /* A peer that has closed answers what this end still sends with a reset. The kernel reports
         * that once, before the end in order that came first (tls_rx_rec_wait in Linux,
         * net/tls/tls_sw.c); without a seal it reports the end. */
        if (rc == -EPIPE)
            rc = pvn_plain_recvv(fd, NULL, iov, n, flags);
        if (rc != -EIO)
            return rc;
        rc = take_record(seal, end);
    } while (rc == 0);
    return rc;
}

/*
 * Receives until there is no room or nothing more has come. A call that returned fewer bytes may
 * have opened a KeyUpdate behind them, and a poller does not report that (Linux 7.3, as
 * Documentation/networking/tls.rst says).
 */
ssize_t pvn_seal_kernel_recvv(int fd, struct pvn_seal *seal, struct iovec *iov, int n, int flags)
{
    ssize_t got = 0, rc = 0;
    size_t done = 0; /* bytes received into the first of the n pieces */
    bool end = false;

    if (seal->in.over)
        return seal->in.code;
    while (n > 0) {
        struct iovec rest = {(uint8_t *)iov->iov_base + done, iov->iov_len - done};

        rc = done ? recv_some(fd, seal, &rest, 1, flags, &end)
                  : recv_some(fd, seal, iov, n, flags, &end);
        if (rc <= 0)
            break;
        got += rc;
        done += (size_t)rc;
        for (; n > 0 && done >= iov->iov_len; iov++, n--)
            done -= iov->iov_len;
    }
    if (rc <= 0 && rc != -EAGAIN)
        end_direction(&seal->in, end ? 0 : is_damage(rc) ? -EBADMSG : rc);
    if (got > 0)
        return got;
    return seal->in.over ? seal->in.code : rc;
}

/* The kernel takes a record from the connection when it is whole, so bytes that are left begin
 * one. */
bool pvn_seal_kernel_has_pending(const struct pvn_seal *seal)
{
    int left = 0;

    return seal->in.over && ioctl(seal->fd, FIONREAD, &left) == 0 && left > 0;
}
