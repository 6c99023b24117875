/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Trials of features that an adapter reports but may not have. */
#ifndef PVN_NET_PVRDMA_PROBE_H
#define PVN_NET_PVRDMA_PROBE_H

#include "net-pvrdma/hca.h"
#include "net-pvrdma/verbs.h"

enum pvn_probe { PVN_PROBE_WORKS, PVN_PROBE_FAILS, PVN_PROBE_NO_LOOP, PVN_PROBE_UNKNOWN };

/*
 * Finds out if RDMA WRITE works: a queue pair of the port, connected to itself, writes a few bytes.
 * FAILS: a WRITE does not arrive, but a SEND on such a queue pair does. NO_LOOP: neither arrives, and the
 * adapter reports that, so the port cannot talk to itself. UNKNOWN: the trial could not be made, or had no
 * end. Some devices accept a WRITE and carry out a SEND (QEMU 7.2's pvrdma, hw/rdma/rdma_backend.c), so the
 * trial compares the bytes. It blocks for a second at most, usually for less than a millisecond. May be
 * called from any thread. pkey: row of the port's table of partition keys, as of the lanes.
 */
enum pvn_probe pvn_probe_write(const struct pvn_verbs *v, const struct pvn_hca *h,
                               const struct pvn_hca_port *p, int pkey);

#endif
