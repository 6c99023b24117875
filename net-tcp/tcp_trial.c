/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether zero-copy pays on a connection. It does not if sender and receiver share a
 * kernel. The kernel then copies from the sender's pages one by one and checks each first (hardened
 * usercopy). This costs more than the saved copy, and the sender does not see the cost. If an
 * adapter reads the pages, only the sender's cost changes, and the sender can measure it. Pages of
 * 2 MiB would pay on a shared kernel, too, but NCCL's staging memory has none and cannot be moved
 * into them (tests/bench/NOTES.md).
 *
 *   PATH     The beginning of one large chunk is sent with MSG_ZEROCOPY. The kernel reports whether
 *            it copied: it does for a receiver on this machine, a virtual link or an adapter without
 *            scatter/gather (SO_EE_CODE_ZEROCOPY_COPIED).
 *   ANSWER   Large chunks are copied until the kernel has reported.
 *   MEASURE  If the kernel did not copy and the path is short, large chunks are copied and spliced in
 *            turn, each timed by the thread's processor clock.
 *   DECIDED  The decision holds until the lane has sent TRIAL_AGAIN bytes, because a stream's route
 *            may change.
 *
 * Every comm has a trial of its own, and so has every connection that a failover makes. Only large
 * messages take part; the trial adds two readings of a clock to each.
 */
#include "config.h"
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

#define PROBE_BYTES (64 * 1024)
#define TRIAL_BYTES (UINT64_C(16) << 20) /* measured for each method */
#define TRIAL_AGAIN (UINT64_C(64) << 30) /* sent by the lane until the next trial */

/* Zero-copy returns the caller's memory a round trip later. If the round trip is longer than in a
 * data centre, less of the caller's data would be in flight. */
#define LONG_RTT_US 1000

static uint64_t again_after = TRIAL_AGAIN;

void tcp_trial_again_after(uint64_t bytes)
{
    again_after = bytes ? bytes : TRIAL_AGAIN;
}

static uint64_t processor_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * PVN_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Logs each outcome once per process: a process has many comms, and most share one path. */
static void say(const struct tcp_lane *t, const char *outcome, unsigned bit)
{
    static atomic_uint said;
    if (!(atomic_fetch_or(&said, bit) & bit))
        pvn_info(PVN_NET, "%s: large messages %s", t->cfg.name, outcome);
}

static void decide(struct tcp_lane *t, bool pays)
{
    t->trial = (struct tcp_trial){
        .step = TRIAL_DECIDED, .pays = pays, .again_at = t->stats.tx_bytes + again_after};
}

void tcp_trial_zerocopy_pays(struct pvn_lane *l)
{
    decide(tcp_of(l), true);
}

static void path_copies(struct tcp_lane *t)
{
    decide(t, false);
    say(t, "are copied: the path's kernel copies zero-copy data as well, or refuses them", 1);
}

/* The connection's shortest round trip so far, in us; 0: not known. */
static uint32_t min_rtt_us(int fd)
{
    /* tcpi_min_rtt of linux/tcp.h, Linux 4.6; the structure of the C library ends before it. */
    enum { WORDS = 64, MIN_RTT = 148 / sizeof(uint32_t) };
    uint32_t info[WORDS] = {0};
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 ? info[MIN_RTT] : 0;
}

/* The kernel's answer about the test chunk: 1 copied, 0 not, -EAGAIN if there is none yet. Several
 * calls may have written the chunk, and the kernel reports each. */
static int kernels_answer(int fd)
{
    union {
        struct cmsghdr aligned;
        char room[256];
    } control;
    int copied = -EAGAIN;
    for (;;) {
        struct msghdr mh = {.msg_control = &control, .msg_controllen = sizeof(control)};
        if (recvmsg(fd, &mh, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return copied;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&mh); c; c = CMSG_NXTHDR(&mh, c)) {
            struct sock_extended_err e;
            if (c->cmsg_len < CMSG_LEN(sizeof(e)))
                continue;
            memcpy(&e, CMSG_DATA(c), sizeof(e));
            if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY)
                copied = copied > 0 || e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED;
        }
    }
}

static void read_answer(struct tcp_lane *t)
{
    int copied = kernels_answer(t->trial.fd);
    if (copied > 0) {
        path_copies(t);
    } else if (copied == 0 && min_rtt_us(t->trial.fd) > LONG_RTT_US) {
        decide(t, false);
        say(t, "are copied: with zero-copy they would wait for a round trip of more than 1 ms", 8);
    } else if (copied == 0) {
        t->trial.step = TRIAL_MEASURE;
    }
}

enum tcp_method tcp_trial_choose(struct tcp_lane *t)
{
    struct tcp_trial *r = &t->trial;
    if (r->step == TRIAL_DECIDED && t->stats.tx_bytes >= r->again_at)
        *r = (struct tcp_trial){.step = TRIAL_PATH, .pays = r->pays};
    if (r->step == TRIAL_PATH && !r->chosen) {
        r->chosen = true;
        return TCP_PROBE;
    }
    if (r->step == TRIAL_ANSWER)
        read_answer(t);
    if (r->step != TRIAL_MEASURE)
        return r->pays ? TCP_SPLICED : TCP_COPIED;
    r->turn = !r->turn;
    return r->turn ? TCP_SPLICED : TCP_COPIED;
}

ssize_t tcp_trial_probe(struct tcp_lane *t, const struct stream *s, const struct msghdr *mh)
{
    struct iovec *last = &mh->msg_iov[mh->msg_iovlen - 1];
    int one = 1;
    ssize_t n = -1;
    /* The user's locked memory is limited, and the rest may be copied. */
    if (last->iov_len > PROBE_BYTES)
        last->iov_len = PROBE_BYTES;
    if (setsockopt(s->fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) == 0)
        n = sendmsg(s->fd, mh, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_ZEROCOPY);
    if (n >= 0) {
        t->trial.fd = s->fd;
        t->trial.step = TRIAL_ANSWER;
        return n;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return -errno;
    /* ENOBUFS: the user's limit of locked memory; EOPNOTSUPP, ENOPROTOOPT: an old kernel. */
    path_copies(t);
    n = sendmsg(s->fd, mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? -errno : n;
}

uint64_t tcp_trial_from(const struct tcp_lane *t)
{
    return t->trial.step == TRIAL_MEASURE ? processor_ns() : 0;
}

void tcp_trial_to(struct tcp_lane *t, bool spliced, uint64_t from, ssize_t written)
{
    struct tcp_trial *r = &t->trial;
    if (r->step != TRIAL_MEASURE)
        return;
    r->ns[spliced] += processor_ns() - from;
    r->bytes[spliced] += written > 0 ? (uint64_t)written : 0;
    if (r->bytes[false] < TRIAL_BYTES || r->bytes[true] < TRIAL_BYTES)
        return;
    double copied = (double)r->ns[false] / (double)r->bytes[false];
    double without = (double)r->ns[true] / (double)r->bytes[true];
    /* A tenth allows for the cost of acknowledgements, which is not measured. */
    decide(t, without < 0.9 * copied);
    say(t,
        t->trial.pays ? "are sent without a copy: that takes less processor time here"
                      : "are copied: zero-copy takes more processor time here",
        t->trial.pays ? 2 : 4);
}

const char *tcp_trial_text(const struct tcp_lane *t)
{
    if (t->trial.step != TRIAL_DECIDED)
        return "on trial";
    return t->trial.pays ? "it pays" : "it does not pay here";
}
