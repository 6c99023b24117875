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

#include "perf/jobs/serve_proto.h"
#include "perf/rank/stop.h"
#include "tools/boot_accept.h"
#include "tools/boot_relay.h"

#define ANSWER_TIMEOUT 10.0 /* seconds for the server to answer */

void pvn_serve_tune(int fd)
{
    int one = 1, idle = 10, every = 5, count = 4;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int pvn_serve_boot(struct pvn_boot *b, int rank, struct pvn_boot_line *l, double timeout, char *why,
                   size_t why_len)
{
    struct pvn_seal *seal[2] = {NULL, NULL};
    int at = rank == 0 ? 1 : 0, rc = 0;

    memset(b, 0, sizeof(*b));
    b->rank = rank;
    b->nranks = 2;
    b->timeout = timeout;
    b->fd = malloc(2 * sizeof(*b->fd));
    if (!b->fd) {
        snprintf(why, why_len, "out of memory for the connection");
        return -ENOMEM;
    }
    b->fd[!at] = -1;
    b->fd[at] = l->fd;
    seal[at] = l->seal;
    if (l->seal)
        rc = pvn_boot_relay(b, seal, "pvn-perf", why, why_len);
    if (rc) {
        free(b->fd);
        b->fd = NULL;
        return rc;
    }
    l->fd = -1;
    pvn_boot_line_close(l);
    return 0;
}

/* Sends text (n bytes; may be NULL), which it frees, and reads the answer. 0, or a negative errno
 * with why. */
static int ask(const struct pvn_boot_line *l, char *text, size_t n, struct pvn_serve_answer *a,
               char *why, size_t why_len)
{
    double deadline = pvn_now_s() + ANSWER_TIMEOUT;
    char reply[PVN_SERVE_TEXT_MAX];
    struct pvn_serve_head h;
    uint32_t len;
    int rc;

    if (!text) {
        snprintf(why, why_len, "out of memory for the request");
        return -ENOMEM;
    }
    rc = pvn_boot_line_send(l, text, n, deadline);
    free(text);
    if (!rc)
        rc = pvn_boot_line_recv(l, &h, sizeof(h), deadline);
    if (rc) {
        snprintf(why, why_len, "no answer: %s (is that pvn-perf serve?)", strerror(-rc));
        return rc;
    }
    rc = pvn_serve_check_head(&h, &len, why, why_len);
    if (rc)
        return rc;
    rc = pvn_boot_line_recv(l, reply, len, deadline);
    if (!rc)
        rc = pvn_serve_read_answer(reply, len, a);
    if (rc)
        snprintf(why, why_len, "the answer is not one of pvn-perf serve: %s", strerror(-rc));
    return rc ? rc : a->ok ? 0 : -EPERM;
}

/* Proves the key to each other, after which the line is sealed. Returns as ask does. */
static int prove(struct pvn_boot_line *l, const struct pvn_boot_key *k, struct pvn_serve_answer *a,
                 char *why, size_t why_len)
{
    struct pvn_err err = PVN_ERR_INIT;
    struct pvn_boot_knock knock;
    size_t n = 0;
    char *text;
    int rc = pvn_boot_knock_make(k, &knock, why, why_len);

    if (rc)
        return rc;
    text = pvn_serve_write_knock(&knock, &n);
    rc = ask(l, text, n, a, why, why_len);
    if (rc)
        return rc;
    l->seal = pvn_boot_key_seal(k, &knock, l->fd, false, why, why_len);
    if (!l->seal)
        return -EIO;
    rc = pvn_boot_line_shake(l, pvn_now_s() + k->timeout, &err);
    if (rc)
        snprintf(why, why_len, "what answers there has not proved the key: %s", err.reason[0]);
    return rc;
}

/* Connects to the first address that answers. Returns a socket, or a negative errno. */
static int reach(const struct pvn_perf_opts *o, const struct addrinfo *ai)
{
    /* The server may start later than the client, by up to --boot-timeout. */
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

/* Describes a refusal: by whom and, if it is unencrypted, which key this end has. */
static void say_refused(const struct pvn_perf_opts *o, int port, const struct pvn_boot_key *k,
                        bool sealed, const struct pvn_serve_answer *a, char *why, size_t why_len)
{
    snprintf(why, why_len, "%s (pvn-perf %s) at %s:%d refuses%s%s%s: %s", a->host, a->version,
             o->peer, port, k && !sealed ? " this client, which has a key (" : "",
             k && !sealed ? k->text : "", k && !sealed ? ")" : "", a->reason);
}

/* Proves the key, if there is one, sends the request, reads the answer and makes *b. 0 or a
 * negative errno with why. */
static int begin(struct pvn_boot *b, struct pvn_boot_line *l, const struct pvn_perf_opts *o,
                 int port, const struct pvn_boot_key *k, char *why, size_t why_len)
{
    struct pvn_serve_answer a = {0};
    char text[384] = "", *request;
    size_t n = 0;
    int rc = k ? prove(l, k, &a, text, sizeof(text)) : 0;

    if (!rc) {
        request = pvn_serve_write_request(o, &n);
        rc = ask(l, request, n, &a, text, sizeof(text));
    }
    if (rc == -EPERM) {
        say_refused(o, port, k, l->seal != NULL, &a, why, why_len);
        return rc;
    }
    if (!rc)
        rc = pvn_serve_boot(b, 0, l, o->timeout, text, sizeof(text));
    if (rc)
        snprintf(why, why_len, "%s:%d: %s", o->peer, port, text[0] ? text : strerror(-rc));
    return rc;
}

int pvn_serve_join(struct pvn_boot *b, const struct pvn_perf_opts *o, char *why, size_t why_len)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *ai;
    int port_n = o->peer_port ? o->peer_port : PVN_SERVE_PORT, rc;
    struct pvn_boot_line l = {-1, NULL};
    struct pvn_boot_key key;
    char port[16];

    rc = pvn_boot_key_load(&key, PVN_SERVE_LABEL, why, why_len);
    if (rc < 0)
        return rc;
    snprintf(port, sizeof(port), "%d", port_n);
    rc = getaddrinfo(o->peer, port, &hints, &ai);
    if (rc) {
        snprintf(why, why_len, "cannot resolve '%s': %s", o->peer, gai_strerror(rc));
        pvn_boot_key_free(&key);
        return -EHOSTUNREACH;
    }
    l.fd = reach(o, ai);
    freeaddrinfo(ai);
    if (l.fd < 0) {
        rc = l.fd;
        snprintf(why, why_len,
                 "cannot reach %s port %d: %s (does `pvn-perf serve` run there, and does the "
                 "firewall let port %d through?)",
                 o->peer, port_n, strerror(-rc), port_n);
    } else {
        pvn_serve_tune(l.fd);
        rc = begin(b, &l, o, port_n, key.key ? &key : NULL, why, why_len);
        pvn_boot_line_close(&l);
    }
    pvn_boot_key_free(&key);
    return rc;
}
