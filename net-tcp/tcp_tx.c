/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The sending side of the TCP lane: the queue, the streams' runs of chunks, vectored writes,
 * batching. */
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "net-tcp/tcp_pace.h"

enum {
    /* Queued bytes that are sent at once: three messages of 64 KiB, which gain by sharing a call.
     * Longer messages do not gain (tests/bench/NOTES.md, batches of medium messages). */
    SEND_NOW_BYTES = 160 * 1024,
    TURN_BYTES = 16 * 1024, /* after so many bytes the next call begins with another stream */
    HALVE_FROM = 60 * 1024, /* bytes; a lone payload from here to HALVE_TO is sent in two halves */
    HALVE_TO = 96 * 1024
};

__thread unsigned tcp_empty_polls;
static __thread unsigned tx_polls; /* polls of the thread's senders */

static struct tx_frame *frame_at(struct tcp_lane *t, uint32_t pos)
{
    return &t->q[pos % TXQ];
}

static size_t frame_len(const struct tx_frame *f)
{
    return f->head_len + f->len;
}

static const struct pvn_mem_copy *copy_of(const struct pvn_write *w)
{
    return w->mr && w->f.len ? w->mr->copy : NULL;
}

static bool may_zerocopy(const struct tcp_lane *t, const struct pvn_write *w)
{
    return t->zerocopy_min && w->f.len >= t->zerocopy_min && !copy_of(w) &&
           t->open_bytes + w->f.len <= TX_ZEROCOPY_BYTES;
}

static void choose_method(struct tcp_lane *t, struct tx_frame *f, const struct pvn_write *w)
{
    f->zerocopy = f->probe = f->timed = false;
    if (__builtin_expect(!may_zerocopy(t, w), 1))
        return;
    enum tcp_method method = tcp_trial_choose(t);
    f->zerocopy = method == TCP_SPLICED;
    f->probe = method == TCP_PROBE;
    f->timed = t->trial.step == TRIAL_MEASURE;
}

/* Copies the payload to memory that the kernel can read. */
__attribute__((noinline, cold)) static int copy_payload(struct tcp_lane *t, struct tx_frame *f,
                                                        const struct pvn_write *w)
{
    struct pvn_err err = PVN_ERR_INIT;
    if (t->copied_bytes && t->copied_bytes + w->f.len > TX_COPIED_BYTES)
        return -EAGAIN;
    const struct pvn_mem_copy *c = copy_of(w);
    uint8_t *copied = c->take(c, w->f.len);
    int rc = copied ? c->to_host(c, copied, w->src, w->f.len, &err)
                    : pvn_err_set(&err, -ENOMEM, "no memory for %u bytes of GPU memory", w->f.len);
    if (rc) {
        if (copied)
            c->give(c, copied);
        t->l.err = err;
        t->l.wrong = true;
        return rc;
    }
    f->copied = copied;
    f->copied_by = c;
    t->copied_bytes += w->f.len;
    return 0;
}

static void free_copied(struct tcp_lane *t, struct tx_frame *f)
{
    if (!f->copied)
        return;
    t->copied_bytes -= f->len;
    f->copied_by->give(f->copied_by, f->copied);
    f->copied = NULL;
}

void tcp_tx_free(struct tcp_lane *t)
{
    for (; t->freed != t->tail; t->freed++)
        free_copied(t, frame_at(t, t->freed));
    free(t->q);
    free(t->late);
}

int tcp_post_write(struct pvn_lane *l, const struct pvn_write *w)
{
    struct tcp_lane *t = tcp_of(l);
    if (t->tail - t->freed == TXQ || (w->kept && t->kept == PVN_MAX_SENDS))
        return -EAGAIN;
    struct tx_frame *f = frame_at(t, t->tail);
    f->copied = NULL;
    if (__builtin_expect(copy_of(w) != NULL, 0)) {
        int rc = copy_payload(t, f, w);
        if (rc)
            return rc;
    }
    t->lone = t->empty_seen != tcp_empty_polls && t->assigned == t->tail;
    t->empty_seen = tcp_empty_polls;
    f->state = TX_QUEUED;
    f->chunk = w->f.chunk;
    f->cookie = w->cookie;
    choose_method(t, f, w);
    f->needs_ack = f->zerocopy || f->probe || t->cfg.acknowledged;
    bool copied = !f->zerocopy && !f->probe;
    f->kept = w->kept && t->cfg.acknowledged && copied;
    t->kept += f->kept;
    pvn_frame_encode(
        &w->f,
        (f->needs_ack ? PVN_FRAME_NEEDS_ACK : 0u) | (f->kept ? PVN_FRAME_ACK_LATER : 0u) |
            (f->needs_ack && copied ? PVN_FRAME_COPIED : 0u) | (t->paced ? PVN_FRAME_PACED : 0u),
        f->head);
    f->head_len = PVN_FRAME_LEN;
    if (w->f.len <= TX_INLINE && !f->copied) {
        if (w->f.len)
            memcpy(f->head + PVN_FRAME_LEN, w->src, w->f.len);
        f->head_len = (uint16_t)(PVN_FRAME_LEN + w->f.len);
        f->src = NULL;
        f->len = 0;
    } else {
        f->src = f->copied ? f->copied : w->src;
        f->len = w->f.len;
    }
    t->queued_bytes += frame_len(f);
    t->open_bytes += f->len;
    t->tail++;
    t->idle_polls = 0;
    return 0;
}

/* Reports the chunks of a stream's new run. */
__attribute__((noinline, cold)) static void trace_run(struct tcp_lane *t, const struct stream *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        const struct tx_frame *f = frame_at(t, s->first + i);
        struct pvn_transfer x = {.id = f->cookie, .chunk = f->chunk, .fd = s->fd};
        x.len = frame_len(f) - PVN_FRAME_LEN;
        t->l.trace(&t->l, &x);
    }
}

/* Gives a stream without a run the next chunks in order. */
static void assign_run(struct tcp_lane *t, struct stream *s)
{
    size_t bytes = 0;
    s->first = t->assigned;
    s->count = 0;
    s->done = 0;
    while (t->assigned != t->tail && s->count < TX_RUN) {
        struct tx_frame *f = frame_at(t, t->assigned);
        size_t len = frame_len(f);
        if (s->count > 0 && bytes + len > TX_RUN_BYTES)
            break;
        f->state = TX_ASSIGNED;
        bytes += len;
        t->queued_bytes -= len;
        t->assigned++;
        s->count++;
    }
    if (__builtin_expect(t->l.trace != NULL, 0))
        trace_run(t, s);
}

static bool is_zerocopy(const struct tcp_lane *t, const struct tx_frame *f)
{
    return f->zerocopy && t->zerocopy_min;
}

/* The rest of a frame after its first `skip` bytes, as one or two pieces. */
static int pieces(struct tx_frame *f, size_t skip, struct iovec *iov)
{
    int n = 0;
    if (skip < f->head_len)
        iov[n++] = (struct iovec){f->head + skip, f->head_len - skip};
    skip = skip > f->head_len ? skip - f->head_len : 0;
    if (f->len)
        iov[n++] = (struct iovec){(void *)(uintptr_t)(f->src + skip), f->len - skip};
    return n;
}

/* Gathers the bytes of the run that one call or job can write: those before the next zero-copy
 * chunk. *acks: how many of these chunks request an acknowledgement. */
static int gather(struct tcp_lane *t, const struct stream *s, struct iovec *iov, uint32_t *acks)
{
    int n = pieces(frame_at(t, s->first), s->done, iov);
    *acks = frame_at(t, s->first)->needs_ack;
    for (uint32_t i = 1; i < s->count; i++) {
        struct tx_frame *f = frame_at(t, s->first + i);
        if (is_zerocopy(t, f) || f->probe)
            break;
        n += pieces(f, 0, iov + n);
        *acks += f->needs_ack;
    }
    return n;
}

/* Records that the kernel has all bytes of a frame. */
static void written(struct tcp_lane *t, struct stream *s, struct tx_frame *f)
{
    f->stream = (uint8_t)(s - t->s);
    f->state = f->kept ? TX_TAKEN : f->needs_ack ? TX_UNACKED : TX_SENT;
    if (!f->needs_ack)
        return;
    f->ack_nth = ++s->acks_requested;
    if (f->kept)
        t->late[t->late_tail++ % PVN_MAX_SENDS] =
            (struct late_ack){.cookie = f->cookie, .ack_nth = f->ack_nth, .stream = f->stream};
    else
        t->unacked++;
}

/* Marks the chunks that `sent` more bytes have completed. */
static void advance(struct tcp_lane *t, struct stream *s, size_t sent)
{
    s->done += sent;
    while (s->count > 0) {
        struct tx_frame *f = frame_at(t, s->first);
        if (s->done < frame_len(f))
            return;
        s->done -= frame_len(f);
        written(t, s, f);
        s->first++;
        s->count--;
    }
}

/*
 * True for a lone message, for which the peer is likely to wait, of about the size of one large
 * packet. Linux builds packets of up to 45 segments (64 KiB on Ethernet) and sends each when it is
 * full. A payload of a little more than one packet reaches the peer only when nearly all of it has
 * been copied here, and the short second packet arrives while the peer copies the first. With
 * halves both ends copy at the same time.
 */
static bool worth_halving(const struct tcp_lane *t, const struct stream *s, size_t len)
{
    return t->lone && t->cfg.batch && s->count == 1 && s->done == 0 && len >= HALVE_FROM &&
           len <= HALVE_TO;
}

/* Writes once: bytes written, -EAGAIN or an error. */
static ssize_t write_some(struct tcp_lane *t, struct stream *s)
{
    struct tx_frame *f = frame_at(t, s->first);
    struct iovec iov[2 * TX_RUN];
    t->stats.tx_calls++;
    if (is_zerocopy(t, f)) {
        ssize_t n = tcp_zerocopy_write(s, iov, pieces(f, s->done, iov));
        if (n > 0)
            t->stats.zerocopy_bytes += (uint64_t)n;
        if (n != -EOPNOTSUPP)
            return n;
        t->zerocopy_min = 0;
    }
    if (f->probe && t->trial.step == TRIAL_PATH) {
        struct msghdr mh = {.msg_iov = iov};
        mh.msg_iovlen = (size_t)pieces(f, s->done, iov);
        return tcp_trial_probe(t, s, &mh);
    }
    uint32_t unused;
    int n = gather(t, s, iov, &unused);
    if (worth_halving(t, s, f->len))
        iov[1].iov_len = f->len / 2;
    return s->io->sendv(s->fd, s->seal, iov, n);
}

/* Leaves the run to a worker if that pays. */
static bool give_to_worker(struct tcp_lane *t, struct stream *s)
{
    struct tcp_job *j = s->job;
    uint32_t acks;
    if (!j || is_zerocopy(t, frame_at(t, s->first)))
        return false;
    _Static_assert(TCP_JOB_PIECES >= 2 * TX_RUN, "a job holds any run");
    j->npieces = gather(t, s, j->piece, &acks);
    j->need = 0;
    for (int i = 0; i < j->npieces; i++)
        j->need += j->piece[i].iov_len;
    if (j->need < t->cfg.worker_min)
        return false;
    j->fd = s->fd;
    j->io = s->io;
    j->seal = s->seal;
    j->sends = true;
    tcp_job_post(j);
    s->with_worker = true;
    s->job_acks = acks;
    t->stats.jobs++;
    return true;
}

int tcp_tx_take_job(struct tcp_lane *t, struct stream *s)
{
    if (!s->with_worker)
        return 0;
    if (s->job->revoked)
        return tcp_revoked(t, s);
    s->with_worker = false;
    s->job_acks = 0;
    t->stats.tx_calls += s->job->calls;
    t->stats.tx_bytes += s->job->moved;
    advance(t, s, s->job->moved);
    return s->job->rc ? tcp_dead(t, s, s->job->rc, "sending") : 0;
}

/* write_some, timed if a trial measures the chunk. */
static ssize_t write_timed(struct tcp_lane *t, struct stream *s)
{
    const struct tx_frame *f = frame_at(t, s->first);
    uint64_t from = __builtin_expect(f->timed, 0) ? tcp_trial_from(t) : 0;
    bool spliced = is_zerocopy(t, f);
    ssize_t n = write_some(t, s);
    if (from)
        tcp_trial_to(t, spliced, from, n);
    return n;
}

/* Writes as much of the stream's run as the kernel takes, and subtracts the bytes written from
 * *budget. 0, -EAGAIN or an error. */
static int write_run(struct tcp_lane *t, struct stream *s, size_t *budget)
{
    while (s->count > 0) {
        ssize_t n = write_timed(t, s);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN) {
            t->stats.tx_full++;
            return -EAGAIN;
        }
        if (n < 0)
            return tcp_dead(t, s, (int)n, "sending");
        t->stats.tx_bytes += (uint64_t)n;
        advance(t, s, (size_t)n);
        *budget -= (size_t)n < *budget ? (size_t)n : *budget;
    }
    return 0;
}

/* Gives every stream that has work a turn, until the budget is spent. The stream that begins
 * rotates, but not after small messages: they stay on one stream, so the other streams cost the
 * receiver no call. */
static int pump(struct tcp_lane *t)
{
    size_t budget = TX_BUDGET;
    int at = t->next_stream;
    bool large = false;
    for (int i = 0; i < t->nstreams && budget > 0; i++) {
        struct stream *s = &t->s[at];
        int rc = s->with_worker && tcp_job_busy(s->job) ? -EAGAIN : tcp_tx_take_job(t, s);
        while (rc == 0 && budget > 0 && (s->count > 0 || t->assigned != t->tail)) {
            if (s->count == 0)
                assign_run(t, s);
            rc = give_to_worker(t, s) ? -EAGAIN : write_run(t, s, &budget);
            large |= s->with_worker;
        }
        if (rc < 0 && rc != -EAGAIN)
            return rc;
        at = at + 1 == t->nstreams ? 0 : at + 1;
    }
    if (large || TX_BUDGET - budget >= TURN_BYTES)
        t->next_stream = t->next_stream + 1 == t->nstreams ? 0 : t->next_stream + 1;
    return 0;
}

/*
 * Messages of a busy thread share a system call. A message waits until the caller has nothing more
 * to add (two polls without a new message: its window is full, or it waits for something else), or
 * until enough is queued. The receiver needs fewer calls, too, because the header of the next
 * message arrives with the end of the one before. A lone message is sent at once. No message stays
 * behind: a request is not done until the kernel has its bytes, so its owner keeps calling test.
 */
static bool worth_sending(const struct tcp_lane *t)
{
    if (t->assigned == t->tail)
        return false;
    return t->lone || !t->cfg.batch || t->idle_polls > 1 || t->queued_bytes >= SEND_NOW_BYTES ||
           t->tail - t->assigned >= TX_RUN;
}

static bool any_run(const struct tcp_lane *t)
{
    for (int i = 0; i < t->nstreams; i++)
        if (t->s[i].count > 0)
            return true;
    return false;
}

int tcp_kick(struct pvn_lane *l)
{
    struct tcp_lane *t = tcp_of(l);
    if (!t->cfg.sender) {
        int rc = l->idle ? tcp_rx_acknowledge(t) : 0;
        return rc == 0 && t->cts ? tcp_rx_send_entries(t) : rc;
    }
    return worth_sending(t) ? pump(t) : 0;
}

/* Reports kept messages that the peer has acknowledged. Messages with consecutive ids share an
 * event. */
static int report_late(struct tcp_lane *t, struct pvn_event *ev, int max)
{
    int n = 0;
    while (t->late_head != t->late_tail) {
        const struct late_ack *a = &t->late[t->late_head % PVN_MAX_SENDS];
        if ((int32_t)(t->s[a->stream].acks_taken - a->ack_nth) < 0)
            break;
        if (n > 0 && a->cookie == pvn_id(ev[n - 1].id + ev[n - 1].more + 1))
            ev[n - 1].more++;
        else if (n < max)
            ev[n++] = (struct pvn_event){.kind = PVN_EV_SENT, .id = a->cookie};
        else
            break;
        t->late_head++;
        t->kept--;
    }
    return n;
}

/* Reports completed chunks in any order, so that a slow stream delays no other request. */
int tcp_tx_report(struct tcp_lane *t, struct pvn_event *ev, int max)
{
    int n = report_late(t, ev, max);
    for (uint32_t p = t->freed; p != t->assigned && n < max; p++) {
        struct tx_frame *f = frame_at(t, p);
        if (f->state != TX_SENT && f->state != TX_TAKEN)
            continue;
        ev[n++] = (struct pvn_event){.kind = f->state == TX_SENT ? PVN_EV_SENT : PVN_EV_TAKEN,
                                     .id = f->cookie,
                                     .chunk = f->chunk};
        f->state = TX_FREE;
        t->open_bytes -= f->len;
        free_copied(t, f);
    }
    while (t->freed != t->assigned && frame_at(t, t->freed)->state == TX_FREE)
        t->freed++;
    return n;
}

static bool worth_settling(const struct tcp_lane *t)
{
    uint32_t late = t->late_tail - t->late_head;
    return t->unacked > 0 || late >= LATE_ACKS || (late > 0 && t->settle_late);
}

/* Reading acknowledgements costs a system call, so a lane that found none skips some polls. An
 * acknowledgement that is read a few polls late delays only the end of a request whose bytes have
 * arrived. */
static int look_for_acks(struct tcp_lane *t)
{
    uint64_t before = t->stats.zerocopy_acks;
    if (tx_polls - t->settled_at < TX_SETTLE_AFTER)
        return 0;
    int rc = tcp_zerocopy_settle(t);
    t->settle_late = false;
    if (t->stats.zerocopy_acks == before)
        t->settled_at = tx_polls;
    return rc;
}

/* Reads clear-to-send entries, unless the stream is idle and the poller reports no data. The next
 * entry, or NULL; *rc: 0 or an error of the stream. */
static const struct pvn_cts *look_for_entry(struct tcp_lane *t, int *rc)
{
    struct stream *s = &t->s[0];
    *rc = t->l.err.code;
    if (*rc == 0 && s->idle) {
        pvn_poller_poll(PVN_POLLER_EAGER_NS);
        s->idle = !pvn_poller_ready(s->watch);
    }
    if (*rc < 0 || s->idle)
        return NULL;
    *rc = tcp_answers_take(t, s, true);
    tcp_zerocopy_mark(t);
    const struct pvn_cts *next = tcp_cts_next(t);
    s->empty = next ? 0 : s->empty + 1;
    if (*rc == 0 && s->empty >= RX_IDLE_AFTER)
        *rc = tcp_go_idle(t, s);
    return next;
}

int tcp_next_slot(struct pvn_lane *l, const struct pvn_cts **cts)
{
    struct tcp_lane *t = tcp_of(l);
    int rc = 0;
    if (!t->cts)
        return 0;
    *cts = tcp_cts_next(t);
    if (!*cts)
        *cts = look_for_entry(t, &rc);
    return *cts ? 1 : rc;
}

int tcp_tx_poll(struct tcp_lane *t, struct pvn_event *ev, int max)
{
    tx_polls++;
    if (t->idle_polls < 2)
        t->idle_polls++;
    /* A stream in the middle of a run continues. Chunks that are only queued may wait for more. */
    if (any_run(t) || worth_sending(t)) {
        int rc = pump(t);
        if (rc < 0)
            return rc;
    }
    if (worth_settling(t)) {
        int rc = look_for_acks(t);
        if (rc < 0)
            return rc;
    }
    int n = tcp_tx_report(t, ev, max);
    /* Events that came before an error are reported before it. */
    return n == 0 ? t->l.err.code : n;
}
