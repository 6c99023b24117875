/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof that the process of a connector exists while it is stopped.
 *
 * In a failover an acceptor waits to be dialled. A connector that is stopped as a whole (SIGSTOP, docker pause,
 * a debugger) dials nobody, and once the kernel has given up its old connections nothing shows that it is there.
 * But its kernel still accepts connections. So the process of a connector listens at its interfaces, and its HELLO
 * says where. An acceptor that hears nothing dials there:
 *
 *     refused, or no answer   the process, or its machine, is gone or cannot be reached
 *     closed at once          the process runs (the plugin's answering thread does that), and dials by itself
 *     stands                  the process exists and is stopped
 *
 * No byte that comes in there is read, and connections that come in are closed. Who reaches the port learns that it is
 * open.
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
 * The process listens at the addresses of these devices until the last holder has released it. Gives up to
 * PVN_OTHER_ADDRS addresses and returns their number; 0 where none can be listened on, and then nothing is
 * proved, which is no error. Each hold has its release, also where it gave no address.
 */
int pvn_presence_hold(const struct pvn_device *const *dev, int ndevs, struct pvn_wire_addr *out);
void pvn_presence_release(void);

/* Closes the connections that have come in. Does not block. */
void pvn_presence_answer(void);
/* True while somebody holds it, so that answer has to be called. */
bool pvn_presence_any(void);
/* In a forked child, which has no copies of the sockets: forgets the parent's. */
void pvn_presence_after_fork(void);

/* All zero at first. */
struct pvn_presence_probe {
    bool open;
    bool connected;
    int fd;
    unsigned next;    /* address that is dialled next, counted on */
    uint64_t next_ns; /* and not before */
    uint64_t began_ns;
    uint64_t
        sent_ns; /* when a byte was last sent, so that the peer's machine has something to acknowledge */
    struct pvn_path_watch path;
};

/*
 * One step, which does not block: dials one of these n addresses, the next one after a failure. True while a
 * connection stands, and the peer's machine acknowledges what is sent there.
 */
bool pvn_presence_stands(struct pvn_presence_probe *p, const struct pvn_wire_addr *addr, int n,
                         uint64_t now);
void pvn_presence_probe_end(struct pvn_presence_probe *p);

#endif
