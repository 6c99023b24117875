/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof that the process of a connector exists while it is stopped.
 *
 * In a failover an acceptor waits to be dialled. A connector that is stopped as a whole (SIGSTOP,
 * docker pause, a debugger) dials nobody. Once the kernel has given up its old connections, nothing
 * shows that it is there. But its kernel still accepts connections. So the process of a connector
 * listens on its interfaces, and its HELLO says where. An acceptor that hears nothing dials these
 * addresses:
 *
 *     refused, or no answer   the process, or its machine, is gone or cannot be reached
 *     closed at once          the process runs (its answering thread closes it), and dials by itself
 *     stands                  the process exists and is stopped
 *
 * Bytes that come in there are not read, and the connections are closed. Anybody who reaches the
 * port learns that it is open.
 *
 * Threads: hold, release, answer and any: all. A probe belongs to one thread.
 */
#ifndef PVN_CONNECT_PRESENCE_H
#define PVN_CONNECT_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/path_watch.h"
#include "connect/transport.h"
#include "connect/wire.h"

/*
 * Makes the process listen at the addresses of these devices until the last holder has released it.
 * Writes up to PVN_OTHER_ADDRS addresses and returns their number. 0 if it cannot listen on any:
 * nothing is proved then, which is no error. Each hold has its release, even if it gave no address.
 */
int pvn_presence_hold(const struct pvn_device *const *dev, int ndevs, struct pvn_wire_addr *out);
void pvn_presence_release(void);

/* Closes the connections that have come in. Does not block. */
void pvn_presence_answer(void);
/* True while somebody holds it: answer has to be called. */
bool pvn_presence_any(void);
/* In a forked child, which has no copies of the sockets: forgets the parent's. */
void pvn_presence_after_fork(void);

/* All zero at first. */
struct pvn_presence_probe {
    bool open;
    bool connected;
    int fd;
    unsigned next;    /* address that is dialled next, modulo their number */
    unsigned refused; /* bit per address that refused the last connection */
    uint64_t next_ns; /* no dialling before this time */
    uint64_t began_ns;
    /* When a byte was last sent, so that the peer's machine has something to acknowledge. */
    uint64_t sent_ns;
    struct pvn_path_watch path;
};

/*
 * Takes one step, which does not block: dials one of these n addresses, and the next one after a
 * failure. True while a connection stands, and the peer's machine acknowledges what is sent on it.
 */
bool pvn_presence_stands(struct pvn_presence_probe *p, const struct pvn_wire_addr *addr, int n,
                         uint64_t now);
/* True if all n addresses refused the last connection: the process is gone, or a firewall is between. */
bool pvn_presence_is_refused(const struct pvn_presence_probe *p, int n);
/* Closes the connection, and forgets what the addresses have answered. */
void pvn_presence_probe_end(struct pvn_presence_probe *p);

#endif
