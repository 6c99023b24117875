/* The receiving half of the engine: grouped receives, clear-to-send out, arrivals in. */
#include "core/engine_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int pvn_engine_irecv(struct pvn_engine *e, int n, void *const *data, const size_t *sizes,
                     const int *tags, const struct pvn_mr *const *mrs, struct pvn_req **out)
{
    *out = NULL;
    if (e->failed)
        return e->err.code;
    if (!e->rx || n < 1 || n > PVN_MAX_RECVS)
        return -EINVAL;
    struct receiver *rx = e->rx;
    if (rx->nfree == 0 || e->nfree == 0 || rx->ring[rx->next_slot % SLOT_RING] != NO_INDEX)
        return 0;
    int gi = rx->freed[--rx->nfree];
    struct recv_group *g = &rx->groups[gi];
    g->slot = rx->next_slot;
    g->n = n;
    g->left = n;
    for (int i = 0; i < n; i++) {
        g->mrs[i] = mrs ? mrs[i] : NULL;
        g->ent[i] = (struct recv_ent){.addr = data[i], .size = sizes[i], .tag = tags[i]};
    }
    g->req = eng_req_get(e, REQ_RECV);
    g->req->group = (int16_t)gi;
    rx->ring[rx->next_slot % SLOT_RING] = (int16_t)gi;
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
        const struct recv_group *g = &rx->groups[rx->ring[rx->cts_next % SLOT_RING]];
        struct pvn_cts c; /* large, so no more of it is filled than is looked at */
        c.seq = g->slot;
        c.n = g->n;
        for (int i = 0; i < g->n; i++) {
            c.e[i].addr = (uint64_t)(uintptr_t)g->ent[i].addr;
            c.e[i].size = g->ent[i].size;
            c.e[i].tag = g->ent[i].tag;
            if (g->mrs[i])
                memcpy(c.e[i].rkey, g->mrs[i]->rkey, sizeof(c.e[i].rkey));
            else
                memset(c.e[i].rkey, 0, sizeof(c.e[i].rkey));
        }
        int rc = -EAGAIN;
        for (int i = 0; i < e->cfg.nlanes && rc == -EAGAIN; i++) {
            struct pvn_lane *l = e->cfg.lanes[i];
            rc = l->ops->post_cts(l, &c, g->mrs);
            if (rc < 0 && rc != -EAGAIN)
                return eng_fail_lane(e, l, rc);
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
    rx->ring[g->slot % SLOT_RING] = NO_INDEX;
    while (rx->oldest_slot < rx->next_slot && rx->ring[rx->oldest_slot % SLOT_RING] == NO_INDEX)
        rx->oldest_slot++;
    eng_req_done(g->req);
}

static int slot_arrived(struct pvn_engine *e, const struct pvn_event *ev)
{
    struct receiver *rx = e->rx;
    int gi = rx->ring[ev->id % SLOT_RING];
    struct recv_group *g = gi == NO_INDEX ? NULL : &rx->groups[gi];
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
        return eng_fail(
            e, -EPROTO, PVN_FAULT_REMOTE,
            "the peer reports chunk %u of %u bytes of a message of %llu bytes for a receive of %zu "
            "bytes, of which %llu have arrived",
            ev->chunk, ev->bytes, (unsigned long long)ev->total, ent->size,
            (unsigned long long)ent->got);
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
