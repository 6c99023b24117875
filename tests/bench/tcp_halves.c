/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of zero-copy, and what it saves, at each end of a TCP connection over loopback: processor seconds per
 * GiB of the sending and of the receiving thread, copied (send) and spliced (vmsplice, splice), from
 * pages of 4 KiB and from huge pages.
 *
 *   reads     the receiver reads the bytes, as on loopback and virtual links: with splice it copies
 *             from the sender's own pages
 *   discards  the kernel drops them unread (MSG_TRUNC), so the sender's half stands alone, as where an
 *             adapter takes the pages; without what its driver does with them
 *
 * usage: tcp_halves [ROUNDS]   (default 5; the kinds take turns)
 * Prints the medians. Processor time depends less on what else runs than a rate does, but does.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define AREA      ((size_t)32 << 20) /* eight messages of the largest size */
#define SENT      ((size_t)256 << 20)

enum { PIPE_BYTES = 256 * 1024, MAX_ROUNDS = 25, SIZES = 4, KINDS = 8 };

static const size_t sizes[SIZES] = {64 << 10, 256 << 10, 1 << 20, 4 << 20};

struct kind {
    bool reads, huge, spliced;
};
struct ends {
    double sender, receiver; /* processor s per GiB */
};
static struct ends result[SIZES][KINDS][MAX_ROUNDS];

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "tcp_halves: %s: %s\n", what, strerror(errno));
    exit(3);
}

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct receiver {
    int fd;
    bool reads;
    double seconds;
};

static void *receive(void *arg)
{
    struct receiver *r = arg;
    char *buf = malloc(sizes[SIZES - 1]);
    if (!buf)
        fail("malloc");
    memset(buf, 1, sizes[SIZES - 1]);
    double from = processor_s();
    while (recv(r->fd, buf, sizes[SIZES - 1], r->reads ? 0 : MSG_TRUNC) > 0)
        ;
    r->seconds = processor_s() - from;
    free(buf);
    return NULL;
}

/* Sets a congestion control other than bbr, under which nothing is sent by zero-copy. */
static void connect_pair(int *out, int *in)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setsockopt(*out, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) < 0 ||
        bind(listener, (struct sockaddr *)&a, len) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&a, &len) < 0 ||
        connect(*out, (struct sockaddr *)&a, len) < 0)
        fail("connecting over loopback");
    *in = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*in < 0)
        fail("accept");
    close(listener);
}

static void send_copied(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0)
            fail("send");
        p += sent;
        n -= (size_t)sent;
    }
}

static void send_spliced(int fd, const int pipe_fd[2], char *p, size_t n)
{
    while (n > 0) {
        struct iovec v = {p, n};
        ssize_t held = vmsplice(pipe_fd[1], &v, 1, SPLICE_F_NONBLOCK);
        if (held < 0)
            fail("vmsplice");
        p += held;
        n -= (size_t)held;
        while (held > 0) {
            ssize_t sent = splice(pipe_fd[0], NULL, fd, NULL, (size_t)held, 0);
            if (sent < 0)
                fail("splice");
            held -= sent;
        }
    }
}

static struct ends run(struct kind k, size_t size, char *area)
{
    struct receiver r = {.reads = k.reads};
    pthread_t thread;
    int fd, pipe_fd[2];
    connect_pair(&fd, &r.fd);
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        fail("pipe");
    (void)fcntl(pipe_fd[1], F_SETPIPE_SZ, PIPE_BYTES);
    if (pthread_create(&thread, NULL, receive, &r) != 0)
        fail("pthread_create");
    double from = processor_s();
    for (size_t at = 0; at < SENT; at += size) {
        if (k.spliced)
            send_spliced(fd, pipe_fd, area + at % AREA, size);
        else
            send_copied(fd, area + at % AREA, size);
    }
    double seconds = processor_s() - from, gib = (double)SENT / (1 << 30);
    close(fd);
    pthread_join(thread, NULL);
    close(r.fd);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    return (struct ends){seconds / gib, r.seconds / gib};
}

static char *make_area(bool huge)
{
    void *m =
        mmap(NULL, AREA + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        fail("mmap");
    char *p = (char *)m + (HUGE_PAGE - (uintptr_t)m % HUGE_PAGE) % HUGE_PAGE;
    if (madvise(p, AREA, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) < 0)
        fail("madvise");
    memset(p, 3, AREA);
    return p;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct ends median(const struct ends *e, int n)
{
    double s[MAX_ROUNDS], r[MAX_ROUNDS];
    for (int i = 0; i < n; i++) {
        s[i] = e[i].sender;
        r[i] = e[i].receiver;
    }
    qsort(s, (size_t)n, sizeof(*s), by_size);
    qsort(r, (size_t)n, sizeof(*r), by_size);
    return (struct ends){s[n / 2], r[n / 2]};
}

static void print(int rounds)
{
    for (int i = 0; i < SIZES; i++) {
        for (int k = 0; k < KINDS; k += 2) {
            struct ends copied = median(result[i][k], rounds);
            struct ends spliced = median(result[i][k + 1], rounds);
            printf(
                "%4zu KiB, %s pages, receiver %s: copied %.3f + %.3f, spliced %.3f + %.3f s/GiB; "
                "sender %.2f, both %.2f of copied\n",
                sizes[i] >> 10, k & 2 ? "huge" : "4 KiB", k & 4 ? "reads" : "discards",
                copied.sender, copied.receiver, spliced.sender, spliced.receiver,
                spliced.sender / copied.sender,
                (spliced.sender + spliced.receiver) / (copied.sender + copied.receiver));
        }
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (argc > 2 || rounds < 1 || rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: tcp_halves [ROUNDS], 1 to %d\n", MAX_ROUNDS);
        return 2;
    }
    char *area[2] = {make_area(false), make_area(true)};
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < SIZES; i++) {
            for (int k = 0; k < KINDS; k++) {
                struct kind kind = {.spliced = k & 1, .huge = k & 2, .reads = k & 4};
                result[i][k][r] = run(kind, sizes[i], area[kind.huge]);
            }
        }
    }
    print(rounds);
    return 0;
}
