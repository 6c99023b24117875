/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "memory/gpumem.h"
#include "memory/cuda_abi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t host_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- one buffer ---- */

/* Mixes the bits of a word: the finaliser of SplitMix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

int pvn_gpumem_look(const struct pvn_cuda *cu, uint64_t addr, uint64_t len,
                    struct pvn_gpumem_view *out, struct pvn_err *err)
{
    memset(out, 0, sizeof(*out));
    if (len == 0 || addr + len < addr)
        return pvn_err_set(err, -EINVAL, "no GPU buffer is %llu bytes at 0x%llx",
                           (unsigned long long)len, (unsigned long long)addr);
    out->dev = -1;
    out->gdr_capable = -1;
    for (uint64_t at = addr; at < addr + len; at = out->end) {
        struct pvn_cuda_ptr ptr;
        uint64_t base, size;
        int rc = pvn_cuda_pointer(cu, at, &ptr, err);
        if (rc)
            return rc;
        if (ptr.mem == PVN_CUDA_MEM_MANAGED)
            return pvn_err_set(err, -EFAULT,
                               "0x%llx is managed memory (cudaMallocManaged), which moves and "
                               "cannot be registered",
                               (unsigned long long)at);
        if (ptr.mem != PVN_CUDA_MEM_DEVICE)
            return pvn_err_set(
                err, -EFAULT, "0x%llx, byte %llu of a GPU buffer of %llu, is not device memory",
                (unsigned long long)at, (unsigned long long)(at - addr), (unsigned long long)len);
        rc = pvn_cuda_range(cu, ptr.dev, at, &base, &size, err);
        if (rc)
            return rc;
        if (out->segments == 0) {
            out->base = base;
            out->dev = ptr.dev;
        } else if (ptr.dev != out->dev) {
            return pvn_err_set(err, -EXDEV, "the buffer at 0x%llx is spread over GPUs %d and %d",
                               (unsigned long long)addr, out->dev, ptr.dev);
        }
        out->segments++;
        out->end = base + size;
        if (out->gdr_capable != 0)
            out->gdr_capable = ptr.gdr_capable;
        out->id = mix(out->id + mix(base) + mix(size) * 3 + mix(ptr.buffer_id) * 5 +
                      mix(ptr.block_id) * 7);
    }
    return 0;
}

int pvn_gpumem_plan_region(uint64_t addr, uint64_t len, const struct pvn_gpumem_view *view,
                           uint64_t page, struct pvn_gpumem_plan *out, struct pvn_err *err)
{
    uint64_t end = addr + len;
    if (len == 0 || end < addr || addr < view->base || end > view->end)
        return pvn_err_set(
            err, -EINVAL, "[0x%llx, +%llu) is not inside the allocation [0x%llx, +%llu)",
            (unsigned long long)addr, (unsigned long long)len, (unsigned long long)view->base,
            (unsigned long long)(view->end - view->base));
    uint64_t first = addr & -PVN_GPU_PAGE, last = (end + PVN_GPU_PAGE - 1) & -PVN_GPU_PAGE;
    if (first < view->base)
        first = view->base;
    if (last > view->end)
        last = view->end;
    out->addr = first & -page;
    out->len = ((last + page - 1) & -page) - out->addr;
    return 0;
}

/* Adds to *err a remedy for a refused registration. */
static int explain(const struct pvn_gpumem_view *view, int rc, struct pvn_err *err)
{
    if (view->segments > 1)
        pvn_err_add(err,
                    "the buffer consists of %u separate physical allocations, which this driver or "
                    "NIC does not register as one (PyTorch: unset expandable_segments in "
                    "PYTORCH_CUDA_ALLOC_CONF)",
                    view->segments);
    else if (view->gdr_capable == 0)
        pvn_err_add(err, "the allocation was made without GPUDirect RDMA (CUmemAllocationProp "
                         "allocFlags.gpuDirectRDMACapable)");
    return rc;
}

static int register_dmabuf(const struct pvn_cuda *cu, int dev, const struct pvn_gpumem_nic *nic,
                           const struct pvn_gpumem_plan *plan, void **mr, struct pvn_err *err)
{
    int fd;
    int rc = pvn_cuda_export(cu, dev, plan->addr, plan->len, false, &fd, err);
    if (rc)
        return rc;
    rc = nic->ops->reg_dmabuf_mr(nic->nic, fd, 0, plan->len, plan->addr, mr, err);
    close(fd);
    return rc;
}

/* Registers NCCL's dma-buf. It covers only the host pages of the buffer, so the region is exactly these pages. The
 * buffer's first byte must have the same offset within a page in the dma-buf and in the address space. */
static int register_given(const struct pvn_gpumem_nic *nic, uint64_t addr, uint64_t len, int fd,
                          uint64_t offset, struct pvn_gpumem_mr *out, struct pvn_err *err)
{
    uint64_t page = host_page(), in_page = addr & (page - 1);
    if (in_page != (offset & (page - 1)))
        return pvn_err_set(
            err, -EINVAL,
            "dma-buf offset %llu and address 0x%llx are not at the same place of a page",
            (unsigned long long)offset, (unsigned long long)addr);
    out->addr = addr - in_page;
    out->len = (in_page + len + page - 1) & -page;
    out->by_dmabuf = true;
    return nic->ops->reg_dmabuf_mr(nic->nic, fd, offset - in_page, out->len, out->addr, &out->mr,
                                   err);
}

int pvn_gpumem_usable(const struct pvn_gpumem_nic *nic, const struct pvn_gpumem_cap *cap, int fd,
                      struct pvn_err *err)
{
    if (fd >= 0 ? cap->dmabuf : cap->peer || cap->dmabuf)
        return 0;
    return pvn_err_set(err, -EOPNOTSUPP, "%s cannot register GPU memory%s: %s", nic->name,
                       fd >= 0 ? " by dma-buf" : "", cap->text);
}

int pvn_gpumem_register(const struct pvn_cuda *cu, const struct pvn_gpumem_nic *nic,
                        const struct pvn_gpumem_cap *cap, uint64_t addr, uint64_t len, int fd,
                        uint64_t offset, struct pvn_gpumem_mr *out, struct pvn_err *err)
{
    memset(out, 0, sizeof(*out));
    out->dev = -1;
    struct pvn_gpumem_view view;
    int rc = pvn_gpumem_usable(nic, cap, fd, err);
    if (!rc)
        rc = pvn_gpumem_look(cu, addr, len, &view, err);
    if (rc)
        return rc;
    out->dev = view.dev;
    if (fd >= 0) {
        rc = register_given(nic, addr, len, fd, offset, out, err);
        return rc ? explain(&view, rc, err) : 0;
    }
    struct pvn_gpumem_plan plan;
    rc = pvn_gpumem_plan_region(addr, len, &view, host_page(), &plan, err);
    if (rc)
        return rc;
    out->addr = plan.addr;
    out->len = plan.len;
    if (cap->dmabuf) {
        out->by_dmabuf = true;
        rc = register_dmabuf(cu, out->dev, nic, &plan, &out->mr, err);
        if (rc == 0)
            return 0;
    }
    if (cap->peer) {
        out->by_dmabuf = false;
        rc = nic->ops->reg_mr(nic->nic, plan.addr, plan.len, &out->mr, err);
    }
    return rc ? explain(&view, rc, err) : 0;
}

int pvn_gpumem_deregister(const struct pvn_gpumem_nic *nic, struct pvn_gpumem_mr *mr,
                          struct pvn_err *err)
{
    if (!mr->mr)
        return 0;
    int rc = nic->ops->dereg_mr(nic->nic, mr->mr, err);
    mr->mr = NULL;
    return rc;
}

/* ---- the trial ---- */

static void conclude(struct pvn_gpumem_trial *t, int rc, const struct pvn_err *err)
{
    t->done = true;
    t->rc = rc;
    if (rc)
        snprintf(t->why, sizeof(t->why), "%.190s", err->reason[0]);
}

static void try_peer(const struct pvn_gpumem_nic *nic, uint64_t addr, struct pvn_gpumem_trial *t)
{
    struct pvn_err err = PVN_ERR_INIT;
    void *mr = NULL;
    int rc = nic->ops->reg_mr(nic->nic, addr, PVN_GPU_PAGE, &mr, &err);
    if (rc == 0)
        rc = nic->ops->dereg_mr(nic->nic, mr, &err);
    conclude(t, rc, &err);
}

static void try_dmabuf(const struct pvn_cuda *cu, int dev, const struct pvn_gpumem_nic *nic,
                       const struct pvn_cuda_caps *gpu, uint64_t addr, struct pvn_gpumem_trial *t)
{
    struct pvn_err err = PVN_ERR_INIT;
    if (gpu->dma_buf != 1) {
        conclude(t,
                 pvn_err_set(&err, -EOPNOTSUPP, "the GPU's driver offers no dma-buf (%s)",
                             gpu->dma_buf < 0 ? "older than 11.7" : "the open kernel modules do"),
                 &err);
        return;
    }
    uint64_t page = host_page();
    struct pvn_gpumem_plan plan = {.addr = addr & -page};
    plan.len = ((addr + PVN_GPU_PAGE + page - 1) & -page) - plan.addr;
    void *mr = NULL;
    int rc = register_dmabuf(cu, dev, nic, &plan, &mr, &err);
    if (rc == 0)
        rc = nic->ops->dereg_mr(nic->nic, mr, &err);
    conclude(t, rc, &err);
}

/* Fills in gpu and the trials that the mode allows. Returns the value for cuda_rc. */
static int run_trials(const struct pvn_cuda *cu, int dev, const struct pvn_gpumem_nic *nic,
                      struct pvn_gpumem_facts *f, struct pvn_err *err)
{
    int rc = dev < 0 ? pvn_cuda_current_device(cu, &dev, err) : 0;
    if (!rc)
        rc = pvn_cuda_query(cu, dev, &f->gpu, err);
    if (rc || f->gpu.gdr == 0)
        return rc;
    uint64_t addr;
    rc = pvn_cuda_alloc(cu, dev, PVN_GPU_PAGE, &addr, err);
    if (rc)
        return rc;
    if (f->mode != PVN_GPU_MEM_PEERMEM && !f->nccl_no_dmabuf)
        try_dmabuf(cu, dev, nic, &f->gpu, addr, &f->dmabuf);
    if (f->mode != PVN_GPU_MEM_DMABUF)
        try_peer(nic, addr, &f->peer);
    return pvn_cuda_free(cu, dev, addr, err);
}

void pvn_gpumem_prove(const struct pvn_cuda *cu, const char *cuda_why, int dev,
                      const struct pvn_gpumem_nic *nic, struct pvn_gpumem_facts *f,
                      struct pvn_gpumem_cap *cap)
{
    struct pvn_err err = PVN_ERR_INIT;
    f->can_write = nic->can_write;
    f->can_read = nic->can_read;
    f->lacks = nic->lacks;
    f->cuda_rc = 0;
    memset(&f->peer, 0, sizeof(f->peer));
    memset(&f->dmabuf, 0, sizeof(f->dmabuf));
    if (!cu)
        f->cuda_rc = pvn_err_set(&err, -ENOENT, "%s",
                                 cuda_why ? cuda_why : "this process does not use CUDA");
    else if (f->mode != PVN_GPU_MEM_OFF && f->can_write)
        f->cuda_rc = run_trials(cu, dev, nic, f, &err);
    snprintf(f->cuda_why, sizeof(f->cuda_why), "%.190s", err.reason[0]);
    pvn_gpumem_decide(f, cap);
}
