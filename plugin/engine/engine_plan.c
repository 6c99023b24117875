/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Cuts messages into chunks. */
#include "engine/engine_priv.h"

enum { PAGE = 4096 };

size_t eng_chunk(const struct pvn_engine_cfg *cfg)
{
    /* The only lane of a comm carries the whole message, so cutting it only costs. */
    size_t lone = cfg->nlanes == 1 ? cfg->lanes[0]->lone_chunk : 0;
    size_t chunk = cfg->chunk > lone ? cfg->chunk : lone;
    for (int i = 0; i < cfg->nlanes; i++) {
        size_t most = cfg->lanes[i]->max_chunk;
        if (most && chunk > most)
            chunk = most > lone ? most : lone;
    }
    return chunk;
}

/* Uses chunks of the usual size unless the message would need more than PVN_MAX_CHUNKS of them. Larger
 * chunks are whole pages, so that two lanes never write to the same page. */
struct plan eng_cut(size_t size, size_t chunk)
{
    size_t least = (size + PVN_MAX_CHUNKS - 1) / PVN_MAX_CHUNKS;
    if (chunk < least)
        chunk = (least + PAGE - 1) / PAGE * PAGE;
    return (struct plan){.chunk = chunk, .count = (unsigned)((size + chunk - 1) / chunk)};
}
