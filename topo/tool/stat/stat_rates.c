/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/tool/stat/stat_rates.h"

static const struct pvn_stat_row *row_of(const struct pvn_stats *f, uint64_t id)
{
    for (int i = 0; f && i < f->nrows; i++)
        if (f->row[i].id == id)
            return &f->row[i];
    return NULL;
}

/* A counter's growth. A smaller value than before means that the counter began again. */
static double grown(uint64_t now, uint64_t before)
{
    return now >= before ? (double)(now - before) : (double)now;
}

static uint64_t doorbells(const struct pvn_stat_counts *n)
{
    return n->doorbells_send + n->doorbells_recv + n->doorbells_empty;
}

static void add_row(struct stat_rates *s, const struct pvn_stats *f, const struct pvn_stat_row *r,
                    const struct pvn_stat_row *old)
{
    static const struct pvn_stat_counts zero;
    const struct pvn_stat_counts *n = &r->n, *b = old ? &old->n : &zero;
    s->troubled += stat_trouble(f, r) != STAT_FINE;
    if (r->ended_ns && old && old->ended_ns)
        return;
    *(r->sender ? &s->sent : &s->received) += grown(n->bytes, b->bytes);
    s->messages += grown(n->msgs, b->msgs);
    s->retransmits += grown(n->retransmits, b->retransmits);
    s->doorbells += grown(doorbells(n), doorbells(b));
    s->empty_polls += grown(n->empty_polls, b->empty_polls);
    s->known |= n->known;
    s->open += r->ended_ns ? 0 : n->open;
}

struct stat_rates stat_rates_of(const struct pvn_stats *f, const struct pvn_stats *old)
{
    struct stat_rates s = {0};
    for (int i = 0; i < f->nrows; i++)
        if (stat_is_comm(&f->row[i]))
            add_row(&s, f, &f->row[i], row_of(old, f->row[i].id));
    if (old)
        s.seconds = stat_age(f, f->head.mono_ns) - stat_age(old, old->head.mono_ns);
    return s;
}
