/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "gpu/nccl_rank.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILL_BYTE = 0xa5 };

/* One call of a collective. A share is the part of the whole that one rank contributes or
 * receives. */
struct op {
    const struct coll *coll;
    int type, ranks, rank;
    bool in_place;
    unsigned seed;
    size_t total; /* elements of the whole */
    size_t share; /* total / ranks */
    void *send, *recv;
};

struct coll {
    const char *name;
    bool shares; /* total is cut into one share per rank */
    bool can_in_place;
    nc_result (*call)(struct nc_rank *r, const struct op *o);
    size_t (*send_n)(const struct op *o);
    size_t (*recv_n)(const struct op *o);
    /* Compares the host's copy of the received data. Returns 0, or -1 with a message. */
    int (*verify)(struct nc_rank *r, const struct op *o);
};

static size_t whole(const struct op *o)
{
    return o->total;
}

static size_t one_share(const struct op *o)
{
    return o->share;
}

static nc_result call_all_reduce(struct nc_rank *r, const struct op *o)
{
    return r->nccl.all_reduce(o->send, o->recv, o->total, o->type, NC_SUM, r->comm, r->stream);
}

static nc_result call_broadcast(struct nc_rank *r, const struct op *o)
{
    return r->nccl.broadcast(o->send, o->recv, o->total, o->type,
                             (int)(o->seed % (unsigned)o->ranks), r->comm, r->stream);
}

static nc_result call_all_gather(struct nc_rank *r, const struct op *o)
{
    return r->nccl.all_gather(o->send, o->recv, o->share, o->type, r->comm, r->stream);
}

static nc_result call_reduce_scatter(struct nc_rank *r, const struct op *o)
{
    return r->nccl.reduce_scatter(o->send, o->recv, o->share, o->type, NC_SUM, r->comm, r->stream);
}

static nc_result call_send_recv(struct nc_rank *r, const struct op *o)
{
    int next = (o->rank + 1) % o->ranks, prev = (o->rank + o->ranks - 1) % o->ranks;
    nc_result nr = r->nccl.group_start();
    if (!nr)
        nr = r->nccl.send(o->send, o->total, o->type, next, r->comm, r->stream);
    if (!nr)
        nr = r->nccl.recv(o->recv, o->total, o->type, prev, r->comm, r->stream);
    nc_result end = r->nccl.group_end();
    return nr ? nr : end;
}

static nc_result call_all_to_all(struct nc_rank *r, const struct op *o)
{
    size_t step = o->share * nc_type_size(o->type);
    nc_result nr = r->nccl.group_start();
    for (int p = 0; p < o->ranks && !nr; p++) {
        nr = r->nccl.send((char *)o->send + (size_t)p * step, o->share, o->type, p, r->comm,
                          r->stream);
        if (!nr)
            nr = r->nccl.recv((char *)o->recv + (size_t)p * step, o->share, o->type, p, r->comm,
                              r->stream);
    }
    nc_result end = r->nccl.group_end();
    return nr ? nr : end;
}

static int report(struct nc_rank *r, const struct op *o, size_t at, size_t n, size_t size)
{
    if (at == n)
        return 0;
    fprintf(stderr, "rank %d: %s %s %s of %zu elements: wrong value at %zu\n", r->rank,
            o->coll->name, size == 4 ? "f32" : "bf16", o->in_place ? "in place" : "out of place", n,
            at);
    return -1;
}

/* Checks that n received elements from `offset` on are mul * tab(start + i) + add. */
static int verify_part(struct nc_rank *r, const struct op *o, size_t offset, size_t n, size_t start,
                       int mul, int add)
{
    size_t size = nc_type_size(o->type);
    return report(r, o, nc_compare(r->host + offset * size, o->type, n, start, o->seed, mul, add),
                  n, size);
}

static int rank_sum(const struct op *o)
{
    return o->ranks * (o->ranks - 1) / 2;
}

static int verify_all_reduce(struct nc_rank *r, const struct op *o)
{
    return verify_part(r, o, 0, o->total, 0, o->ranks, rank_sum(o));
}

static int verify_broadcast(struct nc_rank *r, const struct op *o)
{
    return verify_part(r, o, 0, o->total, 0, 1, (int)(o->seed % (unsigned)o->ranks));
}

static int verify_all_gather(struct nc_rank *r, const struct op *o)
{
    int rc = 0;
    for (int p = 0; p < o->ranks && !rc; p++)
        rc = verify_part(r, o, (size_t)p * o->share, o->share, 0, 1, p);
    return rc;
}

static int verify_reduce_scatter(struct nc_rank *r, const struct op *o)
{
    return verify_part(r, o, 0, o->share, (size_t)o->rank * o->share, o->ranks, rank_sum(o));
}

static int verify_send_recv(struct nc_rank *r, const struct op *o)
{
    return verify_part(r, o, 0, o->total, 0, 1, (o->rank + o->ranks - 1) % o->ranks);
}

static int verify_all_to_all(struct nc_rank *r, const struct op *o)
{
    int rc = 0;
    for (int p = 0; p < o->ranks && !rc; p++)
        rc = verify_part(r, o, (size_t)p * o->share, o->share, (size_t)o->rank * o->share, 1, p);
    return rc;
}

static const struct coll colls[] = {
    {"allreduce", false, true, call_all_reduce, whole, whole, verify_all_reduce},
    {"allgather", true, true, call_all_gather, one_share, whole, verify_all_gather},
    {"reducescatter", true, true, call_reduce_scatter, whole, one_share, verify_reduce_scatter},
    {"broadcast", false, true, call_broadcast, whole, whole, verify_broadcast},
    {"sendrecv", false, false, call_send_recv, whole, whole, verify_send_recv},
    {"alltoall", true, false, call_all_to_all, whole, whole, verify_all_to_all},
};
enum { NCOLLS = sizeof(colls) / sizeof(colls[0]) };

static bool is_selected(const char *list, const char *name)
{
    if (!list)
        return true;
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ','))
            return true;
    return false;
}

/* Fills the data to send with this rank's pattern, and the receive buffer, with the bytes behind
 * it, with something else. Sets the operation's pointers. */
static int prepare(struct nc_rank *r, struct op *o)
{
    size_t size = nc_type_size(o->type), send_n = o->coll->send_n(o), recv_n = o->coll->recv_n(o);
    char *send = (char *)(uintptr_t)r->send, *recv = (char *)(uintptr_t)r->recv;
    if (o->in_place && send_n < recv_n)
        send = recv + (size_t)o->rank * o->share * size;
    else if (o->in_place && send_n > recv_n)
        recv = send + (size_t)o->rank * o->share * size;
    else if (o->in_place)
        send = recv;
    o->send = send;
    o->recv = recv;
    pvn_cu_result cr = r->cu.set_bytes(r->send, FILL_BYTE, r->cap + NC_GUARD);
    if (!cr)
        cr = r->cu.set_bytes(r->recv, FILL_BYTE, r->cap + NC_GUARD);
    nc_fill(r->host, o->type, send_n, 0, o->seed, 1, o->rank);
    if (!cr)
        cr = r->cu.copy_in((pvn_cu_ptr)(uintptr_t)send, r->host, send_n * size);
    if (!cr)
        cr = r->cu.ctx_sync();
    if (cr)
        fprintf(stderr, "rank %d: filling the buffers: CUDA error %d\n", r->rank, cr);
    return cr ? -1 : 0;
}

/* Checks that the bytes behind the received ones are untouched, unless they belong to data that
 * were sent in place. */
static int verify_guard(struct nc_rank *r, const struct op *o, size_t bytes)
{
    if (o->in_place && o->coll->send_n(o) > o->coll->recv_n(o))
        return 0;
    for (size_t i = 0; i < NC_GUARD; i++) {
        if (r->host[bytes + i] != FILL_BYTE) {
            fprintf(stderr, "rank %d: %s wrote %zu bytes past the end of its buffer of %zu\n",
                    r->rank, o->coll->name, i + 1, bytes);
            return -1;
        }
    }
    return 0;
}

static int run_one(struct nc_rank *r, struct op *o)
{
    size_t bytes = o->coll->recv_n(o) * nc_type_size(o->type);
    if (prepare(r, o))
        return -1;
    nc_result nr = o->coll->call(r, o);
    if (nr) {
        fprintf(stderr, "rank %d: %s: %s (%d)\n", r->rank, o->coll->name, r->nccl.error_string(nr),
                nr);
        return -1;
    }
    if (nc_wait(r, o->coll->name))
        return -1;
    if (r->cu.copy_out(r->host, (pvn_cu_ptr)(uintptr_t)o->recv, bytes + NC_GUARD)) {
        fprintf(stderr, "rank %d: copying the result failed\n", r->rank);
        return -1;
    }
    return o->coll->verify(r, o) || verify_guard(r, o, bytes) ? -1 : 0;
}

static struct op make_op(const struct nc_rank *r, const struct coll *c, int type, size_t bytes,
                         bool in_place)
{
    struct op o = {
        .coll = c, .type = type, .ranks = r->opt->ranks, .rank = r->rank, .in_place = in_place};
    size_t n = bytes / nc_type_size(type);
    o.share = n / (size_t)o.ranks;
    if (o.share == 0)
        o.share = 1;
    o.total = c->shares ? o.share * (size_t)o.ranks : n;
    return o;
}

int nc_check(struct nc_rank *r)
{
    static const int types[] = {NC_FLOAT32, NC_BFLOAT16};
    unsigned seed = 1;
    for (int c = 0; c < NCOLLS; c++) {
        if (!is_selected(r->opt->colls, colls[c].name))
            continue;
        for (int s = 0; s < r->opt->nsizes; s++) {
            for (int variant = 0; variant < 4; variant++) {
                bool in_place = variant & 1;
                /* From 64 MiB on each type is tried either in place or not, because the copies to
                 * and from the host take long. */
                if ((in_place && !colls[c].can_in_place) ||
                    (r->opt->sizes[s] >= (size_t)64 << 20 && colls[c].can_in_place &&
                     in_place != (variant >> 1)))
                    continue;
                struct op o =
                    make_op(r, &colls[c], types[variant >> 1], r->opt->sizes[s], in_place);
                for (int i = 0; i < r->opt->iters; i++) {
                    o.seed = seed++;
                    if (run_one(r, &o)) {
                        atomic_fetch_add(&r->shared->failed, 1);
                        return NC_FAILED;
                    }
                }
                if (r->rank == 0) {
                    atomic_fetch_add(&r->shared->passed, 1);
                    printf("ok %s %s %s %zu\n", colls[c].name,
                           o.type == NC_FLOAT32 ? "f32" : "bf16",
                           in_place ? "in-place" : "out-of-place", r->opt->sizes[s]);
                }
            }
        }
        if (!nc_barrier(r))
            return NC_FAILED;
    }
    return NC_OK;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Calls the collective n times and waits. Returns the slowest rank's seconds per call; negative:
 * failed. */
static double timed(struct nc_rank *r, struct op *o, int n, double *cpu)
{
    if (!nc_barrier(r))
        return -1;
    double cpu0 = cpu_seconds(), t0 = pvn_now_s();
    for (int i = 0; i < n; i++)
        if (o->coll->call(r, o))
            return -1;
    if (r->cu.stream_sync(r->stream))
        return -1;
    r->shared->seconds[r->rank] = (pvn_now_s() - t0) / n;
    r->shared->cpu[r->rank] = (cpu_seconds() - cpu0) / n;
    if (!nc_barrier(r))
        return -1;
    double slowest = 0;
    *cpu = 0;
    for (int i = 0; i < o->ranks; i++) {
        *cpu += r->shared->cpu[i];
        if (r->shared->seconds[i] > slowest)
            slowest = r->shared->seconds[i];
    }
    return nc_barrier(r) ? slowest : -1;
}

int nc_bench(struct nc_rank *r)
{
    for (int c = 0; c < NCOLLS; c++) {
        if (!is_selected(r->opt->colls ? r->opt->colls : "allreduce", colls[c].name))
            continue;
        for (int s = 0; s < r->opt->nsizes; s++) {
            struct op o = make_op(r, &colls[c], NC_FLOAT32, r->opt->sizes[s], false);
            double cpu, warm = 0;
            if (prepare(r, &o))
                return NC_FAILED;
            /* The first calls of the first size make the connections. Only later calls are timed. */
            for (int i = 0; i < 2 && warm >= 0; i++)
                warm = timed(r, &o, 3, &cpu);
            if (warm < 0)
                return NC_FAILED;
            /* Every rank makes the same number of calls, as many as fit in about half a second. */
            int n = warm > 0 ? (int)(0.5 / warm) : r->opt->iters;
            n = n < 3 ? 3 : n > r->opt->iters ? r->opt->iters : n;
            double t = timed(r, &o, n, &cpu);
            if (t < 0)
                return NC_FAILED;
            double gb = (double)r->opt->sizes[s] * 1e-9, scale = 1;
            if (!strcmp(colls[c].name, "allreduce"))
                scale = 2.0 * (o.ranks - 1) / o.ranks;
            else if (colls[c].shares)
                scale = (double)(o.ranks - 1) / o.ranks;
            if (r->rank == 0)
                printf("BW %s %s %zu usec=%.1f algbw=%.3f busbw=%.3f cpu_s_per_gb=%.3f calls=%d\n",
                       r->opt->label ? r->opt->label : "-", colls[c].name, r->opt->sizes[s],
                       t * 1e6, gb / t, gb / t * scale, cpu / gb, n);
        }
    }
    return NC_OK;
}

/* All ranks reduce without end, and the parent kills the last one. NCCL must report that to every
 * other rank, abort the communicator, and end. */
int nc_survive(struct nc_rank *r)
{
    struct op o = make_op(r, &colls[0], NC_FLOAT32, r->opt->sizes[0], false);
    if (prepare(r, &o))
        return NC_FAILED;
    for (;;) {
        nc_result nr = o.coll->call(r, &o);
        if (nr || nc_wait(r, "allreduce after a rank was killed"))
            break;
        if (r->rank == 0)
            atomic_fetch_add(&r->shared->progress, 1);
    }
    if (!atomic_load(&r->shared->victim_dead)) {
        fprintf(stderr, "rank %d: failed before any rank was killed\n", r->rank);
        return NC_FAILED;
    }
    double heard = pvn_now_s() - r->shared->dead_at;
    r->nccl.comm_abort(r->comm);
    r->comm = NULL;
    printf("SURVIVOR rank=%d error_after=%.3f aborted_after=%.3f\n", r->rank, heard,
           pvn_now_s() - r->shared->dead_at);
    return heard < r->opt->op_timeout_s ? NC_OK : NC_FAILED;
}
