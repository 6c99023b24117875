/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths by which a connector reaches its peer again. Each attempt of a failover takes the next:
 *
 *     0     as the first connection was made: from the device that NCCL chose to the address in
 *           the handle; a failback knows this path only
 *     1     to the same address, from the device to which the kernel routes it now
 *     2..   to the peer's other addresses (HELLO), each from the device to which it is routed
 *
 * The comm then goes on with the lanes that this pair of devices has. A route over an interface
 * that is none of the plugin's devices is not taken, because the user may have excluded it.
 *
 * Threads: as link.h. Other threads may call next and index, which read only fields that do not
 * change after init.
 */
#ifndef PVN_CONNECT_PATHS_H
#define PVN_CONNECT_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/conn.h"
#include "connect/path_memory.h"

enum { PVN_LOSSES_MAX = 12 };

/* All zero until init. Times are of the monotonic clock. */
struct pvn_paths {
    struct pvn_conn_cfg home; /* connector: that of the first connection, with `resumes` set */
    /* Devices on other interfaces, by which the peer may be reached. They outlive the comm; the
     * list belongs to this struct. */
    int nbeside;
    const struct pvn_device **beside;
    /* Other addresses of the peer. At an acceptor: those where its process can be seen
     * (presence.h). */
    int nothers;
    struct pvn_wire_addr other[PVN_OTHER_ADDRS];
    int best;          /* pvn_conn_worth() of the best lanes so far */
    uint64_t since_ns; /* since when the lanes are in use */
    /* Connector: their path, and how many messages had been delivered when they came. */
    unsigned used;
    uint64_t messages;
    struct pvn_path_memory memory;
    /* How often lanes were lost in a row while requests were open and no message was delivered. */
    unsigned losses;
    uint64_t losses_messages;
    bool said_useless;
};

/* first: the comm's first connection, which is up. id: that of the comm. beside: n devices on other
 * interfaces; without memory their list stays empty. */
void pvn_paths_init(struct pvn_paths *p, const struct pvn_conn *first, uint64_t id,
                    const struct pvn_device *const *beside, int n);
void pvn_paths_free(struct pvn_paths *p);

/* Counts a loss of the lanes, when `messages` had been delivered. open: others had not. True if more
 * than PVN_LOSSES_MAX came in a row, with no message in between: no path comes back. A peer that is
 * merely late takes no message either, so lanes that have lived for a minute do not count. */
bool pvn_paths_count_loss(struct pvn_paths *p, uint64_t messages, bool open, uint64_t now);

/* Connector: returns the configuration of attempt number *attempt, which begins at 0. Skips paths
 * that lead nowhere now, and advances *attempt past them. Path 0 always leads somewhere. */
struct pvn_conn_cfg pvn_paths_next(const struct pvn_paths *p, unsigned *attempt);
/* Like pvn_paths_next, but takes no lanes in the first round that were lost before they had
 * delivered a message (path_memory.h). */
struct pvn_conn_cfg pvn_paths_choose(struct pvn_paths *p, unsigned *attempt);
/* The path that an attempt takes. */
unsigned pvn_paths_index(const struct pvn_paths *p, unsigned attempt);
/* True if `set`, a bit per path, has all paths that lead anywhere now. */
bool pvn_paths_are_all(const struct pvn_paths *p, unsigned set);
/* True if there may be more than one path. */
bool pvn_paths_more(const struct pvn_paths *p);

#endif
