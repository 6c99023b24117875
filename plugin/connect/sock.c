/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "connect/sock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/fork_fds.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "connect/path_watch.h"

/* Like socket(2) and accept4(2), errno included, but a child of fork() does not keep the
 * descriptor. */
static int make_socket(int domain)
{
    int fd;

    pvn_fork_fds_lock();
    fd = socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    pvn_fork_fds_add(fd);
    pvn_fork_fds_unlock();
    return fd;
}

static int take_socket(int listen_fd, struct sockaddr_storage *peer)
{
    socklen_t len = sizeof(*peer);
    int fd;

    pvn_fork_fds_lock();
    fd = accept4(listen_fd, (struct sockaddr *)peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    pvn_fork_fds_add(fd);
    pvn_fork_fds_unlock();
    return fd;
}

static void close_socket(int fd)
{
    pvn_fork_fds_lock();
    pvn_fork_fds_remove(fd);
    close(fd);
    pvn_fork_fds_unlock();
}

static int failed(struct pvn_err *err, int fd, enum pvn_phase phase, const char *doing,
                  const struct sockaddr_storage *ss)
{
    int e = errno;
    char text[PVN_ADDR_TEXT_LEN];

    if (fd >= 0)
        close_socket(fd);
    pvn_err_set(err, -e, "%s %s failed", doing,
                pvn_addr_format((const struct sockaddr *)ss, text, sizeof(text)));
    pvn_err_set_hint(err, pvn_hint_id_find(PVN_HINT_ERRNO, e, phase, PVN_PAST_NEVER_WORKED));
    return -e;
}

static void set_int(int fd, int level, int option, const char *name, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
        char text[128];

        pvn_trace(PVN_NET, "setsockopt %s to %d: %s", name, value,
                  pvn_strerror(errno, text, sizeof(text)));
    }
}

/* Sets TCP_NODELAY and the keepalive of the parameters. */
static void tune(int fd)
{
    const struct pvn_params *p = pvn_params_get();

    set_int(fd, IPPROTO_TCP, TCP_NODELAY, "TCP_NODELAY", 1);
    if (!p->keepalive_idle)
        return;
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, "SO_KEEPALIVE", 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, "TCP_KEEPIDLE",
            (int)((p->keepalive_idle + PVN_NS_PER_S - 1) / PVN_NS_PER_S));
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, "TCP_KEEPINTVL",
            (int)((p->keepalive_intvl + PVN_NS_PER_S - 1) / PVN_NS_PER_S));
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, "TCP_KEEPCNT", p->keepalive_cnt);
}

int pvn_sock_listen(struct sockaddr_storage *addr, socklen_t len, struct pvn_err *err)
{
    /* The kernel limits this to net.core.somaxconn. It is large because a ring of many channels may
     * connect at once. */
    enum { BACKLOG = 16384 };
    socklen_t out = sizeof(*addr);
    int fd = make_socket(addr->ss_family);

    /* Accepted sockets inherit these options. SO_RCVBUF has to be set before listen(), because it
     * decides on the window scale that accepted sockets offer. */
    if (fd >= 0 && pvn_params_get()->tcp_rcvbuf)
        set_int(fd, SOL_SOCKET, SO_RCVBUF, "SO_RCVBUF", (int)pvn_params_get()->tcp_rcvbuf);
    if (fd >= 0)
        tune(fd);
    pvn_addr_set_port((struct sockaddr *)addr, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)addr, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)addr, &out) != 0)
        return failed(err, fd, PVN_PHASE_LISTEN, "listening at", addr);
    return fd;
}

void pvn_sock_set_class(int fd, int traffic_class)
{
    int domain = AF_INET;
    socklen_t len = sizeof(domain);

    if (traffic_class < 0)
        return;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    if (domain == AF_INET6)
        set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, "IPV6_TCLASS", traffic_class);
    else
        set_int(fd, IPPROTO_IP, IP_TOS, "IP_TOS", traffic_class);
}

int pvn_sock_open(const struct sockaddr_storage *peer, int traffic_class, struct pvn_err *err)
{
    uint64_t limit = pvn_path_limit(true);
    int fd = make_socket(peer->ss_family);

    if (fd < 0)
        return failed(err, fd, PVN_PHASE_DIAL, "a socket for", peer);
    tune(fd);
    pvn_sock_set_class(fd, traffic_class);
    /* The kernel counts this timeout while dialling only: pvn_sock_connected clears it, see
     * path_watch.h. */
    if (limit)
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT",
                (int)(limit / PVN_NS_PER_MS));
    return fd;
}

int pvn_sock_connect(int fd, const struct sockaddr_storage *local, socklen_t local_len,
                     const struct sockaddr_storage *peer, socklen_t peer_len, struct pvn_err *err)
{
    if (local_len && local->ss_family == peer->ss_family) {
        struct sockaddr_storage from = *local;

        /* The kernel chooses the port at connect(), so that one port may serve many
         * destinations. */
        set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, "IP_BIND_ADDRESS_NO_PORT", 1);
        pvn_addr_set_port((struct sockaddr *)&from, 0);
        if (bind(fd, (struct sockaddr *)&from, local_len) != 0)
            return failed(err, fd, PVN_PHASE_DIAL, "binding a socket to", &from);
    }
    if (connect(fd, (const struct sockaddr *)peer, peer_len) != 0 && errno != EINPROGRESS &&
        errno != EINTR)
        return failed(err, fd, PVN_PHASE_DIAL, "connecting to", peer);
    return 0;
}

int pvn_sock_dial(const struct sockaddr_storage *local, socklen_t local_len,
                  const struct sockaddr_storage *peer, socklen_t peer_len, int traffic_class,
                  struct pvn_err *err)
{
    int fd = pvn_sock_open(peer, traffic_class, err);
    int rc = fd < 0 ? fd : pvn_sock_connect(fd, local, local_len, peer, peer_len, err);

    return rc < 0 ? rc : fd;
}

int pvn_sock_route(const struct sockaddr_storage *peer, socklen_t peer_len,
                   struct sockaddr_storage *from)
{
    socklen_t len = sizeof(*from);
    int fd = socket(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)peer, peer_len) != 0 ||
        getsockname(fd, (struct sockaddr *)from, &len) != 0)
        rc = -errno;
    close(fd);
    return rc;
}

int pvn_sock_accept(int listen_fd, struct sockaddr_storage *peer, struct pvn_err *err)
{
    int tries;

    for (tries = 0; tries < 16; tries++) {
        int fd = take_socket(listen_fd, peer);

        if (fd >= 0)
            return fd;
        /* accept(2) says to treat errors of the new connection like EAGAIN: call it again. */
        switch (errno) {
        case EINTR:
        case ECONNABORTED:
        case ENETDOWN:
        case EPROTO:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case EOPNOTSUPP:
        case ENETUNREACH:
            continue;
        case EAGAIN:
            return -EAGAIN;
        default: {
            int e = errno;

            pvn_err_set(err, -e, "accepting a connection failed");
            pvn_err_set_hint(err,
                             pvn_hint_id_find(PVN_HINT_ERRNO, e, PVN_PHASE_ACCEPT, PVN_PAST_ANY));
            return -e;
        }
        }
    }
    return -EAGAIN;
}

int pvn_sock_connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, 0), e = 0;
    socklen_t len = sizeof(e);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return -EAGAIN;
    if (p.revents & (POLLERR | POLLHUP) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0)
        return -errno;
    if (e == 0)
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT", 0);
    return -e;
}

void pvn_sock_close(int fd)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    int unread = 0;

    /* A reset if there are unread bytes, as close() of the last descriptor would send. The kernel
     * refuses to disconnect a socket that it seals (EOPNOTSUPP), which is shut down instead. */
    if (ioctl(fd, FIONREAD, &unread) != 0 || unread <= 0 ||
        connect(fd, &nobody, sizeof(nobody)) != 0)
        shutdown(fd, SHUT_RDWR);
    close_socket(fd);
}
