// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* The double of libcudart.so.13: devices, errors, and the driver's entry points that NCCL gets from the runtime. */
#include "nccl/cudart.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <map>
#include <string>

using namespace cudart_double;

namespace cudart_double
{

long env_long(const char *name, long otherwise)
{
    const char *v = getenv(name);
    return v && *v ? strtol(v, nullptr, 0) : otherwise;
}

void say(const char *format, ...)
{
    va_list ap;
    char line[512];
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    fprintf(stderr, "cudart-double[%d]: %s\n", static_cast<int>(getpid()), line);
}

static thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

cudaError_t lacking(const char *name)
{
    say("%s: not in this double", name);
    return fail(cudaErrorNotSupported);
}

int device_count()
{
    static const int n = static_cast<int>(env_long("CUDART_DOUBLE_DEVICES", 1));
    return n;
}

static void bus_id(int device, char *out, int len)
{
    static const char *first = getenv("CUDART_DOUBLE_BUSID");
    unsigned domain = 0, bus = 0x1b, dev = 0, fn = 0;
    if (first && *first)
        sscanf(first, "%x:%x:%x.%x", &domain, &bus, &dev, &fn);
    snprintf(out, len, "%04x:%02x:%02x.%x", domain, bus + device, dev, fn);
}

} // namespace cudart_double

/* ---- the driver ---- */

static CUresult drv_GetErrorString(CUresult e, const char **s)
{
    static thread_local char t[32];
    snprintf(t, sizeof t, "driver error %d", static_cast<int>(e));
    *s = t;
    return CUDA_SUCCESS;
}
static CUresult drv_GetErrorName(CUresult e, const char **s)
{
    return drv_GetErrorString(e, s);
}
static CUresult drv_DeviceGet(CUdevice *d, int ordinal)
{
    if (ordinal < 0 || ordinal >= device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    *d = ordinal;
    return CUDA_SUCCESS;
}
static CUresult drv_DeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice)
{
    *v = 0;
    if (a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *v = 9;
    if (a == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)
        *v = -1;
    return CUDA_SUCCESS;
}
static CUresult drv_DeviceGetUuid(CUuuid *u, CUdevice d)
{
    memset(u, 0, sizeof *u);
    snprintf(u->bytes, sizeof u->bytes, "double %d", d);
    return CUDA_SUCCESS;
}
static CUresult drv_MemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    uintptr_t at;
    Block b;
    if (!find_block(reinterpret_cast<void *>(p), &at, &b))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = at;
    if (size)
        *size = b.bytes;
    return CUDA_SUCCESS;
}
static CUresult drv_MemGetAllocationGranularity(size_t *n, const CUmemAllocationProp *,
                                                CUmemAllocationGranularity_flags)
{
    *n = size_t(2) << 20; /* NCCL 2.30 requests it although cuMemCreate is absent */
    return CUDA_SUCCESS;
}
static CUresult drv_CtxGetCurrent(CUcontext *c)
{
    *c = reinterpret_cast<CUcontext>(0x1000);
    return CUDA_SUCCESS;
}
static CUresult drv_CtxSetCurrent(CUcontext)
{
    return CUDA_SUCCESS;
}
static CUresult drv_CtxGetDevice(CUdevice *d)
{
    *d = current_device;
    return CUDA_SUCCESS;
}
static CUresult drv_CtxCreate(CUcontext *c, CUexecAffinityParam *, int, unsigned, CUdevice)
{
    *c = reinterpret_cast<CUcontext>(0x1000);
    return CUDA_SUCCESS;
}
static CUresult drv_CtxDestroy(CUcontext)
{
    return CUDA_SUCCESS;
}
static CUresult packed(void **extra, const void **args, size_t *bytes)
{
    *args = nullptr;
    *bytes = 0;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2)
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *args = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *bytes = *static_cast<size_t *>(extra[i + 1]);
        else
            return CUDA_ERROR_INVALID_VALUE;
    return *args ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult drv_LaunchKernel(CUfunction f, unsigned gx, unsigned, unsigned, unsigned bx,
                                 unsigned, unsigned, unsigned, CUstream s, void **, void **extra)
{
    const void *args;
    size_t bytes;
    if (packed(extra, &args, &bytes) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(f, gx, bx, args, bytes, s) == cudaSuccess ? CUDA_SUCCESS
                                                            : CUDA_ERROR_LAUNCH_FAILED;
}
static CUresult drv_LaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params,
                                   void **extra)
{
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            cudaEventRecord(c->attrs[i].value.launchCompletionEvent.event, c->hStream);
    return drv_LaunchKernel(f, c->gridDimX, 1, 1, c->blockDimX, 1, 1, c->sharedMemBytes, c->hStream,
                            params, extra);
}
static CUresult drv_PointerGetAttribute(void *data, CUpointer_attribute a, CUdeviceptr p)
{
    uintptr_t at;
    Block b;
    if (!find_block(reinterpret_cast<void *>(p), &at, &b))
        return CUDA_ERROR_INVALID_VALUE;
    switch (a) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data) = b.device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *static_cast<int *>(data) = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(data) =
            b.type == cudaMemoryTypeDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static const std::map<std::string, void *> &driver()
{
    static const auto *m = new std::map<std::string, void *>{
        {"cuGetErrorString", reinterpret_cast<void *>(drv_GetErrorString)},
        {"cuGetErrorName", reinterpret_cast<void *>(drv_GetErrorName)},
        {"cuDeviceGet", reinterpret_cast<void *>(drv_DeviceGet)},
        {"cuDeviceGetAttribute", reinterpret_cast<void *>(drv_DeviceGetAttribute)},
        {"cuDeviceGetUuid", reinterpret_cast<void *>(drv_DeviceGetUuid)},
        {"cuMemGetAddressRange", reinterpret_cast<void *>(drv_MemGetAddressRange)},
        {"cuMemGetAllocationGranularity",
         reinterpret_cast<void *>(drv_MemGetAllocationGranularity)},
        {"cuCtxCreate", reinterpret_cast<void *>(drv_CtxCreate)},
        {"cuCtxDestroy", reinterpret_cast<void *>(drv_CtxDestroy)},
        {"cuCtxGetCurrent", reinterpret_cast<void *>(drv_CtxGetCurrent)},
        {"cuCtxSetCurrent", reinterpret_cast<void *>(drv_CtxSetCurrent)},
        {"cuCtxGetDevice", reinterpret_cast<void *>(drv_CtxGetDevice)},
        {"cuLaunchKernel", reinterpret_cast<void *>(drv_LaunchKernel)},
        {"cuLaunchKernelEx", reinterpret_cast<void *>(drv_LaunchKernelEx)},
        {"cuPointerGetAttribute", reinterpret_cast<void *>(drv_PointerGetAttribute)},
    };
    return *m;
}

extern "C" {

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = device_count();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    *d = current_device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d)
{
    if (d < 0 || d >= device_count())
        return fail(cudaErrorInvalidDevice);
    current_device = d;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int)
{
    switch (a) {
    case cudaDevAttrComputeCapabilityMajor:
        *v = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *v = 0;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *v = 232448;
        break;
    case cudaDevAttrMultiProcessorCount:
        *v = 132;
        break;
    case cudaDevAttrGPUDirectRDMASupported:
        *v = static_cast<int>(env_long("CUDART_DOUBLE_GDR", 0));
        break;
    default:
        *v = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "cudart-double");
    p->totalGlobalMem = size_t(16) << 30;
    p->major = 9;
    p->multiProcessorCount = 132;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->pciBusID = 0x1b + d;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char *out, int len, int d)
{
    if (d < 0 || d >= device_count())
        return fail(cudaErrorInvalidDevice);
    bus_id(d, out, len);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int *d, const char *id)
{
    for (int i = 0; i < device_count(); i++) {
        char t[32];
        bus_id(i, t, sizeof t);
        if (strcasecmp(t, id) == 0) {
            *d = i;
            return cudaSuccess;
        }
    }
    return fail(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceSetLimit(enum cudaLimit, size_t)
{
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
    *can = a != b; /* all "device memory" of a process is one address space */
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
const char *cudaGetErrorString(cudaError_t e)
{
    static thread_local char t[48];
    snprintf(t, sizeof t, "cudart-double error %d", static_cast<int>(e));
    return t;
}
const char *cudaGetErrorName(cudaError_t e)
{
    return cudaGetErrorString(e);
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = size_t(16) << 30;
    *free_bytes = *total - device_bytes_allocated();
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **f, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *st)
{
    auto it = driver().find(name);
    *f = it == driver().end() ? nullptr : it->second;
    if (st)
        *st = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

} // extern "C"
