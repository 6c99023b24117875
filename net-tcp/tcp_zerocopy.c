/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Large chunks without a copy: vmsplice puts the sender's pages into a pipe by reference, and
 * splice moves them into the socket. Linux then sends those pages. On loopback and virtual links it
 * queues the pages themselves for the receiver, whereas it would copy pages of MSG_ZEROCOPY.
 */
#include "config.h"
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    PIPE_BYTES = 256 * 1024, /* in the pipe at once; the kernel counts them against the user */
    ANSWER_BYTES = 512       /* acknowledgements and entries that are read at once */
};

void tcp_zerocopy_init(struct stream *s)
{
    s->pipe = (struct zerocopy_pipe){.rd = -1, .wr = -1};
}

static void close_pipe(struct zerocopy_pipe *p)
{
    if (p->rd >= 0) {
        close(p->rd);
        close(p->wr);
    }
    *p = (struct zerocopy_pipe){.rd = -1, .wr = -1};
}

/* True if the socket may still hold pages of the caller: of unacknowledged chunks, or of a chunk
 * that is partly written. */
static bool holds_pages(const struct tcp_lane *t, const struct stream *s)
{
    if (s->count > 0 && s->done > 0 && t->q[s->first % TXQ].needs_ack)
        return true;
    for (uint32_t p = t->freed; p != t->assigned; p++) {
        const struct tx_frame *f = &t->q[p % TXQ];
        if (f->state == TX_UNACKED && &t->s[f->stream] == s)
            return true;
    }
    return false;
}

void tcp_zerocopy_close(const struct tcp_lane *t, struct stream *s)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    close_pipe(&s->pipe);
    /* This resets the connection at once, even if another process has the descriptor, too.
     * Otherwise data in flight would arrive with the later content of its pages. */
    if (holds_pages(t, s))
        connect(s->fd, &nobody, sizeof(nobody));
}

/* Opens a pipe, unless half of the process's descriptors are in use: the process may need the
 * rest. */
static int open_pipe(struct zerocopy_pipe *p)
{
    struct rlimit files;
    int fd[2];
    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && (rlim_t)fd[1] > files.rlim_cur / 2) {
        close(fd[0]);
        close(fd[1]);
        return -EMFILE;
    }
    /* The kernel refuses this if the user has many pipes already. A smaller pipe works, too. */
    (void)fcntl(fd[1], F_SETPIPE_SZ, PIPE_BYTES);
    *p = (struct zerocopy_pipe){.rd = fd[0], .wr = fd[1]};
    return 0;
}

/*
 * splice has no MSG_NOSIGNAL, so the calling thread would get SIGPIPE on a stream that the peer has
 * closed. This function blocks the signal during the call, and removes one that the call has
 * raised.
 */
static ssize_t splice_nosignal(int from, int to, size_t len)
{
    sigset_t sigpipe, before, pending;
    struct timespec at_once = {0};
    bool expected = false;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
    if (sigismember(&before, SIGPIPE)) {
        sigpending(&pending);
        expected = sigismember(&pending, SIGPIPE);
    }
    ssize_t n = splice(from, NULL, to, NULL, len, SPLICE_F_NONBLOCK);
    int code = errno;
    if (n < 0 && code == EPIPE && !expected)
        while (sigtimedwait(&sigpipe, NULL, &at_once) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n < 0 ? -code : n;
}

ssize_t tcp_zerocopy_write(struct stream *s, const struct iovec *iov, int count)
{
    struct zerocopy_pipe *p = &s->pipe;
    if (p->rd < 0 && open_pipe(p) < 0)
        return -EOPNOTSUPP;
    if (p->held == 0) {
        ssize_t n = vmsplice(p->wr, iov, (size_t)count, SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            return -EINTR;
        if (n <= 0)
            return -EOPNOTSUPP; /* ENOSYS, EFAULT for memory without pages of its own, ... */
        p->held = (size_t)n;
    }
    ssize_t n = splice_nosignal(p->rd, s->fd, p->held);
    if (n == -EINVAL || n == -ENOSYS || n == -EOPNOTSUPP) {
        close_pipe(p);
        return -EOPNOTSUPP;
    }
    if (n > 0)
        p->held -= (size_t)n;
    return n == 0 ? -EAGAIN : n;
}

/* True if written chunks are not acknowledged. The difference may be negative: chunks of a job may
 * be acknowledged before the job's result is taken. */
static bool awaits_acks(const struct stream *s)
{
    return (int32_t)(s->acks_requested - s->acks_taken) > 0;
}

/* A byte that belongs to no entry is the number of chunks that the peer acknowledges. */
static int take_byte(struct tcp_lane *t, struct stream *s, uint8_t b)
{
    if (t->cts && s == &t->s[0] && tcp_cts_is_next(t, b))
        return tcp_cts_take(t, b);
    if (b == 0 || b > (int32_t)(s->acks_requested + s->job_acks - s->acks_taken))
        return tcp_dead(t, s, -EPROTO,
                        "reading zero-copy acknowledgements: these are for more than was sent");
    s->acks_taken += b;
    t->stats.zerocopy_acks += b;
    return 0;
}

int tcp_answers_take(struct tcp_lane *t, struct stream *s, bool in_any_case)
{
    while (!s->eof && (in_any_case || awaits_acks(s))) {
        uint8_t b[ANSWER_BYTES];
        t->stats.cts_calls += in_any_case;
        t->stats.ack_calls += !in_any_case;
        struct iovec iov = {b, sizeof(b)};
        ssize_t n = s->io->recvv(s->fd, s->seal, &iov, 1, 0);
        if (n == -EAGAIN)
            return 0;
        /* A receiver that has closed reports on the control connection how much it has received. */
        s->eof = n == 0 && !in_any_case && t->unacked == 0;
        if (s->eof)
            return 0;
        if (n <= 0)
            return tcp_dead(t, s, n < 0 ? (int)n : -ECONNRESET,
                            awaits_acks(s)
                                ? "waiting for the peer's acknowledgement of a zero-copy chunk"
                                : "waiting for the peer's receives");
        for (ssize_t i = 0; i < n; i++) {
            int rc = take_byte(t, s, b[i]);
            if (rc < 0)
                return rc;
        }
        if ((size_t)n < sizeof(b))
            return 0;
    }
    return 0;
}

void tcp_zerocopy_mark(struct tcp_lane *t)
{
    for (uint32_t p = t->freed; p != t->assigned && t->unacked > 0; p++) {
        struct tx_frame *f = &t->q[p % TXQ];
        if (f->state == TX_UNACKED && (int32_t)(t->s[f->stream].acks_taken - f->ack_nth) >= 0) {
            f->state = TX_SENT;
            t->unacked--;
        }
    }
}

int tcp_zerocopy_settle(struct tcp_lane *t)
{
    for (int i = 0; i < t->nstreams; i++) {
        int rc = tcp_answers_take(t, &t->s[i], false);
        if (rc < 0)
            return rc;
    }
    tcp_zerocopy_mark(t);
    return 0;
}
