/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/seal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/copy_in_order.h"
#include "seal/seal_priv.h"

/* Both suites use SHA-256, the hash of a secret that is not from an earlier session (external
 * PSK). */
#define SUITES   "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define IDENTITY "nccl-net-pvrdma 1"

enum {
    BURST = 16 * RECORD, /* bytes that one call of sendv sends at most */
    /* Bytes that a bulk stream takes from the socket at once: four full records with header, type
     * and tag. OpenSSL aligns its buffer, which costs 3 bytes. It reads the missing rest of a last
     * record by a call of its own. */
    READ_AHEAD = 4 * (RECORD + 5 + 1 + 16) + 3
};

/*
 * Records that a stream sends with one key. AES-GCM may protect 2^24.5 full records (RFC 8446,
 * section 5.5), 388 GB, which a stream of 100 Gb/s sends in half a minute. OpenSSL does not count
 * them.
 */
static uint64_t records_per_key = UINT64_C(1) << 23;

void pvn_seal_rekey_after(uint64_t records)
{
    records_per_key = records ? records : UINT64_C(1) << 23;
}

/* Shared by all streams; made once, and freed when there is no stream. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool made; /* made, or at least tried */
static SSL_CTX *context;
static BIO_METHOD *method;
static atomic_uint streams;

/* ---- the socket, as OpenSSL sees it ---- */

/* True if the call may succeed later. A kernel that has no memory at the moment has no room. */
static bool is_for_now(int code, int retry)
{
    return code == EAGAIN || code == EWOULDBLOCK ||
           (retry == BIO_FLAGS_WRITE && (code == ENOBUFS || code == ENOMEM));
}

static int socket_result(BIO *bio, struct pvn_seal *s, ssize_t n, int retry)
{
    if (n >= 0)
        return (int)n;
    if (is_for_now(errno, retry))
        pvn_ssl_get()->BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else
        s->code = -errno;
    return -1;
}

static ssize_t give(int fd, const void *buf, size_t len)
{
    ssize_t n;

    do {
        n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n;
}

static ssize_t hold(struct pvn_seal *s, const char *buf, size_t len)
{
    if (s->held_begin == s->held_end)
        s->held_begin = s->held_end = 0;
    if (len > sizeof(s->held) - s->held_end) {
        errno = EMSGSIZE;
        return -1;
    }
    memcpy(s->held + s->held_end, buf, len);
    s->held_end += len;
    return (ssize_t)len;
}

/* Sends the bytes that are held. -1: the socket has not taken all of them. */
static ssize_t give_held(struct pvn_seal *s)
{
    while (s->held_begin < s->held_end) {
        ssize_t n = give(s->fd, s->held + s->held_begin, s->held_end - s->held_begin);

        if (n < 0)
            return -1;
        s->held_begin += (size_t)n;
    }
    return 0;
}

static int socket_write(BIO *bio, const char *buf, int len)
{
    struct pvn_seal *s = pvn_ssl_get()->BIO_get_data(bio);
    ssize_t n;

    pvn_ssl_get()->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (s->holds) {
        n = hold(s, buf, (size_t)len);
    } else {
        n = give_held(s);
        if (n == 0)
            n = give(s->fd, buf, (size_t)len);
    }
    return socket_result(bio, s, n, BIO_FLAGS_WRITE);
}

static ssize_t take(int fd, void *buf, size_t len, int flags)
{
    ssize_t n;

    do {
        n = recv(fd, buf, len, flags | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* Reads from the socket for OpenSSL. If the first byte of the stream does not begin a record, it
 * stays in the socket: its sender does not begin a handshake. */
static int socket_read(BIO *bio, char *buf, int len)
{
    enum { FIRST_TYPE = 20, LAST_TYPE = 23 };
    struct pvn_seal *s = pvn_ssl_get()->BIO_get_data(bio);
    uint8_t type;
    ssize_t n = 1;

    pvn_ssl_get()->BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (!s->begun) {
        n = take(s->fd, &type, 1, MSG_PEEK);
        s->begun = n > 0 && type >= FIRST_TYPE && type <= LAST_TYPE;
        if (n > 0 && !s->begun) {
            s->code = -ENOMSG;
            return -1;
        }
    }
    if (n > 0)
        n = take(s->fd, buf, (size_t)len, 0);
    s->empty = n < len;
    if (n == 0)
        s->end = true;
    return socket_result(bio, s, n, BIO_FLAGS_READ);
}

static long socket_ctrl(BIO *bio, int cmd, long num, void *ptr)
{
    struct pvn_seal *s = pvn_ssl_get()->BIO_get_data(bio);

    (void)num;
    (void)ptr;
    if (cmd == BIO_CTRL_EOF)
        return s->end;
    return cmd == BIO_CTRL_FLUSH;
}

/* ---- the secret ---- */

static SSL_SESSION *session_of(SSL *ssl, struct pvn_seal *seal)
{
    static const unsigned char suite[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256, for its hash */
    const struct pvn_ssl *s = pvn_ssl_get();
    SSL_SESSION *session = s->SSL_SESSION_new();

    if (session &&
        (s->SSL_SESSION_set1_master_key(session, seal->secret, sizeof(seal->secret)) != 1 ||
         s->SSL_SESSION_set_cipher(session, s->SSL_CIPHER_find(ssl, suite)) != 1 ||
         s->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1 ||
         s->SSL_SESSION_set1_id_context(session, (const unsigned char *)IDENTITY,
                                        strlen(IDENTITY)) != 1)) {
        s->SSL_SESSION_free(session);
        session = NULL;
    }
    return session;
}

static int connector_secret(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                            SSL_SESSION **session)
{
    (void)md; /* the hash of a retry; both suites have the same */
    *session = session_of(ssl, pvn_ssl_get()->SSL_get_ex_data(ssl, 0));
    *id = (const unsigned char *)IDENTITY;
    *id_len = strlen(IDENTITY);
    return *session != NULL;
}

static int acceptor_secret(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    struct pvn_seal *s = pvn_ssl_get()->SSL_get_ex_data(ssl, 0);

    *session = NULL;
    if (id_len != strlen(IDENTITY) || memcmp(id, IDENTITY, id_len) != 0)
        return 1; /* no secret: the handshake fails, because there is no certificate */
    *session = session_of(ssl, s);
    return *session != NULL;
}

static void note_secret(const SSL *ssl, const char *line)
{
    struct pvn_seal *s = pvn_ssl_get()->SSL_get_ex_data(ssl, 0);

    if (s->by == TO_KERNEL)
        pvn_seal_note_secret(s, line);
}

/* ---- one context for all streams ---- */

static int accept_no_certificate(int ok, X509_STORE_CTX *store)
{
    (void)ok;
    (void)store;
    return 0;
}

/* FIPS providers have no X25519, and before OpenSSL 3.3 a missing group is an error. */
static bool set_groups(const struct pvn_ssl *s, SSL_CTX *c)
{
    return s->SSL_CTX_ctrl(c, SSL_CTRL_SET_GROUPS_LIST, 0, (char *)"X25519:P-256") == 1 ||
           s->SSL_CTX_ctrl(c, SSL_CTRL_SET_GROUPS_LIST, 0, (char *)"P-256") == 1;
}

/* Overrides the system's openssl.cnf, which is for all programs: both ends are this plugin. */
static bool set_up(const struct pvn_ssl *s, SSL_CTX *c)
{
    s->SSL_CTX_clear_options(c, UINT64_MAX);
    s->SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                  SSL_OP_IGNORE_UNEXPECTED_EOF);
    s->SSL_CTX_set_security_level(c, 2);
    s->SSL_CTX_ctrl(c, SSL_CTRL_MODE,
                    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                        SSL_MODE_RELEASE_BUFFERS,
                    NULL);
    s->SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /* A verification requires an id, even without sessions. */
    s->SSL_CTX_set_session_id_context(c, (const unsigned char *)IDENTITY, strlen(IDENTITY));
    s->SSL_CTX_set_verify(c, SSL_VERIFY_PEER, accept_no_certificate);
    s->SSL_CTX_set_psk_use_session_callback(c, connector_secret);
    s->SSL_CTX_set_psk_find_session_callback(c, acceptor_secret);
    s->SSL_CTX_set_keylog_callback(c, note_secret);
    return s->SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
           s->SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
           set_groups(s, c) && s->SSL_CTX_set_ciphersuites(c, SUITES) == 1 &&
           s->SSL_CTX_set_num_tickets(c, 0) == 1 && s->SSL_CTX_set_max_early_data(c, 0) == 1 &&
           s->SSL_CTX_set_recv_max_early_data(c, 0) == 1;
}

static void make_context(void)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    SSL_CTX *c = s->SSL_CTX_new_ex(s->ctx, NULL, s->TLS_method());

    method = s->BIO_meth_new(BIO_TYPE_SOURCE_SINK, "nccl-net-pvrdma");
    if (c && method && set_up(s, c) && s->BIO_meth_set_write(method, socket_write) == 1 &&
        s->BIO_meth_set_read(method, socket_read) == 1 &&
        s->BIO_meth_set_ctrl(method, socket_ctrl) == 1)
        context = c;
    else if (c)
        s->SSL_CTX_free(c);
    s->ERR_clear_error();
}

/* ---- streams ---- */

static bool attach(const struct pvn_ssl *s, struct pvn_seal *seal)
{
    BIO *bio;

    seal->ssl = s->SSL_new(context);
    bio = seal->ssl ? s->BIO_new(method) : NULL;
    if (!bio)
        return false;
    s->BIO_set_data(bio, seal);
    s->BIO_set_init(bio, 1);
    s->SSL_set_bio(seal->ssl, bio, bio);
    return s->SSL_set_ex_data(seal->ssl, 0, seal) == 1;
}

int pvn_seal_check(struct pvn_err *err)
{
    const struct pvn_ssl *s = pvn_ssl_get();

    if (!s)
        return pvn_err_set(err, -ELIBACC, "OpenSSL has not been loaded");
    pthread_mutex_lock(&lock);
    if (!made)
        make_context();
    made = true;
    pthread_mutex_unlock(&lock);
    if (context)
        return 0;
    pvn_err_set(err, -ELIBACC, "%s cannot do TLS 1.3 with a secret of both ends",
                s->OpenSSL_version(OPENSSL_VERSION));
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return -ELIBACC;
}

void pvn_seal_forget(void)
{
    const struct pvn_ssl *s = pvn_ssl_get();

    if (!s || atomic_load(&streams) > 0)
        return;
    pthread_mutex_lock(&lock);
    s->SSL_CTX_free(context);
    s->BIO_meth_free(method);
    context = NULL;
    method = NULL;
    made = false;
    pthread_mutex_unlock(&lock);
    pvn_ssl_forget();
}

void pvn_seal_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    atomic_store(&streams, 0);
    context = NULL;
    method = NULL;
    made = false;
    pvn_ssl_after_fork();
}

struct pvn_seal *pvn_seal_new(int fd, bool acceptor, const uint8_t secret[PVN_SEAL_SECRET],
                              struct pvn_err *err)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    struct pvn_seal *seal;

    if (pvn_seal_check(err) != 0)
        return NULL;
    seal = calloc(1, sizeof(*seal));
    if (seal) {
        atomic_fetch_add(&streams, 1);
        seal->fd = fd;
        seal->acceptor = acceptor;
        memcpy(seal->secret, secret, sizeof(seal->secret));
    }
    if (!seal || !attach(s, seal)) {
        pvn_seal_free(seal);
        pvn_err_set(err, -ENOMEM, "no memory for a sealed connection");
        return NULL;
    }
    if (acceptor)
        s->SSL_set_accept_state(seal->ssl);
    else
        s->SSL_set_connect_state(seal->ssl);
    return seal;
}

static void read_ahead(struct pvn_seal *seal)
{
    pvn_ssl_get()->SSL_set_default_read_buffer_len(seal->ssl, READ_AHEAD);
    pvn_ssl_get()->SSL_set_read_ahead(seal->ssl, 1);
}

/* If the kernel takes the stream over after the handshake, OpenSSL must not read a record too many
 * from the socket. So it reads ahead only if it keeps the stream. */
void pvn_seal_expect_bulk(struct pvn_seal *seal, bool by_kernel)
{
    if (by_kernel)
        seal->by = TO_KERNEL;
    else
        read_ahead(seal);
}

bool pvn_seal_is_by_kernel(const struct pvn_seal *seal)
{
    return seal->by == BY_KERNEL;
}

void pvn_seal_free(struct pvn_seal *seal)
{
    if (!seal)
        return;
    if (seal->ssl) {
        pvn_ssl_get()->SSL_free(seal->ssl);
        pvn_ssl_get()->ERR_clear_error();
    }
    explicit_bzero(seal, sizeof(*seal));
    free(seal);
    atomic_fetch_sub(&streams, 1);
}

/* Clearing costs 840 instructions even if the queue is empty, so look first. */
static void clear_errors(void)
{
    const struct pvn_ssl *s = pvn_ssl_get();

    if (s->ERR_peek_error() != 0)
        s->ERR_clear_error();
}

/* Called before OpenSSL, so that earlier errors of this thread are not taken for the stream's. */
static void prepare(struct pvn_seal *seal)
{
    clear_errors();
    seal->code = 0;
}

/* Turns OpenSSL's result `ret`, which is no success, into a negative errno, or 0 for the end of the
 * stream. *reason: OpenSSL's number for what it did not accept, 0: none. */
static int judge(struct pvn_seal *seal, int ret, unsigned long *reason)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    int why = s->SSL_get_error(seal->ssl, ret);

    *reason = 0;
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    /* OpenSSL's error counts before the socket's, which may come from sending the alert to an end
     * that has gone. */
    *reason = s->ERR_peek_error();
    /* OpenSSL 3.2 and later put the socket's error into the queue as well. */
    if (*reason && ERR_GET_LIB(*reason) != ERR_LIB_SYS)
        return -EBADMSG;
    if (seal->code)
        return seal->code;
    if (why == SSL_ERROR_ZERO_RETURN || seal->end)
        return 0;
    return -EBADMSG;
}

static const char *in_words(unsigned long reason)
{
    const char *text = pvn_ssl_get()->ERR_reason_error_string(reason);

    return text ? text : "no reason given";
}

/* Says why the handshake failed. */
static int rejected(unsigned long reason, struct pvn_err *err)
{
    int number = ERR_GET_REASON(reason);

    if (number == SSL_R_BINDER_DOES_NOT_VERIFY)
        return pvn_err_set(err, -EKEYREJECTED, "the peer has another key (%s)", in_words(reason));
    /* The acceptor sends an alert if it does not accept this end's proof. */
    if (number == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER || number == SSL_R_TLSV1_ALERT_DECRYPT_ERROR)
        return pvn_err_set(err, -EKEYREJECTED, "the peer does not accept the key (%s)",
                           in_words(reason));
    return pvn_err_set(
        err, -EKEYREJECTED,
        "the peer does not prove the key: what came was damaged, forged or replayed, "
        "or is not by this plugin (%s)",
        in_words(reason));
}

/* Completes the handshake: checks that it used the key, and hands the stream to the kernel if that
 * takes it. */
static int proved(struct pvn_seal *seal, struct pvn_err *err)
{
    int rc = 0;

    explicit_bzero(seal->secret, sizeof(seal->secret));
    seal->records_per_key = records_per_key;
    /* A handshake by certificate proves nothing, because there are none. */
    if (pvn_ssl_get()->SSL_session_reused(seal->ssl) != 1)
        return pvn_err_set(err, -EKEYREJECTED, "the peer has not used the key in its handshake");
    if (seal->by == TO_KERNEL && strcmp(pvn_seal_suite(seal), PVN_SEAL_SUITE_OF_KERNEL) == 0)
        rc = pvn_seal_to_kernel(seal, err);
    if (seal->by == TO_KERNEL && rc == 0) {
        seal->by = BY_OPENSSL;
        read_ahead(seal);
    }
    return rc;
}

int pvn_seal_handshake(struct pvn_seal *seal, struct pvn_err *err)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    unsigned long reason;
    int ret, rc;

    prepare(seal);
    ret = s->SSL_do_handshake(seal->ssl);
    if (ret == 1)
        return proved(seal, err);
    rc = judge(seal, ret, &reason);
    if (rc == -EAGAIN)
        return rc;
    if (rc == 0)
        rc = pvn_err_set(err, -ECONNRESET, "the peer closed the connection within its handshake");
    else if (rc == -EBADMSG)
        rc = rejected(reason, err);
    else
        pvn_err_set(err, rc, "%s",
                    rc == -ENOMSG ? "what came first is no handshake of TLS 1.3"
                                  : "the connection failed within its handshake");
    s->ERR_clear_error();
    return rc;
}

/* Returns the result of a send or recv that failed. An alert comes sealed from the other end, which
 * has found our bytes damaged: it ends the stream as a reset does. */
static ssize_t failed(struct pvn_seal *seal, int ret)
{
    unsigned long reason;
    int rc = judge(seal, ret, &reason);

    clear_errors();
    return rc == -EBADMSG && ERR_GET_REASON(reason) >= SSL_AD_REASON_OFFSET ? -ECONNRESET : rc;
}

static void take_turn(struct pvn_seal *seal)
{
    unsigned mine = atomic_fetch_add(&seal->turn.next, 1);

    while (atomic_load_explicit(&seal->turn.current, memory_order_acquire) != mine)
        sched_yield();
}

static void give_turn(struct pvn_seal *seal)
{
    atomic_fetch_add_explicit(&seal->turn.current, 1, memory_order_release);
}

/* Changes the key for sending. The other end learns that from a message in the stream (KeyUpdate),
 * which is held here and goes out before the next record: while OpenSSL has a message that it
 * cannot send, it receives nothing either. */
static bool renew_key(struct pvn_seal *seal)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    bool done;

    seal->holds = true;
    done = s->SSL_key_update(seal->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
           s->SSL_do_handshake(seal->ssl) == 1;
    seal->holds = false;
    s->ERR_clear_error(); /* the call for the record reports a lasting error */
    return done;
}

/* Counts a record. If the current key has sealed enough, the record is the first one of a new
 * key. */
static void count_record(struct pvn_seal *seal)
{
    if (seal->begun_record)
        return;
    if (seal->records >= seal->records_per_key && renew_key(seal))
        seal->records = 0;
    seal->records++;
}

static ssize_t send_record(struct pvn_seal *seal, const void *buf, size_t len)
{
    size_t n = 0;
    int ret;

    if (seal->out.over)
        return seal->out.code;
    prepare(seal);
    count_record(seal);
    ret = pvn_ssl_get()->SSL_write_ex(seal->ssl, buf, len < RECORD ? len : RECORD, &n);
    seal->begun_record = ret != 1;
    if (ret == 1)
        return (ssize_t)n;
    seal->out.code = failed(seal, ret);
    if (seal->out.code == 0)
        seal->out.code = -EPIPE;
    seal->out.over = seal->out.code != -EAGAIN;
    return seal->out.code;
}

/* Sets *more if the next call may find more. */
static ssize_t recv_record(struct pvn_seal *seal, void *buf, size_t len, bool *more)
{
    size_t n = 0;
    int ret;

    if (seal->in.over)
        return seal->in.code;
    prepare(seal);
    ret = pvn_ssl_get()->SSL_read_ex(seal->ssl, buf, len, &n);
    *more = !seal->empty || pvn_seal_has_pending(seal);
    if (ret == 1)
        return (ssize_t)n;
    seal->in.code = failed(seal, ret);
    seal->in.over = seal->in.code != -EAGAIN;
    return seal->in.code;
}

ssize_t pvn_seal_send(struct pvn_seal *seal, const void *buf, size_t len)
{
    ssize_t n;

    take_turn(seal);
    n = send_record(seal, buf, len);
    give_turn(seal);
    return n;
}

static ssize_t recv_some(struct pvn_seal *seal, void *buf, size_t len, bool *more)
{
    ssize_t n;

    take_turn(seal);
    n = recv_record(seal, buf, len, more);
    give_turn(seal);
    return n;
}

ssize_t pvn_seal_recv(struct pvn_seal *seal, void *buf, size_t len)
{
    bool unused;

    return recv_some(seal, buf, len, &unused);
}

/* Copies up to RECORD bytes of the pieces, from `skip` bytes into the first one on. Returns their
 * number. */
static size_t gather(const struct iovec *iov, int n, size_t skip, uint8_t *record)
{
    size_t len = 0;

    for (int i = 0; i < n && len < RECORD; i++, skip = 0) {
        size_t left = iov[i].iov_len - skip, part = left < RECORD - len ? left : RECORD - len;

        memcpy(record + len, (const uint8_t *)iov[i].iov_base + skip, part);
        len += part;
    }
    return len;
}

ssize_t pvn_seal_sendv(struct pvn_seal *seal, const struct iovec *iov, int n)
{
    uint8_t record[RECORD];
    size_t sent = 0, skip = 0;
    ssize_t rc = 0;

    while (n > 0 && sent < BURST) {
        /* A record that begins with a short piece is filled from the pieces behind it. */
        if (iov->iov_len - skip >= RECORD || n == 1)
            rc = pvn_seal_send(seal, (const uint8_t *)iov->iov_base + skip, iov->iov_len - skip);
        else
            rc = pvn_seal_send(seal, record, gather(iov, n, skip, record));
        if (rc < 0)
            break;
        sent += (size_t)rc;
        skip += (size_t)rc;
        while (n > 0 && skip >= iov->iov_len) {
            skip -= iov->iov_len;
            iov++;
            n--;
        }
    }
    return sent ? (ssize_t)sent : rc;
}

/* Copies len bytes to the pieces, from `skip` bytes into all of them on. */
static void scatter(const struct iovec *iov, size_t skip, const uint8_t *record, size_t len)
{
    for (; len > 0; iov++) {
        size_t room = iov->iov_len > skip ? iov->iov_len - skip : 0, part = len < room ? len : room;

        if (part > 0)
            pvn_copy_in_order((uint8_t *)iov->iov_base + skip, record, part);
        record += part;
        len -= part;
        skip -= skip < iov->iov_len ? skip : iov->iov_len;
    }
}

/* OpenSSL copies a record by memcpy, and a GPU may read the pieces meanwhile. */
ssize_t pvn_seal_recvv(struct pvn_seal *seal, const struct iovec *iov, int n)
{
    uint8_t record[RECORD];
    size_t got = 0, room = 0;
    bool more = true;
    ssize_t rc = 0;

    for (int i = 0; i < n; i++)
        room += iov[i].iov_len;
    while (got < room && more) {
        size_t left = room - got;

        rc = recv_some(seal, record, left < RECORD ? left : RECORD, &more);
        if (rc <= 0)
            break;
        scatter(iov, got, record, (size_t)rc);
        got += (size_t)rc;
    }
    return got ? (ssize_t)got : rc;
}

/* OpenSSL does not count the header of a record whose body it waits for ("RB": reading the
 * body). */
bool pvn_seal_has_pending(const struct pvn_seal *seal)
{
    const struct pvn_ssl *s = pvn_ssl_get();

    return s->SSL_has_pending(seal->ssl) == 1 || strcmp(s->SSL_rstate_string(seal->ssl), "RB") == 0;
}

int pvn_seal_export(struct pvn_seal *seal, const char *label, uint8_t *out, size_t len,
                    struct pvn_err *err)
{
    const struct pvn_ssl *s = pvn_ssl_get();
    int ret = s->SSL_export_keying_material(seal->ssl, out, len, label, strlen(label), NULL, 0, 0);

    s->ERR_clear_error();
    return ret == 1 ? 0 : pvn_err_set(err, -EIO, "OpenSSL cannot export a secret");
}

const char *pvn_seal_suite(const struct pvn_seal *seal)
{
    const struct pvn_ssl *s = pvn_ssl_get();

    if (pvn_seal_is_by_kernel(seal))
        return PVN_SEAL_SUITE_OF_KERNEL;
    return s->SSL_CIPHER_get_name(s->SSL_get_current_cipher(seal->ssl));
}
