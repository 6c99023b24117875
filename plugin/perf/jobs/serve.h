/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hosts without a launcher: `pvn-perf serve` waits on one, and `pvn-perf p2p HOST` on the other
 * is its client. The server accepts one client at a time. A run is a process of its own, so that a
 * failure in it does not end the server. With NCCL_PVRDMA_KEY_FILE both ends prove the key, and
 * their messages are sealed. Without it the connection is unauthenticated and meant for private
 * networks.
 */
#ifndef PVN_PERF_SERVE_H
#define PVN_PERF_SERVE_H

#include "perf/options/opts.h"
#include "tools/boot.h"
#include "tools/boot_line.h"

#define PVN_SERVE_LABEL "pvn-perf serve" /* label of the key's secrets */

/* Serves until a signal or, with --once, for one client. Returns pvn-perf's exit status. */
int pvn_serve(const struct pvn_perf_opts *o);

/*
 * For the client: connects to the server o->peer and requests the run. 0 and *b with this process
 * as rank 0 of 2 (pvn_boot_close), or a negative errno with a sentence in why.
 */
int pvn_serve_join(struct pvn_boot *b, const struct pvn_perf_opts *o, char *why, size_t why_len);

/* Tunes the connection between the two so that the loss of the peer's host is noticed. */
void pvn_serve_tune(int fd);
/* Makes *b from that connection, in rank 0 (the client) or 1. A sealed connection is closed here,
 * and *l is then empty. 0, or a negative errno with why and *l unchanged. */
int pvn_serve_boot(struct pvn_boot *b, int rank, struct pvn_boot_line *l, double timeout, char *why,
                   size_t why_len);

#endif
