/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Seconds to deliver data that a rank has left behind; the other end may read it later. */
#define LINGER 30.0

/* Bytes that were read at one end and not yet written at the other. */
struct flow {
    size_t at, len;
    char buf[8192];
};

struct pair {
    int local, remote; /* local: the relay's end of the socket pair, -1: ended */
    struct pvn_seal *seal;
    bool local_end, remote_end;
    double until; /* deadline for the rest of `out` after the local end; 0: no limit */
    struct flow out, in;
};

/* Moves data from the rank to the network. 1 if something moved. */
static int pass_out(struct pair *p)
{
    struct flow *f = &p->out;
    ssize_t n;
    int moved = 0;

    if (f->len == 0 && !p->local_end) {
        n = recv(p->local, f->buf, sizeof(f->buf), MSG_DONTWAIT);
        f->at = 0;
        f->len = n > 0 ? (size_t)n : 0;
        p->local_end = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        moved = n >= 0;
    }
    if (f->len == 0 || p->remote_end)
        return moved;
    n = pvn_seal_send(p->seal, f->buf + f->at, f->len);
    if (n > 0) {
        f->at += (size_t)n;
        f->len -= (size_t)n;
        return 1;
    }
    p->remote_end = n != -EAGAIN;
    return moved || p->remote_end;
}

static int pass_in(struct pair *p, const char *program)
{
    struct flow *f = &p->in;
    ssize_t n;
    int moved = 0;

    if (f->len == 0 && !p->remote_end) {
        n = pvn_seal_recv(p->seal, f->buf, sizeof(f->buf));
        f->at = 0;
        f->len = n > 0 ? (size_t)n : 0;
        p->remote_end = n != -EAGAIN && n <= 0;
        if (n == -EBADMSG)
            dprintf(STDERR_FILENO,
                    "%s: bytes of the sealed connection of two ranks were changed between them, or "
                    "are somebody else's: the connection ends\n",
                    program);
        moved = n != -EAGAIN;
    }
    if (f->len == 0)
        return moved;
    n = send(p->local, f->buf + f->at, f->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        f->at += (size_t)n;
        f->len -= (size_t)n;
        return 1;
    }
    /* Nobody reads this data any more; data written before may still be there. */
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        f->len = 0;
    return moved || f->len == 0;
}

static void finish(struct pair *p)
{
    pvn_seal_free(p->seal);
    close(p->remote);
    close(p->local);
    p->local = p->remote = -1;
}

/* Moves as much data as possible. True if the pair continues. */
static bool step(struct pair *p, const char *program)
{
    while (pass_out(p) | pass_in(p, program))
        ;
    if (p->local_end && p->until <= 0)
        p->until = pvn_now_s() + LINGER;
    if ((p->local_end && (p->out.len == 0 || p->until <= pvn_now_s())) ||
        (p->remote_end && p->in.len == 0)) {
        finish(p);
        return false;
    }
    return true;
}

/* Fills a pollfd. poll always reports a closed end, so an end without requested events is left
 * out. */
static void ask(struct pollfd *p, int fd, bool in, bool out)
{
    p->events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
    p->fd = p->events ? fd : -1;
}

static void watch(const struct pair *p, struct pollfd *of)
{
    ask(&of[0], p->local, !p->local_end && p->out.len == 0, p->in.len > 0);
    ask(&of[1], p->remote, !p->remote_end && p->in.len == 0, p->out.len > 0 && !p->remote_end);
}

static _Noreturn void run(struct pair *pair, struct pollfd *fds, int n, const char *program)
{
    /* A signal to the whole process group ends the ranks, which still exchange data about it. */
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), alive = n;

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
    }
    for (int i = 0; i < n; i++) {
        watch(&pair[i], &fds[2 * i]);
        fds[2 * i].revents = POLLIN; /* a stream may already have taken bytes from its socket */
    }
    for (;;) {
        for (int i = 0; i < n; i++) {
            struct pair *p = &pair[i];

            if (p->local < 0 || (!(fds[2 * i].revents | fds[2 * i + 1].revents) && p->until <= 0))
                continue;
            alive -= !step(p, program);
            watch(p, &fds[2 * i]);
        }
        if (alive == 0)
            _exit(0);
        if (poll(fds, 2 * (nfds_t)n, 500) < 0)
            for (int i = 0; i < 2 * n; i++)
                fds[i].revents = 0;
    }
}

/* Raises the limit of open files, because each connection briefly takes three descriptors. */
static void make_room(int n, struct rlimit *before)
{
    struct rlimit more;

    if (getrlimit(RLIMIT_NOFILE, before) != 0) {
        before->rlim_cur = 0;
        return;
    }
    more = *before;
    more.rlim_cur = more.rlim_cur + 2 * (rlim_t)n + 8;
    if (more.rlim_cur > more.rlim_max)
        more.rlim_cur = more.rlim_max;
    setrlimit(RLIMIT_NOFILE, &more);
}

static void close_all(struct pair *pair, int *mine, int n)
{
    for (int i = 0; i < n; i++) {
        close(pair[i].local);
        close(mine[i]);
    }
}

/* Makes n socket pairs; 0, or a negative errno with none open. */
static int make_pairs(struct pair *pair, int *mine, int n)
{
    for (int i = 0; i < n; i++) {
        int both[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both) != 0) {
            int rc = -errno;

            close_all(pair, mine, i);
            return rc;
        }
        mine[i] = both[0];
        pair[i].local = both[1];
    }
    return 0;
}

static int start(struct pvn_boot *b, struct pair *pair, int *mine, int n, const char *program)
{
    struct pollfd *fds = calloc((size_t)n, 2 * sizeof(*fds));
    int rc = fds ? make_pairs(pair, mine, n) : -ENOMEM;
    pid_t pid;

    if (rc) {
        free(fds);
        return rc;
    }
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < n; i++)
            close(mine[i]);
        run(pair, fds, n, program);
    }
    rc = pid < 0 ? -errno : 0;
    free(fds);
    if (rc) {
        close_all(pair, mine, n);
        return rc;
    }
    b->relay = pid;
    for (int i = 0; i < n; i++) {
        close(pair[i].local);
        close(pair[i].remote);
    }
    return 0;
}

int pvn_boot_relay(struct pvn_boot *b, struct pvn_seal *const *seal, const char *program, char *why,
                   size_t why_len)
{
    int n = b->rank == 0 ? b->nranks : 1, used = 0, rc;
    struct pair *pair = calloc((size_t)n, sizeof(*pair));
    int *mine = calloc((size_t)n, sizeof(*mine)), *at = calloc((size_t)n, sizeof(*at));
    struct rlimit before;

    for (int i = 0; pair && at && i < n; i++) {
        if (b->fd[i] < 0)
            continue;
        at[used] = i;
        pair[used].remote = b->fd[i];
        pair[used++].seal = seal[i];
    }
    make_room(n, &before);
    rc = !pair || !mine || !at ? -ENOMEM : used > 0 ? start(b, pair, mine, used, program) : 0;
    if (before.rlim_cur > 0)
        setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; rc == 0 && i < used; i++)
        b->fd[at[i]] = mine[i];
    if (rc)
        snprintf(why, why_len, "cannot start the relay of %d sealed connections: %s", used,
                 strerror(-rc));
    free(pair);
    free(mine);
    free(at);
    return rc;
}
