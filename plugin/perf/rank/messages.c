/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf/rank/pin.h"
#include "perf/rank/rank.h"

/* The page size with which the driver maps GPU memory for other devices. GPU memory is allocated in
 * whole pages of it, as by cudaMalloc. */
#define GPU_PAGE UINT64_C(65536)

#define NO_DRIVER                                                                                  \
    "this host has no NVIDIA driver, or the container was started without it (--gpus all); use "   \
    "--memory pinned"

const char *pvn_memory_name(enum pvn_perf_memory kind)
{
    static const char *const names[] = {"", "pinned", "movable", "gpu"};

    return names[kind];
}

void *pvn_rank_alloc(struct pvn_rank *r, size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p != MAP_FAILED)
        return p;
    pvn_rank_fail(r, "cannot allocate %zu bytes: %s", len, strerror(errno));
    return NULL;
}

/* Returns the bytes that can be used without harm to other programs (SIZE_MAX: unknown), and the
 * host's total. */
static size_t available(size_t *total)
{
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib;
    size_t bytes = SIZE_MAX;
    char line[128];

    *total = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (size_t)kib * 1024;
        else if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
            *total = (size_t)kib * 1024;
    if (f)
        fclose(f);
    return bytes;
}

int pvn_rank_room(struct pvn_rank *r, size_t len)
{
    int here = r->external ? 1 : r->nranks;
    size_t total, room = available(&total);

    /* The message has no free size, because that differs from rank to rank, and equal messages are
     * printed once. */
    if (len > room / (size_t)here)
        return pvn_rank_fail(
            r,
            "buffers of %zu MiB in each of %d ranks do not fit into what is free of "
            "this host's %zu MiB: give smaller --sizes, --depth or --channels",
            len >> 20, here, total >> 20);
    return 0;
}

bool pvn_messages_on_gpu(const struct pvn_rank *r)
{
    return r->mem.kind == PVN_PERF_GPU;
}

int pvn_messages_start(struct pvn_rank *r)
{
    struct pvn_messages *m = &r->mem;
    struct pvn_err err = PVN_ERR_INIT;
    int rc;

    m->kind = r->o->memory;
    if (m->kind == PVN_PERF_MOVABLE)
        return 0;
    pvn_rank_at(r, "CUDA");
    rc = pvn_gpu_open(&m->gpu, r->o->gpu, r->rank, &err);
    if (!rc)
        return 0;
    if (m->kind == PVN_PERF_GPU || r->o->gpu >= 0)
        return pvn_rank_fail(
            r, "%s: %s%s%s", m->kind == PVN_PERF_GPU ? "--memory gpu" : "pinned memory of --gpu",
            err.reason[0], rc == -ENOENT ? ": " : "", rc == -ENOENT ? NO_DRIVER : "");
    /* The plugin reports errors of parameters, which it reads, too. */
    if (rc != -ENOENT && err.fault != PVN_FAULT_USAGE)
        pvn_rank_note(r, "CUDA is not used: %s", err.reason[0]);
    return 0;
}

/* NCCL's conditions: useDmaBuf of net.cc, with dmaBufSupport of its proxy. */
static bool takes_dmabuf(const struct pvn_rank *r, const ncclNetProperties_v12_t *p)
{
    const struct pvn_cuda_caps *gpu = &r->mem.gpu->caps;
    const char *enable = getenv("NCCL_DMABUF_ENABLE");

    return (p->ptrSupport & NCCL_PTR_DMABUF) && gpu->dma_buf == 1 && gpu->has_export &&
           (!enable || strcmp(enable, "0") != 0);
}

/* Finds out what all devices support. NCCL decides per channel; here one allocation serves all
 * channels, so the weakest device decides. */
static int look_at_devices(struct pvn_rank *r)
{
    struct pvn_messages *m = &r->mem;

    m->dmabuf = true;
    m->flush = m->gpu->caps.cc_major < 9; /* ncclTopoNeedFlush (graph/paths.cc of 2.30.7) */
    for (int c = 0; c < r->o->channels && c < r->o->ndevs; c++) {
        ncclNetProperties_v12_t p;
        ncclResult_t rc = pvn_netdrv_properties(r->drv, r->link[c].dev, &p);

        if (rc != ncclSuccess)
            return pvn_rank_fail_call(r, "getProperties", rc);
        m->staged |= !(p.ptrSupport & NCCL_PTR_CUDA);
        m->dmabuf &= takes_dmabuf(r, &p);
        m->flush |= p.forceFlush != 0;
    }
    return 0;
}

int pvn_messages_settle(struct pvn_rank *r)
{
    struct pvn_messages *m = &r->mem;
    struct pvn_err err = PVN_ERR_INIT;
    ncclNetProperties_v12_t p;
    ncclResult_t rc;

    if (!m->gpu)
        return 0;
    rc = pvn_netdrv_properties(r->drv, r->link[0].dev, &p);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(r, "getProperties", rc);
    if (pvn_gpu_go_near(m->gpu, p.pciPath, r->rank, &err))
        return pvn_rank_fail(r, "GPU %d, nearest to device %s, cannot be used: %s: give --gpu N",
                             m->gpu->dev, p.name ? p.name : "?", err.reason[0]);
    if (m->kind != PVN_PERF_GPU)
        return 0;
    if (look_at_devices(r))
        return -1;
    if (m->staged) {
        m->kind = PVN_PERF_PINNED;
        m->flush = m->dmabuf = false;
    }
    return 0;
}

void pvn_messages_end(struct pvn_rank *r)
{
    pvn_gpu_close(r->mem.gpu);
    r->mem.gpu = NULL;
}

static void *alloc_gpu(struct pvn_rank *r, size_t len)
{
    struct pvn_messages *m = &r->mem;
    const struct pvn_gpu *g = m->gpu;
    struct pvn_err err = PVN_ERR_INIT;

    if (pvn_cuda_alloc(g->cu, g->dev, (len + 2 * GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE, &m->gpu_base,
                       &err)) {
        pvn_rank_fail(r,
                      "--memory gpu: cannot allocate %zu MiB on GPU %d (%s %s): %s: give smaller "
                      "--sizes, --depth or --channels, or another --gpu",
                      (len >> 20) + 1, g->dev, g->caps.name, g->caps.bus_id, err.reason[0]);
        return NULL;
    }
    snprintf(m->how, sizeof(m->how), "GPU %d, %s, %s; %s; %s", g->dev, g->caps.name, g->caps.bus_id,
             m->dmabuf ? "regMrDmaBuf" : "regMr",
             m->flush ? "flushed after each receive" : "no flush needed");
    return (void *)(uintptr_t)((m->gpu_base + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE);
}

/* Allocates memory as NCCL's staging buffers are. NULL with the reason in why. */
static void *alloc_cuda_host(struct pvn_rank *r, size_t len, char *why, size_t why_len)
{
    struct pvn_messages *m = &r->mem;
    struct pvn_err err = PVN_ERR_INIT;
    void *p = NULL;

    if (pvn_cuda_host_alloc(m->gpu->cu, m->gpu->dev, len, &p, &err)) {
        snprintf(why, why_len, "%s", err.reason[0]);
        return NULL;
    }
    memset(p, 0, len);
    m->by_cuda = true;
    snprintf(m->how, sizeof(m->how), "cudaHostAlloc, GPU %d, %s, %s", m->gpu->dev,
             m->gpu->caps.name, m->gpu->caps.bus_id);
    return p;
}

static void *alloc_uring(struct pvn_rank *r, size_t len, char *why, size_t why_len)
{
    void *p = pvn_rank_alloc(r, len);

    if (!p) {
        snprintf(why, why_len, "%.150s", r->err);
        return NULL;
    }
    r->mem.pin_fd = pvn_pin(p, len, why, why_len);
    if (r->mem.pin_fd >= 0) {
        snprintf(r->mem.how, sizeof(r->mem.how), "io_uring");
        return p;
    }
    munmap(p, len);
    return NULL;
}

static void *alloc_movable(struct pvn_rank *r, size_t len)
{
    r->mem.kind = PVN_PERF_MOVABLE;
    snprintf(r->mem.how, sizeof(r->mem.how), "ordinary");
    return pvn_rank_alloc(r, len);
}

void *pvn_rank_alloc_messages(struct pvn_rank *r, size_t len)
{
    char why[PVN_ERR_REASON_LEN];
    void *p;

    if (r->mem.kind == PVN_PERF_GPU)
        return alloc_gpu(r, len);
    if (r->mem.kind == PVN_PERF_MOVABLE)
        return alloc_movable(r, len);
    p = r->mem.gpu ? alloc_cuda_host(r, len, why, sizeof(why))
                   : alloc_uring(r, len, why, sizeof(why));
    if (p)
        r->mem.kind = PVN_PERF_PINNED;
    if (p || r->status == PVN_PERF_FAILED)
        return p;
    if (r->o->memory == PVN_PERF_PINNED_IF_POSSIBLE) {
        pvn_rank_note(r, "memory cannot be pinned, as NCCL's is: %s", why);
        return alloc_movable(r, len);
    }
    pvn_rank_fail(r, "--memory %s: cannot pin %zu bytes: %s; use --memory host",
                  pvn_memory_name(r->o->memory), len, why);
    return NULL;
}

void pvn_messages_forget(struct pvn_rank *r)
{
    r->mem.pin_fd = -1;
    r->mem.gpu_base = 0;
    r->mem.by_cuda = false;
}

void pvn_rank_free_messages(struct pvn_rank *r, void *p, size_t len)
{
    struct pvn_messages *m = &r->mem;

    if (m->gpu_base)
        pvn_cuda_free(m->gpu->cu, m->gpu->dev, m->gpu_base, NULL);
    else if (m->by_cuda)
        pvn_cuda_host_free(m->gpu->cu, m->gpu->dev, p, NULL);
    else
        munmap(p, len);
    if (m->pin_fd >= 0)
        close(m->pin_fd);
    pvn_messages_forget(r);
}

struct said {
    int32_t kind, staged;
    char how[PVN_MEMORY_HOW];
};

static void describe(const struct said *s, char *out, size_t len)
{
    if (s->kind == PVN_PERF_GPU)
        snprintf(out, len, "messages lie in GPU memory (%s)", s->how);
    else if (s->staged)
        snprintf(
            out, len,
            "the device takes host memory alone (its ptrSupport): messages lie in pinned memory, through "
            "which NCCL stages those of a GPU (%s)",
            s->how);
    else if (s->kind == PVN_PERF_PINNED)
        snprintf(out, len, "messages lie in pinned memory (%s%s)", s->how,
                 strcmp(s->how, "io_uring") == 0 ? ", without CUDA the nearest to cudaHostAlloc"
                                                 : "");
    else
        snprintf(out, len, "messages lie in memory that the kernel can move, unlike NCCL's");
}

/* Reports each kind of memory once, with the first rank that has it. */
static void say_all(struct pvn_rank *r, const struct said *all)
{
    char text[320];

    for (int i = 0; i < r->nranks; i++) {
        int seen = 0;

        for (int k = 0; k < i && !seen; k++)
            seen = all[k].kind == all[i].kind && all[k].staged == all[i].staged;
        if (seen)
            continue;
        describe(&all[i], text, sizeof(text));
        pvn_rank_note(r, i ? "rank %d: %s" : "rank %d and those not named here: %s", i, text);
    }
}

int pvn_messages_say(struct pvn_rank *r)
{
    struct said mine = {r->mem.kind, r->mem.staged, ""}, *all;
    char text[320];
    int rc = 0, alike = 1;

    snprintf(mine.how, sizeof(mine.how), "%s", r->mem.how);
    describe(&mine, text, sizeof(text));
    if (r->o->served && r->rank == 1) /* the server has no table */
        dprintf(STDOUT_FILENO, "  %s\n", text);
    if (r->o->served || r->nranks == 1) {
        pvn_rank_note(r, "%s", text);
        return 0;
    }
    all = calloc((size_t)r->nranks, sizeof(*all));
    if (!all)
        return pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    if (pvn_boot_allgather(&r->boot, &mine, all, sizeof(mine)))
        rc = pvn_rank_fail_boot(r);
    for (int i = 1; !rc && i < r->nranks; i++)
        alike &= all[i].kind == all[0].kind && all[i].staged == all[0].staged;
    if (!rc && alike)
        pvn_rank_note(r, "%s", text);
    else if (!rc)
        say_all(r, all);
    free(all);
    return rc;
}

int pvn_messages_write(struct pvn_rank *r, void *to, const void *from, size_t len)
{
    const struct pvn_gpu *g = r->mem.gpu;
    struct pvn_err err = PVN_ERR_INIT;

    if (!len || !pvn_cuda_copy_in(g->cu, g->dev, g->stream, (uintptr_t)to, from, len, &err))
        return 0;
    return pvn_rank_fail(r, "a copy of %zu bytes into memory of GPU %d failed: %s", len, g->dev,
                         err.reason[0]);
}

int pvn_messages_read(struct pvn_rank *r, void *to, const void *from, size_t len)
{
    const struct pvn_gpu *g = r->mem.gpu;
    struct pvn_err err = PVN_ERR_INIT;

    if (!len || !pvn_cuda_copy_out(g->cu, g->dev, g->stream, to, (uintptr_t)from, len, &err))
        return 0;
    return pvn_rank_fail(r, "a copy of %zu bytes out of memory of GPU %d failed: %s", len, g->dev,
                         err.reason[0]);
}

static int fail_register(struct pvn_rank *r, const char *call, size_t len, ncclResult_t rc)
{
    return pvn_rank_fail(
        r,
        "%s of %zu bytes of GPU memory failed with %s at plugin %s, whose device says that "
        "it takes such memory: NCCL would fail here, too. The plugin's own messages say "
        "why; --memory pinned shows the rest",
        call, len, pvn_netdrv_strerror(rc), r->o->plugin[r->plugin].name);
}

/* Registers by descriptor. It covers whole pages of the host around the buffer, which are part of
 * the allocation. */
static int register_dmabuf(struct pvn_rank *r, void *comm, void *p, size_t len, void **mhandle)
{
    const struct pvn_gpu *g = r->mem.gpu;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p, first = at / page * page;
    struct pvn_err err = PVN_ERR_INIT;
    ncclResult_t rc;
    int fd;

    if (pvn_cuda_export(g->cu, g->dev, first, (at + len - first + page - 1) / page * page, false,
                        &fd, &err))
        return pvn_rank_fail(
            r,
            "GPU %d does not export %zu bytes as a dma-buf: %s: NCCL would fail here, too; "
            "NCCL_DMABUF_ENABLE=0 in the environment does without",
            g->dev, len, err.reason[0]);
    pvn_rank_at(r, "regMrDmaBuf");
    rc = pvn_netdrv_reg_dmabuf(r->drv, comm, p, len, NCCL_PTR_CUDA, at - first, fd, mhandle);
    close(fd);
    return rc == ncclSuccess ? 0 : fail_register(r, "regMrDmaBuf", len, rc);
}

int pvn_messages_register(struct pvn_rank *r, void *comm, void *p, size_t len, void **mhandle)
{
    bool gpu = pvn_messages_on_gpu(r);
    ncclResult_t rc;

    if (r->mem.dmabuf)
        return register_dmabuf(r, comm, p, len, mhandle);
    pvn_rank_at(r, "regMr");
    rc = pvn_netdrv_reg_mr(r->drv, comm, p, len, gpu ? NCCL_PTR_CUDA : NCCL_PTR_HOST, mhandle);
    if (rc == ncclSuccess)
        return 0;
    return gpu ? fail_register(r, "regMr", len, rc) : pvn_rank_fail_call(r, "regMr", rc);
}

int pvn_messages_flush(struct pvn_rank *r, void *comm, int n, void **data, const int *sizes,
                       void **mhandles, void **request)
{
    int len[NCCL_NET_MAX_REQUESTS], any = 0;
    ncclResult_t rc;

    *request = NULL;
    /* If a plugin does not report sizes, flush one byte of each buffer, which flushes the other
     * bytes, too. */
    for (int i = 0; i < n; i++)
        any |= len[i] = sizes[i] < 0 ? 1 : sizes[i];
    if (!r->mem.flush || !any)
        return 0;
    pvn_rank_at(r, "iflush");
    rc = pvn_netdrv_iflush(r->drv, comm, n, data, len, mhandles, request);
    return rc == ncclSuccess ? 0 : pvn_rank_fail_call(r, "iflush", rc);
}
