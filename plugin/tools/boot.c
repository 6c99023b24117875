/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME_MAGIC 0x70766e62u /* also detects a peer of the other byte order */

enum {
    FRAME_DATA = 1,
    FRAME_ABORT = 2,
    FRAME_STOP = 3, /* the sender was interrupted, or knows of an interruption, and is at rest */
    FRAME_REST = 4  /* from rank 0: all ranks are at rest */
};

#define STOP_TIMEOUT  2.0 /* seconds for all ranks to come to rest */
#define STOPPED_AFTER 0.5 /* limit of the seconds that count between two readings of the clock */
#define RELAY_TIMEOUT 3.0 /* seconds for the relay to forward the remaining data */

struct frame {
    uint32_t magic;
    uint16_t kind;
    uint16_t from;
    uint32_t len;
};

double pvn_boot_stopped(double last, double now)
{
    return now - last > STOPPED_AFTER ? now - last - STOPPED_AFTER : 0;
}

static int wait_fd(int fd, short events, double deadline, struct pvn_boot *b)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double left = deadline - pvn_now_s(),
               most = b && b->work && b->work(b->work_arg) ? 0.001 : 0.1;
        int n;

        if (left <= 0)
            return -ETIMEDOUT;
        n = poll(&p, 1, left > most ? (int)(most * 1000) : (int)(left * 1000) + 1);
        if (b && b->tick)
            b->tick(b->tick_arg);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

int pvn_boot_send(int fd, const void *data, size_t len, double deadline, struct pvn_boot *b)
{
    const char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            p += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            int rc = wait_fd(fd, POLLOUT, deadline, b);

            if (rc)
                return rc;
        } else if (errno != EINTR) {
            return errno == EPIPE ? -ECONNRESET : -errno;
        }
    }
    return 0;
}

int pvn_boot_recv(int fd, void *data, size_t len, double deadline, struct pvn_boot *b)
{
    char *p = data;

    while (len) {
        ssize_t n = recv(fd, p, len, MSG_DONTWAIT);

        if (n > 0) {
            p += n;
            len -= (size_t)n;
        } else if (n == 0) {
            return -ECONNRESET;
        } else if (errno == EAGAIN) {
            int rc = wait_fd(fd, POLLIN, deadline, b);

            if (rc)
                return rc;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int pvn_boot_pairs(int nranks, int **pairs, char *why, size_t why_len)
{
    int *p = malloc(2 * sizeof(*p) * (size_t)nranks);
    int i, rc;

    if (!p) {
        snprintf(why, why_len, "out of memory for %d ranks", nranks);
        return -ENOMEM;
    }
    p[0] = p[1] = -1;
    for (i = 1; i < nranks; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, &p[2 * i])) {
            rc = -errno;
            snprintf(why, why_len, "socketpair for rank %d: %s", i, strerror(-rc));
            goto fail;
        }
    }
    *pairs = p;
    return 0;

fail:
    while (--i > 0) {
        close(p[2 * i]);
        close(p[2 * i + 1]);
    }
    free(p);
    return rc;
}

int pvn_boot_from_pairs(struct pvn_boot *b, int rank, int nranks, int *pairs, double timeout)
{
    memset(b, 0, sizeof(*b));
    b->rank = rank;
    b->nranks = nranks;
    b->timeout = timeout;
    b->fd = malloc(sizeof(int) * (size_t)(rank == 0 ? nranks : 1));
    if (!b->fd)
        return -ENOMEM;
    b->fd[0] = rank == 0 ? -1 : pairs[2 * rank + 1];
    for (int i = 1; i < nranks; i++) {
        if (rank == 0)
            b->fd[i] = pairs[2 * i];
        else
            close(pairs[2 * i]);
        if (i != rank)
            close(pairs[2 * i + 1]);
    }
    free(pairs);
    return 0;
}

void pvn_boot_view(const struct pvn_boot *whole, int n, struct pvn_boot *view)
{
    *view = *whole;
    view->nranks = n;
}

/* Waits until the relay has ended. A process that is not its parent cannot wait. */
static void await_relay(pid_t relay)
{
    double until = pvn_now_s() + RELAY_TIMEOUT;

    while (relay > 0 && waitpid(relay, NULL, WNOHANG) == 0 && pvn_now_s() < until)
        poll(NULL, 0, 2);
}

void pvn_boot_close(struct pvn_boot *b)
{
    int n = b->rank == 0 ? b->nranks : 1;

    for (int i = 0; b->fd && i < n; i++)
        if (b->fd[i] >= 0)
            close(b->fd[i]);
    free(b->fd);
    b->fd = NULL;
    await_relay(b->relay);
    b->relay = 0;
}

static int peer_of(const struct pvn_boot *b, int i)
{
    return b->rank == 0 ? i : 0;
}

static int canceled(struct pvn_boot *b)
{
    b->stopped = 1;
    snprintf(b->why, sizeof(b->why), "interrupted");
    return -ECANCELED;
}

/* The time limit of an exchange with the other ranks. */
struct limit {
    double deadline, looked_at;
};

static struct limit limit_of(const struct pvn_boot *b)
{
    double now = pvn_now_s();

    return (struct limit){.deadline = now + b->timeout, .looked_at = now};
}

/* Returns the time; extends the deadline by time that does not count. */
static double read_clock(struct limit *l)
{
    double now = pvn_now_s();

    l->deadline += pvn_boot_stopped(l->looked_at, now);
    l->looked_at = now;
    return now;
}

/* Waits for the beginning of a frame. An interruption ends only this wait, so that the stream
 * consists of whole frames. */
static int wait_frame(struct pvn_boot *b, int fd, struct limit *l)
{
    for (;;) {
        double until = read_clock(l) + 0.1;
        int rc;

        if (b->stop && *b->stop)
            return -ECANCELED;
        rc = wait_fd(fd, POLLIN, until < l->deadline ? until : l->deadline, b);
        if (rc != -ETIMEDOUT || read_clock(l) >= l->deadline)
            return rc;
    }
}

static int lost(struct pvn_boot *b, int peer, int rc)
{
    if (rc == -ECANCELED)
        return canceled(b);
    if (rc == -ETIMEDOUT)
        snprintf(b->why, sizeof(b->why), "rank %d did not answer for %.0f s (see --timeout)", peer,
                 b->timeout);
    else if (rc == -ECONNRESET)
        snprintf(b->why, sizeof(b->why), "rank %d ended without giving a reason", peer);
    else
        snprintf(b->why, sizeof(b->why), "the connection to rank %d failed: %s", peer,
                 strerror(-rc));
    return -ECONNABORTED;
}

/* Reads the reason that another rank sent, after its header. */
static int read_abort(struct pvn_boot *b, int fd, const struct frame *f, double deadline)
{
    char text[sizeof(b->why)];
    uint32_t len = f->len < sizeof(text) ? f->len : sizeof(text) - 1;

    if (pvn_boot_recv(fd, text, len, deadline, b))
        len = 0;
    text[len] = '\0';
    b->heard = len > 0;
    snprintf(b->why, sizeof(b->why), "%s", len ? text : "another rank failed");
    return -ECONNABORTED;
}

static int read_frame(struct pvn_boot *b, int peer, int fd, void *data, size_t len, struct limit *l)
{
    struct frame f;
    int rc = wait_frame(b, fd, l);

    if (!rc)
        rc = pvn_boot_recv(fd, &f, sizeof(f), l->deadline, b);
    if (rc)
        return lost(b, peer, rc);
    if (f.magic == FRAME_MAGIC && f.kind == FRAME_ABORT)
        return read_abort(b, fd, &f, l->deadline);
    if (f.magic == FRAME_MAGIC && f.kind == FRAME_STOP) {
        b->at_rest = peer;
        return canceled(b);
    }
    if (f.magic != FRAME_MAGIC || f.kind != FRAME_DATA || f.len != len) {
        snprintf(
            b->why, sizeof(b->why),
            "rank %d sent %u bytes where %zu were expected: are all ranks started with the same "
            "options and the same pvn-perf?",
            peer, f.len, len);
        return -EPROTO;
    }
    rc = pvn_boot_recv(fd, data, len, l->deadline, b);
    return rc ? lost(b, peer, rc) : 0;
}

static int write_frame(struct pvn_boot *b, int peer, int fd, const void *data, size_t len,
                       double deadline)
{
    struct frame f = {FRAME_MAGIC, FRAME_DATA, (uint16_t)b->rank, (uint32_t)len};
    int rc = pvn_boot_send(fd, &f, sizeof(f), deadline, b);

    if (!rc)
        rc = pvn_boot_send(fd, data, len, deadline, b);
    if (rc == -ECONNRESET && pvn_boot_check(b))
        return -ECONNABORTED;
    return rc ? lost(b, peer, rc) : 0;
}

int pvn_boot_allgather(struct pvn_boot *b, const void *in, void *out, size_t len)
{
    struct limit l = limit_of(b);
    size_t all = len * (size_t)b->nranks;
    char *o = out;
    int rc;

    if (len > PVN_BOOT_MAX_BLOCK) {
        snprintf(b->why, sizeof(b->why), "a block of %zu bytes is too large to gather", len);
        return -EMSGSIZE;
    }
    if (len)
        memmove(o + len * (size_t)b->rank, in, len);
    if (b->rank != 0) {
        rc = write_frame(b, 0, b->fd[0], in, len, l.deadline);
        return rc ? rc : read_frame(b, 0, b->fd[0], o, all, &l);
    }
    for (int i = 1; i < b->nranks; i++) {
        rc = read_frame(b, i, b->fd[i], o + len * (size_t)i, len, &l);
        if (rc)
            return rc;
    }
    for (int i = 1; i < b->nranks; i++) {
        rc = write_frame(b, i, b->fd[i], o, all, l.deadline);
        if (rc)
            return rc;
    }
    return 0;
}

int pvn_boot_barrier(struct pvn_boot *b)
{
    return pvn_boot_allgather(b, NULL, NULL, 0);
}

int pvn_boot_share(struct pvn_boot *b, void *data, size_t len)
{
    struct limit l = limit_of(b);

    if (b->rank != 0)
        return read_frame(b, 0, b->fd[0], data, len, &l);
    for (int i = 1; i < b->nranks; i++) {
        int rc = write_frame(b, i, b->fd[i], data, len, l.deadline);

        if (rc)
            return rc;
    }
    return 0;
}

/* Reads the data that a peer left behind when it closed its end: its reason, if it sent one. */
static int drain(struct pvn_boot *b, int peer, int fd)
{
    double deadline = pvn_now_s() + 0.1;
    char skip[4096];
    struct frame f;

    while (!pvn_boot_recv(fd, &f, sizeof(f), deadline, b) && f.magic == FRAME_MAGIC) {
        if (f.kind == FRAME_ABORT)
            return read_abort(b, fd, &f, deadline);
        while (f.len) {
            uint32_t n = f.len < sizeof(skip) ? f.len : (uint32_t)sizeof(skip);

            if (pvn_boot_recv(fd, skip, n, deadline, b))
                return lost(b, peer, -ECONNRESET);
            f.len -= n;
        }
    }
    return lost(b, peer, -ECONNRESET);
}

int pvn_boot_check(struct pvn_boot *b)
{
    int first = b->rank == 0 ? 1 : 0;
    int last = b->rank == 0 ? b->nranks : 1;

    for (int i = first; i < last; i++) {
        struct pollfd p = {.fd = b->fd[i], .events = POLLIN | POLLRDHUP};
        struct frame f;

        if (poll(&p, 1, 0) <= 0)
            continue;
        if (p.revents & (POLLRDHUP | POLLHUP | POLLERR))
            return drain(b, peer_of(b, i), b->fd[i]);
        /* A peer that is ahead has sent its next block, which stays in the socket. */
        if (recv(b->fd[i], &f, sizeof(f), MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof(f) ||
            f.magic != FRAME_MAGIC)
            continue;
        if (f.kind == FRAME_ABORT)
            return drain(b, peer_of(b, i), b->fd[i]);
        if (f.kind == FRAME_STOP)
            return canceled(b);
    }
    return 0;
}

void pvn_boot_abort(struct pvn_boot *b, const char *reason)
{
    struct {
        struct frame f;
        char text[sizeof(b->why)];
    } msg = {.f = {FRAME_MAGIC, FRAME_ABORT, (uint16_t)b->rank, 0}};
    int first = b->rank == 0 ? 1 : 0;
    int last = b->rank == 0 ? b->nranks : 1;

    if (b->reported || !b->fd)
        return;
    b->reported = 1;
    snprintf(msg.text, sizeof(msg.text), "%s", reason);
    msg.f.len = (uint32_t)strlen(msg.text);
    for (int i = first; i < last; i++)
        pvn_boot_send(b->fd[i], &msg, sizeof(msg.f) + msg.f.len, pvn_now_s() + 0.2, NULL);
}

static int send_bare(int fd, int rank, int kind, double deadline)
{
    struct frame f = {FRAME_MAGIC, (uint16_t)kind, (uint16_t)rank, 0};

    return pvn_boot_send(fd, &f, sizeof(f), deadline, NULL);
}

/* Discards a peer's data up to a frame of this kind. */
static int skip_to(int fd, int kind, double deadline)
{
    char skip[4096];
    struct frame f;

    for (;;) {
        int rc = pvn_boot_recv(fd, &f, sizeof(f), deadline, NULL);

        if (rc)
            return rc;
        if (f.magic != FRAME_MAGIC)
            return -EPROTO;
        if (f.kind == kind)
            return 0;
        while (f.len && !rc) {
            uint32_t n = f.len < sizeof(skip) ? f.len : (uint32_t)sizeof(skip);

            rc = pvn_boot_recv(fd, skip, n, deadline, NULL);
            f.len -= n;
        }
        if (rc)
            return rc;
    }
}

void pvn_boot_stop(struct pvn_boot *b)
{
    double deadline = pvn_now_s() + STOP_TIMEOUT;

    if (b->reported || !b->fd)
        return;
    b->reported = 1;
    if (b->rank != 0) {
        if (!send_bare(b->fd[0], b->rank, FRAME_STOP, deadline))
            skip_to(b->fd[0], FRAME_REST, deadline);
        return;
    }
    for (int i = 1; i < b->nranks; i++)
        send_bare(b->fd[i], 0, FRAME_STOP, deadline);
    /* The rank whose frame ended rank 0's wait has sent its only stop frame already. */
    for (int i = 1; i < b->nranks; i++)
        if (i != b->at_rest)
            skip_to(b->fd[i], FRAME_STOP, deadline);
    for (int i = 1; i < b->nranks; i++)
        send_bare(b->fd[i], 0, FRAME_REST, deadline);
}
