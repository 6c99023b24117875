/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot_accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "seal/sockio.h"

#define FIRST_TIMEOUT 5.0 /* seconds for a newcomer's first message */
#define DIAL_TIMEOUT  5.0 /* seconds for one attempt to connect */

int pvn_boot_listen(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1,
        zero = 0;
    int rc;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, 1024) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

static void no_delay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int pvn_boot_dial(const struct addrinfo *ai, double deadline)
{
    double left = deadline - pvn_now_s();
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(rc);

    if (fd < 0)
        return -errno;
    if (left > DIAL_TIMEOUT)
        left = DIAL_TIMEOUT;
    no_delay(fd);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) && errno != EINPROGRESS)
        rc = errno;
    else if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
        rc = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &len))
        rc = errno;
    if (rc == 0)
        return fd;
    close(fd);
    return -rc;
}

void pvn_boot_peer(int fd, bool port, char *out, size_t len)
{
    struct sockaddr_storage ss;
    socklen_t size = sizeof(ss);
    char host[64], service[16];

    if (getpeername(fd, (struct sockaddr *)&ss, &size) ||
        getnameinfo((struct sockaddr *)&ss, size, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV)) {
        snprintf(out, len, "unknown address");
        return;
    }
    snprintf(out, len, "%s%s%s", strncmp(host, "::ffff:", 7) == 0 ? host + 7 : host,
             port ? " port " : "", port ? service : "");
}

static void drop(struct pvn_boot_newcomer *n)
{
    pvn_seal_free(n->seal);
    n->seal = NULL;
    if (n->fd >= 0)
        close(n->fd);
    free(n->text);
    n->text = NULL;
    n->fd = -1;
}

void pvn_boot_accept_init(struct pvn_boot_accept *a)
{
    for (int i = 0; i < a->max; i++)
        a->n[i] = (struct pvn_boot_newcomer){.fd = -1};
}

/* True if newcomer n is to be closed before `than` when there are too many: the one that has waited
 * longest is most likely not one of ours. A newcomer in its handshake has sent a valid first
 * message, so it is kept longer. */
static bool goes_first(const struct pvn_boot_newcomer *n, const struct pvn_boot_newcomer *than)
{
    if (!n->seal != !than->seal)
        return !n->seal;
    return n->deadline < than->deadline;
}

/* The newcomer that is closed next; NULL: there is none. */
static struct pvn_boot_newcomer *first_to_go(struct pvn_boot_accept *a)
{
    struct pvn_boot_newcomer *first = NULL;

    for (int i = 0; i < a->max; i++)
        if (a->n[i].fd >= 0 && (!first || goes_first(&a->n[i], first)))
            first = &a->n[i];
    return first;
}

static struct pvn_boot_newcomer *free_place(struct pvn_boot_accept *a)
{
    for (int i = 0; i < a->max; i++)
        if (a->n[i].fd < 0)
            return &a->n[i];
    return NULL;
}

static int take_newcomer(struct pvn_boot_accept *a)
{
    int fd = accept4(a->lfd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), rc = fd < 0 ? -errno : 0;
    bool no_files = rc == -EMFILE;
    struct pvn_boot_newcomer *n = free_place(a);

    if (rc == -ENFILE)
        poll(NULL, 0, 50); /* other processes have all of the system's, which passes */
    if (rc && !no_files)
        return 0; /* it has closed its connection again, for example */
    /* Without a descriptor the connection stays in the queue until the next pass. */
    if (no_files || !n) {
        n = first_to_go(a);
        if (!n)
            return rc;
        a->dropped++;
        drop(n);
    }
    if (no_files)
        return 0;
    no_delay(fd);
    *n = (struct pvn_boot_newcomer){.fd = fd, .deadline = pvn_now_s() + FIRST_TIMEOUT};
    return 0;
}

void pvn_boot_accept_seal(struct pvn_boot_newcomer *n, struct pvn_seal *seal, double seconds)
{
    n->seal = seal;
    n->deadline = pvn_now_s() + seconds;
    n->got = 0;
    n->stays = true;
}

/* Reads a newcomer's message: 1 if more is to come, 0 if it is complete, -1 if the connection is
 * not one of ours. */
static int read_message(const struct pvn_boot_accept *a, struct pvn_boot_newcomer *n)
{
    const struct pvn_sockio *io = n->seal ? &pvn_sockio_sealed : &pvn_sockio_plain;
    long want = a->length(a->arg, n);

    /* poll does not see bytes that a sealed stream has already taken from its socket. */
    while (want > (long)n->got) {
        char *text = realloc(n->text, (size_t)want);
        ssize_t got;

        if (!text)
            return -1;
        n->text = text;
        got = pvn_sockio_recv(io, n->fd, n->seal, text + n->got, (size_t)want - n->got);
        if (got == -EAGAIN)
            return 1;
        if (got <= 0)
            return -1;
        n->got += (size_t)got;
        want = a->length(a->arg, n);
    }
    return want < 0 ? -1 : 0;
}

/* Does the handshake, if there is one, then reads as read_message does. */
static int progress(const struct pvn_boot_accept *a, struct pvn_boot_newcomer *n)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = n->seal && !n->sealed ? pvn_seal_handshake(n->seal, &err) : 0;

    if (rc == -EAGAIN)
        return 1;
    if (rc < 0) {
        a->unproved(a->arg, n, &err);
        return -1;
    }
    n->sealed = n->seal != NULL;
    return read_message(a, n);
}

int pvn_boot_accept_pass(struct pvn_boot_accept *a, double seconds)
{
    struct pollfd p[PVN_BOOT_MAX_NEWCOMERS + 1] = {{.fd = a->lfd, .events = POLLIN}};
    struct pvn_boot_newcomer *of[PVN_BOOT_MAX_NEWCOMERS + 1];
    nfds_t used = 1;

    /* Open ones alone: poll refuses more entries than a process may have descriptors. */
    for (int i = 0; i < a->max; i++)
        if (a->n[i].fd >= 0) {
            of[used] = &a->n[i];
            p[used++] = (struct pollfd){.fd = a->n[i].fd, .events = POLLIN};
        }
    if (poll(p, used, (int)(seconds * 1000) + 1) < 0)
        return errno == EINTR ? 0 : -errno;
    for (nfds_t i = 1; i < used; i++) {
        struct pvn_boot_newcomer *n = of[i];
        int rc;

        if (n->fd < 0) /* dropped by enter */
            continue;
        rc = p[i].revents ? progress(a, n) : 1;
        if (rc == 0)
            a->enter(a->arg, n);
        if (n->stays || (rc > 0 && n->deadline > pvn_now_s())) {
            n->stays = false;
            continue;
        }
        a->dropped += rc != 0;
        drop(n);
    }
    return p[0].revents ? take_newcomer(a) : 0;
}

const char *pvn_boot_accept_why(int rc, char *out, size_t len)
{
    struct rlimit files = {0};

    getrlimit(RLIMIT_NOFILE, &files);
    if (rc == -EMFILE)
        snprintf(out, len, "%s: this process may open %llu: raise that (`ulimit -n`)",
                 strerror(-rc), (unsigned long long)files.rlim_cur);
    else
        snprintf(out, len, "%s", strerror(-rc));
    return out;
}

void pvn_boot_accept_close(struct pvn_boot_accept *a)
{
    for (int i = 0; i < a->max; i++)
        drop(&a->n[i]);
    close(a->lfd);
}
