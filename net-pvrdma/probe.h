/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Trials of what an adapter really does, whatever it reports. */
#ifndef PVN_NET_PVRDMA_PROBE_H
#define PVN_NET_PVRDMA_PROBE_H

#include "net-pvrdma/hca.h"
#include "net-pvrdma/verbs.h"

enum pvn_probe { PVN_PROBE_WORKS, PVN_PROBE_FAILS, PVN_PROBE_UNKNOWN };

/*
 * Finds out if RDMA WRITE works: a queue pair of the port, connected to itself, writes a few bytes.
 * FAILS: a WRITE does not arrive, and a SEND on the same queue pair does. UNKNOWN: the port cannot talk
 * to itself. Some devices accept a WRITE and carry out a SEND (QEMU 7.2's pvrdma,
 * hw/rdma/rdma_backend.c), so the bytes are looked at. Blocks for a second at most, usually for
 * less than a millisecond. Any thread.
 */
enum pvn_probe pvn_probe_write(const struct pvn_verbs *v, const struct pvn_hca *h,
                               const struct pvn_hca_port *p);

#endif
