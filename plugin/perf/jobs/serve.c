/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/jobs/serve.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/version.h"
#include "perf/jobs/job.h"
#include "perf/patterns/p2p_flow.h"
#include "perf/jobs/serve_proto.h"
#include "perf/rank/stop.h"
#include "tools/boot_accept.h"

#define KILL_AFTER  8.0 /* seconds for a run to end in order */
#define MAX_PENDING 32  /* connections that have not sent their request yet */

struct server {
    const struct pvn_perf_opts *o;
    struct pvn_boot_key key; /* its key may be NULL */
    struct pvn_boot_accept accept;
    pid_t run; /* process of a client's run; 0: none */
    double began, stop_at;
    int out_of_time;
    char who[256];
    int status; /* status of the last run */
};

static void say(const struct server *s, const char *what, const char *more)
{
    if (s->o->quiet)
        return;
    printf("%s: %s\n", what, more);
    fflush(stdout);
}

/* ---- listening ---- */

/* Opens the listener. Without an address it listens on all addresses: if IPv6 exists, by one IPv6
 * socket that also accepts IPv4. */
static int open_listener(const struct server *s)
{
    const struct pvn_perf_opts *o = s->o;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *ai = NULL;
    int port_n = o->peer_port ? o->peer_port : PVN_SERVE_PORT, fd = -EADDRNOTAVAIL, rc;
    char port[16];

    snprintf(port, sizeof(port), "%d", port_n);
    rc = getaddrinfo(o->peer[0] ? o->peer : NULL, port, &hints, &ai);
    if (rc) {
        fprintf(stderr, "pvn-perf: cannot resolve '%s': %s\n", o->peer, gai_strerror(rc));
        return -1;
    }
    for (int v4 = 0; v4 < 2 && fd < 0 && fd != -EADDRINUSE; v4++) {
        for (const struct addrinfo *a = ai; a && fd < 0; a = a->ai_next)
            if (o->peer[0] || (a->ai_family == AF_INET) == v4)
                fd = pvn_boot_listen(a);
    }
    freeaddrinfo(ai);
    if (fd < 0) {
        fprintf(stderr,
                "pvn-perf: cannot listen on %s port %d: %s (serve takes another as "
                "[ADDRESS]:PORT)\n",
                o->peer[0] ? o->peer : "any address", port_n, strerror(-fd));
        return -1;
    }
    if (!o->quiet) {
        printf("waiting for pvn-perf p2p HOST on %s port %d; %s%s\n",
               o->peer[0] ? o->peer : "all addresses", port_n,
               s->key.key ? "with a key, " : "unauthenticated, for private networks", s->key.text);
        fflush(stdout);
    }
    return fd;
}

/* ---- a client's run ---- */

static const char *outcome(int status)
{
    return status == PVN_PERF_OK            ? "ended, all is well"
           : status == PVN_PERF_WRONG       ? "ended with WRONG DATA"
           : status == PVN_PERF_INTERRUPTED ? "was interrupted"
                                            : "failed, see above or the client";
}

static _Noreturn void run_client(struct server *s, struct pvn_perf_opts *o, struct pvn_boot_line l)
{
    struct pvn_boot boot;
    int status = PVN_PERF_OK;
    char why[256];

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    pvn_boot_accept_close(&s->accept);
    if (pvn_serve_boot(&boot, 1, &l, o->timeout, why, sizeof(why))) {
        fprintf(stderr, "pvn-perf: %s\n", why);
        _exit(PVN_PERF_FAILED);
    }
    boot.stop = &pvn_stop_flag;
    for (int k = 0; k < o->repeat && status == PVN_PERF_OK; k++) {
        for (int i = 0; i < o->nplugins && status == PVN_PERF_OK; i++) {
            struct pvn_job j = {.o = o, .plugin = i, .repeat = k, .nranks = 2};

            status = pvn_job_run_rank(&j, &boot);
        }
    }
    fflush(NULL);
    pvn_boot_close(&boot);
    _exit(status);
}

static void start(struct server *s, struct pvn_boot_newcomer *n, struct pvn_perf_opts *o,
                  const char *who)
{
    char text[512], size[64] = "";

    snprintf(s->who, sizeof(s->who), "%s", who);
    if (o->idle > 0)
        snprintf(size, sizeof(size), "idle comms");
    else
        snprintf(size, sizeof(size), "%d size%s up to %llu bytes", o->nsizes,
                 o->nsizes > 1 ? "s" : "", (unsigned long long)pvn_p2p_max_size(o));
    snprintf(text, sizeof(text), "runs %s, depth %d, %d channel%s, %llu MiB of buffers", size,
             o->depth, o->channels, o->channels > 1 ? "s" : "",
             (unsigned long long)(pvn_p2p_bytes(o) >> 20));
    say(s, s->who, text);
    fflush(NULL); /* otherwise the child would print it again */
    s->run = fork();
    if (s->run == 0) {
        struct pvn_boot_line l = {n->fd, n->seal};

        n->fd = -1;
        n->seal = NULL;
        run_client(s, o, l);
    }
    if (s->run < 0) {
        say(s, s->who, strerror(errno));
        s->run = 0;
    }
    s->began = pvn_now_s();
    s->stop_at = 0;
    s->out_of_time = 0;
}

/* Applies the server's own options: each of the client's plugins becomes the server's. */
static void prepare(const struct server *s, struct pvn_perf_opts *o)
{
    for (int i = 1; i < o->nplugins; i++)
        o->plugin[i] = o->plugin[0];
    if (s->o->ndevs > o->channels)
        o->ndevs = o->channels;
    o->mode = PVN_PERF_P2P;
    o->served = 1;
    o->quiet = 1;
}

static bool send_answer(const struct server *s, const struct pvn_boot_newcomer *n,
                        struct pvn_serve_answer *a)
{
    struct pvn_boot_line l = {n->fd, n->seal};
    size_t len = 0;
    char *out;
    bool sent;

    /* A client that has not proved the key learns no names. */
    snprintf(a->host, sizeof(a->host), "the server");
    if (!s->key.key || n->sealed)
        gethostname(a->host, sizeof(a->host) - 1);
    snprintf(a->version, sizeof(a->version), "%s", pvn_version());
    out = pvn_serve_write_answer(a, &len);
    sent = out && pvn_boot_line_send(&l, out, len, pvn_now_s() + 0.2) == 0;
    free(out);
    return sent;
}

static void say_refused(const struct server *s, const struct pvn_boot_newcomer *n,
                        const char *client, const char *reason)
{
    char from[96], who[sizeof(s->who)];

    pvn_boot_peer(n->fd, true, from, sizeof(from));
    snprintf(who, sizeof(who), "%s%s%.140s%s: refused", from, client ? " (" : "",
             client ? client : "", client ? ")" : "");
    say(s, who, reason);
}

/* Handles a connection that has not proved the key. True if nothing else is to be done for it
 * now. */
static bool let_in(struct server *s, struct pvn_boot_newcomer *n)
{
    struct pvn_serve_answer a = {.ok = 1};
    struct pvn_seal *seal = NULL;
    struct pvn_boot_knock knock;
    bool knocks = pvn_serve_read_knock(n->text + sizeof(struct pvn_serve_head),
                                       n->got - sizeof(struct pvn_serve_head), &knock) == 1;

    if (!s->key.key && !knocks)
        return false;
    if (!s->key.key)
        snprintf(a.reason, sizeof(a.reason),
                 "the client has a key, the server has none: set " PVN_BOOT_NO_KEY);
    else if (!knocks)
        snprintf(a.reason, sizeof(a.reason),
                 "the client has no key, the server has one (%s): set " PVN_BOOT_NO_KEY
                 ", and have a pvn-perf that knows it on both hosts",
                 s->key.text);
    else if (!pvn_boot_knock_proves(&s->key, &knock))
        snprintf(a.reason, sizeof(a.reason),
                 "the client has another key than the server (%s): " PVN_BOOT_OTHER, s->key.text);
    a.ok = a.reason[0] == '\0';
    if (send_answer(s, n, &a) && a.ok)
        seal = pvn_boot_key_seal(&s->key, &knock, n->fd, true, a.reason, sizeof(a.reason));
    if (seal)
        pvn_boot_accept_seal(n, seal, s->key.timeout);
    else
        say_refused(s, n, NULL, a.reason[0] ? a.reason : "it has closed the connection");
    return true;
}

static void unproved(void *arg, const struct pvn_boot_newcomer *n, const struct pvn_err *err)
{
    say_refused(arg, n, NULL, err->reason[0]);
}

static void answer(void *arg, struct pvn_boot_newcomer *n)
{
    struct server *s = arg;
    struct pvn_perf_opts *o = malloc(sizeof(*o));
    struct pvn_serve_answer a = {0};
    char client[200] = "?", from[96], who[sizeof(s->who)];
    bool sent;

    pvn_serve_tune(n->fd);
    if (!o || (!n->sealed && let_in(s, n))) {
        free(o);
        return;
    }
    *o = *s->o;
    a.ok = pvn_serve_read_request(n->text + sizeof(struct pvn_serve_head),
                                  n->got - sizeof(struct pvn_serve_head), o, client, sizeof(client),
                                  a.reason, sizeof(a.reason)) == 0;
    if (a.ok && s->run) {
        a.ok = 0;
        snprintf(a.reason, sizeof(a.reason), "busy for %.0f s with %.200s: try again later",
                 pvn_now_s() - s->began, s->who);
    }
    sent = send_answer(s, n, &a);
    if (sent && a.ok) {
        pvn_boot_peer(n->fd, true, from, sizeof(from));
        snprintf(who, sizeof(who), "%s (%.150s)", from, client);
        prepare(s, o);
        start(s, n, o, who);
    } else if (!a.ok) {
        say_refused(s, n, client, a.reason);
    }
    free(o);
}

static void run_ended(struct server *s, int st)
{
    char text[128];

    s->status = WIFEXITED(st) ? WEXITSTATUS(st) : PVN_PERF_FAILED;
    s->run = 0;
    snprintf(text, sizeof(text), "%s after %.1f s%s", outcome(s->status), pvn_now_s() - s->began,
             s->out_of_time ? " (serve --max-time)" : "");
    say(s, s->who, text);
}

/* Ends a run that takes too long, or when the server ends. */
static void watch_run(struct server *s)
{
    double now = pvn_now_s();
    int st;

    if (!s->run)
        return;
    if (waitpid(s->run, &st, WNOHANG) == s->run) {
        run_ended(s, st);
        return;
    }
    if (!(s->stop_at > 0) && (pvn_stop_flag || now - s->began > s->o->max_time)) {
        s->stop_at = now;
        s->out_of_time = !pvn_stop_flag;
        kill(s->run, SIGTERM);
    } else if (s->stop_at > 0 && (now - s->stop_at > KILL_AFTER || pvn_stop_insists())) {
        kill(s->run, SIGKILL);
    }
}

static long request_length(void *arg, const struct pvn_boot_newcomer *n)
{
    const struct server *s = arg;
    struct pvn_serve_head h;
    char why[384], from[96];
    uint32_t len;

    if (n->got < sizeof(h))
        return sizeof(h);
    memcpy(&h, n->text, sizeof(h));
    if (pvn_serve_check_head(&h, &len, why, sizeof(why)) == 0)
        return (long)sizeof(h) + len;
    pvn_boot_peer(n->fd, true, from, sizeof(from));
    say(s, from, "refused: not a request of a pvn-perf that fits this one");
    return -1;
}

int pvn_serve(const struct pvn_perf_opts *o)
{
    static struct server s; /* static, because a forked child still uses it */
    char why[PVN_ERR_TEXT_LEN];
    int served = 0, rc = 0;

    s = (struct server){.o = o,
                        .accept = {.max = MAX_PENDING,
                                   .length = request_length,
                                   .enter = answer,
                                   .unproved = unproved,
                                   .arg = &s}};
    if (pvn_boot_key_load(&s.key, PVN_SERVE_LABEL, why, sizeof(why)) < 0) {
        fprintf(stderr, "pvn-perf: %s\n", why);
        return PVN_PERF_FAILED;
    }
    pvn_stop_catch();
    s.accept.lfd = open_listener(&s);
    if (s.accept.lfd < 0)
        return PVN_PERF_FAILED;
    pvn_boot_accept_init(&s.accept);
    while ((!pvn_stop_flag && !(o->once && served)) || s.run) {
        pid_t before;

        rc = pvn_boot_accept_pass(&s.accept, s.run ? 0.05 : 0.2);
        if (rc && !s.run)
            break;
        if (rc)
            poll(NULL, 0, 50); /* the run has its connection and goes on */
        before = s.run;
        watch_run(&s);
        served |= before && !s.run;
    }
    pvn_boot_accept_close(&s.accept);
    pvn_boot_key_free(&s.key);
    if (pvn_stop_flag)
        return PVN_PERF_INTERRUPTED + pvn_stop_flag;
    if (rc && !(o->once && served)) {
        fprintf(stderr, "pvn-perf: serve cannot take connections: %s\n",
                pvn_boot_accept_why(rc, why, sizeof(why)));
        return PVN_PERF_FAILED;
    }
    return s.status == PVN_PERF_INTERRUPTED ? PVN_PERF_INTERRUPTED + SIGTERM : s.status;
}
