/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-perf ring and scale on the ring: one collective at several sizes, or the training
 * steps of a model. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/workload/model.h"
#include "perf/patterns/ring.h"

/* One collective of a training step. */
struct part {
    enum pvn_collective what;
    uint64_t count; /* as in struct pvn_ring_shape */
    char item[32];
};

/* Elements of the whole array, which nccl-tests calls the size. */
static uint64_t elements(const struct pvn_rank *r, enum pvn_collective what, uint64_t count)
{
    return what == PVN_ALLGATHER || what == PVN_REDUCESCATTER ? count * (uint64_t)r->nranks : count;
}

static struct pvn_work work_of(const struct pvn_rank *r, enum pvn_collective what, double bytes)
{
    return (struct pvn_work){bytes, pvn_ring_factor(what, r->nranks),
                             bytes * pvn_ring_sent(what, r->nranks)};
}

/* The elements of each rank for a size that covers all ranks. */
static uint64_t count_of(const struct pvn_rank *r, enum pvn_collective what, uint64_t bytes)
{
    uint64_t all = bytes / pvn_type_size(r->o->type);

    return what == PVN_ALLGATHER || what == PVN_REDUCESCATTER ? all / (uint64_t)r->nranks : all;
}

static int run_size(struct pvn_ring *g, uint64_t bytes)
{
    enum pvn_collective what = g->r->o->collective;
    uint64_t count = count_of(g->r, what, bytes);
    struct pvn_row_result res = {.bytes = elements(g->r, what, count) * g->size};
    struct pvn_work w = work_of(g->r, what, (double)res.bytes);

    snprintf(res.test, sizeof(res.test), "%s",
             g->r->o->no_sums ? "no-sums" : pvn_collective_name(what));
    if (g->r->o->no_sums && what != PVN_ALLREDUCE)
        snprintf(res.item, sizeof(res.item), "%s", pvn_collective_name(what));
    pvn_ring_shape_to(g, what, count);
    return pvn_timed_point(&g->t, &res, &w);
}

/* Sums of a training step: one row for each collective, and one for the whole. */
struct sums {
    struct pvn_outcome of[PVN_COLLECTIVES], all;
    struct pvn_work work[PVN_COLLECTIVES], whole;
    uint64_t bytes[PVN_COLLECTIVES], total;
    int kinds;
};

static void add_work(struct pvn_work *to, const struct pvn_work *w)
{
    /* The factor of the whole is the mean, weighted by bytes. */
    if (to->bytes + w->bytes > 0)
        to->factor = (to->factor * to->bytes + w->factor * w->bytes) / (to->bytes + w->bytes);
    to->bytes += w->bytes;
    to->sent += w->sent;
}

static void report_parts(struct pvn_ring *g, const char *name, const struct part *p, int n,
                         const struct pvn_outcome *per, int steps)
{
    struct sums s = {0};

    for (int i = 0; i < n; i++) {
        struct pvn_row_result one = {.bytes = elements(g->r, p[i].what, p[i].count) * g->size};
        struct pvn_work w = work_of(g->r, p[i].what, (double)one.bytes);

        snprintf(one.test, sizeof(one.test), "bucket");
        snprintf(one.item, sizeof(one.item), "%s", p[i].item);
        pvn_timed_report(&g->t, &one, &w, steps, &per[i]);
        s.kinds += s.bytes[p[i].what] == 0;
        s.bytes[p[i].what] += one.bytes;
        s.total += one.bytes;
        pvn_outcome_add(&s.of[p[i].what], &per[i]);
        pvn_outcome_add(&s.all, &per[i]);
        add_work(&s.work[p[i].what], &w);
        add_work(&s.whole, &w);
    }
    for (int k = 0; k < PVN_COLLECTIVES && s.kinds > 1; k++) {
        struct pvn_row_result one = {.bytes = s.bytes[k]};

        if (s.bytes[k] == 0)
            continue;
        snprintf(one.test, sizeof(one.test), "part");
        snprintf(one.item, sizeof(one.item), "%s", pvn_collective_name((enum pvn_collective)k));
        pvn_timed_report(&g->t, &one, &s.work[k], steps, &s.of[k]);
    }
    struct pvn_row_result res = {.bytes = s.total};

    snprintf(res.test, sizeof(res.test), "step");
    snprintf(res.item, sizeof(res.item), "%s", name);
    pvn_timed_report(&g->t, &res, &s.whole, steps, &s.all);
}

/* Runs a training step: its collectives one after the other, in the order in which the framework
 * starts them. `of`: " of 2", the number of steps, if known. Only the errors of a warm-up count. */
static int run_step(struct pvn_ring *g, const char *name, const struct part *p, int n, int step,
                    const char *of, struct pvn_outcome *per)
{
    for (int i = 0; i < n; i++) {
        double bytes = (double)elements(g->r, p[i].what, p[i].count) * (double)g->size;
        struct pvn_outcome o;

        pvn_rank_progress(g->r, "%s, %d ranks: step %d%s, %s, %.1f MB", name, g->r->nranks,
                          step + 1, of, p[i].item, bytes / 1e6);
        pvn_ring_shape_to(g, p[i].what, p[i].count);
        if (pvn_timed_once(&g->t, 1, &o))
            return -1;
        if (step >= 0)
            pvn_outcome_add(&per[i], &o);
        else
            per[i].errors += o.errors;
    }
    return 0;
}

/* Runs a number of steps, or whole steps until --duration is over. */
static int run_preset(struct pvn_ring *g, const char *name, const struct part *p, int n)
{
    const struct pvn_perf_opts *o = g->r->o;
    int steps = o->iters ? o->iters : 2, done = 0, rc = 0;
    struct pvn_outcome *per = calloc((size_t)n, sizeof(*per));
    double began = pvn_now_s();
    uint64_t more = 1;
    char of[16] = "";

    if (!per)
        return pvn_rank_fail(g->r, "out of memory for %d collectives", n);
    if (!(o->duration > 0))
        snprintf(of, sizeof(of), " of %d", steps);
    for (int s = o->duration > 0 || o->warmup < 0 ? 0 : -o->warmup; !rc && more; s++) {
        rc = run_step(g, name, p, n, s, of, per);
        done = s + 1;
        more = done < steps;
        if (!rc && o->duration > 0)
            rc = pvn_timed_next(g->r, began, o->duration, &more);
    }
    if (!rc)
        report_parts(g, name, p, n, per, done);
    free(per);
    return rc;
}

/* The parts for DDP: an all-reduce for each bucket of gradients. */
static int ddp_parts(const struct pvn_model *m, struct part **out)
{
    struct pvn_bucket *b = NULL;
    int n = pvn_model_buckets(m, &b);
    struct part *p = n > 0 ? calloc((size_t)n, sizeof(*p)) : NULL;

    for (int i = 0; p && i < n; i++) {
        p[i].what = PVN_ALLREDUCE;
        p[i].count = b[i].count;
        snprintf(p[i].item, sizeof(p[i].item), "%s %d", m->name, i + 1);
    }
    free(b);
    *out = p;
    return p ? n : -1;
}

/* The parts for FSDP: all-gathers and reduce-scatters of units, whose parameters are padded to
 * whole shares. */
static int fsdp_parts(const struct pvn_rank *r, const struct pvn_model *m, struct part **out)
{
    struct pvn_fsdp_op *op = NULL;
    int n = pvn_fsdp_step(m, r->o->layers, &op);
    struct part *p = n > 0 ? calloc((size_t)n, sizeof(*p)) : NULL;

    for (int i = 0; p && i < n; i++) {
        p[i].what = op[i].reduce ? PVN_REDUCESCATTER : PVN_ALLGATHER;
        p[i].count = (op[i].count + (uint64_t)r->nranks - 1) / (uint64_t)r->nranks;
        if (op[i].unit == 0)
            snprintf(p[i].item, sizeof(p[i].item), "%s root", pvn_collective_name(p[i].what));
        else
            snprintf(p[i].item, sizeof(p[i].item), "%s layer %d%s", pvn_collective_name(p[i].what),
                     op[i].unit - 1, op[i].backward && !op[i].reduce ? " backward" : "");
    }
    free(op);
    *out = p;
    return p ? n : -1;
}

/* Loads the parts of the preset's step. Returns their number, 0 without a preset, -1 after
 * pvn_rank_fail. */
static int load_parts(struct pvn_rank *r, struct part **out)
{
    struct pvn_model m = {0};
    int n = 0;

    if (!r->o->preset[0])
        return 0;
    if (pvn_model_load(r->o->preset, &m) == 0)
        n = m.traffic == PVN_DDP ? ddp_parts(&m, out) : fsdp_parts(r, &m, out);
    pvn_model_free(&m);
    return n > 0 ? n : pvn_rank_fail(r, "out of memory for the model %s", r->o->preset);
}

static void cover(const struct pvn_rank *r, enum pvn_collective what, uint64_t count, uint64_t *in,
                  uint64_t *out)
{
    struct pvn_ring_shape s = {.what = what, .nranks = r->nranks, .count = count};

    *in = pvn_ring_in(&s) > *in ? pvn_ring_in(&s) : *in;
    *out = pvn_ring_out(&s) > *out ? pvn_ring_out(&s) : *out;
}

int pvn_ring_run(struct pvn_rank *r)
{
    const struct pvn_perf_opts *o = r->o;
    size_t size = pvn_type_size(o->type);
    struct part *part = NULL;
    struct pvn_ring g;
    uint64_t in = 0, out = 0;
    int n = load_parts(r, &part), rc;

    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++)
        cover(r, part[i].what, part[i].count, &in, &out);
    for (int i = 0; i < o->nsizes; i++)
        cover(r, o->collective, count_of(r, o->collective, o->size[i]), &in, &out);
    rc = pvn_ring_open(&g, r, in * size, out * size);
    for (int i = 0; !rc && i < o->nsizes; i++)
        rc = run_size(&g, o->size[i]);
    if (!rc && n)
        rc = run_preset(&g, o->preset, part, n);
    pvn_rank_say_sizes(r, rc);
    rc = pvn_ring_close(&g, rc);
    free(part);
    return rc;
}
