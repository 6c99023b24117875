/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of the TCP lane: headers, direct placement, reading ahead, idle streams. */
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/copy_in_order.h"
#include "net-tcp/sockopt.h"

static __thread uint64_t large_ended_at; /* when the thread's last large chunk was complete; ns */

/*
 * Reading the middle of a large chunk as it arrives costs both ends. Each packet takes a system
 * call and an acknowledgement of its own. Empty reads in between hold the socket's lock, for which
 * the sender's processor waits if it delivers the packets itself. So after a read that emptied the
 * socket, the next one waits for the least time that the rest of the chunk takes, or RX_AHEAD bytes
 * of it, which caches still hold. The last RX_EAGER bytes are read as they arrive. So is a chunk
 * that does not directly follow another one of the thread, because its receiver may wait for
 * nothing else.
 *
 * A sender under bbr takes acknowledgements that wait for the reader as a sign of a slow path, and
 * sends no faster. So its data is acknowledged on arrival, and reads do not wait. Workers wait by
 * epoll, which early acknowledgements would mislead, so they do without these.
 */
static void begin_chunk(struct stream *s)
{
    bool paced = s->flags & PVN_FRAME_PACED;
    s->wait_until = 0;
    s->follows = !paced && s->f.len >= RX_EAGER && pvn_now_ns() - large_ended_at < RX_FOLLOWS_NS;
    if (paced && s->f.len >= RX_LARGE && !s->early_acks && !s->job) {
        pvn_tcp_sockopt_early_acks(s->fd, true);
        s->early_acks = true;
    }
}

static void end_chunk(struct stream *s)
{
    if (s->f.len >= RX_EAGER)
        large_ended_at = pvn_now_ns();
}

static void wait_for_more(struct stream *s)
{
    uint64_t bytes = s->left < RX_AHEAD ? s->left : RX_AHEAD;
    if (s->follows && bytes >= RX_EAGER)
        s->wait_until = pvn_now_ns() + bytes / RX_BYTES_PER_NS;
}

static bool worth_reading(struct stream *s)
{
    if (s->wait_until && pvn_now_ns() < s->wait_until)
        return false;
    s->wait_until = 0;
    return true;
}

static size_t staged(const struct stream *s)
{
    return s->s_end - s->s_begin;
}

static int failed(struct tcp_lane *t, const struct pvn_err *err)
{
    t->l.err = *err;
    t->l.wrong = true;
    return err->code;
}

void tcp_free_landing(struct stream *s)
{
    if (s->landing)
        s->landing_of->give(s->landing_of, s->landing);
    s->landing = NULL;
    s->landing_len = 0;
}

/* Provides memory for a payload that is copied to GPU memory when it is complete. */
__attribute__((noinline, cold)) static int provide_landing(struct tcp_lane *t, struct stream *s)
{
    struct pvn_err err = PVN_ERR_INIT;
    if (s->landing_len < s->f.len || s->landing_of != s->to.copy) {
        tcp_free_landing(s);
        s->landing = s->to.copy->take(s->to.copy, s->f.len);
        s->landing_len = s->landing ? s->f.len : 0;
        s->landing_of = s->to.copy;
    }
    s->dst = s->landing;
    if (s->landing)
        return 0;
    pvn_err_set(&err, -ENOMEM, "no memory for %u bytes that a GPU is to get", s->f.len);
    return failed(t, &err);
}

__attribute__((noinline, cold)) static int copy_to_gpu(struct tcp_lane *t, const struct stream *s)
{
    struct pvn_err err = PVN_ERR_INIT;
    int rc = s->to.copy->from_host(s->to.copy, s->to.dst, s->dst, s->f.len, &err);
    return rc ? failed(t, &err) : 0;
}

/*
 * Counts a late acknowledgement. Nobody waits for it, but the sender has room for PVN_MAX_SENDS
 * messages over all streams of all lanes, and an unacknowledged message occupies one. So late
 * acknowledgements are sent when enough are due, or when enough messages have followed.
 */
static void add_late_ack(struct tcp_lane *t, struct stream *s)
{
    if (t->acks_late++ == 0)
        t->late_since = s->f.seq;
    s->acks_late++;
}

static bool late_acks_are_due(const struct tcp_lane *t, uint64_t seq)
{
    _Static_assert((LATE_ACKS - 1) * (int)PVN_MAX_LANES < (int)PVN_MAX_SENDS,
                   "not all messages of a sender wait for late acknowledgements");
    return t->acks_late >= LATE_ACKS || seq - t->late_since >= LATE_BEHIND;
}

static void release_late_acks(struct tcp_lane *t)
{
    t->acks_late = 0;
    for (int i = 0; i < t->nstreams; i++)
        t->s[i].ack_now |= t->s[i].acks_late > 0;
}

/* Completes the current chunk, which has all its bytes. */
static int finish(struct tcp_lane *t, struct stream *s, struct pvn_event *ev, int *n)
{
    int rc = s->to.copy && s->dst ? copy_to_gpu(t, s) : 0;
    if (rc)
        return rc;
    s->have_frame = false;
    end_chunk(s);
    s->stage_want = s->f.total >= RX_LARGE ? RX_STAGE_LARGE : RX_STAGE;
    bool needs_ack = s->flags & PVN_FRAME_NEEDS_ACK;
    s->acks_due += needs_ack;
    if (needs_ack && s->flags & PVN_FRAME_ACK_LATER)
        add_late_ack(t, s);
    if (t->acks_late && late_acks_are_due(t, s->f.seq))
        release_late_acks(t);
    _Static_assert(RX_LARGE <= (int)PVN_TCP_ZEROCOPY_LEAST,
                   "no smaller chunk comes without a copy");
    s->ack_now |= needs_ack && s->f.len >= RX_LARGE && !(s->flags & PVN_FRAME_COPIED);
    if (s->dst)
        ev[(*n)++] = (struct pvn_event){.kind = PVN_EV_ARRIVED,
                                        .id = pvn_id(s->f.seq),
                                        .recv = s->f.recv,
                                        .chunk = s->f.chunk,
                                        .bytes = s->f.len,
                                        .total = s->f.total};
    s->dst = NULL;
    return 0;
}

/* Takes payload from the staging buffer. */
static void drain_stage(struct tcp_lane *t, struct stream *s)
{
    size_t n = staged(s) < s->left ? staged(s) : s->left;
    if (s->dst)
        pvn_copy_in_order(s->dst + (s->f.len - s->left), s->stage + s->s_begin, n);
    s->s_begin += n;
    s->left -= (uint32_t)n;
}

/* Traces the current chunk, whose payload goes to dst. */
__attribute__((noinline, cold)) static void trace_frame(struct tcp_lane *t, const struct stream *s,
                                                        const void *dst)
{
    struct pvn_transfer x = {.id = pvn_id(s->f.seq), .chunk = s->f.chunk, .recv = s->f.recv};
    x.len = s->f.len;
    x.dst = dst;
    x.fd = s->fd;
    t->l.trace(&t->l, &x);
}

/* Parses the bytes that have been read. Stops if bytes, a buffer (stalled) or room for events are
 * missing. */
static int parse(struct tcp_lane *t, struct stream *s, struct pvn_event *ev, int max, int *n)
{
    s->stalled = false;
    while (*n < max) {
        if (!s->have_frame) {
            if (staged(s) < PVN_FRAME_LEN)
                return 0;
            if (pvn_frame_decode(s->stage + s->s_begin, &s->f, &s->flags) < 0)
                return tcp_dead(t, s, -EPROTO, "reading a header: these bytes are not one");
            struct pvn_place to = {0};
            int rc = t->l.place(t->l.engine, &t->l, &s->f, &to);
            if (rc == -EAGAIN) {
                s->stalled = true;
                return 0;
            }
            if (rc < 0 && rc != -EALREADY)
                return tcp_dead(t, s, rc, "placing a message");
            if (t->cts)
                tcp_cts_used(t, s->f.seq);
            /* A dst that is not NULL means that the payload is received and not dropped. An empty
             * message, which has no bytes to put, gets a dummy address. */
            static uint8_t nowhere;
            s->dst = rc == -EALREADY ? NULL : to.dst ? to.dst : &nowhere;
            s->to = to;
            if (!s->dst || s->f.len == 0)
                s->to.copy = NULL;
            if (__builtin_expect(s->to.copy != NULL, 0) && (rc = provide_landing(t, s)) != 0)
                return rc;
            s->left = s->f.len;
            s->have_frame = true;
            begin_chunk(s);
            if (__builtin_expect(t->l.trace != NULL, 0) && s->dst && to.dst)
                trace_frame(t, s, to.dst);
            s->s_begin += PVN_FRAME_LEN;
        }
        drain_stage(t, s);
        if (s->left > 0)
            return 0;
        int rc = finish(t, s, ev, n);
        if (rc)
            return rc;
    }
    return 0;
}

/* Returns the room for the next read in the staging buffer, behind the bytes that it still
 * holds. */
static size_t make_room(struct stream *s)
{
    if (s->s_begin == s->s_end) {
        s->s_begin = s->s_end = 0;
    } else if (s->s_begin > 0 && !s->have_frame) {
        memmove(s->stage, s->stage + s->s_begin, staged(s));
        s->s_end -= s->s_begin;
        s->s_begin = 0;
    }
    size_t room = RX_STAGE - s->s_end;
    size_t want = s->have_frame && s->dst ? RX_STAGE_LARGE : s->have_frame ? room : s->stage_want;
    return room > want ? want : room;
}

/*
 * A lone small message is only peeked at and stays in the kernel until the next call. A read that
 * empties the socket's queue makes Linux acknowledge every second small segment within the
 * receiver's own call (tcp_cleanup_rbuf in net/ipv4/tcp.c), which would delay the message by 1 to 2
 * us. The next call comes when there is nothing else to do.
 */
static bool worth_peeking(const struct stream *s)
{
    return s->empty > 0 && !s->peeked && !s->have_frame && s->s_begin == s->s_end &&
           s->stage_want == RX_STAGE && !s->seal;
}

/* Reads once: the rest of the payload into its place, and the bytes behind it into the staging
 * buffer. *more: the kernel filled everything and may have more; a short read saves a call. */
static ssize_t read_some(struct tcp_lane *t, struct stream *s, bool *more)
{
    uint8_t seen[RX_PEEK];
    struct iovec iov[3];
    size_t direct = 0, old = s->peeked, room = make_room(s);
    int n = 0;
    bool peek = worth_peeking(s);
    if (peek && room > RX_PEEK)
        room = RX_PEEK;
    if (old)
        iov[n++] = (struct iovec){seen, old};
    if (s->have_frame && s->dst) {
        direct = s->left;
        iov[n++] = (struct iovec){s->dst + (s->f.len - s->left), direct};
    }
    iov[n++] = (struct iovec){s->stage + s->s_end, room};
    t->stats.rx_calls++;
    ssize_t got = s->io->recvv(s->fd, s->seal, iov, n, peek ? MSG_PEEK : 0);
    if (got <= 0)
        return got;
    if (old) {
        s->peeked = (size_t)got < old ? (uint32_t)(old - (size_t)got) : 0;
        got = (size_t)got > old ? got - (ssize_t)old : 0;
        if (got == 0)
            return -EAGAIN;
    }
    if (peek) {
        s->peeked = (uint32_t)got;
        t->stats.rx_peeks++;
    }
    t->stats.rx_bytes += (uint64_t)got;
    size_t placed = (size_t)got < direct ? (size_t)got : direct;
    s->left -= (uint32_t)placed;
    s->s_end += (size_t)got - placed;
    *more = (size_t)got == direct + room;
    return got;
}

static int end_of_stream(struct tcp_lane *t, struct stream *s)
{
    if (s->have_frame || staged(s) > 0 || s->io->has_pending(s->seal))
        return tcp_dead(t, s, -ECONNRESET,
                        "receiving: the peer's stream ended in the middle of a message");
    int lost = t->cts && s == &t->s[0] ? tcp_cts_lost(t) : 0;
    if (lost && lost != -EPIPE)
        return tcp_dead(t, s, lost, "announcing receives");
    s->eof = true;
    return 0;
}

/* Leaves the rest of the payload to a worker if that pays. */
static bool give_to_worker(struct tcp_lane *t, struct stream *s)
{
    struct tcp_job *j = s->job;
    if (!j || !s->have_frame || !s->dst || s->left < t->cfg.worker_min || s->peeked)
        return false;
    size_t room = make_room(s);
    j->piece[0] = (struct iovec){s->dst + (s->f.len - s->left), s->left};
    j->piece[1] = (struct iovec){s->stage + s->s_end, room};
    j->npieces = room ? 2 : 1;
    j->need = s->left;
    j->fd = s->fd;
    j->io = s->io;
    j->seal = s->seal;
    j->sends = false;
    tcp_job_post(j);
    s->with_worker = true;
    t->stats.jobs++;
    return true;
}

int tcp_rx_take_job(struct tcp_lane *t, struct stream *s)
{
    if (!s->with_worker)
        return 0;
    if (s->job->revoked)
        return tcp_revoked(t, s);
    s->with_worker = false;
    size_t moved = s->job->moved, placed = moved < s->left ? moved : s->left;
    t->stats.rx_calls += s->job->calls;
    t->stats.rx_bytes += moved;
    s->left -= (uint32_t)placed;
    s->s_end += moved - placed;
    if (s->job->rc)
        return tcp_dead(t, s, s->job->rc, "receiving");
    return s->job->eof ? end_of_stream(t, s) : 0;
}

void tcp_rx_take_peeked(struct stream *s)
{
    /* Errors do not matter: the stream is about to be closed. */
    while (s->peeked && recv(s->fd, NULL, s->peeked, MSG_DONTWAIT | MSG_TRUNC) < 0 &&
           errno == EINTR)
        ;
    s->peeked = 0;
}

static bool worth_idling(const struct tcp_lane *t, const struct stream *s)
{
    return s->empty >= RX_IDLE_MIN && s->empty * (t->neighbours + 1) >= RX_IDLE_AFTER;
}

int tcp_go_idle(struct tcp_lane *t, struct stream *s)
{
    bool is_new = !s->watch;
    s->empty = 0;
    if (s->early_acks) {
        pvn_tcp_sockopt_early_acks(s->fd, false);
        s->early_acks = false;
    }
    if (is_new)
        s->watch = pvn_poller_add(s->fd);
    /* Without a watch the stream is simply read again: slower when idle, never wrong. */
    if (!s->watch)
        return 0;
    int rc = is_new ? 0 : pvn_poller_arm(s->watch);
    if (rc < 0)
        return tcp_dead(t, s, rc, "watching an idle stream");
    s->idle = true;
    t->spread = false;
    t->stats.idle++;
    return 0;
}

static int acks_lost(struct tcp_lane *t, const struct stream *s, int rc)
{
    return tcp_dead(t, s, rc, "acknowledging a chunk: the sender has reset the stream");
}

int tcp_rx_send_entries(struct tcp_lane *t)
{
    int rc = tcp_cts_send(t);
    return rc == 0 || rc == -EAGAIN ? rc : acks_lost(t, &t->s[0], rc);
}

static int send_ack(const struct stream *s, uint8_t chunks)
{
    ssize_t rc = pvn_sockio_send(s->io, s->fd, s->seal, &chunks, 1);
    return rc == -EPIPE ? -ECONNRESET : rc < 0 ? (int)rc : 0;
}

/*
 * Acknowledges chunks; each byte acknowledges up to 255. Acknowledgements that cannot be sent now
 * wait for the next poll. That of a lone chunk waits as well, because the caller may have an answer
 * to send meanwhile, unless the caller has no more requests and may not call again (tcp_kick). That
 * of a large chunk, which may have come without a copy, must not wait. After a reset the stream can
 * still be read, but the sender may have overwritten the chunk's pages, so the chunk must not be
 * reported.
 */
static int send_acks(struct tcp_lane *t, struct stream *s)
{
    bool beside_entries = t->cts && s == &t->s[0];
    while (s->acks_due) {
        /* A sealed send that found no room is repeated with the same byte. */
        uint8_t n = s->ack_again ? s->ack_again : s->acks_due < 255 ? (uint8_t)s->acks_due : 255;
        int rc = beside_entries ? tcp_cts_acknowledge(t, n) : send_ack(s, n);
        t->stats.ack_calls += !beside_entries;
        s->ack_again = rc == -EAGAIN ? n : 0;
        if (rc == -EAGAIN)
            return 0;
        if (rc < 0 && s->acks_due > s->acks_late)
            return acks_lost(t, s, rc);
        if (rc < 0) { /* the sender has closed; data that it has sent can still be read */
            s->acks_due = s->acks_late = 0;
            return 0;
        }
        s->answered = true;
        s->ack_now = false;
        s->acks_due -= n;
        s->acks_late = s->acks_due < s->acks_late ? s->acks_due : s->acks_late;
        t->stats.zerocopy_acks += n;
    }
    int rc = beside_entries ? tcp_rx_send_entries(t) : 0;
    return rc == -EAGAIN ? 0 : rc;
}

/* True if the sender waits for one of the acknowledgements that are due. */
static bool acks_are_wanted(const struct stream *s)
{
    return s->acks_due > s->acks_late || s->ack_now;
}

int tcp_rx_acknowledge(struct tcp_lane *t)
{
    int rc = 0;
    for (int i = 0; i < t->nstreams && rc == 0; i++)
        if (t->s[i].acks_due && acks_are_wanted(&t->s[i]))
            rc = send_acks(t, &t->s[i]);
    return rc;
}

/* Leaves the stream to the poller, after it has sent the acknowledgements that wait for more. */
static int leave_idle(struct tcp_lane *t, struct stream *s)
{
    int rc = s->acks_due ? send_acks(t, s) : 0;
    return rc < 0 ? rc : tcp_go_idle(t, s);
}

/* True if a reset may only be the close of a sender that did not wait for its late
 * acknowledgements. */
static bool may_be_closed(const struct stream *s)
{
    return !s->have_frame && staged(s) == 0 && s->flags & PVN_FRAME_ACK_LATER;
}

static int poll_stream(struct tcp_lane *t, struct stream *s, struct pvn_event *ev, int max, int *n)
{
    size_t budget = RX_BUDGET;
    bool more = true;
    if (s->with_worker && tcp_job_busy(s->job))
        return 0;
    int rc = tcp_rx_take_job(t, s);
    while (rc == 0) {
        rc = parse(t, s, ev, max, n);
        if (rc < 0 || s->stalled || *n == max || s->eof || budget == 0 || !more)
            return rc;
        if (give_to_worker(t, s) || !worth_reading(s))
            return 0;
        ssize_t got = read_some(t, s, &more);
        if (got == -EAGAIN) {
            s->empty++;
            wait_for_more(s);
            return worth_idling(t, s) ? leave_idle(t, s) : 0;
        }
        if (got < 0 && !(got == -ECONNRESET && may_be_closed(s)))
            return tcp_dead(t, s, (int)got, "receiving");
        s->empty = 0;
        if (got <= 0)
            return end_of_stream(t, s);
        if (!more)
            wait_for_more(s);
        budget -= (size_t)got < budget ? (size_t)got : budget;
    }
    return rc;
}

/* Declares the stream one-way before a small message is expected, see pvn_tcp_sockopt_one_way. Not
 * if every message is answered, because the kernel's own acknowledgements then travel with the
 * answers. */
static void be_one_way(const struct tcp_lane *t, struct stream *s)
{
    bool rarely = !t->cfg.acknowledged || s->flags & PVN_FRAME_ACK_LATER;
    if (s->answered && s->stage_want == RX_STAGE && rarely && !t->cts) {
        pvn_tcp_sockopt_one_way(s->fd);
        s->answered = false;
    }
}

/* A stream is lost. Events of other streams, which may be acknowledged already, are reported
 * first. */
static int events_before_error(int rc, int others)
{
    return others > 0 ? others : rc;
}

/* A number from 0 to n. Lanes that call one after the other get numbers that are far apart:
 * multiples of the golden ratio. */
static unsigned part_of(unsigned n, unsigned seen)
{
    return (unsigned)((uint64_t)(uint32_t)(seen * 2654435769u) * (n + 1) >> 32);
}

/*
 * If all streams are idle, the engine reads the words of their watches instead of calling poll. It
 * still calls poll now and then, because somebody has to query the kernel: about one comm in each
 * pass over the thread's comms. Most comms become idle in the same pass. If each then skipped as
 * many polls as it has neighbours, all would query in the same pass, and none in the passes
 * between. So a comm skips half as many and a part that differs by lane.
 */
static void watch_idle(struct tcp_lane *t)
{
    struct pvn_lane_watch *w = &t->l.watch;
    struct stream *first = &t->s[0], *last = &t->s[t->nstreams - 1];
    if (t->nstreams > 2 || !first->idle || !last->idle || first->acks_due || last->acks_due ||
        (t->cts && tcp_cts_is_due(t)))
        return;
    w->at[0] = pvn_poller_word(first->watch, &w->same[0]);
    w->at[1] = pvn_poller_word(last->watch, &w->same[1]);
    unsigned polls = t->neighbours < RX_WATCH_POLLS ? t->neighbours : RX_WATCH_POLLS;
    w->polls = w->granted = (int)((t->spread ? polls / 2 : 0) + part_of(polls, t->empty_seen));
    t->spread = true;
}

/* Records the end-of-stream state. True if it is the state of the last poll, too, and the engine
 * expects no more. */
static bool check_end(struct tcp_lane *t, enum pvn_lane_end end)
{
    bool again = end == t->l.end && end != PVN_LANE_GOES_ON;
    t->l.end = end;
    return again && t->l.over(t->l.engine);
}

int tcp_rx_poll(struct tcp_lane *t, struct pvn_event *ev, int max)
{
    int n = 0, ended = 0, stalled = 0;
    bool polled = false;
    if (t->l.err.code)
        return t->l.err.code;
    if (t->cts && tcp_cts_is_due(t)) {
        int rc = tcp_rx_send_entries(t);
        if (rc < 0 && rc != -EAGAIN)
            return rc;
    }
    for (int i = 0; i < t->nstreams; i++) {
        struct stream *s = &t->s[i];
        /* Acknowledgements that found no room go out even if no more data arrives. */
        int rc = s->acks_due && acks_are_wanted(s) ? send_acks(t, s) : 0, others = n;
        if (rc < 0)
            return events_before_error(rc, others);
        if (s->idle) {
            if (!polled)
                pvn_poller_poll(PVN_POLLER_EAGER_NS);
            polled = true;
            if (!pvn_poller_ready(s->watch))
                continue;
            s->idle = false;
        }
        rc = poll_stream(t, s, ev, max, &n);
        if (rc == 0 && (s->ack_now || (s->acks_due > 1 && acks_are_wanted(s))))
            rc = send_acks(t, s);
        be_one_way(t, s);
        if (rc < 0)
            return events_before_error(rc, others);
        ended += s->eof;
        stalled += s->stalled;
    }
    enum pvn_lane_end end = PVN_LANE_GOES_ON;
    if (__builtin_expect(ended > 0, 0) && n == 0 && ended + stalled == t->nstreams)
        end = stalled ? PVN_LANE_HALTED : PVN_LANE_ENDED;
    if (check_end(t, end))
        return tcp_dead(t, &t->s[0], -ECONNRESET, "receiving: the peer has closed the connection");
    watch_idle(t);
    return n;
}
