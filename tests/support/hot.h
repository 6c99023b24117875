/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The engine's inline calls (engine/engine_fast.h) with what comm_fast.h does around them, for tests
 * that have an engine and no comm: as the calls of engine.h, and by those wherever the inline ones
 * do not do. */
#ifndef PVN_TESTS_SUPPORT_HOT_H
#define PVN_TESTS_SUPPORT_HOT_H

#include "engine/engine.h"

int hot_isend(struct pvn_engine *e, const void *data, size_t size, int tag, const struct pvn_mr *mr,
              struct pvn_req **req);
int hot_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes, const int *tags,
              const struct pvn_mr *const *mrs, struct pvn_req **req);
int hot_test(struct pvn_req *req, int *done, size_t *sizes);

#endif
