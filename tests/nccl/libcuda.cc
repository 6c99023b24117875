// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* A double of libcuda.so.1 for the plugin, on top of the double of the CUDA runtime: the GPUs and
 * memory of the latter through the driver's interface. It has only the functions that the plugin
 * calls (plugin/memory/cuda_abi.h). A peer-memory client can register this memory. There are no
 * dma-bufs. Data that a NIC has written need a flush. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <vector>

namespace
{

CUresult result(cudaError_t e)
{
    return e == cudaSuccess                 ? CUDA_SUCCESS
           : e == cudaErrorInvalidDevice    ? CUDA_ERROR_INVALID_DEVICE
           : e == cudaErrorMemoryAllocation ? CUDA_ERROR_OUT_OF_MEMORY
                                            : CUDA_ERROR_INVALID_VALUE;
}

/* A GPU's only context. */
constexpr uintptr_t kFirst = 0x1000;
CUcontext context_of(int device)
{
    return reinterpret_cast<CUcontext>(kFirst + static_cast<uintptr_t>(device));
}
int device_of(CUcontext c)
{
    return static_cast<int>(reinterpret_cast<uintptr_t>(c) - kFirst);
}
int current()
{
    int d = 0;
    cudaGetDevice(&d);
    return d;
}
thread_local std::vector<int> pushed; /* the devices that were current before each push */

bool range_of(CUdeviceptr p, CUdeviceptr *base, size_t *size)
{
    using Range = CUresult (*)(CUdeviceptr *, size_t *, CUdeviceptr);
    void *f = nullptr;
    cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &f, CUDART_VERSION, 0, nullptr);
    return f && reinterpret_cast<Range>(f)(base, size, p) == CUDA_SUCCESS;
}

template <class T> CUresult put(void *to, T value)
{
    memcpy(to, &value, sizeof value);
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

#define DRIVER __attribute__((visibility("default"))) CUresult

DRIVER cuDriverGetVersion(int *v)
{
    return result(cudaDriverGetVersion(v));
}
DRIVER cuGetErrorName(CUresult e, const char **name)
{
    static thread_local char text[40];
    snprintf(text, sizeof text, "error %d of the double", static_cast<int>(e));
    *name = text;
    return CUDA_SUCCESS;
}
DRIVER cuDeviceGetCount(int *n)
{
    return result(cudaGetDeviceCount(n));
}
DRIVER cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice)
{
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *v = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
        *v = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
        *v = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
        break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
        *v = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE;
        break;
    default:
        *v = 0;
    }
    return CUDA_SUCCESS;
}
DRIVER cuDeviceGetName(char *name, int len, CUdevice d)
{
    snprintf(name, static_cast<size_t>(len), "double %d", d);
    return CUDA_SUCCESS;
}
DRIVER cuDeviceGetByPCIBusId(CUdevice *d, const char *id)
{
    return result(cudaDeviceGetByPCIBusId(d, id));
}
DRIVER cuDeviceGetPCIBusId(char *id, int len, CUdevice d)
{
    return result(cudaDeviceGetPCIBusId(id, len, d));
}

/* ---- contexts ---- */

DRIVER cuCtxGetCurrent(CUcontext *c)
{
    *c = context_of(current());
    return CUDA_SUCCESS;
}
DRIVER cuCtxGetDevice(CUdevice *d)
{
    *d = current();
    return CUDA_SUCCESS;
}
DRIVER cuCtxPushCurrent(CUcontext c)
{
    pushed.push_back(current());
    return result(cudaSetDevice(device_of(c)));
}
DRIVER cuCtxPopCurrent(CUcontext *c)
{
    if (pushed.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (c)
        *c = context_of(current());
    int before = pushed.back();
    pushed.pop_back();
    return result(cudaSetDevice(before));
}
DRIVER cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
DRIVER cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
    *c = context_of(d);
    return CUDA_SUCCESS;
}
DRIVER cuDevicePrimaryCtxRelease(CUdevice)
{
    return CUDA_SUCCESS;
}

/* ---- memory ---- */

DRIVER cuPointerGetAttribute(void *data, CUpointer_attribute a, CUdeviceptr p)
{
    cudaPointerAttributes at = {};
    CUdeviceptr base = 0;
    size_t size = 0;
    if (!range_of(p, &base, &size) ||
        cudaPointerGetAttributes(&at, reinterpret_cast<void *>(p)) != cudaSuccess)
        return CUDA_ERROR_INVALID_VALUE;
    bool device = at.type == cudaMemoryTypeDevice;
    switch (a) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put<unsigned>(data, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return put<unsigned long long>(data, base);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return put<int>(data, at.device);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return put<unsigned>(data, device);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return put<unsigned long long>(data, 0);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}
/* Gives 0 for each attribute of memory that is not CUDA's, as the driver does. */
DRIVER cuPointerGetAttributes(unsigned n, CUpointer_attribute *a, void **data, CUdeviceptr p)
{
    for (unsigned i = 0; i < n; i++)
        if (cuPointerGetAttribute(data[i], a[i], p) != CUDA_SUCCESS)
            put<int>(data[i], 0);
    return CUDA_SUCCESS;
}
DRIVER cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    return range_of(p, base, size) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
DRIVER cuMemAlloc(CUdeviceptr *p, size_t size)
{
    return result(cudaMalloc(reinterpret_cast<void **>(p), size));
}
DRIVER cuMemFree(CUdeviceptr p)
{
    return result(cudaFree(reinterpret_cast<void *>(p)));
}
DRIVER cuMemHostAlloc(void **p, size_t size, unsigned flags)
{
    return result(cudaHostAlloc(p, size, flags));
}
DRIVER cuMemFreeHost(void *p)
{
    return result(cudaFreeHost(p));
}
DRIVER cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope)
{
    return CUDA_SUCCESS;
}

/* ---- streams ---- */

DRIVER cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *)
{
    return CUDA_SUCCESS;
}
DRIVER cuStreamCreate(CUstream *s, unsigned flags)
{
    return result(cudaStreamCreateWithFlags(s, flags));
}
DRIVER cuStreamDestroy(CUstream s)
{
    return result(cudaStreamDestroy(s));
}
DRIVER cuStreamSynchronize(CUstream s)
{
    return result(cudaStreamSynchronize(s));
}
DRIVER cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
    return result(
        cudaMemcpyAsync(reinterpret_cast<void *>(to), from, n, cudaMemcpyHostToDevice, s));
}
DRIVER cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream s)
{
    return result(
        cudaMemcpyAsync(to, reinterpret_cast<void *>(from), n, cudaMemcpyDeviceToHost, s));
}

} // extern "C"
