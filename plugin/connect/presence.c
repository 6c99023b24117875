/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/presence.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/log.h"
#include "connect/retry.h"
#include "connect/sock.h"

struct place {
    const struct pvn_device *dev;
    int fd;
    struct sockaddr_storage addr;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct place places[PVN_MAX_DEVICES];
static int nplaces;
static unsigned holders;

/* Connections per socket that one call closes, so that a flood does not hold up the caller. */
enum { ANSWERS_MAX = 64 };
/* The pause between two bytes; and for how long none may be acknowledged before another address is
 * dialled. */
#define BYTE_NS (2 * PVN_NS_PER_S)
#define DEAD_NS (6 * PVN_NS_PER_S)

/* ---- the connector's process ---- */

/* Returns the listening socket of a device, and opens it if need be. NULL: it cannot be opened. */
static const struct place *place_of(const struct pvn_device *dev)
{
    struct place *p = &places[nplaces];
    struct pvn_err err = PVN_ERR_INIT;

    for (int i = 0; i < nplaces; i++)
        if (places[i].dev == dev)
            return &places[i];
    /* A link-local address means nothing on another machine. */
    if (nplaces == PVN_MAX_DEVICES || pvn_addr_is_link_local((const struct sockaddr *)&dev->addr))
        return NULL;
    *p = (struct place){.dev = dev, .addr = dev->addr};
    p->fd = pvn_sock_listen(&p->addr, dev->addr_len, &err);
    if (p->fd < 0) {
        pvn_trace(PVN_NET, "%s: %s", dev->name, err.reason[0]);
        return NULL;
    }
    nplaces++;
    return p;
}

int pvn_presence_hold(const struct pvn_device *const *dev, int ndevs, struct pvn_wire_addr *out)
{
    int n = 0;

    pthread_mutex_lock(&lock);
    holders++;
    for (int i = 0; i < ndevs && n < PVN_OTHER_ADDRS; i++) {
        const struct place *p = place_of(dev[i]);

        n += p && pvn_wire_addr_from_sockaddr(&out[n], (const struct sockaddr *)&p->addr) == 0;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void pvn_presence_release(void)
{
    pthread_mutex_lock(&lock);
    if (--holders == 0)
        while (nplaces > 0)
            pvn_sock_close(places[--nplaces].fd);
    pthread_mutex_unlock(&lock);
}

void pvn_presence_answer(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nplaces; i++) {
        int left = ANSWERS_MAX, fd;
        struct sockaddr_storage peer;
        struct pvn_err err = PVN_ERR_INIT;

        while (left-- > 0 && (fd = pvn_sock_accept(places[i].fd, &peer, &err)) >= 0)
            pvn_sock_close(fd);
    }
    pthread_mutex_unlock(&lock);
}

bool pvn_presence_any(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = holders > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

void pvn_presence_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    nplaces = 0;
    holders = 0;
}

/* ---- the acceptor's probe ---- */

static void close_attempt(struct pvn_presence_probe *p)
{
    if (p->open)
        pvn_sock_close(p->fd);
    p->open = p->connected = false;
}

void pvn_presence_probe_end(struct pvn_presence_probe *p)
{
    close_attempt(p);
    p->refused = 0;
}

/* code: why there is no connection; 0: there was one. */
static bool failed(struct pvn_presence_probe *p, int code, int n, uint64_t now)
{
    unsigned address = 1u << p->next % (unsigned)n;

    p->refused = code == -ECONNREFUSED ? p->refused | address : p->refused & ~address;
    close_attempt(p);
    p->next++;
    p->next_ns = now + pvn_retry_pause_ns(PVN_RETRY_PROBE, 0);
    return false;
}

/* 0, or why not. */
static int dial(struct pvn_presence_probe *p, const struct pvn_wire_addr *addr, uint64_t now)
{
    struct sockaddr_storage peer;
    socklen_t len = pvn_wire_addr_to_sockaddr(addr, 0, &peer);
    struct pvn_err err = PVN_ERR_INIT;

    p->fd = pvn_sock_dial(NULL, 0, &peer, len, -1, &err);
    p->open = p->fd >= 0;
    p->began_ns = now;
    p->sent_ns = 0;
    p->path = (struct pvn_path_watch){0};
    return p->open ? 0 : err.code;
}

/* True if the peer's process, or its kernel, has closed the connection. Nothing else comes in. */
static bool has_ended(int fd)
{
    uint8_t byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR);
}

static void send_byte(struct pvn_presence_probe *p, uint64_t now)
{
    if (p->sent_ns && now - p->sent_ns < BYTE_NS)
        return;
    p->sent_ns = now;
    /* If the byte cannot be sent, has_ended or the peer's silence shows that. */
    if (send(p->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        pvn_trace(PVN_NET, "presence: errno %d", errno);
}

bool pvn_presence_stands(struct pvn_presence_probe *p, const struct pvn_wire_addr *addr, int n,
                         uint64_t now)
{
    uint64_t silent;
    int rc = 0;

    if (n == 0 || (!p->open && now < p->next_ns))
        return false;
    if (!p->open)
        rc = dial(p, &addr[p->next % (unsigned)n], now);
    if (rc)
        return failed(p, rc, n, now);
    if (!p->connected) {
        rc = pvn_sock_connected(p->fd);
        if (rc == -EAGAIN && now - p->began_ns < pvn_retry_answer_ns(PVN_RETRY_PROBE))
            return false;
        if (rc)
            return failed(p, rc, n, now);
        p->connected = true;
        p->refused = 0;
    }
    if (has_ended(p->fd))
        return failed(p, 0, n, now);
    send_byte(p, now);
    silent = pvn_path_silent(&p->path, p->fd, now);
    if (silent > DEAD_NS)
        return failed(p, 0, n, now);
    return silent == 0;
}

bool pvn_presence_is_refused(const struct pvn_presence_probe *p, int n)
{
    return n > 0 && p->refused == (1u << n) - 1;
}
