/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a round trip between two processes that call only send and recv, and sched_yield in
 * between as NCCL does. There is a TCP connection for each direction, as in a ring.
 * tests/bench/tcp.sh --bare prints it beside the plugins' latencies.
 *
 * Messages are read by two methods, of which the better one counts. Either they are read when they
 * arrive, or they are peeked (MSG_PEEK), answered, and read afterwards, so that the acknowledgement
 * does not wait for the read.
 *
 * usage: tcp_alone NETNS NETNS ADDRESS BYTES...   (the address is the first namespace's)
 * Prints a line "BYTES,US" for each size: the median of half a round trip.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    MAX_BYTES = 1 << 20,
    PEEK_MAX = 16 * 1024, /* a message has to be there as a whole, and larger ones gain nothing */
    WARM_UP = 1000,
    ROUNDS = 8000
};

static char buf[MAX_BYTES];
static int out, in; /* the connections */

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "tcp_alone: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void enter(const char *netns)
{
    char path[128];
    snprintf(path, sizeof(path), "/var/run/netns/%s", netns);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        fail(path);
    close(fd);
}

static int connection(int fd)
{
    int on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        fail("connecting");
    return fd;
}

static void put(size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(out, buf + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            fail("send");
        at += n > 0 ? (size_t)n : 0;
    }
}

/* Receives a whole message. With MSG_PEEK it stays in the socket. */
static void get(size_t size, int flags)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = recv(in, buf + at, size - at, MSG_DONTWAIT | flags);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            fail("recv");
        /* A message that was peeked in part is peeked again. */
        if (n > 0 && ((flags & MSG_PEEK) == 0 || (size_t)n == size))
            at += (size_t)n;
        if (n < 0)
            sched_yield();
    }
}

static void round_trip(bool first, size_t size, bool peek)
{
    if (first)
        put(size);
    get(size, peek ? MSG_PEEK : 0);
    if (!first)
        put(size);
    if (peek)
        get(size, 0);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median of half a round trip, in microseconds. */
static double measure(bool first, size_t size, bool peek)
{
    static double took[ROUNDS];
    for (int i = -WARM_UP; i < ROUNDS; i++) {
        double start = pvn_now_s();
        round_trip(first, size, peek);
        if (i >= 0)
            took[i] = (pvn_now_s() - start) * 1e6 / 2;
    }
    qsort(took, ROUNDS, sizeof(*took), by_value);
    return took[ROUNDS / 2];
}

static void serve(const struct sockaddr_in *own, int addr_pipe)
{
    struct sockaddr_in a = *own;
    socklen_t len = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l, 2) < 0 ||
        getsockname(l, (struct sockaddr *)&a, &len) < 0)
        fail("listening");
    if (write(addr_pipe, &a, sizeof(a)) != sizeof(a))
        fail("sending the port");
    out = connection(accept(l, NULL, NULL));
    in = connection(accept(l, NULL, NULL));
}

static void dial(int addr_pipe)
{
    struct sockaddr_in a;
    if (read(addr_pipe, &a, sizeof(a)) != sizeof(a))
        fail("learning the port");
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (connect(fd[i], (struct sockaddr *)&a, sizeof(a)) < 0)
            fail("connecting");
    }
    in = fd[0];
    out = fd[1];
}

int main(int argc, char **argv)
{
    struct sockaddr_in own = {.sin_family = AF_INET};
    int addr_pipe[2];
    if (argc < 5 || inet_pton(AF_INET, argv[3], &own.sin_addr) != 1) {
        fprintf(stderr, "usage: tcp_alone NETNS NETNS ADDRESS BYTES...\n");
        return 2;
    }
    if (pipe2(addr_pipe, O_CLOEXEC) < 0)
        fail("pipe");
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    bool first = child > 0;
    /* Neither polls on without the other: whose peer has gone meets the end of its connection. */
    enter(argv[first ? 1 : 2]);
    if (first)
        serve(&own, addr_pipe[1]);
    else
        dial(addr_pipe[0]);
    for (int i = 4; i < argc; i++) {
        size_t size = strtoul(argv[i], NULL, 10);
        if (size < 1 || size > MAX_BYTES) {
            fprintf(stderr, "tcp_alone: %s is not 1 to %d bytes\n", argv[i], MAX_BYTES);
            return 2;
        }
        double us = measure(first, size, false);
        if (size <= PEEK_MAX) {
            double peeked = measure(first, size, true);
            us = peeked < us ? peeked : us;
        }
        if (first)
            printf("%zu,%.3f\n", size, us);
    }
    return 0;
}
