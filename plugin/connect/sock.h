/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets of connection set-up: listening, dialling, accepting. A lane's data sockets are
 * dialled here, too; the lane sets their data options.
 *
 * All sockets are non-blocking and close-on-exec, and never raise SIGPIPE. All have TCP_NODELAY and
 * the keepalive that the parameters set; an accepted socket inherits both from the listening
 * socket. A forked child has none of them (base/fork_fds.h). If the kernel refuses an option, a
 * trace line reports it and the connection goes on.
 */
#ifndef PVN_CONNECT_SOCK_H
#define PVN_CONNECT_SOCK_H

#include <sys/socket.h>

#include "base/err.h"

/* Functions return a descriptor, or a negative errno with *err set, unless their comment says
 * otherwise. */

/* Listens at `addr` on a free port, which is written back into `addr`. */
int pvn_sock_listen(struct sockaddr_storage *addr, socklen_t len, struct pvn_err *err);

/*
 * pvn_sock_open makes a socket for a connection to `peer` and does not connect it yet, so that a
 * lane can set its own options first. pvn_sock_connect starts the connection from the address
 * `local`. It ignores the port of `local`; if local_len is 0 or the families differ, the kernel
 * chooses the address. It returns 0 if the connection is established or in progress, and closes fd
 * if it fails.
 */
int pvn_sock_open(const struct sockaddr_storage *peer, int traffic_class, struct pvn_err *err);
int pvn_sock_connect(int fd, const struct sockaddr_storage *local, socklen_t local_len,
                     const struct sockaddr_storage *peer, socklen_t peer_len, struct pvn_err *err);
/* pvn_sock_open, then pvn_sock_connect. */
int pvn_sock_dial(const struct sockaddr_storage *local, socklen_t local_len,
                  const struct sockaddr_storage *peer, socklen_t peer_len, int traffic_class,
                  struct pvn_err *err);

/* Sets *from to the address from which the kernel would now send to `peer`. 0, or a negative errno,
 * for example if there is no route. Sends nothing. */
int pvn_sock_route(const struct sockaddr_storage *peer, socklen_t peer_len,
                   struct sockaddr_storage *from);

/* Returns the next connection of a listening socket, or -EAGAIN (without *err) if there is none. */
int pvn_sock_accept(int listen_fd, struct sockaddr_storage *peer, struct pvn_err *err);

/* Sets the traffic class, unless it is -1. */
void pvn_sock_set_class(int fd, int traffic_class);

/* Returns 0 if a dialled socket is connected, -EAGAIN if it is not yet, or the negative errno of
 * the failed attempt. Once connected, TCP_USER_TIMEOUT is cleared, so that the kernel gives a slow
 * reader as long as it needs. */
int pvn_sock_connected(int fd);

/* Shuts down a connection or a listening socket, then closes fd. A close alone does not end the
 * connection while a child of this process that was made without fork handlers has a copy of the
 * descriptor; the other side would wait. */
void pvn_sock_close(int fd);

#endif
