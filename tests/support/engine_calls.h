/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The engine's inline calls (engine/engine_calls.h) as functions, for tests that have an engine
 * and no comm. pvn_engine_test fails with -ENOTRECOVERABLE if a lane's watched words are
 * unchanged although there is work that they do not show. */
#ifndef PVN_TESTS_SUPPORT_ENGINE_CALLS_H
#define PVN_TESTS_SUPPORT_ENGINE_CALLS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

int pvn_engine_isend(struct pvn_engine *e, const void *data, size_t size, int tag,
                     const struct pvn_mr *mr, struct pvn_req **req);
int pvn_engine_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                     const int *tags, const struct pvn_mr *const *mrs, struct pvn_req **req);
int pvn_engine_test(struct pvn_req *req, int *done, size_t *sizes);
/* True if a test of the request would return without a poll. The call counts as an empty poll
 * then. */
bool pvn_engine_is_still(const struct pvn_req *req);

#ifdef __cplusplus
}
#endif

#endif
