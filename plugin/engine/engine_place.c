/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Destinations of chunks on the receiving side of clear-to-send comms whose lanes write payloads to the
 * buffers themselves (PVN_LANE_PLACES), as TCP does.
 *
 * The sender names slot and buffer, which it knows from a clear-to-send entry. So a chunk never waits for
 * a buffer, and no message is unexpected. Slot and buffer are checked: a malformed peer can write only
 * into a posted buffer that has been announced to it and is not complete.
 */
#include "engine/engine_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int eng_place_new(struct receiver *rx)
{
    if (rx->placed)
        memset(rx->placed, 0, PVN_MAX_REQS * sizeof(*rx->placed));
    else
        rx->placed = calloc(PVN_MAX_REQS, sizeof(*rx->placed));
    return rx->placed ? 0 : -ENOMEM;
}

void eng_place_free(struct receiver *rx)
{
    free(rx->placed);
    rx->placed = NULL;
}

void eng_place_open(struct receiver *rx, const struct recv_group *g)
{
    memset(rx->placed[g - rx->groups], 0, g->req.sizes * sizeof(struct placed));
}

int eng_check_chunk(struct pvn_engine *e, const struct pvn_frame *f)
{
    if (e->rx && (e->rx->match || e->rx->placed) && f->chunk < PVN_MAX_CHUNKS &&
        f->total >> MAX_TOTAL_LOG2 == 0 && f->len <= f->total && f->offset <= f->total - f->len)
        return 0;
    return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                    "the peer sent an impossible chunk: number %u, offset %llu, %u of %llu bytes",
                    f->chunk, (unsigned long long)f->offset, f->len, (unsigned long long)f->total);
}

/* Checks that the sender may write to this buffer. 0 or the engine's error. */
static int check_buffer(struct pvn_engine *e, const struct recv_group *g, const struct pvn_frame *f)
{
    unsigned long long slot = f->seq, total = f->total;
    if (f->recv >= g->req.sizes)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer sent to buffer %u of receive %llu, which has %u", f->recv + 1u,
                        slot, g->req.sizes);
    const struct pvn_buffer *b = &g->buf[f->recv];
    if (f->tag != b->tag)
        return eng_fail(
            e, -EPROTO, PVN_FAULT_REMOTE,
            "the peer sent a message with tag %d to a buffer of receive %llu with tag %d", f->tag,
            slot, b->tag);
    if (f->total > b->size)
        return eng_fail(e, -EMSGSIZE, PVN_FAULT_REMOTE,
                        "the peer's message (tag %d) has %llu bytes, the receive posted for it "
                        "takes %zu",
                        f->tag, total, b->size);
    return 0;
}

int eng_slot_place(void *engine, const struct pvn_lane *lane, const struct pvn_frame *f,
                   struct pvn_place *to)
{
    struct pvn_engine *e = engine;
    struct receiver *rx = e->rx;
    if (e->state == ENG_FAILED || eng_check_chunk(e, f) != 0)
        return e->err.code;
    if (f->seq >= rx->next_slot - rx->unpublished)
        return eng_fail(e, -EPROTO, PVN_FAULT_REMOTE,
                        "the peer sent to receive %llu, which has not been announced to it",
                        (unsigned long long)f->seq);
    struct recv_group *g = rx->ring[f->seq % SLOT_RING];
    if (!g || g->slot != f->seq) {
        e->stats.stale++;
        return -EALREADY;
    }
    if (check_buffer(e, g, f) != 0)
        return e->err.code;
    struct placed *p = &rx->placed[g - rx->groups][f->recv];
    if (g->ent[f->recv].done || chunk_test(&p->chunks, f->chunk)) {
        e->stats.dups++;
        return -EALREADY;
    }
    if ((p->begun && p->total != f->total) || f->len > f->total - p->bytes)
        return eng_fail(
            e, -EPROTO, PVN_FAULT_REMOTE,
            "the peer's chunks for buffer %u of receive %llu do not fit together: %u more "
            "bytes than %llu, in a message of %llu",
            f->recv + 1u, (unsigned long long)f->seq, f->len, (unsigned long long)p->bytes,
            (unsigned long long)f->total);
    chunk_add(&p->chunks, f->chunk);
    p->begun = true;
    p->bytes += f->len;
    p->total = f->total;
    const struct pvn_buffer *b = &g->buf[f->recv];
    to->copy = b->mr ? b->mr->copy : NULL;
    to->dst = (uint8_t *)b->addr + f->offset;
    return 0;
}
