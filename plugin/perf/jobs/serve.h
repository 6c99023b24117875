/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hosts without a launcher: `pvn-perf serve` waits on one, `pvn-perf p2p HOST` on the other is
 * its client. The server takes one client at a time, whose run is a process of its own, so that
 * what fails there does not end the server. With NCCL_PVRDMA_KEY_FILE both prove the key, and what they say is
 * sealed; without it unauthenticated, for private networks.
 */
#ifndef PVN_PERF_SERVE_H
#define PVN_PERF_SERVE_H

#include "perf/options/opts.h"
#include "tools/boot.h"
#include "tools/boot_line.h"

#define PVN_SERVE_LABEL "pvn-perf serve" /* of the key's secrets */

/* Serves until a signal, or with --once one client: pvn-perf's exit status. */
int pvn_serve(const struct pvn_perf_opts *o);

/*
 * In the client: reaches the server of o->peer and has it accept the run. 0 and *b with this
 * process as rank 0 of 2 (pvn_boot_close), or a negative errno with a sentence in why.
 */
int pvn_serve_join(struct pvn_boot *b, const struct pvn_perf_opts *o, char *why, size_t why_len);

/* For the connection between the two: a peer whose host has gone is noticed. */
void pvn_serve_tune(int fd);
/* *b from that connection, in rank 0 (the client) or 1, which is closed here if it is sealed, and *l then empty. 0, or a
 * negative errno with why; then *l is as it was. */
int pvn_serve_boot(struct pvn_boot *b, int rank, struct pvn_boot_line *l, double timeout, char *why,
                   size_t why_len);

#endif
