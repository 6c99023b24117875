/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that OpenSSL itself needs for a handshake of both ends, or for records, as plugin/seal makes them: TLS 1.3
 * with a secret of both ends, X25519 (psk_dhe_ke), no certificate, no ticket. Both ends run on one thread of this
 * process and exchange bytes through memory: without system calls, a connection, or any of the plugin. A stream has
 * two processes and a TCP connection over loopback, and is the least work of a program that seals by OpenSSL.
 * tests/bench/seal.sh prints all of them beside the plugin.
 *
 * usage: tls_floor [COUNT [AT_ONCE [GROUPS]]]   (1024 handshakes of both ends, one at a time; OpenSSL's names of groups)
 *        tls_floor records [MIB]                (4096 MiB in records of 16 KiB, from one end to the other, 4 at a time)
 *        tls_floor stream [MIB]                 (4096 MiB in records of 16 KiB, from one process to another)
 * Handshakes: prints their number per second, and processor microseconds, instructions and cycles in user space of
 * each ("-" if the kernel does not count them), of both ends. Records: prints processor seconds of both ends for 10^9
 * bytes. Stream: prints 10^9 bytes per second, and processor seconds of both ends for 10^9 bytes. Exits with 1 and a
 * message if something fails.
 */
#include <arpa/inet.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/clock.h"

enum { STEPS = 4 }; /* of a handshake at most */

static const char identity[] = "tls_floor";
static unsigned char secret[32];
static SSL_CTX *context;

static void check(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "tls_floor: %s failed: %s\n", what, ERR_reason_error_string(ERR_peek_error()));
    exit(1);
}

static SSL_SESSION *session_of(SSL *ssl)
{
    static const unsigned char suite[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
    SSL_SESSION *session = SSL_SESSION_new();

    check(session && SSL_SESSION_set1_master_key(session, secret, sizeof(secret)) == 1 &&
              SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite)) == 1 &&
              SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1,
          "a session");
    return session;
}

static int connector_secret(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
                            SSL_SESSION **session)
{
    (void)md;
    *session = session_of(ssl);
    *id = (const unsigned char *)identity;
    *id_len = strlen(identity);
    return 1;
}

static int acceptor_secret(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    (void)id;
    (void)id_len;
    *session = session_of(ssl);
    return 1;
}

/* Makes a context of its own, as the plugin does, which no openssl.cnf changes. */
static void make_context(const char *groups)
{
    OSSL_LIB_CTX *own = OSSL_LIB_CTX_new();

    context = own ? SSL_CTX_new_ex(own, NULL, TLS_method()) : NULL;
    check(context, "a context");
    SSL_CTX_clear_options(context, UINT64_MAX);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_psk_use_session_callback(context, connector_secret);
    SSL_CTX_set_psk_find_session_callback(context, acceptor_secret);
    check(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
              SSL_CTX_set1_groups_list(context, groups) == 1 &&
              SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
              SSL_CTX_set_num_tickets(context, 0) == 1,
          "the context's settings");
}

struct pair {
    SSL *connector, *acceptor;
    bool connected, accepted;
};

static void begin(struct pair *p)
{
    BIO *there = BIO_new(BIO_s_mem()), *back = BIO_new(BIO_s_mem());

    *p = (struct pair){SSL_new(context), SSL_new(context), false, false};
    check(p->connector && p->acceptor && there && back && BIO_up_ref(there) == 1 &&
              BIO_up_ref(back) == 1,
          "memory");
    SSL_set_bio(p->connector, back, there);
    SSL_set_bio(p->acceptor, there, back);
    SSL_set_connect_state(p->connector);
    SSL_set_accept_state(p->acceptor);
}

static void step(SSL *ssl, bool *done)
{
    int ret = *done ? 1 : SSL_do_handshake(ssl);

    check(ret == 1 || SSL_get_error(ssl, ret) == SSL_ERROR_WANT_READ, "a handshake");
    *done = ret == 1;
}

static void end(struct pair *p)
{
    check(p->connected && p->accepted && SSL_session_reused(p->connector) == 1,
          "a handshake with the secret");
    SSL_free(p->connector);
    SSL_free(p->acceptor);
}

/* Makes handshakes of so many pairs, one step of each in turn, as comms do. */
static void handshakes(struct pair *pairs, int n)
{
    for (int i = 0; i < n; i++)
        begin(&pairs[i]);
    for (int i = 0; i < STEPS * n; i++) {
        step(pairs[i % n].connector, &pairs[i % n].connected);
        step(pairs[i % n].acceptor, &pairs[i % n].accepted);
    }
    for (int i = 0; i < n; i++)
        end(&pairs[i]);
}

static double cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The memory between the ends replaces a socket: one copy into it, and one out of it. */
static double records_s_per_gb(int mib)
{
    enum { RECORD = 16384, AT_ONCE = 4 };
    /* The buffers begin at a cache line, as the plugin's payloads do. From other addresses it
     * takes half as long again (0.82 s/GB). */
    _Alignas(64) static unsigned char out[AT_ONCE * RECORD], in[AT_ONCE * RECORD];
    size_t n, got, rounds = ((size_t)mib << 20) / sizeof(out);
    double cpu_before, spent;
    struct pair p;

    begin(&p);
    for (int i = 0; i < STEPS; i++) {
        step(p.connector, &p.connected);
        step(p.acceptor, &p.accepted);
    }
    cpu_before = cpu_us();
    for (size_t round = 0; round < rounds; round++) {
        for (size_t at = 0; at < sizeof(out); at += n)
            check(SSL_write_ex(p.connector, out + at, RECORD, &n) == 1, "a send");
        for (got = 0; got < sizeof(in); got += n)
            check(SSL_read_ex(p.acceptor, in + got, sizeof(in) - got, &n) == 1, "a receive");
    }
    spent = cpu_us() - cpu_before;
    end(&p);
    return spent / 1e6 / ((double)(rounds * sizeof(out)) / 1e9);
}

/* Two connected TCP sockets of loopback. */
static void connect_sockets(int fd[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t len = sizeof(at);

    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(listener >= 0 && fd[0] >= 0 && bind(listener, (struct sockaddr *)&at, len) == 0 &&
              listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&at, &len) == 0 &&
              connect(fd[0], (struct sockaddr *)&at, len) == 0,
          "a connection");
    fd[1] = accept(listener, NULL, NULL);
    check(fd[1] >= 0, "a connection");
    close(listener);
}

static SSL *over_socket(int fd, bool connects)
{
    SSL *ssl = SSL_new(context);

    check(ssl && SSL_set_fd(ssl, fd) == 1, "memory");
    SSL_set_read_ahead(ssl, 1);
    check((connects ? SSL_connect(ssl) : SSL_accept(ssl)) == 1, "a handshake");
    return ssl;
}

static double cpu_of_both(void)
{
    struct rusage r;

    getrusage(RUSAGE_CHILDREN, &r);
    return cpu_us() / 1e6 + (double)r.ru_utime.tv_sec + (double)r.ru_stime.tv_sec +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

/* Takes four records at once from the socket, as the plugin's receiver does (plugin/seal/seal.c). */
static void print_stream(int mib)
{
    enum { RECORD = 16384, MESSAGE = 1 << 20, READ_AHEAD = 4 * (RECORD + 22) + 3 };
    _Alignas(64) static unsigned char data[MESSAGE];
    size_t n, all = (size_t)mib << 20;
    double before, cpu_before, took;
    int fd[2], status = 1;
    unsigned char done = 0;
    pid_t pid;
    SSL *ssl;

    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
    connect_sockets(fd);
    memset(data, 1, sizeof(data));
    cpu_before = cpu_of_both();
    pid = fork();
    check(pid >= 0, "a second process");
    close(fd[pid != 0]); /* so that an end notices the other one's */
    ssl = over_socket(fd[pid == 0], pid != 0);
    before = pvn_now_s();
    if (pid == 0) {
        for (size_t got = 0; got < all; got += n)
            check(SSL_read_ex(ssl, data + got % MESSAGE, MESSAGE - got % MESSAGE, &n) == 1,
                  "a receive");
        check(SSL_write_ex(ssl, data, 1, &n) == 1, "a send");
        _exit(0);
    }
    for (size_t sent = 0; sent < all; sent += n)
        check(SSL_write_ex(ssl, data + sent % MESSAGE, RECORD, &n) == 1, "a send");
    check(SSL_read_ex(ssl, &done, 1, &n) == 1 && done == 1, "the other end's answer");
    took = pvn_now_s() - before;
    check(waitpid(pid, &status, 0) == pid && status == 0, "the other end");
    printf("%.3f %.2f\n", (double)all / 1e9 / took,
           (cpu_of_both() - cpu_before) / ((double)all / 1e9));
    SSL_free(ssl);
    close(fd[0]);
}

/* Returns -1 if the kernel or the machine does not count. */
static int counter(uint64_t what)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof(attr),
                                   .config = what,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};

    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t counted(int fd)
{
    uint64_t n = 0;

    return read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n) ? n : 0;
}

static void print_count(int fd, uint64_t before, int count)
{
    if (fd < 0)
        printf(" -");
    else
        printf(" %.0f", (double)(counted(fd) - before) / count);
}

static int time_handshakes(int count, int at_once)
{
    int instructions = counter(PERF_COUNT_HW_INSTRUCTIONS),
        cycles = counter(PERF_COUNT_HW_CPU_CYCLES);
    uint64_t instructions_before, cycles_before;
    double before, cpu_before;
    struct pair *pairs;

    if (count < 1 || at_once < 1)
        return 2;
    pairs = calloc((size_t)at_once, sizeof(*pairs));
    check(pairs, "memory");
    handshakes(pairs, at_once);
    instructions_before = counted(instructions);
    cycles_before = counted(cycles);
    cpu_before = cpu_us();
    before = pvn_now_s();
    for (int left = count; left > 0; left -= at_once)
        handshakes(pairs, left < at_once ? left : at_once);
    printf("%.0f %.1f", count / (pvn_now_s() - before), (cpu_us() - cpu_before) / count);
    print_count(instructions, instructions_before, count);
    print_count(cycles, cycles_before, count);
    printf("\n");
    free(pairs);
    return 0;
}

int main(int argc, char **argv)
{
    bool of_records = argc > 1 && strcmp(argv[1], "records") == 0;
    bool of_stream = argc > 1 && strcmp(argv[1], "stream") == 0;
    int mib = argc > 2 ? atoi(argv[2]) : 4096, rc = 0;

    memset(secret, 7, sizeof(secret));
    make_context(!of_records && !of_stream && argc > 3 ? argv[3] : "X25519");
    if ((of_records || of_stream) && mib < 1)
        rc = 2;
    else if (of_records)
        printf("%.2f\n", records_s_per_gb(mib));
    else if (of_stream)
        print_stream(mib);
    else
        rc = time_handshakes(argc > 1 ? atoi(argv[1]) : 1024, argc > 2 ? atoi(argv[2]) : 1);
    SSL_CTX_free(context);
    return rc;
}
