/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-pvrdma/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/memcache.h"
#include "nccl/types.h"

/* The argument of pvn_gpumem's callbacks: registrations with one set of access rights. */
struct gpu_access {
    struct pvn_rdma_gpu *g;
    int access;
};

struct pvn_rdma_gpu {
    const struct pvn_verbs *v;
    struct ibv_pd *pd;
    char name[64];
    struct pvn_cuda *cuda; /* NULL: this process does not use CUDA */
    struct pvn_rdma_ordering *ordering;
    struct gpu_access access[2]; /* strict and, if the device supports it, relaxed */
    struct pvn_gpumem_nic nic[2];
    struct pvn_gpumem_cap cap;
    struct pvn_memcache *cache;
    struct pvn_rdma_registrar host;
};

/* The record of one registration of GPU memory. The pvn_rdma_mem that the lane gets follows it in memory; its
 * owner is the pvn_rdma_gpu, which no host registration has as its owner. */
struct gpu_ref {
    struct pvn_mem *region; /* entry of the cache; its handle is a pvn_gpumem_mr */
    uint64_t addr, len;     /* range of the reference to the region */
};

/* The buffer for which a region is needed. */
struct gpu_ask {
    uint64_t addr, len;
    int fd; /* NCCL's dma-buf; -1: none */
    uint64_t offset;
    bool relaxed;
};

static int gpu_refused(const struct pvn_rdma_gpu *g, struct pvn_err *err, const char *call)
{
    char text[128];
    int e = errno ? errno : EIO;
    return pvn_err_set(err, -e, "%s: %s: %s", g->name, call, pvn_strerror(e, text, sizeof(text)));
}

static int gpu_reg_mr(void *nic, uint64_t addr, uint64_t len, void **mr, struct pvn_err *err)
{
    const struct gpu_access *as = nic;
    const struct pvn_rdma_gpu *g = as->g;
    errno = 0;
    *mr = pvn_rdma_reg_mr(g->ordering, g->v, g->pd, (void *)(uintptr_t)addr, len, as->access);
    return *mr ? 0 : gpu_refused(g, err, "ibv_reg_mr");
}

static int gpu_reg_dmabuf_mr(void *nic, int fd, uint64_t offset, uint64_t len, uint64_t iova,
                             void **mr, struct pvn_err *err)
{
    const struct gpu_access *as = nic;
    const struct pvn_rdma_gpu *g = as->g;
    *mr = NULL;
    if (!g->v->reg_dmabuf_mr)
        return pvn_err_set(err, -EOPNOTSUPP,
                           "%s: this libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 or later)",
                           g->name);
    errno = 0;
    struct ibv_mr *m =
        pvn_rdma_reg_dmabuf_mr(g->ordering, g->v, g->pd, offset, len, iova, fd, as->access);
    if (!m)
        return gpu_refused(g, err, "ibv_reg_dmabuf_mr");
    /* libibverbs sets no address, since a dma-buf has none. Lanes find their region by this one. */
    m->addr = (void *)(uintptr_t)iova;
    *mr = m;
    return 0;
}

static int gpu_dereg_mr(void *nic, void *mr, struct pvn_err *err)
{
    const struct pvn_rdma_gpu *g = ((const struct gpu_access *)nic)->g;
    int rc = g->v->dereg_mr(mr);
    if (!rc)
        return 0;
    errno = rc > 0 ? rc : errno;
    return gpu_refused(g, err, "ibv_dereg_mr");
}

static const struct pvn_gpumem_ops gpu_ops = {
    .reg_mr = gpu_reg_mr, .reg_dmabuf_mr = gpu_reg_dmabuf_mr, .dereg_mr = gpu_dereg_mr};

/* The cache's range is exactly what the registration covers: see pvn_gpumem_register. */
static int gpu_cache_reg(void *arg, int dev, uintptr_t addr, size_t len,
                         const struct pvn_mem_kind *kind, const void *extra, void **handle,
                         struct pvn_err *err)
{
    struct pvn_rdma_gpu *g = arg;
    const struct gpu_ask *ask = extra;
    struct pvn_gpumem_mr *mr = malloc(sizeof(*mr));
    if (!mr)
        return pvn_err_set(err, -ENOMEM, "no memory for a registration");
    int rc = pvn_gpumem_register(g->cuda, &g->nic[ask->relaxed], &g->cap, ask->addr, ask->len,
                                 ask->fd, ask->offset, mr, err);
    if (rc)
        free(mr);
    else
        *handle = mr;
    return rc;
}

static void gpu_cache_dereg(void *arg, int dev, void *handle)
{
    struct pvn_rdma_gpu *g = arg;
    pvn_gpumem_deregister(&g->nic[0], handle, NULL);
    free(handle);
}

static const struct pvn_memcache_ops cache_ops = {.reg = gpu_cache_reg, .dereg = gpu_cache_dereg};

struct pvn_rdma_gpu *pvn_rdma_gpu_open(const struct pvn_rdma_gpu_cfg *cfg, struct pvn_err *err)
{
    struct pvn_rdma_gpu *g = calloc(1, sizeof(*g));
    if (g)
        g->cache = pvn_memcache_new(&cache_ops, g, (size_t)sysconf(_SC_PAGESIZE));
    if (!g || !g->cache) {
        free(g);
        pvn_err_set(err, -ENOMEM, "no memory for a device's GPU side");
        return NULL;
    }
    g->host = cfg->host;
    g->v = cfg->v;
    g->pd = cfg->pd;
    pvn_str_append(g->name, sizeof(g->name), "%s", cfg->name);
    g->ordering = cfg->ordering;
    for (int i = 0; i < 2; i++) {
        g->access[i] = (struct gpu_access){g, pvn_rdma_ordering_access(g->ordering, i)};
        g->nic[i] = (struct pvn_gpumem_nic){.name = g->name,
                                            .ops = &gpu_ops,
                                            .nic = &g->access[i],
                                            .can_write = cfg->can_write,
                                            .can_read = cfg->can_read,
                                            .lacks = cfg->lacks};
    }
    struct pvn_err why = PVN_ERR_INIT;
    if (cfg->mode != PVN_GPU_MEM_OFF)
        pvn_cuda_open(&g->cuda, cfg->cuda_lib, &why);
    struct pvn_gpumem_facts facts = {
        .mode = cfg->mode, .flush = cfg->flush, .nccl_no_dmabuf = cfg->nccl_no_dmabuf};
    if (cfg->known) {
        g->cap = *cfg->known;
        return g;
    }
    pvn_gpumem_prove(g->cuda, why.reason[0][0] ? why.reason[0] : NULL, -1, &g->nic[1], &facts,
                     &g->cap);
    return g;
}

void pvn_rdma_gpu_close(struct pvn_rdma_gpu *g)
{
    if (!g)
        return;
    pvn_memcache_free(g->cache);
    pvn_cuda_close(g->cuda);
    free(g);
}

const struct pvn_gpumem_cap *pvn_rdma_gpu_cap(const struct pvn_rdma_gpu *g)
{
    return &g->cap;
}

/* ---- registrar ---- */

static bool is_gpu_memory(const struct pvn_rdma_gpu *g, const struct pvn_rdma_mem *mem)
{
    return mem->part[0].owner == g;
}

/* Finds or makes a region that holds the buffer. A region of the cache is used only if it belongs to the same
 * allocations, which is known by their ids: memory that was freed and allocated again at the same address has
 * another id. */
static int find_region(struct pvn_rdma_gpu *g, const struct gpu_ask *ask, struct gpu_ref *ref,
                       struct pvn_gpumem_view *view, struct pvn_err *err)
{
    struct pvn_gpumem_plan plan = {.addr = ask->addr, .len = ask->len};
    int rc = pvn_gpumem_usable(&g->nic[0], &g->cap, ask->fd, err);
    if (!rc)
        rc = pvn_gpumem_look(g->cuda, ask->addr, ask->len, view, err);
    if (!rc && ask->fd < 0)
        rc = pvn_gpumem_plan_region(ask->addr, ask->len, view, (uint64_t)sysconf(_SC_PAGESIZE),
                                    &plan, err);
    if (rc)
        return rc;
    struct pvn_mem_kind kind = {.ptr_type = NCCL_PTR_CUDA,
                                .access = (unsigned)g->access[ask->relaxed].access,
                                .buffer_id = view->id};
    ref->addr = plan.addr;
    ref->len = plan.len;
    return pvn_memcache_get(g->cache, plan.addr, plan.len, &kind, 1, ask, &ref->region, err);
}

static int gpu_reg(void *arg, const struct pvn_mr *mr, bool relaxed, int dmabuf_fd,
                   uint64_t dmabuf_offset, struct pvn_rdma_mem **out, struct pvn_err *err)
{
    struct pvn_rdma_gpu *g = arg;
    if (mr->ptr_type == NCCL_PTR_HOST)
        return g->host.reg(g->host.arg, mr, relaxed, dmabuf_fd, dmabuf_offset, out, err);
    struct gpu_ref *ref =
        calloc(1, sizeof(*ref) + sizeof(struct pvn_rdma_mem) + sizeof((*out)->part[0]));
    if (!ref)
        return pvn_err_set(err, -ENOMEM, "no memory for a registration");
    struct gpu_ask ask = {.addr = (uintptr_t)mr->addr,
                          .len = mr->len,
                          .fd = dmabuf_fd,
                          .offset = dmabuf_offset,
                          .relaxed = relaxed};
    struct pvn_gpumem_view view;
    int rc = find_region(g, &ask, ref, &view, err);
    if (rc) {
        free(ref);
        return rc;
    }
    const struct pvn_gpumem_mr *region = ref->region->handle[0];
    struct pvn_rdma_mem *mem = (struct pvn_rdma_mem *)(ref + 1);
    mem->addr = (uintptr_t)mr->addr;
    mem->stride = mr->len;
    mem->count = 1;
    mem->gpu = (unsigned)view.dev + 1;
    mem->part[0].mr = region->mr;
    mem->part[0].owner = g;
    *out = mem;
    return 0;
}

static void gpu_dereg(void *arg, struct pvn_rdma_mem *mem)
{
    struct pvn_rdma_gpu *g = arg;
    if (!is_gpu_memory(g, mem)) {
        g->host.dereg(g->host.arg, mem);
        return;
    }
    struct gpu_ref *ref = (struct gpu_ref *)mem - 1;
    pvn_memcache_put(g->cache, ref->region, ref->addr, ref->len);
    free(ref);
}

static int gpu_flush(void *arg, const struct pvn_rdma_mem *mem, struct pvn_err *err)
{
    struct pvn_rdma_gpu *g = arg;
    if (!is_gpu_memory(g, mem))
        return pvn_err_set(err, -EINVAL, "%s: flush of memory that is not a GPU's", g->name);
    return pvn_cuda_flush(g->cuda, (int)mem->gpu - 1, err);
}

void pvn_rdma_gpu_registrar(struct pvn_rdma_gpu *g, struct pvn_rdma_registrar *out)
{
    *out = (struct pvn_rdma_registrar){
        .reg = gpu_reg, .dereg = gpu_dereg, .flush = gpu_flush, .arg = g};
}
