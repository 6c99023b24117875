/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * pvn-perf p2p --duration: messages for a given time, with a line per interval. They move in
 * batches of about a quarter of a second. After each batch the two ranks exchange their results, so
 * that memory is constant and rank 0 knows the verified data and the plugin's reports.
 */
#ifndef PVN_PERF_P2P_SOAK_H
#define PVN_PERF_P2P_SOAK_H

#include "perf/patterns/p2p_flow.h"

/* Runs one size. Fills *res except for the point's parameters. 0, or -1 after pvn_rank_fail or an
 * interruption: *res then has the completed exchanges, and got_messages is 0 if there are none. */
int pvn_p2p_soak(struct pvn_p2p *p, struct pvn_row_result *res);

#endif
