/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The TCP lane's operations, creation and end; see tcp_lane.h. */
#include "net-tcp/tcp_priv.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "connect/sock.h"
#include "net-tcp/tcp_pace.h"

static int tcp_poll(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct tcp_lane *t = tcp_of(l);
    if (t->cfg.sender)
        return tcp_tx_poll(t, ev, max);
    /* At most twice the last count, because after a pause the count covers many passes. */
    unsigned others = tcp_empty_polls - t->empty_seen;
    unsigned most = 2 * t->neighbours + 1;
    t->neighbours = others < most ? others : most;
    int n = tcp_rx_poll(t, ev, max);
    tcp_empty_polls += n == 0;
    t->empty_seen = tcp_empty_polls;
    return n;
}

/* Takes the stream's job back from its worker. In a forked child the worker belongs to the
 * parent. */
static void end_job(struct tcp_lane *t, struct stream *s)
{
    if (!s->job || pvn_fork_in_child(t->epoch))
        return;
    tcp_job_cancel(s->job);
    /* The lane ends: an error of the stream changes nothing. */
    if (t->cfg.sender)
        (void)tcp_tx_take_job(t, s);
    else
        (void)tcp_rx_take_job(t, s);
}

static void close_stream(struct tcp_lane *t, struct stream *s)
{
    end_job(t, s);
    pvn_poller_remove(s->watch);
    s->watch = NULL;
    if (s->fd < 0)
        return;
    tcp_rx_take_peeked(s);
    if (t->cts && t->cfg.sender && s == &t->s[0])
        tcp_cts_drop(s);
    tcp_zerocopy_close(t, s);
    pvn_seal_free(s->seal);
    s->seal = NULL;
    pvn_sock_close(s->fd);
    s->fd = -1;
}

/* Makes the lane send late acknowledgements, and read them. Called about ten times a second. */
static void hurry_late_acks(struct tcp_lane *t)
{
    t->settle_late = true;
    for (int i = 0; i < t->nstreams; i++)
        t->s[i].ack_now |= t->s[i].acks_late > 0;
}

/* Detects a path that has died. Data that the peer's kernel acknowledges without taking it (a full
 * receive window) may wait, because the peer's process may read it later. */
static int tcp_overdue(struct pvn_lane *l, uint64_t now_ns, uint64_t peer_ready_ns)
{
    struct tcp_lane *t = tcp_of(l);
    uint64_t limit = pvn_path_limit(t->cfg.acknowledged), longest = 0;
    (void)peer_ready_ns;
    hurry_late_acks(t);
    if (limit == 0 || t->fenced || l->err.code)
        return l->err.code;
    for (int i = 0; i < t->nstreams; i++) {
        struct stream *s = &t->s[i];
        uint64_t silent = s->fd < 0 ? 0 : pvn_path_silent(&s->path, s->fd, now_ns);
        if (silent >= limit)
            return tcp_dead(t, s, -ETIMEDOUT,
                            "waiting for an acknowledgement by the peer's machine");
        longest = silent > longest ? silent : longest;
    }
    /* -EAGAIN has the peer queried on the control connection: the path may be dead, or lose large
     * packets. */
    return longest >= limit / 2 ? -EAGAIN : 0;
}

/* Any thread may call this, so it touches nothing of the lane but its jobs. */
static void tcp_mem_revoke(struct pvn_lane *l, const void *addr, size_t len)
{
    struct tcp_lane *t = tcp_of(l);
    for (int i = 0; i < t->cfg.streams; i++)
        if (t->s[i].job)
            tcp_job_revoke(t->s[i].job, addr, len);
}

static size_t tcp_left(const struct pvn_lane *l)
{
    const struct tcp_lane *t = (const struct tcp_lane *)l;
    size_t sum = t->queued_bytes;
    for (int i = 0; i < t->nstreams; i++) {
        int unacknowledged = 0;
        if (t->s[i].count > 0)
            sum++;
        if (t->s[i].fd >= 0 && ioctl(t->s[i].fd, SIOCOUTQ, &unacknowledged) == 0)
            sum += (size_t)unacknowledged;
    }
    return sum;
}

/* The caller's memory is accessed only by this end's own calls, and by the kernel for zero-copy
 * chunks that are not acknowledged. close_stream resets the streams of such chunks. */
static int tcp_fence(struct pvn_lane *l)
{
    struct tcp_lane *t = tcp_of(l);
    for (int i = 0; i < t->cfg.streams; i++)
        close_stream(t, &t->s[i]);
    t->fenced = true;
    return 0;
}

/* A receiver has nothing to drain: its polls report at once the chunks that they have placed. */
static int tcp_drain(struct pvn_lane *l, struct pvn_event *ev, int max)
{
    struct tcp_lane *t = tcp_of(l);
    return t->cfg.sender ? tcp_tx_report(t, ev, max) : 0;
}

/* In a forked child the workers and their jobs belong to the parent. */
static void free_workers(struct tcp_lane *t)
{
    if (!t->has_workers || pvn_fork_in_child(t->epoch))
        return;
    for (int i = 0; i < t->cfg.streams; i++)
        tcp_job_free(t->s[i].job);
    tcp_workers_put();
}

static void tcp_close(struct pvn_lane *l)
{
    struct tcp_lane *t = tcp_of(l);
    for (int i = 0; i < t->cfg.streams; i++) {
        close_stream(t, &t->s[i]);
        free(t->s[i].stage);
        tcp_free_landing(&t->s[i]);
    }
    free_workers(t);
    tcp_tx_free(t);
    tcp_cts_free(t);
    free(t->dial_err);
    free(t);
}

/* Reports the first stream's own address. The peer's address is that of its control connection,
 * except for the port. */
static void tcp_locate(const struct pvn_lane *l, struct pvn_err *err)
{
    const struct tcp_lane *t = (const struct tcp_lane *)l;
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    char addr[PVN_ADDR_TEXT_LEN];
    if (getsockname(t->s[0].fd, (struct sockaddr *)&ss, &len) != 0)
        return;
    pvn_err_set_where(err, "%s %s", t->cfg.name,
                      pvn_addr_format((const struct sockaddr *)&ss, addr, sizeof(addr)));
}

static int tcp_describe(const struct pvn_lane *l, char *buf, size_t cap)
{
    const struct tcp_lane *t = (const struct tcp_lane *)l;
    char copies[96] = "", workers[48] = "", sealed[64] = "";
    if (t->zerocopy_min)
        snprintf(copies, sizeof(copies), ", zero-copy from %zu bytes on (%s)", t->zerocopy_min,
                 tcp_trial_text(t));
    if (t->has_workers)
        snprintf(workers, sizeof(workers), ", copied by %d threads of this process",
                 t->cfg.workers);
    if (t->s[0].seal)
        snprintf(sealed, sizeof(sealed), ", sealed (%s%s)", pvn_seal_suite(t->s[0].seal),
                 pvn_seal_is_by_kernel(t->s[0].seal) ? ", by the kernel" : "");
    return snprintf(buf, cap, "tcp on %s, %d stream%s, chunks of %zu bytes%s%s%s%s", t->cfg.name,
                    t->nstreams, t->nstreams == 1 ? "" : "s", t->l.max_chunk, copies, workers,
                    t->cts ? ", clear-to-send" : "", sealed);
}

static void tcp_count(const struct pvn_lane *l, struct pvn_lane_counters *sum)
{
    const struct tcp_lane *t = (const struct tcp_lane *)l;
    for (int i = 0; i < t->nstreams; i++) {
        struct tcp_info info;
        socklen_t len = sizeof(info);
        if (getsockopt(t->s[i].fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
            continue;
        sum->retransmits += info.tcpi_total_retrans;
        sum->retransmits_known = true;
    }
}

static const struct pvn_lane_ops tcp_ops = {
    .name = "tcp",
    .is_fallback = true,
    .offer = tcp_offer,
    .bind = tcp_bind,
    .adopt = tcp_adopt,
    .verify = tcp_verify,
    .overdue = tcp_overdue,
    .left = tcp_left,
    .fence = tcp_fence,
    .drain = tcp_drain,
    .close = tcp_close,
    .locate = tcp_locate,
    .describe = tcp_describe,
    .count = tcp_count,
    .mem_reg = pvn_lane_ok_reg,
    .mem_dereg = pvn_lane_ok_dereg,
    .mem_revoke = tcp_mem_revoke,
    .last_post = pvn_lane_no_last_post,
    .join = pvn_lane_no_join,
    .stop = pvn_lane_nothing,
};

static const struct pvn_lane_data_ops tcp_data = {
    .post_cts = tcp_post_cts,
    .next_slot = tcp_next_slot,
    .post_write = tcp_post_write,
    .post_flush = pvn_lane_no_post_flush,
    .kick = tcp_kick,
    .poll = tcp_poll,
    .copy_out = pvn_lane_no_copy,
};

/* Without workers the comm's thread makes all system calls itself. */
static void get_workers(struct tcp_lane *t)
{
    char why[128];
    int rc;
    if (t->cfg.workers <= 0)
        return;
    rc = tcp_workers_get(t->cfg.workers);
    t->has_workers = rc == 0;
    if (rc)
        pvn_info(PVN_NET, "%s: no worker threads for TCP (%s): NCCL's thread copies by itself",
                 t->cfg.name, pvn_strerror(rc, why, sizeof(why)));
    for (int i = 0; t->has_workers && i < t->cfg.streams; i++)
        t->s[i].job = tcp_job_new();
}

static int allocate(struct tcp_lane *t)
{
    get_workers(t);
    if (t->cfg.clear_to_send && tcp_cts_new(t) < 0)
        return -ENOMEM;
    if (t->cfg.sender) {
        t->q = malloc(TXQ * sizeof(*t->q));
        t->late = malloc(PVN_MAX_SENDS * sizeof(*t->late));
        return t->q && t->late ? 0 : -ENOMEM;
    }
    for (int i = 0; i < t->cfg.streams; i++) {
        t->s[i].stage = malloc(RX_STAGE);
        if (!t->s[i].stage)
            return -ENOMEM;
    }
    return 0;
}

struct pvn_lane *pvn_tcp_lane_new(const struct pvn_tcp_lane_cfg *cfg)
{
    if (cfg->streams < 1 || cfg->streams > PVN_TCP_MAX_STREAMS || cfg->chunk == 0 ||
        cfg->dial_to_len > PVN_TCP_DIAL_MAX || (cfg->sender && (!cfg->dial || !cfg->preamble))) {
        errno = EINVAL;
        return NULL;
    }
    struct tcp_lane *t = calloc(1, sizeof(*t) + (size_t)cfg->streams * sizeof(t->s[0]));
    if (!t)
        return NULL;
    t->cfg = *cfg;
    t->epoch = pvn_fork_epoch();
    t->l.ops = &tcp_ops;
    t->l.data = &tcp_data;
    t->l.sender = cfg->sender;
    t->l.caps = PVN_LANE_ENDS | PVN_LANE_GPU_COPIED |
                (cfg->acknowledged ? PVN_LANE_SENT_IS_DELIVERED : 0) |
                (cfg->clear_to_send ? PVN_LANE_NEEDS_CTS | PVN_LANE_PLACES : 0) |
                (cfg->secret ? PVN_LANE_SEALED : 0);
    t->l.max_chunk = cfg->chunk;
    t->empty_seen = tcp_empty_polls - 1; /* makes the first message a lone one */
    for (int i = 0; i < t->cfg.streams; i++) {
        t->s[i].fd = -1;
        t->s[i].io = &pvn_sockio_plain;
        tcp_zerocopy_init(&t->s[i]);
        t->s[i].stage_want = RX_STAGE;
    }
    if (allocate(t) < 0) {
        tcp_close(&t->l);
        errno = ENOMEM;
        return NULL;
    }
    return &t->l;
}

const struct pvn_tcp_lane_stats *pvn_tcp_lane_get_stats(const struct pvn_lane *l)
{
    return &((const struct tcp_lane *)l)->stats;
}
