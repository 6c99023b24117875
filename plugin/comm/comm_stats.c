/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A comm's numbers in the statistics file; called by comm_watch.c, off the path of messages. */
#include "config.h"
#include "comm/comm_priv.h"

#include "base/clock.h"

/* Open requests that have not moved for this long are reported as stuck, with the end that has to
 * act next. */
#define STUCK_NS PVN_NS_PER_S
/* The lanes are read less often, because TCP's counters cost a system call per stream. */
#define LANES_NS PVN_NS_PER_S

static void ask_lanes(struct pvn_comm *c, uint64_t now)
{
    struct pvn_stat_counts *n = &c->stats.counts;
    struct pvn_lane_counters sum;
    char text[PVN_ERR_TEXT_LEN];

    c->stats.lanes_ns = now + LANES_NS;
    pvn_conn_count(c->link.conn, &sum);
    n->known = c->stats.replaced.known | (sum.doorbells_known ? PVN_STAT_KNOWS_DOORBELLS : 0) |
               (sum.retransmits_known ? PVN_STAT_KNOWS_RETRANSMITS : 0);
    n->doorbells_send = c->stats.replaced.doorbells_send + sum.doorbells_send;
    n->doorbells_recv = c->stats.replaced.doorbells_recv + sum.doorbells_recv;
    n->doorbells_empty = c->stats.replaced.doorbells_empty + sum.doorbells_empty;
    n->retransmits = c->stats.replaced.retransmits + sum.retransmits;
    pvn_conn_lanes_text(c->link.conn, text, sizeof(text));
    pvn_stat_lanes(c->link.conn->stat, text);
}

/* Returns since when the oldest request waits, and writes on what; 0: nothing is stuck. */
static uint64_t stuck_since(const struct pvn_comm *c, uint64_t now, char *text, size_t cap)
{
    uint64_t still = now - c->stall.moved_ns, open;

    if (c->stall.moved_ns == 0 || still < STUCK_NS || pvn_engine_pending(c->engine) == 0)
        return 0;
    /* The comm may have been idle until a moment ago. */
    open = pvn_engine_oldest(c->engine, text, cap);
    if (open < STUCK_NS) {
        text[0] = '\0';
        return 0;
    }
    return now - (open < still ? open : still);
}

void comm_publish_replaced(struct pvn_comm *c, bool failback)
{
    c->stats.replaced = c->stats.counts;
    c->stats.counts.failbacks += failback;
    c->stats.counts.changed_ns = pvn_now_ns();
    comm_publish_last(c);
}

void comm_publish_last(struct pvn_comm *c)
{
    c->stats.lanes_ns = 0;
    comm_publish(c, pvn_now_ns());
}

/* stuck_ns: since when the open requests wait; text: for what. */
static void put(struct pvn_comm *c, uint64_t now, uint64_t stuck_ns, const char *text)
{
    const struct pvn_engine_stats *s = pvn_engine_get_stats(c->engine);
    struct pvn_stat_counts *n = &c->stats.counts;

    if (s->bytes != n->bytes || s->chunks != n->chunks || s->msgs != n->msgs ||
        s->flushes != n->flushes)
        n->moved_ns = now;
    n->look_ns = now;
    n->stuck_ns = stuck_ns;
    n->open = (uint64_t)pvn_engine_pending(c->engine);
    n->msgs = s->msgs;
    n->bytes = s->bytes;
    n->flushes = s->flushes;
    n->chunks = s->chunks;
    n->unexpected = s->unexpected;
    n->lane_full = s->again;
    n->empty_polls = s->empty_polls;
    n->failovers = s->resumes - c->stats.counts.failbacks;
    n->replayed = s->replayed;
    pvn_stat_put(c->link.conn->stat, n, text);
}

void comm_publish(struct pvn_comm *c, uint64_t now)
{
    char text[256] = "";

    if (!c->link.conn->stat)
        return;
    if (now >= c->stats.lanes_ns)
        ask_lanes(c, now);
    put(c, now, stuck_since(c, now, text, sizeof(text)), text);
}

void comm_publish_failover(struct pvn_comm *c, uint64_t now, uint64_t since_ns, const char *text)
{
    /* A request that was posted within the failover has waited for a shorter time. */
    char unused[1];
    uint64_t waited = now - since_ns, open = pvn_engine_oldest(c->engine, unused, 1);
    bool stuck;

    if (open < waited)
        waited = open;
    stuck = waited >= STUCK_NS;
    if (c->link.conn->stat)
        put(c, now, stuck ? now - waited : 0, stuck ? text : "");
}
