/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "memory/gpumem.h"
#include "memory/cuda_abi.h"

#include <stdio.h>
#include <string.h>

#include "nccl/types.h"

enum {
    CC_ORDERED = 9
}; /* Hopper: from this compute capability on NCCL requests no flush by itself */

static const char *ordering_name(int ordering)
{
    if (ordering < 0)
        return "not reported by this driver";
    if (ordering >= PVN_CU_ORDER_ALL)
        return "all devices";
    return ordering >= PVN_CU_ORDER_OWNER ? "owner" : "none";
}

static bool has_cuda_flush(const struct pvn_cuda_caps *gpu)
{
    return gpu->has_flush && gpu->flush_options > 0 && (gpu->flush_options & PVN_CU_FLUSH_OPT_HOST);
}

/* The best kind of flush that GPU and NIC support. A READ is better, because the CUDA call blocks NCCL's proxy
 * thread. */
static enum pvn_flush_kind means(const struct pvn_cuda_caps *gpu, bool nic_can_read)
{
    if (nic_can_read)
        return PVN_FLUSH_READ;
    return has_cuda_flush(gpu) ? PVN_FLUSH_CUDA : PVN_FLUSH_IMPOSSIBLE;
}

static const char *means_text(enum pvn_flush_kind kind)
{
    switch (kind) {
    case PVN_FLUSH_READ:
        return "RDMA READ by the adapter";
    case PVN_FLUSH_CUDA:
        return "cuFlushGPUDirectRDMAWrites";
    case PVN_FLUSH_NONE:
        return "none";
    case PVN_FLUSH_IMPOSSIBLE:
        break;
    }
    return "impossible";
}

static void decide_auto(const struct pvn_cuda_caps *gpu, bool nic_can_read,
                        struct pvn_flush_plan *out)
{
    bool newer = gpu->cc_major >= CC_ORDERED;
    bool ordered = newer && gpu->ordering != PVN_CU_ORDER_NONE;
    /* PVN_FLUSH_CUDA is no choice: within the ordered scope the driver's call does nothing (CUDA 13.0,
     * cuFlushGPUDirectRDMAWrites). */
    if (ordered) {
        out->kind = nic_can_read ? PVN_FLUSH_READ : PVN_FLUSH_NONE;
        snprintf(out->text, sizeof(out->text),
                 "flush: %s (compute capability %d.%d orders remote writes; driver: %s)",
                 nic_can_read ? "RDMA READ by the adapter, where NCCL requests one" : "none",
                 gpu->cc_major, gpu->cc_minor, ordering_name(gpu->ordering));
        return;
    }
    out->kind = means(gpu, nic_can_read);
    if (out->kind == PVN_FLUSH_IMPOSSIBLE && gpu->ordering >= PVN_CU_ORDER_OWNER) {
        out->kind = PVN_FLUSH_NONE;
        snprintf(out->text, sizeof(out->text),
                 "flush: none (the driver says remote writes are ordered for: %s)",
                 ordering_name(gpu->ordering));
        return;
    }
    out->force = newer && out->kind != PVN_FLUSH_IMPOSSIBLE;
    if (out->kind == PVN_FLUSH_IMPOSSIBLE)
        snprintf(out->text, sizeof(out->text),
                 "flush: impossible (compute capability %d.%d needs one; this NIC has no RDMA "
                 "READ of its own host, this driver and GPU no cuFlushGPUDirectRDMAWrites)",
                 gpu->cc_major, gpu->cc_minor);
    else
        snprintf(out->text, sizeof(out->text),
                 "flush: %s (compute capability %d.%d; ordering of remote writes: %s)",
                 means_text(out->kind), gpu->cc_major, gpu->cc_minor, ordering_name(gpu->ordering));
}

void pvn_flush_decide(enum pvn_flush_mode mode, const struct pvn_cuda_caps *gpu, bool nic_can_read,
                      struct pvn_flush_plan *out)
{
    memset(out, 0, sizeof(*out));
    bool newer = gpu->cc_major >= CC_ORDERED;
    const char *lacks = NULL;
    switch (mode) {
    case PVN_FLUSH_MODE_NONE:
        out->kind = PVN_FLUSH_NONE;
        snprintf(out->text, sizeof(out->text), "flush: none (NCCL_PVRDMA_FLUSH=none%s)",
                 newer ? "" : "; this GPU needs one, data may be read before it has arrived");
        return;
    case PVN_FLUSH_MODE_READ:
        if (nic_can_read) {
            out->kind = PVN_FLUSH_READ;
            break;
        }
        lacks = "NCCL_PVRDMA_FLUSH=read, but this NIC has no RDMA READ of its own host";
        break;
    case PVN_FLUSH_MODE_CUDA:
        if (has_cuda_flush(gpu)) {
            out->kind = PVN_FLUSH_CUDA;
            break;
        }
        lacks = "NCCL_PVRDMA_FLUSH=cuda, but this driver or GPU has no cuFlushGPUDirectRDMAWrites";
        break;
    case PVN_FLUSH_MODE_AUTO:
        decide_auto(gpu, nic_can_read, out);
        return;
    }
    if (lacks) {
        out->kind = PVN_FLUSH_IMPOSSIBLE;
        snprintf(out->text, sizeof(out->text), "flush: impossible (%s)", lacks);
        return;
    }
    out->force = newer;
    snprintf(out->text, sizeof(out->text), "flush: %s (NCCL_PVRDMA_FLUSH)", means_text(out->kind));
}

static void refuse_gpu_memory(struct pvn_gpumem_cap *cap, const char *reason)
{
    cap->peer = cap->dmabuf = false;
    cap->ptr_support = NCCL_PTR_HOST;
    cap->flush.kind = PVN_FLUSH_NONE;
    cap->flush.force = false;
    snprintf(cap->text, sizeof(cap->text), "gpu memory: staged through host memory (%s)", reason);
}

/* Says why neither registration worked, with both reasons if both were tried. */
static void refuse_trials(const struct pvn_gpumem_facts *f, struct pvn_gpumem_cap *cap)
{
    char reason[460];
    int n = f->lacks ? snprintf(reason, sizeof(reason), "%s: ", f->lacks) : 0;
    char *to = reason + n;
    size_t room = sizeof(reason) - (size_t)n;
    if (f->peer.done && f->dmabuf.done)
        snprintf(to, room, "dma-buf: %s; peer memory: %s", f->dmabuf.why, f->peer.why);
    else if (f->dmabuf.done)
        snprintf(to, room, "dma-buf: %s", f->dmabuf.why);
    else if (f->peer.done)
        snprintf(to, room, "peer memory: %s", f->peer.why);
    else
        snprintf(to, room, "NCCL_PVRDMA_GPU_MEM=dmabuf, but NCCL_DMABUF_ENABLE=0");
    refuse_gpu_memory(cap, reason);
}

void pvn_gpumem_decide(const struct pvn_gpumem_facts *f, struct pvn_gpumem_cap *cap)
{
    memset(cap, 0, sizeof(*cap));
    char reason[256];
    if (f->mode == PVN_GPU_MEM_OFF) {
        refuse_gpu_memory(cap, "NCCL_PVRDMA_GPU_MEM=off");
        return;
    }
    if (!f->can_write) {
        refuse_gpu_memory(cap, "this device cannot write into remote memory");
        return;
    }
    if (f->cuda_rc) {
        refuse_gpu_memory(cap, f->cuda_why);
        return;
    }
    if (f->gpu.gdr == 0) {
        snprintf(reason, sizeof(reason), "GPU %s (%s) does not support GPUDirect RDMA",
                 f->gpu.bus_id, f->gpu.name);
        refuse_gpu_memory(cap, reason);
        return;
    }
    cap->peer = f->peer.done && f->peer.rc == 0;
    cap->dmabuf = f->dmabuf.done && f->dmabuf.rc == 0;
    if (!cap->peer && !cap->dmabuf) {
        refuse_trials(f, cap);
        return;
    }
    pvn_flush_decide(f->flush, &f->gpu, f->can_read, &cap->flush);
    if (cap->flush.kind == PVN_FLUSH_IMPOSSIBLE) {
        char why[sizeof(cap->flush.text)];
        memcpy(why, cap->flush.text, sizeof(why));
        refuse_gpu_memory(cap, why);
        return;
    }
    /* NCCL_PTR_CUDA: regMr of a GPU pointer works, by peer memory or by a dma-buf that the plugin exports. */
    cap->ptr_support = NCCL_PTR_HOST | NCCL_PTR_CUDA | (cap->dmabuf ? NCCL_PTR_DMABUF : 0);
    snprintf(cap->text, sizeof(cap->text), "gpu memory: %s, proved on GPU %s (%s); %s",
             cap->dmabuf ? (cap->peer ? "dma-buf and peer memory" : "dma-buf") : "peer memory",
             f->gpu.bus_id, f->gpu.name, cap->flush.text);
}
