/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by p2p and mesh: their work before and after messages move. 0, or -1 after
 * pvn_rank_fail. */
#ifndef PVN_PERF_P2P_H
#define PVN_PERF_P2P_H

#include "perf/patterns/p2p_flow.h"

/* Bytes of one flow's buffers, in whole pages. */
uint64_t pvn_p2p_region(const struct pvn_perf_opts *o);

/* Checks that this version of the interface and this device can do what was requested. */
int pvn_p2p_limits(const struct pvn_p2p *p);

/* Makes the flows of all channels on the comms of p->r->link, in p->mem (two regions per channel),
 * and registers them. */
int pvn_p2p_register(struct pvn_p2p *p);
/* Undoes pvn_p2p_register; no request may be open. */
int pvn_p2p_deregister(struct pvn_p2p *p);
/* Frees only the flows, if requests are open. */
void pvn_p2p_free(struct pvn_p2p *p);

#endif
