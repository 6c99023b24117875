/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "memory/gpucopy.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "base/param.h"
#include "memory/cuda_abi.h"
#include "memory/cuda_shim.h"

enum { GPUS = 64 };

struct gpucopy {
    struct pvn_mem_copy copy; /* first */
    int dev;
    void *stream; /* NULL: not opened yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_cuda *cuda; /* opened with the first GPU, kept */
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

/* With the lock. */
static struct gpucopy *find(const void *addr, struct pvn_err *err)
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
    g->copy = (struct pvn_mem_copy){.to_host = to_host, .from_host = from_host};
    g->dev = p.dev;
    if (!g->stream && pvn_cuda_stream_open(cuda, g->dev, &g->stream, err) != 0)
        return NULL;
    return g;
}

const struct pvn_mem_copy *pvn_gpucopy_of(const void *addr, struct pvn_err *err)
{
    const struct gpucopy *g;

    pthread_mutex_lock(&lock);
    g = find(addr, err);
    pthread_mutex_unlock(&lock);
    return g ? &g->copy : NULL;
}

int pvn_gpucopy_flush(const struct pvn_mem_copy *c, struct pvn_err *err)
{
    struct pvn_cuda_caps caps;
    int rc = pvn_cuda_query(cuda, gpu_of(c)->dev, &caps, err);

    if (rc || caps.ordering >= PVN_CU_ORDER_OWNER)
        return rc;
    return pvn_cuda_flush(cuda, gpu_of(c)->dev, err);
}

void pvn_gpucopy_unload(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < GPUS; i++) {
        if (gpus[i].stream)
            pvn_cuda_stream_close(cuda, gpus[i].dev, gpus[i].stream, NULL);
        gpus[i].stream = NULL;
    }
    pvn_cuda_close(cuda);
    cuda = NULL;
    pthread_mutex_unlock(&lock);
}

/* The handle and the streams are the parent's. */
void pvn_gpucopy_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    for (int i = 0; i < GPUS; i++)
        gpus[i].stream = NULL;
    cuda = NULL;
}
