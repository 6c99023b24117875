/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Receives: how a slot is announced, and the functions of engine_recv.c that others call. */
#ifndef PVN_ENGINE_ENGINE_RECV_H
#define PVN_ENGINE_ENGINE_RECV_H

#include "engine/engine_priv.h"

/* Handles a batch of events. 0 or the engine's error. */
int eng_rx_events(struct pvn_engine *e, const struct pvn_lane *l, const struct pvn_event *ev,
                  int n);
/* Announces the slots for which the first lane had no room before. 0 or the engine's error. */
int eng_rx_post(struct pvn_engine *e);
/* Fills in the buffers of a group after the first one. */
void eng_open_more(struct recv_group *g, int n, void *const *data, const size_t *sizes,
                   const int *tags, const struct pvn_mr *const *mrs);
/* Result of irecv if the state of the engine permits no receive. */
int eng_recv_refused(const struct pvn_engine *e);
/* Takes a group that has never been used, for when all others have a request; NULL: there is none. */
struct recv_group *eng_more_groups(struct pvn_engine *e);
/* The first lane has refused a slot with rc. -EAGAIN: it is announced later, or the engine's error. */
int eng_not_announced(struct pvn_engine *e, int rc);
/* A lane with eng_moves() has taken the slot. */
void eng_announced(struct pvn_lane *l, const struct recv_group *g);
void eng_rx_oldest(const struct pvn_engine *e, const struct pvn_req *req, char *text, size_t cap);
bool eng_is_over(void *engine); /* pvn_lane.over */

/* Hands a slot to the first lane. 0, -EAGAIN: the lane has no room, or the engine's error. */
static inline int eng_announce_to_lane(struct pvn_engine *e, const struct recv_group *g)
{
    struct pvn_lane *l = e->cfg.lanes[0];
    pvn_lane_watch_empty(e->watch);
    int rc = l->data->post_cts(l, g->slot, g->req.sizes, g->buf);
    if (__builtin_expect(rc != 0, 0))
        return eng_not_announced(e, rc);
    if (eng_moves(l))
        eng_announced(l, g);
    return 0;
}

/* Announces a receive of a clear-to-send comm, now or when the lane has room. 0 or the engine's error. */
static inline int eng_announce(struct pvn_engine *e, struct recv_group *g)
{
    struct receiver *rx = e->rx;
    if (__builtin_expect(e->places, 0))
        eng_place_open(rx, g);
    if (__builtin_expect(rx->unpublished > 0, 0)) {
        rx->unpublished++;
        return eng_rx_post(e);
    }
    int rc = eng_announce_to_lane(e, g);
    if (__builtin_expect(rc != -EAGAIN, 1))
        return rc;
    rx->unpublished = 1;
    return 0;
}

#endif
