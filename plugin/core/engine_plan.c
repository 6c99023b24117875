/* How a message is cut into chunks. */
#include "core/engine_priv.h"

enum { PAGE = 4096 };

/* Chunks of the preferred size; larger ones when the message would need more than PVN_MAX_CHUNKS,
 * in whole pages so that no page is written by two lanes. A message that one lane takes whole is
 * not cut. */
struct plan eng_plan(const struct pvn_engine *e, size_t size)
{
    size_t chunk = e->cfg.chunk;
    for (int i = 0; i < e->cfg.nlanes; i++) {
        const struct pvn_lane *l = e->cfg.lanes[i];
        if (l->min_chunk > chunk)
            chunk = l->min_chunk;
    }
    for (int i = 0; i < e->cfg.nlanes; i++) {
        const struct pvn_lane *l = e->cfg.lanes[i];
        if (l->max_chunk && chunk > l->max_chunk)
            chunk = l->max_chunk;
    }
    if (size <= chunk)
        return (struct plan){.chunk = size, .count = 1};
    size_t least = (size + PVN_MAX_CHUNKS - 1) / PVN_MAX_CHUNKS;
    if (chunk < least)
        chunk = (least + PAGE - 1) / PAGE * PAGE;
    return (struct plan){.chunk = chunk, .count = (unsigned)((size + chunk - 1) / chunk)};
}
