/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "memory/gpucopy.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/param.h"
#include "memory/cuda_abi.h"
#include "memory/cuda_shim.h"

/* A pool has one block of a TCP chunk for each bit of a word, but no more than POOL_BYTES in all. */
enum { GPUS = 64, POOL_BYTES = 32 << 20 };

struct gpucopy {
    struct pvn_mem_copy copy; /* first */
    int dev;
    void *stream; /* NULL: not opened yet */
    /* The pool, with pool_lock: */
    bool tried;
    uint8_t *pool; /* NULL: none */
    size_t block, len;
    uint64_t unused; /* a bit for each block */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Never held during a call of the driver, because a copy must not wait for another thread that pins memory. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_cuda *cuda; /* opened with the first GPU, closed by unload */
static struct gpucopy gpus[GPUS];

static const struct gpucopy *gpu_of(const struct pvn_mem_copy *c)
{
    return (const struct gpucopy *)c;
}

static int to_host(const struct pvn_mem_copy *c, void *host, const void *mem, size_t n,
                   struct pvn_err *err)
{
    const struct gpucopy *g = gpu_of(c);

    return pvn_cuda_copy_out(cuda, g->dev, g->stream, host, (uint64_t)(uintptr_t)mem, n, err);
}

static int from_host(const struct pvn_mem_copy *c, void *mem, const void *host, size_t n,
                     struct pvn_err *err)
{
    const struct gpucopy *g = gpu_of(c);

    return pvn_cuda_copy_in(cuda, g->dev, g->stream, (uint64_t)(uintptr_t)mem, host, n, err);
}

static void *take_block(const struct pvn_mem_copy *c, size_t n)
{
    struct gpucopy *g = &gpus[gpu_of(c)->dev];
    void *host = NULL;

    pthread_mutex_lock(&pool_lock);
    if (n <= g->block && g->unused) {
        int i = __builtin_ctzll(g->unused);

        g->unused &= g->unused - 1;
        host = g->pool + (size_t)i * g->block;
    }
    pthread_mutex_unlock(&pool_lock);
    return host ? host : malloc(n);
}

static void give(const struct pvn_mem_copy *c, void *host)
{
    struct gpucopy *g = &gpus[gpu_of(c)->dev];
    uintptr_t at = (uintptr_t)host - (uintptr_t)g->pool;
    bool pooled;

    pthread_mutex_lock(&pool_lock);
    pooled = g->pool && at < g->len;
    if (pooled)
        g->unused |= UINT64_C(1) << at / g->block;
    pthread_mutex_unlock(&pool_lock);
    if (!pooled)
        free(host);
}

/* The caller holds the lock. */
static struct gpucopy *find_gpu(const void *addr, struct pvn_err *err)
{
    struct pvn_cuda_ptr p;
    struct gpucopy *g;

    if (!cuda && pvn_cuda_open(&cuda, pvn_params_get()->cuda_lib, err) != 0)
        return NULL;
    if (pvn_cuda_pointer(cuda, (uint64_t)(uintptr_t)addr, &p, err) != 0)
        return NULL;
    if (p.mem != PVN_CUDA_MEM_DEVICE || p.dev < 0 || p.dev >= GPUS) {
        pvn_err_set(err, -EFAULT, "%p is not device memory", addr);
        return NULL;
    }
    g = &gpus[p.dev];
    if (g->stream) /* lanes read it without the lock */
        return g;
    g->copy = (struct pvn_mem_copy){
        .take = take_block, .give = give, .to_host = to_host, .from_host = from_host};
    g->dev = p.dev;
    return pvn_cuda_stream_open(cuda, g->dev, &g->stream, err) == 0 ? g : NULL;
}

const struct pvn_mem_copy *pvn_gpucopy_of(const void *addr, struct pvn_err *err)
{
    const struct gpucopy *g;

    pthread_mutex_lock(&lock);
    g = find_gpu(addr, err);
    pthread_mutex_unlock(&lock);
    return g ? &g->copy : NULL;
}

void pvn_gpucopy_prepare(const void *addr)
{
    struct pvn_err err = PVN_ERR_INIT;
    size_t block = pvn_params_get()->tcp_chunk, blocks;
    struct gpucopy *g;
    void *mem = NULL;
    bool first;

    pthread_mutex_lock(&lock);
    g = find_gpu(addr, &err);
    pthread_mutex_unlock(&lock);
    if (!g)
        return;
    pthread_mutex_lock(&pool_lock);
    first = !g->tried;
    g->tried = true;
    pthread_mutex_unlock(&pool_lock);
    blocks = POOL_BYTES / block < 64 ? POOL_BYTES / block : 64;
    if (!first || blocks == 0)
        return;
    if (pvn_cuda_host_alloc(cuda, g->dev, blocks * block, &mem, &err) != 0) {
        pvn_info(PVN_NET, "no pinned memory to copy through, copies of GPU memory are slower: %s",
                 err.reason[0]);
        return;
    }
    pthread_mutex_lock(&pool_lock);
    g->pool = mem;
    g->block = block;
    g->len = blocks * block;
    g->unused = blocks == 64 ? UINT64_MAX : (UINT64_C(1) << blocks) - 1;
    pthread_mutex_unlock(&pool_lock);
}

int pvn_gpucopy_flush(const struct pvn_mem_copy *c, struct pvn_err *err)
{
    struct pvn_cuda_caps caps;
    int rc = pvn_cuda_query(cuda, gpu_of(c)->dev, &caps, err);

    if (rc || caps.ordering >= PVN_CU_ORDER_OWNER)
        return rc;
    return pvn_cuda_flush(cuda, gpu_of(c)->dev, err);
}

static void forget(struct gpucopy *g)
{
    g->stream = NULL;
    g->pool = NULL;
    g->block = 0;
    g->unused = 0;
    g->tried = false;
}

void pvn_gpucopy_unload(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < GPUS; i++) {
        if (gpus[i].stream)
            pvn_cuda_stream_close(cuda, gpus[i].dev, gpus[i].stream, NULL);
        if (gpus[i].pool)
            pvn_cuda_host_free(cuda, gpus[i].dev, gpus[i].pool, NULL);
        forget(&gpus[i]);
    }
    pvn_cuda_close(cuda);
    cuda = NULL;
    pthread_mutex_unlock(&lock);
}

/* Forgets handle, streams and pools, which belong to the parent. */
void pvn_gpucopy_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&pool_lock, NULL);
    for (int i = 0; i < GPUS; i++)
        forget(&gpus[i]);
    cuda = NULL;
}
