/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/sockopt.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/read_line.h"

/* 64 chunks may wait for an acknowledgement (TXQ). Linux counts at most 2.5 KiB for a packet of one
 * byte, and doubles the size that is requested. */
enum { ANSWERS_BYTES = 128 << 10 };

/* Early acknowledgements stop at so many unread bytes. NCCL keeps as many in flight on a comm (its
 * buffer of 4 MiB). The kernel makes room for them, but for at most half of tcp_rmem's maximum. */
enum { EARLY_ACK_BYTES = 4 << 20 };

/* 0 leaves the option alone. */
static void set_number(int fd, int level, int option, const char *name, uint64_t number)
{
    int value = number > INT_MAX ? INT_MAX : (int)number;
    char text[128];

    if (number && setsockopt(fd, level, option, &value, sizeof(value)))
        pvn_trace(PVN_NET, "setsockopt %s to %d: %s", name, value,
                  pvn_strerror(errno, text, sizeof(text)));
}

/* True for the first caller with this name: a process has one setting and many sockets. */
static bool first_refusal(const char *name)
{
    static uint64_t said; /* atomic; hash of the name warned of last */
    uint64_t hash = 1469598103934665603u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return __atomic_exchange_n(&said, hash, __ATOMIC_RELAXED) != hash;
}

static void warn_refused(const char *name, int code)
{
    char allowed[256], text[128];

    pvn_read_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control", allowed, sizeof(allowed));
    pvn_warn("NCCL_PVRDMA_TCP_CC=%.64s is refused by the kernel (%s); it allows: %s; the system's "
             "default stays in use",
             name,
             code == ENOENT ? "no such congestion control" : pvn_strerror(code, text, sizeof(text)),
             *allowed ? allowed : "(not readable)");
}

static void set_cc(int fd, const char *name)
{
    if (*name && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name))) {
        int code = errno;

        if (first_refusal(name))
            warn_refused(name, code);
    }
}

void pvn_tcp_sockopt_data(int fd, const struct pvn_params *params)
{
    set_cc(fd, params->tcp_cc);
    set_number(fd, SOL_SOCKET, SO_SNDBUF, "SO_SNDBUF", params->tcp_sndbuf);
    set_number(fd, SOL_SOCKET, SO_RCVBUF, "SO_RCVBUF", params->tcp_rcvbuf);
    set_number(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT", params->tcp_notsent_lowat);
}

void pvn_tcp_sockopt_answers(int fd)
{
    set_number(fd, SOL_SOCKET, SO_SNDBUF, "SO_SNDBUF", ANSWERS_BYTES);
}

void pvn_tcp_sockopt_one_way(int fd)
{
    /* TCP_QUICKACK lasts until the socket sends again. */
    set_number(fd, IPPROTO_TCP, TCP_QUICKACK, "TCP_QUICKACK", 1);
}

void pvn_tcp_sockopt_early_acks(int fd, bool on)
{
    set_number(fd, SOL_SOCKET, SO_RCVLOWAT, "SO_RCVLOWAT", on ? EARLY_ACK_BYTES : 1);
}

int pvn_tcp_sockopt_bind_device(int fd, const char *ifname)
{
    return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, ifname, (socklen_t)strlen(ifname) + 1)
               ? -errno
               : 0;
}

const char *pvn_tcp_sockopt_cc(int fd, char *buf, size_t size)
{
    socklen_t len = (socklen_t)size - 1;

    if (size < 2 || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, buf, &len))
        return "?";
    buf[len < size ? len : size - 1] = '\0';
    return buf;
}

int pvn_tcp_sockopt_paced(int fd, bool *paced)
{
    char buf[32];
    const char *name = pvn_tcp_sockopt_cc(fd, buf, sizeof(buf));

    if (name != buf)
        return -ENOTSOCK;
    *paced = strncmp(name, "bbr", 3) == 0;
    return 0;
}
