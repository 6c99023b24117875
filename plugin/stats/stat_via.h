/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The transports of a comm, taken from the description of its lanes. Any thread. */
#ifndef PVN_STATS_STAT_VIA_H
#define PVN_STATS_STAT_VIA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits, because one comm may have lanes of several transports. */
enum { PVN_VIA_RDMA = 1, PVN_VIA_TCP = 2, PVN_VIA_OTHER = 4 };

/* Returns the transports of the lanes in a description such as "rdma on p0, record mode; tcp on
 * lo". */
uint32_t pvn_via_of_lanes(const char *lanes);

/* Writes "rdma", "tcp" or "rdma+tcp"; "" for 0. Returns out. */
const char *pvn_via_text(uint32_t via, char *out, size_t cap);

#ifdef __cplusplus
}
#endif

#endif
