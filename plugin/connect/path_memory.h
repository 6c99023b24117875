/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A connector's memory of useless lanes: for each path (numbered as in paths.h) and kind of lane, whether lanes
 * were lost before they had delivered a message. A handshake consists of small packets, so a path that drops large
 * ones, as with a wrong MTU, passes it every time. The first round of a failover skips these lanes; on a path whose
 * RDMA lanes were useless it tries TCP alone. A failback returns to path 0 only after a pause, which doubles with
 * each such loss there.
 *
 * Threads: as link.h; link_back.c gives the trying thread a copy of home_ns.
 */
#ifndef PVN_CONNECT_PATH_MEMORY_H
#define PVN_CONNECT_PATH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/conn.h"

/* Path 0 is the one that NCCL chose, path 1 follows the present route to the same address, and each
 * of the others leads to one more address of the peer. */
enum { PVN_PATHS_MAX = 2 + PVN_OTHER_ADDRS };

struct pvn_path_memory {
    /* lost[path][1]: lanes of the faster kind (RDMA); lost[path][0]: lanes of the fallback
     * (TCP). */
    bool lost[PVN_PATHS_MAX][2];
    uint64_t home_ns; /* no return to path 0 before this time of the monotonic clock */
    /* The pause that ends then; 0: no useless loss on path 0 since it last worked. */
    uint64_t home_wait_ns;
};

/* Records that lanes of a path are lost. fast: their kind, see `lost`. useless: they delivered no message, though
 * there was one to send. lived_ns: how long they carried the comm. True if they were not remembered
 * before and are now. */
bool pvn_path_memory_lost(struct pvn_path_memory *m, unsigned path, bool fast, bool useless,
                          uint64_t lived_ns, uint64_t now);
/* Restricts cfg to the kinds of lane that were not lost on this path. False if no kind is left. */
bool pvn_path_memory_allows(const struct pvn_path_memory *m, unsigned path,
                            struct pvn_conn_cfg *cfg);
/* Forgets all losses, but not home_ns: if every path was lost, none is worse than another. */
void pvn_path_memory_forget(struct pvn_path_memory *m);

#endif
