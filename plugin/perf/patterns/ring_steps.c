/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/patterns/ring_steps.h"

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static int phases(const struct pvn_ring_shape *s)
{
    switch (s->what) {
    case PVN_ALLREDUCE:
        return 2 * s->nranks - 1;
    case PVN_BROADCAST:
    case PVN_SENDRECV:
        return 1;
    default:
        return s->nranks;
    }
}

/* Elements by which one loop advances. */
static uint64_t loop(const struct pvn_ring_shape *s, const struct pvn_ring_pos *p)
{
    return s->what == PVN_ALLREDUCE ? p->chunk * (uint64_t)s->nranks : p->chunk;
}

uint64_t pvn_ring_in(const struct pvn_ring_shape *s)
{
    return s->what == PVN_REDUCESCATTER ? s->count * (uint64_t)s->nranks : s->count;
}

uint64_t pvn_ring_out(const struct pvn_ring_shape *s)
{
    return s->what == PVN_ALLGATHER ? s->count * (uint64_t)s->nranks : s->count;
}

double pvn_ring_factor(enum pvn_collective what, int nranks)
{
    double n = nranks;

    if (nranks == 1)
        return 0; /* nothing is sent */
    if (what == PVN_SENDRECV)
        return 1;
    return what == PVN_BROADCAST ? 1 : what == PVN_ALLREDUCE ? 2 * (n - 1) / n : (n - 1) / n;
}

double pvn_ring_sent(enum pvn_collective what, int nranks)
{
    if (what == PVN_SENDRECV)
        return nranks > 1 ? nranks : 0;
    return what == PVN_ALLREDUCE ? 2.0 * (nranks - 1) : nranks - 1.0;
}

int pvn_ring_sides(const struct pvn_ring_shape *s)
{
    return s->what == PVN_SENDRECV ? 2 : 1;
}

void pvn_ring_share(const struct pvn_ring_shape *s, int c, int channels, struct pvn_ring_pos *p)
{
    uint64_t part = ceil_div(s->count / (uint64_t)channels, s->align) * s->align;
    uint64_t from = part * (uint64_t)c;

    p->start = from < s->count ? from : s->count;
    p->end = c + 1 == channels || p->start + part > s->count ? s->count : p->start + part;
}

/* Starts a loop. The last loop has shorter chunks: an all-reduce divides the remaining elements
 * among the ranks. */
static void start_loop(const struct pvn_ring_shape *s, struct pvn_ring_pos *p)
{
    uint64_t left = p->end - p->at, full = s->slot * (uint64_t)s->slices;

    if (s->what == PVN_ALLREDUCE)
        left = ceil_div(ceil_div(left, (uint64_t)s->nranks), s->align) * s->align;
    p->chunk = left < full ? left : full;
    p->phase = p->slice = 0;
}

int pvn_ring_start(const struct pvn_ring_shape *s, struct pvn_ring_pos *p)
{
    p->at = p->start;
    if (p->at == p->end)
        return 0;
    start_loop(s, p);
    return 1;
}

/* The flags (PVN_IN, PVN_OUT, ...) that a phase reads and writes. */
static unsigned uses(const struct pvn_ring_shape *s, int phase, int side)
{
    int n = s->nranks, last = phases(s) - 1;

    switch (s->what) {
    case PVN_ALLREDUCE:
        if (phase == 0)
            return PVN_IN | PVN_SENT;
        if (phase < n - 1)
            return PVN_IN | PVN_RECEIVED | PVN_SENT;
        if (phase == n - 1)
            return PVN_IN | PVN_RECEIVED | PVN_OUT | PVN_SENT;
        return PVN_RECEIVED | PVN_OUT | (phase < last ? PVN_SENT : 0);
    case PVN_ALLGATHER:
        if (phase == 0)
            return PVN_IN | PVN_OUT | PVN_SENT;
        return PVN_RECEIVED | PVN_OUT | (phase < last ? PVN_SENT : 0);
    case PVN_REDUCESCATTER:
        if (phase == 0)
            return PVN_IN | PVN_SENT;
        return PVN_IN | PVN_RECEIVED | (phase < last ? PVN_SENT : PVN_OUT);
    case PVN_SENDRECV:
        return side ? PVN_RECEIVED | PVN_OUT : PVN_IN | PVN_SENT;
    default:
        if (s->rank == 0)
            return PVN_IN | PVN_OUT | PVN_SENT;
        return PVN_RECEIVED | PVN_OUT | (s->rank + 1 < n ? PVN_SENT : 0);
    }
}

/* The rank whose part of the array the phase handles. */
static int whose(const struct pvn_ring_shape *s, int phase)
{
    int n = s->nranks, back = phase;

    if (s->what == PVN_REDUCESCATTER || (s->what == PVN_ALLREDUCE && phase < n))
        back = phase + 1;
    else if (s->what == PVN_ALLREDUCE)
        back = phase - n + 1;
    return (s->rank + 2 * n - back) % n;
}

/* Elements of a slice: a slot's, or fewer if the chunk is short. */
static uint64_t slice_length(const struct pvn_ring_shape *s, uint64_t chunk)
{
    uint64_t even = ceil_div(chunk, 16 * (uint64_t)s->slices) * 16, least = s->slot / 32;

    even = even > least ? even : least;
    return even < s->slot ? even : s->slot;
}

struct pvn_move pvn_ring_move(const struct pvn_ring_shape *s, const struct pvn_ring_pos *p)
{
    uint64_t from = p->at, to, length, slice_at, block = 0;
    struct pvn_move m = {.uses = uses(s, p->phase, p->side)};

    if (s->what == PVN_ALLREDUCE)
        from += p->chunk * (uint64_t)whose(s, p->phase);
    else if (s->what != PVN_BROADCAST && s->what != PVN_SENDRECV)
        block = s->count * (uint64_t)whose(s, p->phase);
    to = from + p->chunk < p->end ? from + p->chunk : p->end;
    length = slice_length(s, to > from ? to - from : 0);
    slice_at = from + length * (uint64_t)p->slice;
    if (slice_at < to)
        m.count = to - slice_at < length ? to - slice_at : length;
    if (m.count == 0)
        slice_at = p->end;
    m.in = s->what == PVN_REDUCESCATTER ? block + slice_at : slice_at;
    m.out = s->what == PVN_ALLGATHER ? block + slice_at : slice_at;
    return m;
}

int pvn_ring_next(const struct pvn_ring_shape *s, struct pvn_ring_pos *p)
{
    if (++p->slice < s->slices)
        return 1;
    p->slice = 0;
    if (++p->phase < phases(s))
        return 1;
    p->at += loop(s, p);
    if (p->at >= p->end)
        return 0;
    start_loop(s, p);
    return 1;
}

uint64_t pvn_ring_receives(const struct pvn_ring_shape *s, struct pvn_ring_pos *p)
{
    uint64_t per_loop = 0, loops = 0;

    for (int k = 0; k < phases(s); k++)
        per_loop += uses(s, k, 1) & PVN_RECEIVED ? (uint64_t)s->slices : 0;
    for (p->at = p->start; p->at < p->end; p->at += loop(s, p)) {
        start_loop(s, p);
        loops++;
    }
    return loops * per_loop;
}
