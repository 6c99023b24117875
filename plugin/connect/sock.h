/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of connection set-up: listening, dialling, accepting. All are non-blocking and
 * close-on-exec; none ever raises SIGPIPE. All have the parameters' keepalive, and no delay; what is
 * accepted has both from the socket that listens. A forked child has none of them (base/fork_fds.h). An option that the kernel refuses is worth a trace
 * line, not a connection. A lane's data sockets are dialled here too and get their data options from the lane.
 */
#ifndef PVN_CONNECT_SOCK_H
#define PVN_CONNECT_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

/* All return a descriptor or a negative errno with *err set, unless they say something else. */

/* Bound to `addr` with a free port, which is written back to it. */
int pvn_sock_listen(struct sockaddr_storage *addr, socklen_t len, struct pvn_err *err);

/*
 * A socket towards `peer`, not connected yet: a lane adds its own options before
 * pvn_sock_connect starts the connection from `local` (its port is not used; len 0 or another
 * family: the kernel chooses). connect returns 0 when it is in progress or done; it closes fd when
 * it fails.
 */
int pvn_sock_open(const struct sockaddr_storage *peer, int traffic_class, struct pvn_err *err);
int pvn_sock_connect(int fd, const struct sockaddr_storage *local, socklen_t local_len,
                     const struct sockaddr_storage *peer, socklen_t peer_len, struct pvn_err *err);
/* Both. */
int pvn_sock_dial(const struct sockaddr_storage *local, socklen_t local_len,
                  const struct sockaddr_storage *peer, socklen_t peer_len, int traffic_class,
                  struct pvn_err *err);

/* The address from which the kernel would send to `peer` now. 0 or a negative errno: there is no
 * route. Sends nothing. */
int pvn_sock_route(const struct sockaddr_storage *peer, socklen_t peer_len,
                   struct sockaddr_storage *from);

/* Next connection of a listening socket; -EAGAIN (without *err) when there is none. */
int pvn_sock_accept(int listen_fd, struct sockaddr_storage *peer, struct pvn_err *err);

/* Sets the traffic class where it is not -1. */
void pvn_sock_set_class(int fd, int traffic_class);

/* 0 if a dialled socket is connected, -EAGAIN if not yet, or the negative errno of the failed attempt. Once
 * connected, the kernel sets no limit to what the peer does not read. */
int pvn_sock_connected(int fd);

/* Ends a connection, or listening, and closes fd. A close alone would leave the other side waiting
 * for as long as a child of this process that was made without fork handlers has the descriptor, too. */
void pvn_sock_close(int fd);

#endif
