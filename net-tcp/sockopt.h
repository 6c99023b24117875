/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Options of a lane's data sockets, beyond those that every socket of the plugin gets
 * (connect/sock.h). No option is worth losing a connection: if the kernel refuses one, the lane
 * works without it. */
#ifndef PVN_NET_TCP_SOCKOPT_H
#define PVN_NET_TCP_SOCKOPT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/param.h"

/* Sets congestion control (TCP_CC), TCP_NOTSENT_LOWAT and the buffers' sizes (TCP_SNDBUF,
 * TCP_RCVBUF) from the parameters. Best called before connect or listen, because the receive buffer
 * determines the window scale; accepted sockets inherit from the listener. The limit of unsent
 * bytes serves the choice among several streams; a single stream gains by it too if bbr paces it
 * (figures in tests/bench/README.md). A refused congestion control causes one warning per process
 * and name, which lists the allowed ones. */
void pvn_tcp_sockopt_data(int fd, const struct pvn_params *params);

/* Makes room on a receiving socket for all zero-copy acknowledgements that can be in flight at
 * once, one byte and one packet each. An acknowledgement without room would wait for a later call,
 * which may never come. */
void pvn_tcp_sockopt_answers(int fd);

/* Declares to the kernel that a receiving socket sends nothing for now. A socket that has sent once
 * counts as interactive, so Linux delays the acknowledgement of a small segment until the next one
 * arrives. Two segments of more than 268 bytes exceed what Linux leaves unacknowledged (rcv_mss,
 * 536 bytes until it has seen larger segments). It then acknowledges the second one while it
 * delivers it, with the socket locked against the reader (__tcp_ack_snd_check in
 * net/ipv4/tcp_input.c, seen on Linux 6.18). After this call the reader's own call acknowledges
 * what it has taken. */
void pvn_tcp_sockopt_one_way(int fd);

/* Selects when Linux acknowledges data: on arrival (`on`) or, as by default, when it is read. Linux
 * acknowledges full segments on arrival only if the window that it announces can stay as large, or
 * if fewer bytes are unread than the socket's low watermark (SO_RCVLOWAT; __tcp_ack_snd_check in
 * net/ipv4/tcp_input.c, since Linux 4.18; earlier kernels ignore it). So `on` sets the watermark to
 * 4 MiB, or as much as the kernel takes. A refusal changes nothing and shows only in the trace.
 * Called by the stream's thread. While it is on, poll and epoll report the socket as empty, so turn
 * it off before anybody waits by them. Non-blocking reads are not affected. */
void pvn_tcp_sockopt_early_acks(int fd, bool on);

/* Binds a socket to an interface, for interfaces that share a network: by the routes alone all
 * packets would leave by one of them. 0, or a negative errno: -EPERM before Linux 5.7 without
 * CAP_NET_RAW, -ENODEV. */
int pvn_tcp_sockopt_bind_device(int fd, const char *ifname);

/* The congestion control in use ("bbr"); "?" if it cannot be read. */
const char *pvn_tcp_sockopt_cc(int fd, char *buf, size_t size);

/* *paced: the socket's congestion control paces each connection by itself (any version of bbr). One
 * that a route selects is visible only when the socket is connected. 0, or -ENOTSOCK if this is no
 * TCP socket. */
int pvn_tcp_sockopt_paced(int fd, bool *paced);

#endif
