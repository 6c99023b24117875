/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Options of a lane's data sockets, beyond those that every socket of ours gets (connect/sock.h).
 * None of them is worth a connection: what the kernel refuses is said once and done without. */
#ifndef PVN_NET_TCP_SOCKOPT_H
#define PVN_NET_TCP_SOCKOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/param.h"

/* Sets, from the parameters, congestion control (TCP_CC), TCP_NOTSENT_LOWAT and the buffers' sizes
 * (TCP_SNDBUF, TCP_RCVBUF). Best before connect or listen, for the receive buffer decides on the
 * window scale; accepted sockets inherit from the listener. The limit of unsent bytes is for the
 * choice among several streams, and a lone one gains by it as well where bbr paces it (figures in
 * tests/bench/README.md). A refused congestion control is warned of once per process and name, with
 * the ones that are allowed. */
void pvn_tcp_sockopt_data(int fd, const struct pvn_params *params);

/* Makes room on a receiving socket for all zero-copy acknowledgements that can be in flight at
 * once, one byte and one packet each: one that did not fit would wait for a call that may not
 * come. */
void pvn_tcp_sockopt_answers(int fd);

/* Declares to the kernel that nothing will be sent on this socket for now, for one that receives.
 * Having answered once it passes for interactive, and Linux then keeps the acknowledgement of a
 * small segment for the next one to come; two of more than 268 bytes are past what it leaves
 * unacknowledged (rcv_mss, 536 until larger segments were seen), so the second is acknowledged
 * while it is delivered, with the socket locked against the reader (__tcp_ack_snd_check in
 * net/ipv4/tcp_input.c, seen on Linux 6.18). From here on the reader's own call acknowledges what
 * it has taken. */
void pvn_tcp_sockopt_one_way(int fd);

/* Sets if what arrives on this socket is acknowledged at once or, as by default, when it is read. Linux
 * acknowledges full segments on arrival only where the window that it announces can stay as large, or where
 * fewer bytes are unread than the socket's low watermark (SO_RCVLOWAT; __tcp_ack_snd_check in
 * net/ipv4/tcp_input.c, since Linux 4.18, before it without effect): so this sets 4 MiB,
 * or as much as the kernel takes. A refusal leaves it as it was and shows in the trace alone. By the stream's thread.
 * poll and epoll then take the socket for empty, so it has to be off before anybody waits by them; reads
 * that do not block are the same. */
void pvn_tcp_sockopt_early_acks(int fd, bool on);

/* Ties a socket to an interface, for interfaces that share a network: the route
 * alone would send by one of them only. 0, or a negative errno: -EPERM before Linux
 * 5.7 without CAP_NET_RAW, -ENODEV. */
int pvn_tcp_sockopt_bind_device(int fd, const char *ifname);

/* The congestion control in use ("bbr"); "?" where it cannot be read. */
const char *pvn_tcp_sockopt_cc(int fd, char *buf, size_t size);

/* *paced: the socket's congestion control paces each connection by itself: bbr, any version. One that
 * was set on a route is seen only when the socket is connected. 0, or -ENOTSOCK: no TCP socket. */
int pvn_tcp_sockopt_paced(int fd, bool *paced);

#endif
