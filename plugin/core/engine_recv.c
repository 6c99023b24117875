/* The receiving half of the engine: grouped receives, clear-to-send out, arrivals in. */
#include "core/engine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* places: a matched comm, which also keeps which chunks have a place. */
static inline void open_entry(struct recv_ent *ent, void *data, size_t size, int tag, bool places)
{
    ent->addr = data;
    ent->size = size;
    ent->tag = tag;
    ent->matched = ent->done = ent->total_known = false;
    ent->msg = ent->total = ent->got = 0;
    chunk_clear(&ent->seen, PVN_MAX_CHUNKS);
    if (places)
        chunk_clear(&ent->placed, PVN_MAX_CHUNKS);
}

int pvn_engine_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                     const int *tags, const struct pvn_mr *const *mrs, struct pvn_req **out)
{
    *out = NULL;
    if (e->failed)
        return e->err.code;
    if (!e->rx || n < 1 || n > PVN_MAX_RECVS)
        return -EINVAL;
    struct receiver *rx = e->rx;
    if (rx->nfree == 0 || e->nfree == 0 || rx->ring[rx->next_slot % SLOT_RING])
        return 0;
    int gi = rx->freed[--rx->nfree];
    struct recv_group *g = &rx->groups[gi];
    g->slot = rx->next_slot;
    g->n = n;
    g->left = n;
    for (int i = 0; i < n; i++) {
        g->mrs[i] = mrs ? mrs[i] : NULL;
        open_entry(&g->ent[i], data[i], sizes[i], tags[i], !e->needs_cts);
    }
    g->req = eng_req_get(e, REQ_RECV);
    g->req->group = (int16_t)gi;
    rx->ring[rx->next_slot % SLOT_RING] = g;
    rx->next_slot++;
    rx->unmatched += n;
    struct pvn_req *req = g->req;
    int rc = e->needs_cts ? eng_rx_post(e) : eng_match_claim(e, gi);
    if (rc < 0)
        return rc;
    *out = req;
    return 0;
}

/* Publishes slots in order. Which lane carries the entry does not matter; the first that has room.
 */
int eng_rx_post(struct pvn_engine *e)
{
    struct receiver *rx = e->rx;
    while (e->needs_cts && rx->cts_next < rx->next_slot) {
        const struct recv_group *g = rx->ring[rx->cts_next % SLOT_RING];
        struct pvn_cts c; /* large, so no more of it is filled than is looked at */
        c.seq = g->slot;
        c.n = g->n;
        for (int i = 0; i < g->n; i++) {
            c.e[i].addr = (uint64_t)(uintptr_t)g->ent[i].addr;
            c.e[i].size = g->ent[i].size;
            c.e[i].tag = g->ent[i].tag;
            for (int k = 0; k < e->cfg.nlanes; k++)
                c.e[i].rkey[k] = g->mrs[i] ? g->mrs[i]->rkey[k] : 0;
        }
        int rc = -EAGAIN;
        for (int i = 0; i < e->cfg.nlanes && rc == -EAGAIN; i++) {
            struct pvn_lane *l = e->cfg.lanes[i];
            rc = l->ops->post_cts(l, &c, g->mrs);
            if (rc < 0 && rc != -EAGAIN)
                return eng_fail_lane(e, l, rc);
            l->kick_due |= rc == 0;
        }
        if (rc == -EAGAIN) {
            e->stats.again++;
            return 0;
        }
        rx->cts_next++;
    }
    return 0;
}

/* One buffer is full: close it, its group and the request when it was the last. */
void eng_rx_entry_arrived(struct pvn_engine *e, struct recv_group *g, struct recv_ent *ent)
{
    struct receiver *rx = e->rx;
    ent->done = true;
    e->stats.bytes += ent->total;
    if (--g->left > 0)
        return;
    rx->ring[g->slot % SLOT_RING] = NULL;
    while (rx->oldest_slot < rx->next_slot && !rx->ring[rx->oldest_slot % SLOT_RING])
        rx->oldest_slot++;
    eng_req_done(g->req);
}

static int __attribute__((noinline))
impossible_chunk(struct pvn_engine *e, const struct recv_ent *ent, const struct pvn_event *ev)
{
    return eng_fail(
        e, -EPROTO, PVN_FAULT_REMOTE,
        "the peer reports chunk %u of %u bytes of a message of %llu bytes for a receive of %zu "
        "bytes, of which %llu have arrived",
        ev->chunk, ev->bytes, (unsigned long long)ev->total, ent->size,
        (unsigned long long)ent->got);
}

static int slot_arrived(struct pvn_engine *e, const struct pvn_event *ev)
{
    struct receiver *rx = e->rx;
    struct recv_group *g = rx->ring[ev->id % SLOT_RING];
    if (!g || pvn_id(g->slot) != ev->id || ev->recv >= g->n || ev->chunk >= PVN_MAX_CHUNKS) {
        e->stats.stale++;
        return 0;
    }
    struct recv_ent *ent = &g->ent[ev->recv];
    if (ent->done || chunk_test(&ent->seen, ev->chunk)) {
        e->stats.dups++;
        return 0;
    }
    if (ev->total > ent->size || ev->bytes > ev->total - ent->got ||
        (ent->total_known && ent->total != ev->total))
        return impossible_chunk(e, ent, ev);
    chunk_add(&ent->seen, ev->chunk);
    ent->total = ev->total;
    ent->total_known = true;
    ent->got += ev->bytes;
    e->stats.chunks++;
    if (!ent->matched) {
        ent->matched = true;
        rx->unmatched--;
    }
    if (ent->got == ent->total)
        eng_rx_entry_arrived(e, g, ent);
    return 0;
}

int eng_rx_event(struct pvn_engine *e, const struct pvn_event *ev)
{
    return e->needs_cts ? slot_arrived(e, ev) : eng_match_arrived(e, ev);
}

void eng_rx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap)
{
    const struct recv_group *g = &e->rx->groups[req->group];
    for (int i = 0; i < g->n; i++) {
        const struct recv_ent *ent = &g->ent[i];
        if (ent->done)
            continue;
        if (!ent->matched)
            snprintf(text, cap, "receive %llu, buffer %d of %d (%zu bytes, tag %d): %s",
                     (unsigned long long)g->slot, i + 1, g->n, ent->size, ent->tag,
                     e->needs_cts && g->slot >= e->rx->cts_next
                         ? "not announced to the peer yet, the lanes have no room"
                         : "waiting for the peer's send");
        else
            snprintf(text, cap,
                     "receive %llu, buffer %d of %d (tag %d): %llu of %llu bytes are here, "
                     "waiting for the rest from the peer",
                     (unsigned long long)g->slot, i + 1, g->n, ent->tag,
                     (unsigned long long)ent->got, (unsigned long long)ent->total);
        return;
    }
}
