/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* How a message is cut into chunks. */
#include "engine/engine_priv.h"

enum { PAGE = 4096 };

size_t eng_chunk(const struct pvn_engine_cfg *cfg)
{
    /* A lone lane shares the message with none, so cutting it only costs. */
    size_t lone = cfg->nlanes == 1 ? cfg->lanes[0]->lone_chunk : 0;
    size_t chunk = cfg->chunk > lone ? cfg->chunk : lone;
    for (int i = 0; i < cfg->nlanes; i++) {
        size_t most = cfg->lanes[i]->max_chunk;
        if (most && chunk > most)
            chunk = most > lone ? most : lone;
    }
    return chunk;
}

/* Chunks of the usual size; larger ones when the message would need more than PVN_MAX_CHUNKS, in
 * whole pages so that no page is written by two lanes. */
struct plan eng_cut(size_t size, size_t chunk)
{
    size_t least = (size + PVN_MAX_CHUNKS - 1) / PVN_MAX_CHUNKS;
    if (chunk < least)
        chunk = (least + PAGE - 1) / PAGE * PAGE;
    return (struct plan){.chunk = chunk, .count = (unsigned)((size + chunk - 1) / chunk)};
}
