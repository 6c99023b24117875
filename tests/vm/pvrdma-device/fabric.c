/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fabric.c: messages between the QEMUs of a fabric, and their execution by the responder. One thread writes and one
 * reads. The responder acknowledges a request by a response after it has executed it. A request that needs a receive
 * waits at the responder until there is one. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_PEERS = 64, BURST = 64 };

/* A connection, which is never freed. Either we made it, for our requests, or we accepted it and send responses
 * back. */
struct peer {
    int fd; /* -1 after its end; the descriptor stays open, because the sending thread may use it */
    char path[108];
    bool made_here;
    struct peer *next;
    size_t got; /* bytes read of the present frame and message */
    struct frame frame;
    struct message *message;
};

static struct peer *peers;
static struct outgoing *out_head, **out_tail = &out_head;
static pthread_cond_t out_ready = PTHREAD_COND_INITIALIZER;
static int wake_fd = -1; /* informs the reading thread of a new peer */

/* -- sending ----------------------------------------------------------------------------------- */

void stand_push(struct outgoing *t)
{
    t->next = NULL;
    *out_tail = t;
    out_tail = &t->next;
    pthread_cond_signal(&out_ready);
}

static bool write_all(int fd, struct iovec *v, int n)
{
    static const char zeros[65536];

    while (n) {
        struct msghdr h = {.msg_iov = v, .msg_iovlen = n};
        ssize_t k = sendmsg(fd, &h, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EFAULT) {
            /* The guest removed memory during a send. This call sent nothing, not even the parts before that memory, so
             * the next part is sent alone. Zeros replace a part that is gone, so that the framing stays correct. */
            while (n && !v->iov_len) {
                v++;
                n--;
            }
            k = n ? send(fd, v->iov_base, v->iov_len, MSG_NOSIGNAL) : 0;
            if (k < 0 && errno == EFAULT)
                k = send(fd, zeros, v->iov_len < sizeof zeros ? v->iov_len : sizeof zeros,
                         MSG_NOSIGNAL);
            if (k < 0 && errno == EINTR)
                continue;
        }
        if (k < 0)
            return false;
        while (n && (size_t)k >= v->iov_len) {
            k -= v->iov_len;
            v++;
            n--;
        }
        if (n) {
            v->iov_base = (char *)v->iov_base + k;
            v->iov_len -= k;
        }
    }
    return true;
}

static struct peer *add_peer(int fd, const char *path, bool made_here)
{
    struct peer *p = stand_alloc(sizeof *p);

    p->fd = fd;
    p->made_here = made_here;
    snprintf(p->path, sizeof p->path, "%s", path);
    p->next = peers;
    peers = p;
    return p;
}

/* The QEMU that owns a GID. Connects to it if necessary. NULL if no QEMU owns the GID. Locked. */
static struct peer *owner_of(const union ibv_gid *gid)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char link[160];
    ssize_t k;
    uint64_t one = 1;
    int fd;

    stand_gid_link(gid, link, sizeof link);
    k = readlink(link, a.sun_path, sizeof a.sun_path - 1);
    if (k < 0)
        return NULL;
    a.sun_path[k] = 0;
    for (struct peer *p = peers; p; p = p->next)
        if (p->made_here && p->fd >= 0 && !strcmp(p->path, a.sun_path))
            return p;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return NULL;
    }
    if (write(wake_fd, &one, sizeof one) < 0)
        stand_say("wake: %m");
    return add_peer(fd, a.sun_path, true);
}

/* Fails the oldest request as if its retries had run out, and flushes the others. Locked. */
static void unreachable(struct qp *q)
{
    struct send_request *w = stand_take_pending(q);

    if (!w)
        return;
    stand_send_done(q, w, IBV_WC_RETRY_EXC_ERR);
    stand_flush(q);
}

static void *send_thread(void *arg)
{
    (void)arg;
    for (;;) {
        struct iovec v[MAX_SGE + 1];
        struct outgoing *t;
        struct peer *p;
        int fd;

        pthread_mutex_lock(&stand_lock);
        while (!out_head)
            pthread_cond_wait(&out_ready, &stand_lock);
        t = out_head;
        out_head = t->next;
        if (!out_head)
            out_tail = &out_head;
        p = t->peer ? t->peer : owner_of(&t->gid);
        fd = p ? p->fd : -1;
        pthread_mutex_unlock(&stand_lock);
        v[0] = (struct iovec){&t->frame, sizeof t->frame};
        for (int i = 0; i < t->n; i++)
            v[i + 1] = (struct iovec){t->segments[i].p, t->segments[i].len};
        if ((fd < 0 || !write_all(fd, v, t->n + 1)) && t->frame.type == FRAME_REQUEST) {
            pthread_mutex_lock(&stand_lock);
            if (stand_qps[t->qpn] == t->qp)
                unreachable(t->qp);
            pthread_mutex_unlock(&stand_lock);
        }
        free(t->own);
        free(t);
    }
    return NULL;
}

static void respond(struct peer *to, const struct frame *request, enum ibv_wc_status status,
                    void *own, uint32_t len)
{
    struct outgoing *t = stand_alloc(sizeof *t);

    t->peer = to;
    t->own = own;
    t->frame = *request;
    t->frame.type = FRAME_RESPONSE;
    t->frame.src_qpn = request->dst_qpn;
    t->frame.dst_qpn = request->src_qpn;
    t->frame.status = status;
    t->frame.len = len;
    if (len) {
        t->n = 1;
        t->segments[0] = (struct segment){own, len};
    }
    stand_push(t);
}

/* -- receiving --------------------------------------------------------------------------------- */

static struct recv_queue *recvs_of(struct qp *q)
{
    return q->srq ? &q->srq->queue : &q->recvs;
}

static struct recv_request *take_recv(struct qp *q)
{
    struct recv_queue *queue = recvs_of(q);
    struct recv_request *r = queue->head;

    if (r) {
        queue->head = r->next;
        if (!queue->head)
            queue->tail = &queue->head;
    }
    return r;
}

void stand_free_queues(struct qp *q)
{
    struct send_request *w;
    struct recv_request *r;
    struct message *m;

    while ((w = stand_take_pending(q)))
        free(w);
    while (!q->srq && (r = take_recv(q)))
        free(r);
    while ((m = q->in)) {
        q->in = m->next;
        free(m);
    }
}

static bool needs_recv(const struct frame *f)
{
    return f->op == IBV_WR_SEND || f->op == IBV_WR_SEND_WITH_IMM ||
           f->op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* Data that a request carries, or the response that it causes. */
struct answer {
    void *data; /* allocated */
    uint32_t len;
};

/* Copies into memory that the guest polls meanwhile. An adapter writes in the order of addresses, and memcpy does not
 * guarantee that: when it wrote two cache lines the stamps became visible before the bytes in front of them. */
static void land(void *to, const void *from, size_t len)
{
    char *dst = to;
    const char *src = from;
    size_t i = 0;

    for (; i < len && ((uintptr_t)(dst + i) & 7); i++)
        __atomic_store_n(dst + i, src[i], __ATOMIC_RELEASE);
    for (; len - i >= 8; i += 8) {
        uint64_t word;

        memcpy(&word, src + i, 8);
        __atomic_store_n((uint64_t *)(void *)(dst + i), word, __ATOMIC_RELEASE);
    }
    for (; i < len; i++)
        __atomic_store_n(dst + i, src[i], __ATOMIC_RELEASE);
}

static enum ibv_wc_status access_memory(struct qp *q, const struct message *m, struct answer *out)
{
    const struct frame *f = &m->frame;
    struct lookup how = {
        .pd = q->v.pd, .key = f->rkey, .any_key = f->rkey == 0xffffffff, .remote = true};
    bool bad = false;
    uint64_t *word, old;
    void *p;

    switch (f->op) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        how.need = IBV_ACCESS_REMOTE_WRITE;
        p = stand_translate(&how, f->remote_addr, f->len, &bad);
        if (!bad && f->len)
            land(p, m->data, f->len);
        break;
    case IBV_WR_RDMA_READ:
        how.need = IBV_ACCESS_REMOTE_READ;
        p = stand_translate(&how, f->remote_addr, f->want, &bad);
        if (!bad && f->want) {
            out->len = f->want;
            out->data = stand_alloc(f->want);
            memcpy(out->data, p, f->want);
        }
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        how.need = IBV_ACCESS_REMOTE_ATOMIC;
        word = stand_translate(&how, f->remote_addr, sizeof *word, &bad);
        if (bad)
            break;
        if (f->remote_addr % sizeof *word)
            return IBV_WC_REM_INV_REQ_ERR;
        old = f->compare_add;
        if (f->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
            old = __atomic_fetch_add(word, f->compare_add, __ATOMIC_SEQ_CST);
        else
            __atomic_compare_exchange_n(word, &old, f->swap, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
        out->len = sizeof old;
        out->data = stand_alloc(sizeof old);
        memcpy(out->data, &old, sizeof old);
        break;
    default:
        break;
    }
    return bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS;
}

static enum ibv_wc_status fill_recv(struct qp *q, struct recv_request *r, const struct message *m)
{
    const struct frame *f = &m->frame;
    struct segment s[MAX_SGE];
    uint32_t room;

    if (f->op == IBV_WR_RDMA_WRITE_WITH_IMM) {
        stand_recv_done(q, r, IBV_WC_SUCCESS, f, f->len, 0);
        return IBV_WC_SUCCESS;
    }
    if (stand_translate_list(q->v.pd, r->sge, r->n, IBV_ACCESS_LOCAL_WRITE, s, &room)) {
        stand_recv_done(q, r, IBV_WC_LOC_PROT_ERR, f, 0, 0);
        return IBV_WC_REM_OP_ERR;
    }
    if (room < f->len) {
        stand_recv_done(q, r, IBV_WC_LOC_LEN_ERR, f, 0, 0);
        return IBV_WC_REM_INV_REQ_ERR;
    }
    stand_scatter(s, r->n, m->data, f->len);
    stand_recv_done(q, r, IBV_WC_SUCCESS, f, f->len, 0);
    return IBV_WC_SUCCESS;
}

void stand_progress(struct qp *q)
{
    struct message *m;

    while ((m = q->in) && (q->state == IBV_QPS_RTR || q->state == IBV_QPS_RTS)) {
        struct answer answer = {NULL, 0};
        enum ibv_wc_status status;
        bool recv = needs_recv(&m->frame);

        if (recv && !recvs_of(q)->head)
            return;
        q->in = m->next;
        if (!q->in)
            q->in_tail = &q->in;
        status = access_memory(q, m, &answer);
        if (recv && status == IBV_WC_SUCCESS)
            status = fill_recv(q, take_recv(q), m);
        if (m->from->fd >= 0)
            respond(m->from, &m->frame, status, answer.data, answer.len);
        else
            free(answer.data);
        free(m);
        if (status != IBV_WC_SUCCESS) {
            stand_async_event(status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR
                                                              : IBV_EVENT_QP_REQ_ERR,
                              q->v.qp_num);
            stand_flush(q);
            return;
        }
    }
}

static void receive_datagram(struct qp *q, const struct message *m)
{
    enum { GRH = 40, SGID = 8 };
    const struct frame *f = &m->frame;
    struct recv_request *r = take_recv(q);
    struct segment s[MAX_SGE];
    uint8_t *packet;
    uint32_t room;

    if (!r)
        return;
    if (stand_translate_list(q->v.pd, r->sge, r->n, IBV_ACCESS_LOCAL_WRITE, s, &room) ||
        room < f->len + GRH) {
        stand_recv_done(q, r, IBV_WC_LOC_LEN_ERR, f, 0, 0);
        return;
    }
    packet = stand_alloc(GRH + f->len);
    memcpy(packet + SGID, f->sgid, sizeof f->sgid);
    memcpy(packet + GRH, m->data, f->len);
    stand_scatter(s, r->n, packet, f->len + GRH);
    stand_recv_done(q, r, IBV_WC_SUCCESS, f, f->len + GRH, IBV_WC_GRH);
    free(packet);
}

/* Locked. */
static void arrived(struct peer *p, struct message *m)
{
    const struct frame *f = &m->frame;
    struct qp *q = f->dst_qpn < MAX_QPN ? stand_qps[f->dst_qpn] : NULL;

    if (f->type == FRAME_REQUEST) {
        m->from = p;
        m->next = NULL;
        if (!q || q->state == IBV_QPS_ERR || q->state == IBV_QPS_RESET ||
            (q->state != IBV_QPS_INIT && f->src_qpn != q->dest_qpn)) {
            respond(p, f, IBV_WC_RETRY_EXC_ERR, NULL, 0);
            free(m);
            return;
        }
        *q->in_tail = m;
        q->in_tail = &m->next;
        stand_progress(q);
        return;
    }
    if (f->type == FRAME_UD && q && q->v.qp_type == IBV_QPT_UD && q->qkey == f->rkey)
        receive_datagram(q, m);
    if (f->type == FRAME_RESPONSE && q && q->pending && q->pending->serial == f->serial) {
        struct send_request *w = stand_take_pending(q);

        if (f->status == IBV_WC_SUCCESS && f->len)
            stand_scatter(w->segments, w->n, m->data, f->len);
        stand_send_done(q, w, f->status);
        if (f->status != IBV_WC_SUCCESS)
            stand_flush(q);
    }
    free(m);
}

/* Locked. */
static void peer_gone(struct peer *p)
{
    stand_say("peer %s gone", p->path);
    shutdown(p->fd, SHUT_RDWR);
    p->fd = -1;
    if (!p->made_here)
        return;
    for (int i = 0; i < MAX_QPN; i++) {
        struct qp *q = stand_qps[i];

        if (q && q->pending && q->v.qp_type == IBV_QPT_RC && !owner_of(&q->dgid))
            unreachable(q);
    }
}

/* Reads the available bytes, up to a limited number of pieces. False if the peer has gone. */
static bool read_some(struct peer *p)
{
    const size_t head = sizeof p->frame;

    for (int burst = 0; burst < BURST; burst++) {
        bool in_head = p->got < head;
        char *to = in_head ? (char *)&p->frame + p->got : (char *)p->message->data + p->got - head;
        size_t want = in_head ? head - p->got : p->frame.len - (p->got - head);
        ssize_t k = want ? recv(p->fd, to, want, MSG_DONTWAIT) : 0;

        if (want && k <= 0)
            return k < 0 && (errno == EAGAIN || errno == EINTR);
        p->got += k;
        if (p->got == head && !p->message) {
            p->message = stand_alloc(sizeof *p->message + p->frame.len + 1);
            p->message->frame = p->frame;
        }
        if (p->got >= head && p->got == head + p->frame.len) {
            struct message *m = p->message;

            p->message = NULL;
            p->got = 0;
            pthread_mutex_lock(&stand_lock);
            arrived(p, m);
            pthread_mutex_unlock(&stand_lock);
        }
    }
    return true;
}

static void accept_peer(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    pthread_mutex_lock(&stand_lock);
    add_peer(fd, "(accepted)", false);
    pthread_mutex_unlock(&stand_lock);
}

static void *receive_thread(void *arg)
{
    int listener = (int)(intptr_t)arg;

    for (;;) {
        struct pollfd pf[MAX_PEERS + 2] = {{listener, POLLIN, 0}, {wake_fd, POLLIN, 0}};
        struct peer *of[MAX_PEERS + 2];
        uint64_t x;
        int n = 2;

        pthread_mutex_lock(&stand_lock);
        for (struct peer *p = peers; p && n < MAX_PEERS + 2; p = p->next) {
            if (p->fd < 0)
                continue;
            of[n] = p;
            pf[n++] = (struct pollfd){p->fd, POLLIN, 0};
        }
        pthread_mutex_unlock(&stand_lock);
        if (poll(pf, n, -1) < 0)
            continue;
        if (pf[1].revents && read(wake_fd, &x, sizeof x) < 0)
            stand_say("wake: %m");
        if (pf[0].revents)
            accept_peer(listener);
        for (int i = 2; i < n; i++) {
            if (!pf[i].revents || read_some(of[i]))
                continue;
            pthread_mutex_lock(&stand_lock);
            peer_gone(of[i]);
            pthread_mutex_unlock(&stand_lock);
        }
    }
    return NULL;
}

void stand_fabric_start(void)
{
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stand_thread(receive_thread, (void *)(intptr_t)stand_listen(stand_self));
    stand_thread(send_thread, NULL);
}
