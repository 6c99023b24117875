/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The wire. Packets for this process go through a queue, which the holder of the lock drains.
 * Packets for another process go through a Unix stream socket per direction, which keeps them in
 * order. A service thread runs while a device is open: it reads the sockets and runs the timers.
 */
#include "sv_int.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAGIC = 0x53565231, IN_MAX = SV_SLOT_MAX, READ_BUDGET = 64 };

struct out_link {
    int fd; /* -1: not connected */
    struct sv_packet *head, **tail;
};

struct in_link {
    int fd;
    size_t have; /* bytes of header, then of payload */
    struct sv_hdr h;
    struct sv_packet *p; /* header complete */
};

static struct {
    unsigned int users;
    pthread_t thread;
    bool running, stop;
    int wake, lock_fd, listen_fd;
    uint64_t timers_at; /* when QPs must be looked at; UINT64_MAX: never */
    uint64_t sleep_to;  /* until when the thread sleeps; 0: it is awake */
    struct sv_packet *local, **local_tail;
    struct sv_packet *ghosts; /* by time, which is kept in 'sent' */
    struct out_link out[SV_SLOT_MAX + 1];
    struct in_link in[IN_MAX];
    unsigned int ins;
} L = {.wake = -1, .lock_fd = -1, .listen_fd = -1};

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;

void sv_life_lock(void)
{
    pthread_mutex_lock(&life);
}

void sv_life_unlock(void)
{
    pthread_mutex_unlock(&life);
}

static void kick(void)
{
    uint64_t one = 1;
    if (write(L.wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort();
}

void sv_wake(uint64_t at)
{
    if (at < L.timers_at)
        L.timers_at = at;
    if (L.sleep_to && at < L.sleep_to) {
        L.sleep_to = 0; /* one kick is enough */
        kick();
    }
}

/* ---- dispatch ---- */

static void handle(struct sv_packet *p)
{
    if (p->h.type == SV_P_REQ || p->h.type == SV_P_GHOST)
        sv_on_request(p);
    else
        sv_on_answer(p);
    free(p);
}

void sv_run(void)
{
    while (L.local) {
        struct sv_packet *p = L.local;
        L.local = p->next;
        if (!L.local)
            L.local_tail = &L.local;
        handle(p);
    }
}

/* ---- sockets ---- */

static int socket_path(struct sockaddr_un *a, unsigned int slot, const char *suffix)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path, sizeof a->sun_path, "%s/%u.%s", sv.dir, slot, suffix);
    return n > 0 && (size_t)n < sizeof a->sun_path ? 0 : ENAMETOOLONG;
}

static int dial(unsigned int slot, int flags)
{
    struct sockaddr_un a;
    if (!sv.dir[0] || socket_path(&a, slot, "sock"))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void drop_queue(struct out_link *o)
{
    while (o->head) {
        struct sv_packet *p = o->head;
        o->head = p->next;
        free(p);
    }
    o->tail = &o->head;
}

static void out_close(struct out_link *o)
{
    close(o->fd);
    o->fd = -1;
    drop_queue(o);
}

/* Writes as much as the socket takes. Packets to a peer that is gone are dropped, as if its host
 * were dead. */
static void out_flush(struct out_link *o)
{
    while (o->fd >= 0 && o->head) {
        struct sv_packet *p = o->head;
        size_t total = sizeof p->h + p->h.data;
        ssize_t n =
            send(o->fd, (char *)&p->h + p->sent, total - p->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR)
                out_close(o);
            return;
        }
        p->sent += (size_t)n;
        if (p->sent < total)
            continue;
        o->head = p->next;
        if (!o->head)
            o->tail = &o->head;
        free(p);
    }
}

void sv_send_packet(struct sv_packet *p)
{
    unsigned int slot = p->h.dst_qpn >> SV_QP_BITS;
    p->h.magic = MAGIC;
    p->next = NULL;
    p->sent = 0;
    if (slot == sv.slot) {
        *L.local_tail = p;
        L.local_tail = &p->next;
        return;
    }
    struct out_link *o = &L.out[slot <= SV_SLOT_MAX ? slot : 0];
    if (slot && slot <= SV_SLOT_MAX && o->fd < 0)
        o->fd = dial(slot, SOCK_NONBLOCK);
    if (!slot || slot > SV_SLOT_MAX || o->fd < 0) {
        free(p);
        return;
    }
    *o->tail = p;
    o->tail = &p->next;
    out_flush(o);
    if (o->head)
        sv_wake(0); /* the thread watches for room */
}

static void reply_command(struct in_link *l)
{
    char line[512], text[2048] = "";
    size_t n = l->h.data < sizeof line - 1 ? l->h.data : sizeof line - 1;
    memcpy(line, l->p->payload, n);
    line[n] = '\0';
    struct {
        struct sv_hdr h;
        char text[sizeof text];
    } r = {.h = {.magic = MAGIC, .type = SV_P_REPLY}};
    r.h.status = (uint32_t)sv_command_locked(line, text, sizeof text);
    r.h.data = (uint32_t)strlen(text);
    memcpy(r.text, text, r.h.data);
    if (send(l->fd, &r, sizeof r.h + r.h.data, MSG_NOSIGNAL) < 0)
        return; /* the requester has gone */
}

/* Reads once. False: there is nothing more for now, or the link is finished (fd is then -1). */
static bool in_read(struct in_link *l)
{
    char *to;
    size_t want;
    if (!l->p) {
        to = (char *)&l->h + l->have;
        want = sizeof l->h - l->have;
    } else {
        to = l->p->payload + l->have;
        want = l->h.data - l->have;
    }
    ssize_t n = want ? recv(l->fd, to, want, MSG_DONTWAIT) : 0;
    if (want && n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        goto bad;
    }
    l->have += (size_t)n;
    if ((size_t)n < want)
        return true;
    if (!l->p) {
        if (l->h.magic != MAGIC || l->h.data > SV_SEG)
            goto bad;
        l->p = malloc(sizeof *l->p + l->h.data);
        if (!l->p)
            goto bad;
        l->p->h = l->h;
        l->have = 0;
        if (l->h.data)
            return true;
    }
    struct sv_packet *p = l->p;
    if (l->h.type == SV_P_CTL)
        reply_command(l);
    l->p = NULL;
    l->have = 0;
    if (l->h.type == SV_P_CTL) {
        free(p);
        return true;
    }
    sv.remote = true;
    handle(p);
    sv.remote = false;
    return true;
bad:
    close(l->fd);
    l->fd = -1;
    free(l->p);
    l->p = NULL;
    return false;
}

static void accept_all(void)
{
    int fd;
    while (L.ins < IN_MAX && (fd = accept4(L.listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        L.in[L.ins++] = (struct in_link){.fd = fd};
}

/* ---- late copies ---- */

void sv_ghost(const struct sv_packet *p, uint64_t at)
{
    size_t size = sizeof *p + p->h.data;
    struct sv_packet *g = malloc(size), **where = &L.ghosts;
    if (!g)
        abort();
    memcpy(g, p, size);
    g->h.type = SV_P_GHOST;
    g->sent = at;
    while (*where && (*where)->sent <= at)
        where = &(*where)->next;
    g->next = *where;
    *where = g;
    sv_wake(at);
}

static void ghosts_due(uint64_t now)
{
    while (L.ghosts && L.ghosts->sent <= now) {
        struct sv_packet *g = L.ghosts;
        L.ghosts = g->next;
        sv_send_packet(g);
    }
}

void sv_release(void)
{
    ghosts_due(UINT64_MAX);
    for (unsigned int i = 0; i < SV_QP_MAX; i++) {
        struct sv_qp *qp = sv.qp[i];
        if (qp && qp->hold_until) {
            qp->hold_until = qp->hold_msgs = 0;
            sv_qp_transmit(qp);
        }
    }
    sv.held = 0;
    sv_run();
}

/* ---- the service thread ---- */

static void timers(void)
{
    uint64_t now = sv_now();
    if (now < L.timers_at)
        return;
    L.timers_at = UINT64_MAX;
    ghosts_due(now);
    if (L.ghosts && L.ghosts->sent < L.timers_at)
        L.timers_at = L.ghosts->sent;
    uint64_t removal = sv_dev_timers(now);
    if (removal && removal < L.timers_at)
        L.timers_at = removal;
    for (unsigned int i = 0, seen = 0; i < SV_QP_MAX && seen < sv.qp_count; i++) {
        if (!sv.qp[i])
            continue;
        seen++;
        uint64_t t = sv_qp_timers(sv.qp[i], now);
        if (t && t < L.timers_at)
            L.timers_at = t;
    }
}

void sv_timers(void)
{
    timers();
    sv_run();
}

static unsigned int watch(struct pollfd *f)
{
    unsigned int n = 0;
    f[n++] = (struct pollfd){.fd = L.wake, .events = POLLIN};
    f[n++] = (struct pollfd){.fd = L.ins < IN_MAX ? L.listen_fd : -1, .events = POLLIN};
    for (unsigned int i = 0; i < L.ins; i++)
        f[n++] = (struct pollfd){.fd = L.in[i].fd, .events = POLLIN};
    for (unsigned int i = 0; i <= SV_SLOT_MAX; i++)
        if (L.out[i].fd >= 0 && L.out[i].head)
            f[n++] = (struct pollfd){.fd = L.out[i].fd, .events = POLLOUT};
    return n;
}

static void serve_sockets(const struct pollfd *f)
{
    uint64_t v;
    if ((f[0].revents & POLLIN) && read(L.wake, &v, sizeof v) < 0 && errno != EAGAIN)
        abort();
    for (unsigned int i = 0; i < L.ins; i++)
        if (f[2 + i].revents)
            for (int k = 0; k < READ_BUDGET && in_read(&L.in[i]); k++)
                sv_run();
    unsigned int kept = 0;
    for (unsigned int i = 0; i < L.ins; i++)
        if (L.in[i].fd >= 0)
            L.in[kept++] = L.in[i];
    L.ins = kept;
    if (f[1].revents)
        accept_all();
    for (unsigned int i = 0; i <= SV_SLOT_MAX; i++)
        out_flush(&L.out[i]);
}

static void *service(void *arg)
{
    static struct pollfd f[2 + IN_MAX + SV_SLOT_MAX + 1];
    pthread_mutex_lock(&sv.lock);
    while (!L.stop) {
        sv_timers();
        unsigned int n = watch(f);
        uint64_t now = sv_now(), ns = L.timers_at > now ? L.timers_at - now : 0;
        struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
        bool ever = L.timers_at != UINT64_MAX;
        L.sleep_to = L.timers_at;
        pthread_mutex_unlock(&sv.lock);
        int rc = ppoll(f, n, ever ? &t : NULL, NULL);
        sv_lock_first();
        L.sleep_to = 0;
        if (rc > 0)
            serve_sockets(f);
    }
    pthread_mutex_unlock(&sv.lock);
    return NULL;
}

/* ---- start and stop ---- */

/* Takes the first free number: a lock that its owner's death releases, and a socket of that
 * number. */
static int take_slot(void)
{
    struct sockaddr_un a;
    for (unsigned int slot = 1; slot <= SV_SLOT_MAX; slot++) {
        int rc = socket_path(&a, slot, "lock");
        if (rc)
            return rc;
        int fd = open(a.sun_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return errno;
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            close(fd);
            continue;
        }
        if ((rc = socket_path(&a, slot, "sock"))) {
            close(fd);
            return rc;
        }
        unlink(a.sun_path); /* of a process that died */
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, SV_SLOT_MAX)) {
            rc = errno;
            close(s);
            close(fd);
            return rc;
        }
        L.lock_fd = fd;
        L.listen_fd = s;
        sv.slot = slot;
        return 0;
    }
    return EUSERS;
}

static void drop_slot(void)
{
    struct sockaddr_un a;
    if (L.listen_fd >= 0 && !socket_path(&a, sv.slot, "sock"))
        unlink(a.sun_path);
    close(L.listen_fd);
    close(L.lock_fd);
    L.listen_fd = L.lock_fd = -1;
    sv.slot = 0;
}

static int start_service(void)
{
    struct sched_param priority = {.sched_priority = (int)sv.p.real_time};
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (!rc && sv.p.real_time)
        rc = pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    if (!rc && sv.p.real_time)
        rc = pthread_attr_setschedpolicy(&attr, SCHED_FIFO);
    if (!rc && sv.p.real_time)
        rc = pthread_attr_setschedparam(&attr, &priority);
    if (!rc)
        rc = pthread_create(&L.thread, &attr, service, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int sv_link_start(void)
{
    if (L.users) {
        L.users++;
        return 0;
    }
    L.local = NULL;
    L.local_tail = &L.local;
    L.timers_at = UINT64_MAX;
    L.stop = false;
    for (unsigned int i = 0; i <= SV_SLOT_MAX; i++) {
        L.out[i].fd = -1;
        L.out[i].head = NULL;
        L.out[i].tail = &L.out[i].head;
    }
    int rc = 0;
    if (sv.dir[0])
        rc = take_slot();
    else
        sv.slot = 1;
    if (rc)
        return rc;
    L.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rc = L.wake < 0 ? errno : start_service();
    if (rc) {
        close(L.wake);
        drop_slot();
        return rc;
    }
    L.users = sv.p.stay ? 2 : 1;
    return 0;
}

static void free_all(void)
{
    while (L.local) {
        struct sv_packet *p = L.local;
        L.local = p->next;
        free(p);
    }
    while (L.ghosts) {
        struct sv_packet *p = L.ghosts;
        L.ghosts = p->next;
        free(p);
    }
    for (unsigned int i = 0; i <= SV_SLOT_MAX; i++)
        if (L.out[i].fd >= 0)
            out_close(&L.out[i]);
    for (unsigned int i = 0; i < L.ins; i++) {
        close(L.in[i].fd);
        free(L.in[i].p);
    }
    L.ins = 0;
}

void sv_link_stop(void)
{
    pthread_mutex_lock(&sv.lock);
    bool last = --L.users == 0;
    if (last) {
        L.stop = true;
        kick();
    }
    pthread_mutex_unlock(&sv.lock);
    if (!last)
        return;
    pthread_join(L.thread, NULL);
    pthread_mutex_lock(&sv.lock);
    free_all();
    close(L.wake);
    L.wake = -1;
    drop_slot();
    pthread_mutex_unlock(&sv.lock);
}

/* A child inherits the parent's sockets, but does not own them. */
void sv_link_forked(void)
{
    if (L.users) {
        free_all();
        close(L.wake);
        close(L.listen_fd);
        close(L.lock_fd);
    }
    L.wake = L.listen_fd = L.lock_fd = -1;
    L.users = 0;
    sv.slot = 0;
}

/* A program that exits with a device open leaves no socket behind. */
__attribute__((destructor)) static void at_exit(void)
{
    pthread_mutex_lock(&sv.lock);
    unsigned int users = L.users;
    if (users > 1)
        L.users = 1;
    pthread_mutex_unlock(&sv.lock);
    if (users)
        sv_link_stop();
}

/* ---- talking to other processes ---- */

SV_EXPORT unsigned int sv_slot(void)
{
    sv_lock();
    unsigned int s = sv.slot;
    sv_unlock();
    return s;
}

static bool get_all(int fd, void *to, size_t n)
{
    return !n || recv(fd, to, n, MSG_WAITALL) == (ssize_t)n;
}

SV_EXPORT int sv_peer_command(unsigned int slot, const char *line, char *reply, size_t size)
{
    sv_lock();
    int fd = dial(slot, 0);
    sv_unlock();
    if (fd < 0)
        return ESRCH;
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    struct sv_hdr h = {.magic = MAGIC, .type = SV_P_CTL, .data = (uint32_t)strlen(line)};
    char text[2048] = "";
    int rc = EPIPE;
    if (send(fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h &&
        send(fd, line, h.data, MSG_NOSIGNAL) == (ssize_t)h.data && get_all(fd, &h, sizeof h) &&
        h.magic == MAGIC && h.type == SV_P_REPLY && h.data < sizeof text &&
        get_all(fd, text, h.data)) {
        text[h.data] = '\0';
        rc = (int)h.status;
    }
    close(fd);
    if (reply && size)
        snprintf(reply, size, "%s", text);
    return rc;
}
