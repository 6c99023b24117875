// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The double of libcudart.so.13: memory. Device memory is ordinary memory of the process. */
#include "nccl/cudart.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>

using namespace cudart_double;

namespace
{

std::mutex memory_lock;
std::map<uintptr_t, Block> &blocks()
{
    static auto *m = new std::map<uintptr_t, Block>;
    return *m;
}
std::atomic<size_t> device_bytes{0};

size_t page()
{
    static const size_t p = sysconf(_SC_PAGESIZE);
    return p;
}

/* A page without access follows each allocation, and freed addresses stay reserved without
 * access. So a plugin that touches memory too late dies there instead of writing into another
 * allocation. */
cudaError_t take(void **out, size_t bytes, cudaMemoryType type)
{
    if (!out)
        return fail(cudaErrorInvalidValue);
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    const size_t align = size_t(2) << 20;
    size_t body = (bytes + page() - 1) / page() * page();
    size_t slack = body >= align ? align : 0;
    char *raw = static_cast<char *>(mmap(nullptr, body + page() + slack, PROT_NONE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (raw == MAP_FAILED)
        return fail(cudaErrorMemoryAllocation);
    char *p = raw;
    if (slack) {
        p = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(raw) + align - 1) / align *
                                     align);
        if (p > raw)
            munmap(raw, p - raw);
        if (raw + slack > p)
            munmap(p + body + page(), raw + slack - p);
    }
    if (mprotect(p, body, PROT_READ | PROT_WRITE)) {
        munmap(p, body + page());
        return fail(cudaErrorMemoryAllocation);
    }
    if (type == cudaMemoryTypeHost && env_long("CUDART_DOUBLE_PINNED", 0))
        madvise(p, body, MADV_NOHUGEPAGE); /* from now on the kernel cannot move the pages */
    if (type == cudaMemoryTypeDevice && env_long("CUDART_DOUBLE_FILL", 1))
        memset(p, 0xd5, body); /* not zero, as on a GPU */
    std::lock_guard<std::mutex> hold(memory_lock);
    Block b;
    b.bytes = bytes;
    b.mapped = body + page();
    b.type = type;
    b.device = current_device;
    blocks()[reinterpret_cast<uintptr_t>(p)] = b;
    if (type == cudaMemoryTypeDevice)
        device_bytes += bytes;
    *out = p;
    return cudaSuccess;
}

cudaError_t give(void *p, cudaMemoryType type, const char *name)
{
    if (!p)
        return cudaSuccess;
    std::lock_guard<std::mutex> hold(memory_lock);
    auto it = blocks().find(reinterpret_cast<uintptr_t>(p));
    if (it == blocks().end() || it->second.type != type || !it->second.mapped) {
        say("%s(%p): not allocated by the matching call", name, p);
        return fail(cudaErrorInvalidValue);
    }
    if (type == cudaMemoryTypeDevice)
        device_bytes -= it->second.bytes;
    static const bool poison = env_long("CUDART_DOUBLE_POISON", 1) != 0;
    if (poison) {
        madvise(p, it->second.mapped, MADV_DONTNEED);
        mprotect(p, it->second.mapped, PROT_NONE);
    } else
        munmap(p, it->second.mapped);
    blocks().erase(it);
    return cudaSuccess;
}

} // namespace

bool cudart_double::find_block(const void *p, uintptr_t *base, Block *b)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    auto it = blocks().upper_bound(reinterpret_cast<uintptr_t>(p));
    if (it == blocks().begin())
        return false;
    --it;
    if (reinterpret_cast<uintptr_t>(p) >= it->first + it->second.bytes)
        return false;
    *base = it->first;
    *b = it->second;
    return true;
}

size_t cudart_double::device_bytes_allocated()
{
    return device_bytes;
}

extern "C" {

cudaError_t cudaMalloc(void **p, size_t n)
{
    return take(p, n, cudaMemoryTypeDevice);
}
cudaError_t cudaFree(void *p)
{
    return give(p, cudaMemoryTypeDevice, "cudaFree");
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    return take(p, n, cudaMemoryTypeHost);
}
cudaError_t cudaMallocHost(void **p, size_t n)
{
    return take(p, n, cudaMemoryTypeHost);
}
cudaError_t cudaFreeHost(void *p)
{
    return give(p, cudaMemoryTypeHost, "cudaFreeHost");
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    auto &b = blocks()[reinterpret_cast<uintptr_t>(p)];
    if (b.bytes)
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    b.bytes = n;
    b.type = cudaMemoryTypeHost;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    std::lock_guard<std::mutex> hold(memory_lock);
    auto it = blocks().find(reinterpret_cast<uintptr_t>(p));
    if (it == blocks().end() || it->second.mapped)
        return fail(cudaErrorHostMemoryNotRegistered);
    blocks().erase(it);
    return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned)
{
    *d = h;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    memset(a, 0, sizeof *a);
    uintptr_t at;
    Block b;
    a->hostPointer = const_cast<void *>(p);
    if (!find_block(p, &at, &b))
        return cudaSuccess;
    a->type = b.type;
    a->device = b.device;
    a->devicePointer = const_cast<void *>(p);
    if (b.type == cudaMemoryTypeDevice)
        a->hostPointer = nullptr;
    return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t *p, const struct cudaMemPoolProps *)
{
    *p = reinterpret_cast<cudaMemPool_t>(new char);
    return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t p)
{
    delete reinterpret_cast<char *>(p);
    return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, enum cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t, cudaStream_t)
{
    return take(p, n, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return take(p, n, cudaMemoryTypeDevice);
}
cudaError_t cudaMemcpyBatchAsync(void *const *, const void *const *, const size_t *, size_t,
                                 struct cudaMemcpyAttributes *, size_t *, size_t, cudaStream_t)
{
    return lacking("cudaMemcpyBatchAsync");
}
/* Handles are valid only within this process. NCCL requests one before it uses plain pointers
 * between its threads. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    uintptr_t at;
    Block b;
    if (!find_block(p, &at, &b) || b.type != cudaMemoryTypeDevice)
        return fail(cudaErrorInvalidValue);
    pid_t pid = getpid();
    memset(h, 0, sizeof *h);
    memcpy(h->reserved, &pid, sizeof pid);
    memcpy(h->reserved + 8, &p, sizeof p);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned)
{
    pid_t pid;
    memcpy(&pid, h.reserved, sizeof pid);
    if (pid != getpid())
        return lacking("cudaIpcOpenMemHandle of another process's memory");
    memcpy(p, h.reserved + 8, sizeof *p);
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *)
{
    return cudaSuccess;
}

} // extern "C"
