/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/kernel_tls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/tls.h>
#include <openssl/core_names.h>
#include <openssl/params.h>

#include "seal/ssl_dl.h"

#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef TLS_RX_EXPECT_NO_PAD /* Linux 6.0 */
#define TLS_RX_EXPECT_NO_PAD 4
#endif

/* HKDF-Expand-Label of RFC 8446, section 7.1, without a context. */
static int expand(const uint8_t *secret, const char *label, uint8_t *out, size_t len)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    OSSL_PARAM params[] = {
        OSSL_PARAM_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", sizeof("SHA256") - 1),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, (uint8_t *)secret, PVN_KERNEL_TLS_SECRET),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_PREFIX, (char *)"tls13 ", sizeof("tls13 ") - 1),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_LABEL, (char *)label, strlen(label)),
        OSSL_PARAM_END};
    EVP_KDF *kdf = s->EVP_KDF_fetch(s->ctx, "TLS13-KDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? s->EVP_KDF_CTX_new(kdf) : NULL;
    int rc = ctx && s->EVP_KDF_derive(ctx, out, len, params) == 1 ? 0 : -EIO;

    if (ctx)
        s->EVP_KDF_CTX_free(ctx);
    if (kdf)
        s->EVP_KDF_free(kdf);
    if (rc)
        s->ERR_clear_error();
    return rc;
}

int pvn_kernel_tls_next_secret(uint8_t secret[PVN_KERNEL_TLS_SECRET])
{
    uint8_t next[PVN_KERNEL_TLS_SECRET];
    int rc = expand(secret, "traffic upd", next, sizeof(next));

    if (rc == 0)
        memcpy(secret, next, sizeof(next));
    explicit_bzero(next, sizeof(next));
    return rc;
}

int pvn_kernel_tls_attach(int fd)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) == 0 ? 0 : -errno;
}

/* Here the 12 bytes of the IV are split into a salt and an "iv". */
int pvn_kernel_tls_set_key(int fd, bool out, const uint8_t secret[PVN_KERNEL_TLS_SECRET])
{
    struct tls12_crypto_info_aes_gcm_128 key = {
        .info = {.version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128}};
    uint8_t iv[sizeof(key.salt) + sizeof(key.iv)];
    int rc = expand(secret, "key", key.key, sizeof(key.key));

    if (rc == 0)
        rc = expand(secret, "iv", iv, sizeof(iv));
    if (rc == 0) {
        memcpy(key.salt, iv, sizeof(key.salt));
        memcpy(key.iv, iv + sizeof(key.salt), sizeof(key.iv));
        if (setsockopt(fd, SOL_TLS, out ? TLS_TX : TLS_RX, &key, sizeof(key)) != 0)
            rc = -errno;
    }
    explicit_bzero(&key, sizeof(key));
    explicit_bzero(iv, sizeof(iv));
    /* Records have no padding, so the kernel can open them in the receiver's memory. A record with
     * padding costs it a second attempt. An older kernel refuses this option, and copies. */
    if (rc == 0 && !out)
        setsockopt(fd, SOL_TLS, TLS_RX_EXPECT_NO_PAD, &(unsigned){1}, sizeof(unsigned));
    return rc;
}

/* A message of one piece, with room for the type of its record. */
struct typed_message {
    struct msghdr mh;
    struct iovec iov;
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(1)];
};

static void prepare(struct typed_message *m, void *buf, size_t len)
{
    memset(m, 0, sizeof(*m));
    m->iov = (struct iovec){buf, len};
    m->mh.msg_iov = &m->iov;
    m->mh.msg_iovlen = 1;
    m->mh.msg_control = m->control;
    m->mh.msg_controllen = sizeof(m->control);
}

ssize_t pvn_kernel_tls_send_record(int fd, uint8_t type, const void *buf, size_t len)
{
    struct typed_message m;
    struct cmsghdr *c;
    ssize_t n;

    prepare(&m, (void *)(uintptr_t)buf, len);
    c = CMSG_FIRSTHDR(&m.mh);
    c->cmsg_level = SOL_TLS;
    c->cmsg_type = TLS_SET_RECORD_TYPE;
    c->cmsg_len = CMSG_LEN(1);
    *CMSG_DATA(c) = type;
    do {
        n = sendmsg(fd, &m.mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t pvn_kernel_tls_recv_record(int fd, uint8_t *type, void *buf, size_t len)
{
    struct typed_message m;
    const struct cmsghdr *c;
    ssize_t n;

    do {
        prepare(&m, buf, len);
        n = recvmsg(fd, &m.mh, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    c = CMSG_FIRSTHDR(&m.mh);
    if (!c || c->cmsg_level != SOL_TLS || c->cmsg_type != TLS_GET_RECORD_TYPE)
        return n == 0 ? -ECONNRESET : -EBADMSG;
    *type = *CMSG_DATA(c);
    return n;
}

/* ---- whether this kernel can do it ---- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct pvn_err found = PVN_ERR_INIT; /* code 0: it can */

/* Returns a socket that is connected with itself, or a negative errno, for example if there is no
 * 127.0.0.1. */
static int connect_to_itself(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *at = (struct sockaddr *)&a;
    const struct timeval limit = {.tv_sec = 1}; /* a filter may drop packets on lo */
    socklen_t len = sizeof(a);
    int code, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (bind(fd, at, len) == 0 && getsockname(fd, at, &len) == 0 && connect(fd, at, len) == 0)
        return fd;
    code = -errno;
    close(fd);
    return code;
}

static void try_keys(int fd)
{
    static const uint8_t any[PVN_KERNEL_TLS_SECRET];
    int rc = pvn_kernel_tls_attach(fd);

    if (rc) {
        pvn_err_set(&found, rc,
                    "the kernel has no TLS for sockets (its module is tls: modprobe tls)");
        return;
    }
    rc = pvn_kernel_tls_set_key(fd, false, any);
    if (rc == 0)
        rc = pvn_kernel_tls_set_key(fd, true, any);
    if (rc) {
        pvn_err_set(&found, rc, "the kernel's TLS for sockets refuses AES-128-GCM");
        return;
    }
    rc = pvn_kernel_tls_set_key(fd, true, any);
    if (rc)
        pvn_err_set(&found, rc, "the kernel cannot renew the keys of a socket (Linux 6.14 can)");
}

static void look(void)
{
    int fd = connect_to_itself();

    if (fd < 0) {
        pvn_err_set(&found, fd, "there is no 127.0.0.1 to try the kernel's TLS on");
        return;
    }
    try_keys(fd);
    close(fd);
}

int pvn_kernel_tls_check(struct pvn_err *err)
{
    pthread_once(&once, look);
    if (found.code)
        *err = found;
    return found.code;
}
