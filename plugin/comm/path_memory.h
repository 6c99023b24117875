/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connector remembers of its paths (comm_paths.c): by path and kind of lane, those that were
 * lost before they had delivered a message. A handshake consists of small packets, so a path that
 * loses large ones passes it every time. A failover begins behind such lanes, RDMA before TCP on
 * one path, and a failback leaves the path alone for a time that doubles.
 */
#ifndef PVN_COMM_PATH_MEMORY_H
#define PVN_COMM_PATH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "connect/conn.h"

/* As NCCL chose it, by the route now, and to each of the peer's other addresses. */
enum { PATHS_MAX = 2 + PVN_OTHER_ADDRS };

struct path_memory {
    bool lost[PATHS_MAX][2]; /* [1]: of the faster kind, [0]: of the fallback */
    uint64_t home_ns;        /* no return to path 0 before */
    uint64_t home_wait_ns;   /* until then, counted from its last such loss */
};

/* Lanes of a path are lost. useless: no message was delivered by them, though there was one. lived: since
 * they were taken over. True: they are remembered from now on. */
bool path_memory_lost(struct path_memory *m, unsigned path, bool fast, bool useless,
                      uint64_t lived_ns, uint64_t now);
/* Leaves the kinds of lane out that were lost. False: that is all of them. */
bool path_memory_allows(const struct path_memory *m, unsigned path, struct pvn_conn_cfg *cfg);
/* All of them are lost alike: it begins with the first again. */
void path_memory_forget(struct path_memory *m);

#endif
