/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf p2p --duration: messages for a given time, with a line per interval. They move in
 * batches of about a quarter of a second, after each of which the two ranks exchange what they saw,
 * so that memory is constant and rank 0 knows what was right and what the plugin reports.
 */
#ifndef PVN_PERF_P2P_SOAK_H
#define PVN_PERF_P2P_SOAK_H

#include "perf/patterns/p2p_flow.h"

/* One size. Fills *res but for the point that it is of. 0, or -1 after pvn_rank_fail or an interruption:
 * *res is then of what was exchanged until then, got_messages 0 if that is nothing. */
int pvn_p2p_soak(struct pvn_p2p *p, struct pvn_row_result *res);

#endif
