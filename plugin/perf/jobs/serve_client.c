/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/jobs/serve.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/jobs/serve_proto.h"
#include "perf/rank/stop.h"
#include "tools/boot_accept.h"

#define ANSWER_TIMEOUT 10.0 /* seconds for the server to answer */

void pvn_serve_tune(int fd)
{
    int one = 1, idle = 10, every = 5, count = 4;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int pvn_serve_boot(struct pvn_boot *b, int rank, int fd, double timeout)
{
    memset(b, 0, sizeof(*b));
    b->rank = rank;
    b->nranks = 2;
    b->timeout = timeout;
    b->fd = malloc(2 * sizeof(*b->fd));
    if (!b->fd)
        return -ENOMEM;
    b->fd[0] = rank == 0 ? -1 : fd;
    b->fd[1] = rank == 0 ? fd : -1;
    return 0;
}

/* Sends the request and reads the answer: 0, or a negative errno with why. */
static int request(int fd, const struct pvn_perf_opts *o, struct pvn_serve_answer *a, char *why,
                   size_t why_len)
{
    double deadline = pvn_now_s() + ANSWER_TIMEOUT;
    size_t n = 0;
    char *text = pvn_serve_write_request(o, &n), reply[PVN_SERVE_TEXT_MAX];
    struct pvn_serve_head h;
    uint32_t len;
    int rc;

    if (!text) {
        snprintf(why, why_len, "out of memory for the request");
        return -ENOMEM;
    }
    rc = pvn_boot_send(fd, text, n, deadline, NULL);
    free(text);
    if (!rc)
        rc = pvn_boot_recv(fd, &h, sizeof(h), deadline, NULL);
    if (rc) {
        snprintf(why, why_len, "no answer: %s (is that pvn-perf serve?)", strerror(-rc));
        return rc;
    }
    rc = pvn_serve_check_head(&h, &len, why, why_len);
    if (rc)
        return rc;
    rc = pvn_boot_recv(fd, reply, len, deadline, NULL);
    if (!rc)
        rc = pvn_serve_read_answer(reply, len, a);
    if (rc)
        snprintf(why, why_len, "the answer is not one of pvn-perf serve: %s", strerror(-rc));
    return rc;
}

/* Any of the addresses that answers: a socket, or a negative errno. */
static int reach(const struct pvn_perf_opts *o, const struct addrinfo *ai)
{
    /* The server may start later than the client, by --boot-timeout. */
    double until = pvn_now_s() + (o->wait_server ? o->boot_timeout : 0);

    for (;;) {
        int fd = -EADDRNOTAVAIL;

        for (const struct addrinfo *a = ai; a && fd < 0; a = a->ai_next)
            fd = pvn_boot_dial(a, INFINITY);
        if (fd >= 0 || pvn_now_s() >= until || pvn_stop_flag)
            return fd;
        poll(NULL, 0, 200);
    }
}

int pvn_serve_join(struct pvn_boot *b, const struct pvn_perf_opts *o, char *why, size_t why_len)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
    int port_n = o->peer_port ? o->peer_port : PVN_SERVE_PORT, rc, fd;
    struct pvn_serve_answer a = {0};
    char port[16], text[384] = "";

    snprintf(port, sizeof(port), "%d", port_n);
    rc = getaddrinfo(o->peer, port, &hints, &ai);
    if (rc) {
        snprintf(why, why_len, "cannot resolve '%s': %s", o->peer, gai_strerror(rc));
        return -EHOSTUNREACH;
    }
    fd = reach(o, ai);
    freeaddrinfo(ai);
    if (fd < 0) {
        snprintf(why, why_len,
                 "cannot reach %s port %d: %s (does `pvn-perf serve` run there, and does the "
                 "firewall let port %d through?)",
                 o->peer, port_n, strerror(-fd), port_n);
        return fd;
    }
    pvn_serve_tune(fd);
    rc = request(fd, o, &a, text, sizeof(text));
    if (!rc && !a.ok)
        rc = -EPERM;
    if (!rc)
        rc = pvn_serve_boot(b, 0, fd, o->timeout);
    if (!rc)
        return 0;
    close(fd);
    if (rc == -EPERM)
        snprintf(why, why_len, "%s (pvn-perf %s) at %s:%d refuses: %s", a.host, a.version, o->peer,
                 port_n, a.reason);
    else
        snprintf(why, why_len, "%s:%d: %s", o->peer, port_n, text[0] ? text : strerror(-rc));
    return rc;
}
