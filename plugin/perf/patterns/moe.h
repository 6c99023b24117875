/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a mixture of experts: each token goes to the ranks of the experts that a router
 * picks for it (dispatch), and the experts' results come back (combine). Without a model there are
 * only uneven sizes. All numbers are whole, so that every rank computes the same.
 */
#ifndef PVN_PERF_MOE_H
#define PVN_PERF_MOE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Mixtral 8x7B: Jiang et al., arXiv:2401.04088, table 1 (dim, n_layers, num_experts, top_k). */
enum {
    PVN_MOE_HIDDEN = 4096,
    PVN_MOE_LAYERS = 32,
    PVN_MOE_EXPERTS = 8,
    PVN_MOE_TOP = 2,
    PVN_MOE_TOKEN_BYTES = 2 * PVN_MOE_HIDDEN /* bfloat16 */
};

/*
 * Counts rank src's tokens for each expert of a layer. In every layer each expert has a weight of
 * 64 to 256, and every token picks PVN_MOE_TOP different experts by these weights.
 */
void pvn_moe_route(int layer, int src, int tokens, uint64_t count[PVN_MOE_EXPERTS]);

/* The rank that has the expert for rank src. Up to 8 ranks share the experts. With more ranks, each
 * group of 8 neighbours has all experts, one per rank, as in Megatron-LM's expert parallelism of
 * 8. */
int pvn_moe_rank(int expert, int src, int nranks);

/* Computes the bytes that each rank sends to each other in a layer: bytes[src * nranks + dst] for
 * dispatch, with the ranks exchanged for combine. A token is sent once for each of its experts, as
 * by Megatron-LM's all-to-all dispatcher. */
void pvn_moe_bytes(int layer, int tokens, int combine, int nranks, uint64_t *bytes);

/*
 * Computes the sizes of alltoallv: `each` bytes of every rank are divided unevenly. One pair in 8
 * has none, the others have weights of 1 to 255, and a rank keeps the remainder.
 */
void pvn_uneven_bytes(uint64_t each, int nranks, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
