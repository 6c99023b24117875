/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "gpu/nccl_rank.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int load(void **lib, const char *path, int absent)
{
    *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (*lib)
        return NC_OK;
    fprintf(stderr, "%s: %s\n", path, dlerror());
    return absent;
}

static int find(void *lib, const char *name, void *member)
{
    void *sym = dlsym(lib, name);
    if (!sym) {
        fprintf(stderr, "%s not found\n", name);
        return NC_FAILED;
    }
    memcpy(member, &sym, sizeof(sym));
    return NC_OK;
}

static int load_apis(struct nc_rank *r)
{
    void *cuda, *nccl;
    int rc = load(&cuda, r->opt->cuda_lib, NC_SKIP);
#define FIND_CU(name, member, params)                                                              \
    if (!rc)                                                                                       \
        rc = find(cuda, #name, &r->cu.member);
    NC_CUDA_ENTRIES(FIND_CU)
#undef FIND_CU
    if (!rc)
        rc = load(&nccl, r->opt->nccl_lib, NC_SKIP);
#define FIND_NC(name, member, params)                                                              \
    if (!rc)                                                                                       \
        rc = find(nccl, #name, &r->nccl.member);
    NC_NCCL_ENTRIES(FIND_NC)
#undef FIND_NC
    if (!rc)
        rc = find(nccl, "ncclGetErrorString", &r->nccl.error_string);
    return rc;
}

static int cu_fail(struct nc_rank *r, const char *call, pvn_cu_result cr)
{
    const char *name = NULL;
    r->cu.error_name(cr, &name);
    fprintf(stderr, "rank %d: %s: %s (%d)\n", r->rank, call, name ? name : "unknown error", cr);
    return NC_FAILED;
}

static int nc_fail(struct nc_rank *r, const char *call, nc_result nr)
{
    fprintf(stderr, "rank %d: %s: %s (%d)\n", r->rank, call, r->nccl.error_string(nr), nr);
    return NC_FAILED;
}

/* Uses the primary context, because NCCL's CUDA runtime works in it. Waiting must sleep, or the
 * benchmark's CPU seconds would be those of the wait. */
static int open_gpu(struct nc_rank *r)
{
    int count = 0, version = 0;
    pvn_cu_context ctx;
    char name[64] = "";
    pvn_cu_result cr = r->cu.init(0);
    if (!cr)
        cr = r->cu.device_count(&count);
    if (cr || r->opt->dev >= count) {
        fprintf(stderr, "no GPU %d: cuInit gave %d, %d devices\n", r->opt->dev, cr, count);
        return NC_SKIP;
    }
    r->cu.primary_flags(r->opt->dev, NC_CU_SCHED_BLOCKING);
    cr = r->cu.primary_retain(&ctx, r->opt->dev);
    if (cr)
        return cu_fail(r, "cuDevicePrimaryCtxRetain", cr);
    cr = r->cu.ctx_set(ctx);
    if (cr)
        return cu_fail(r, "cuCtxSetCurrent", cr);
    r->cu.device_name(name, sizeof(name), r->opt->dev);
    r->cu.driver_version(&version);
    if (r->rank == 0)
        printf("# GPU %d %s, CUDA driver %d.%d\n", r->opt->dev, name, version / 1000,
               version % 1000 / 10);
    return NC_OK;
}

static int open_buffers(struct nc_rank *r)
{
    for (int i = 0; i < r->opt->nsizes; i++)
        if (r->opt->sizes[i] > r->cap)
            r->cap = r->opt->sizes[i];
    r->cap += 64; /* shares of a few bytes are rounded up to one element per rank */
    void *host = NULL;
    pvn_cu_result cr = r->cu.mem_alloc(&r->send, r->cap + NC_GUARD);
    if (!cr)
        cr = r->cu.mem_alloc(&r->recv, r->cap + NC_GUARD);
    if (!cr)
        cr = r->cu.host_alloc(&host, r->cap + NC_GUARD);
    if (!cr)
        cr = r->cu.stream_create(&r->stream, 1);
    r->host = host;
    return cr ? cu_fail(r, "allocation", cr) : NC_OK;
}

static int open_comm(struct nc_rank *r)
{
    struct nc_shared *s = r->shared;
    int version = 0;
    nc_result nr = r->nccl.version(&version);
    if (!nr && r->rank == 0) {
        nr = r->nccl.get_id(&s->id);
        atomic_store(&s->id_ready, nr ? -1 : 1);
    }
    if (nr)
        return nc_fail(r, "ncclGetUniqueId", nr);
    double stop = pvn_now_s() + r->opt->op_timeout_s;
    while (atomic_load(&s->id_ready) == 0 && pvn_now_s() < stop)
        usleep(1000);
    if (atomic_load(&s->id_ready) != 1) {
        fprintf(stderr, "rank %d: rank 0 gave no id\n", r->rank);
        return NC_FAILED;
    }
    nr = r->nccl.comm_init(&r->comm, r->opt->ranks, s->id, r->rank);
    if (nr)
        return nc_fail(r, "ncclCommInitRank", nr);
    if (r->rank == 0)
        printf("# NCCL %d.%d.%d, %d ranks, %s\n", version / 10000, version % 10000 / 100,
               version % 100, r->opt->ranks, r->opt->same_host ? "one host" : "one host id each");
    return NC_OK;
}

/* The devices of software verbs are not in /sys. Each process has a tree of its own in their
 * directory. */
static int show_software_verbs(struct nc_rank *r)
{
    const char *dir = getenv("PVN_SOFTVERBS_DIR");
    char tree[256];
    if (!dir)
        return NC_OK;
    int n = snprintf(tree, sizeof(tree), "%s/sys%d", dir, r->rank);
    if (n >= (int)sizeof(tree) || (mkdir(tree, 0700) && errno != EEXIST))
        return nc_fail(r, "making the directory of a sysfs tree", errno);
    setenv("PVN_SOFTVERBS_SYSFS", tree, 1);
    setenv("NCCL_PVRDMA_SYSFS_ROOT", tree, 1);
    return NC_OK;
}

int nc_rank_open(struct nc_rank *r)
{
    char host[64];
    if (!r->opt->same_host) {
        /* NCCL takes another host id for another host, and uses the network to reach it. */
        snprintf(host, sizeof(host), "pvn-check-%d", r->rank);
        setenv("NCCL_HOSTID", host, 1);
        /* The software verbs of tests/softverbs take this as another host, too. */
        snprintf(host, sizeof(host), "%d", r->rank + 1);
        if (getenv("PVN_SOFTVERBS_DIR"))
            setenv("PVN_SOFTVERBS_HOST", host, 1);
    }
    int rc = show_software_verbs(r);
    if (!rc)
        rc = load_apis(r);
    if (!rc)
        rc = open_gpu(r);
    if (!rc)
        rc = open_buffers(r);
    if (!rc)
        rc = open_comm(r);
    return rc;
}

void nc_rank_close(struct nc_rank *r)
{
    if (r->comm)
        r->nccl.comm_destroy(r->comm);
    fflush(stdout);
}

bool nc_barrier(struct nc_rank *r)
{
    struct nc_shared *s = r->shared;
    int generation = atomic_load(&s->generation);
    double stop = pvn_now_s() + r->opt->op_timeout_s;
    if (atomic_fetch_add(&s->arrived, 1) + 1 == r->opt->ranks) {
        atomic_store(&s->arrived, 0);
        atomic_fetch_add(&s->generation, 1);
        return true;
    }
    while (atomic_load(&s->generation) == generation) {
        if (pvn_now_s() > stop)
            return false;
        usleep(200);
    }
    return true;
}

int nc_wait(struct nc_rank *r, const char *what)
{
    double stop = pvn_now_s() + r->opt->op_timeout_s;
    for (unsigned n = 0;; n++) {
        pvn_cu_result cr = r->cu.stream_query(r->stream);
        if (cr == PVN_CU_SUCCESS)
            return 0;
        if (cr != NC_CU_NOT_READY) {
            cu_fail(r, what, cr);
            return -1;
        }
        nc_result async = NC_SUCCESS;
        nc_result nr = r->nccl.async_error(r->comm, &async);
        if (nr || (async && async != NC_IN_PROGRESS)) {
            nc_fail(r, what, nr ? nr : async);
            return -1;
        }
        if (pvn_now_s() > stop) {
            fprintf(stderr, "rank %d: %s did not end within %d s\n", r->rank, what,
                    r->opt->op_timeout_s);
            return -1;
        }
        usleep(n < 100 ? 50 : 1000);
    }
}

/* ---- pattern ---- */

enum { PERIOD = 1021, REPEAT = 64, TAB_MAX = 16 };

size_t nc_type_size(int type)
{
    return type == NC_FLOAT32 ? 4 : 2;
}

static void put(void *buf, int type, size_t i, int value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (type == NC_FLOAT32)
        ((uint32_t *)buf)[i] = bits;
    else
        ((uint16_t *)buf)[i] = (uint16_t)(bits >> 16); /* exact: at most 8 significant bits */
}

/* Returns PERIOD * REPEAT elements of the pattern from index 0 on. Equal arguments return the
 * same block. */
static const unsigned char *block(int type, int mul, int add)
{
    static _Alignas(4) unsigned char memory[PERIOD * (REPEAT + 1) * 4];
    static int have_type = -1, have_mul, have_add;
    if (have_type != type || have_mul != mul || have_add != add) {
        for (size_t i = 0; i < (size_t)PERIOD * (REPEAT + 1); i++)
            put(memory, type, i, mul * (int)(i % PERIOD * 7 % TAB_MAX) + add);
        have_type = type;
        have_mul = mul;
        have_add = add;
    }
    return memory;
}

void nc_fill(void *buf, int type, size_t n, size_t start, unsigned seed, int mul, int add)
{
    size_t size = nc_type_size(type);
    const unsigned char *from = block(type, mul, add) + (start + seed) % PERIOD * size;
    for (size_t i = 0; i < n; i += (size_t)PERIOD * REPEAT) {
        size_t part = n - i < (size_t)PERIOD * REPEAT ? n - i : (size_t)PERIOD * REPEAT;
        memcpy((unsigned char *)buf + i * size, from, part * size);
    }
}

size_t nc_compare(const void *buf, int type, size_t n, size_t start, unsigned seed, int mul,
                  int add)
{
    size_t size = nc_type_size(type);
    const unsigned char *want = block(type, mul, add) + (start + seed) % PERIOD * size, *got = buf;
    for (size_t i = 0; i < n; i += (size_t)PERIOD * REPEAT) {
        size_t part = n - i < (size_t)PERIOD * REPEAT ? n - i : (size_t)PERIOD * REPEAT;
        if (!memcmp(got + i * size, want, part * size))
            continue;
        for (size_t j = 0; j < part; j++)
            if (memcmp(got + (i + j) * size, want + j * size, size))
                return i + j;
    }
    return n;
}
