/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A build without OpenSSL (configure --without-openssl): pvn_seal_begin refuses a key, so that none of these is called. */
#include "config.h"
#include "seal/key.h"
#include "seal/seal.h"

#include <errno.h>

static int none(struct pvn_err *err)
{
    return pvn_err_set(err, -EOPNOTSUPP, "this build has no OpenSSL (configure --without-openssl)");
}

int pvn_seal_check(struct pvn_err *err)
{
    return none(err);
}

struct pvn_seal *pvn_seal_new(int fd, bool acceptor, const uint8_t secret[PVN_SEAL_SECRET],
                              struct pvn_err *err)
{
    (void)fd;
    (void)acceptor;
    (void)secret;
    none(err);
    return NULL;
}

void pvn_seal_free(struct pvn_seal *s)
{
    (void)s;
}

int pvn_seal_handshake(struct pvn_seal *s, struct pvn_err *err)
{
    (void)s;
    return none(err);
}

ssize_t pvn_seal_send(struct pvn_seal *s, const void *buf, size_t len)
{
    (void)s;
    (void)buf;
    (void)len;
    return -EOPNOTSUPP;
}

ssize_t pvn_seal_recv(struct pvn_seal *s, void *buf, size_t len)
{
    (void)s;
    (void)buf;
    (void)len;
    return -EOPNOTSUPP;
}

ssize_t pvn_seal_sendv(struct pvn_seal *s, const struct iovec *iov, int n)
{
    (void)s;
    (void)iov;
    (void)n;
    return -EOPNOTSUPP;
}

ssize_t pvn_seal_recvv(struct pvn_seal *s, const struct iovec *iov, int n)
{
    (void)s;
    (void)iov;
    (void)n;
    return -EOPNOTSUPP;
}

ssize_t pvn_seal_kernel_sendv(int fd, struct pvn_seal *s, struct iovec *iov, int n)
{
    (void)fd;
    (void)s;
    (void)iov;
    (void)n;
    return -EOPNOTSUPP;
}

ssize_t pvn_seal_kernel_recvv(int fd, struct pvn_seal *s, struct iovec *iov, int n, int flags)
{
    (void)fd;
    (void)s;
    (void)iov;
    (void)n;
    (void)flags;
    return -EOPNOTSUPP;
}

bool pvn_seal_kernel_has_pending(const struct pvn_seal *seal)
{
    (void)seal;
    return false;
}

void pvn_seal_forget(void)
{
}

void pvn_seal_after_fork(void)
{
}

void pvn_seal_expect_bulk(struct pvn_seal *s, bool by_kernel)
{
    (void)s;
    (void)by_kernel;
}

bool pvn_seal_is_by_kernel(const struct pvn_seal *s)
{
    (void)s;
    return false;
}

void pvn_seal_rekey_after(uint64_t records)
{
    (void)records;
}

bool pvn_seal_has_pending(const struct pvn_seal *s)
{
    (void)s;
    return false;
}

int pvn_seal_export(struct pvn_seal *s, const char *label, uint8_t *out, size_t len,
                    struct pvn_err *err)
{
    (void)s;
    (void)label;
    (void)out;
    (void)len;
    return none(err);
}

const char *pvn_seal_suite(const struct pvn_seal *s)
{
    (void)s;
    return "none";
}

int pvn_key_derive(const struct pvn_key *key, const char *label, uint64_t session, uint64_t nonce,
                   uint8_t *out, size_t len, struct pvn_err *err)
{
    (void)key;
    (void)label;
    (void)session;
    (void)nonce;
    (void)out;
    (void)len;
    return none(err);
}

int pvn_key_expand(const uint8_t *secret, size_t secret_len, const char *label, const uint8_t *salt,
                   size_t salt_len, uint8_t *out, size_t len, struct pvn_err *err)
{
    (void)secret;
    (void)secret_len;
    (void)label;
    (void)salt;
    (void)salt_len;
    (void)out;
    (void)len;
    return none(err);
}

const char *pvn_key_describe(const struct pvn_key *key, char buf[PVN_KEY_TEXT])
{
    (void)key;
    buf[0] = '\0';
    return buf;
}
