/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "memory/cuda_shim.h"
#include "memory/cuda_abi.h"
#include "base/fork.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_SONAME "libcuda.so.1"

struct pvn_cuda {
    struct pvn_cu_api api;
    void *lib;
    unsigned fork_epoch; /* fork epoch of the process that opened the handle */
};

static const struct cu_entry {
    const char *name;
    size_t offset;
    bool optional;
} cu_entries[] = {
#define CU_ROW(name, member, optional, params)                                                     \
    {#name, offsetof(struct pvn_cu_api, member), optional},
    PVN_CU_ENTRIES(CU_ROW)
#undef CU_ROW
};

static bool is_forked(const struct pvn_cuda *cu)
{
    return pvn_fork_in_child(cu->fork_epoch);
}

static int check_alive(const struct pvn_cuda *cu, struct pvn_err *err)
{
    if (is_forked(cu))
        return pvn_err_set(
            err, -ECHILD,
            "CUDA was opened by the parent process %d: a child of fork() cannot use it",
            pvn_fork_parent());
    return 0;
}

/* Converts an error of the driver to a negative errno. *err names the call and the driver's error. */
static int cu_error(const struct pvn_cuda *cu, struct pvn_err *err, const char *call,
                    pvn_cu_result cr)
{
    const char *name = NULL;
    if (cu->api.error_name(cr, &name) != PVN_CU_SUCCESS || !name)
        name = "unknown error";
    int code;
    switch (cr) {
    case PVN_CU_NOT_INITIALIZED:
        code = pvn_err_set(err, -ENODEV, "%s: CUDA is not initialised in this process", call);
        break;
    case PVN_CU_DEINITIALIZED:
        code =
            pvn_err_set(err, -ENODEV, "%s: the CUDA driver is shutting down in this process", call);
        break;
    case PVN_CU_STUB_LIBRARY:
        code = pvn_err_set(
            err, -ENODEV,
            "%s: this libcuda.so.1 is the CUDA Toolkit's stub, not the driver: take the stubs "
            "folder out of LD_LIBRARY_PATH",
            call);
        break;
    case PVN_CU_INVALID_CONTEXT:
    case PVN_CU_CONTEXT_IS_DESTROYED:
        code = pvn_err_set(err, -ENOTCONN,
                           "%s: no usable CUDA context is current on this thread (%s)", call, name);
        break;
    case PVN_CU_NO_DEVICE:
    case PVN_CU_INVALID_DEVICE:
        code = pvn_err_set(err, -ENODEV, "%s: %s (%d)", call, name, cr);
        break;
    case PVN_CU_NOT_SUPPORTED:
    case PVN_CU_NOT_PERMITTED:
        code = pvn_err_set(err, -EOPNOTSUPP, "%s: %s (%d)", call, name, cr);
        break;
    case PVN_CU_OUT_OF_MEMORY:
        code = pvn_err_set(err, -ENOMEM, "%s: %s (%d)", call, name, cr);
        break;
    default:
        code = pvn_err_set(err, -EIO, "%s: %s (%d)", call, name, cr);
    }
    pvn_err_set_fault(err, PVN_FAULT_CUDA);
    return code;
}

static int resolve(struct pvn_cuda *cu, const char *path, struct pvn_err *err)
{
    for (size_t i = 0; i < sizeof(cu_entries) / sizeof(cu_entries[0]); i++) {
        const struct cu_entry *e = &cu_entries[i];
        void *sym = dlsym(cu->lib, e->name);
        if (!sym && !e->optional)
            return pvn_err_set(err, -ENOSYS, "%s lacks %s: CUDA driver 10.1 or later is needed",
                               path, e->name);
        memcpy((char *)&cu->api + e->offset, &sym, sizeof(sym));
    }
    return 0;
}

int pvn_cuda_open(struct pvn_cuda **out, const char *path, struct pvn_err *err)
{
    *out = NULL;
    if (path && !strcmp(path, CUDA_SONAME))
        path = NULL;
    struct pvn_cuda *cu = calloc(1, sizeof(*cu));
    if (!cu)
        return pvn_err_set(err, -ENOMEM, "out of memory");

    int rc = pvn_fork_mark();
    if (rc) {
        pvn_err_set(err, rc, "cannot watch for fork(): %s", strerror(-rc));
        goto free_handle;
    }
    cu->fork_epoch = pvn_fork_epoch();
    cu->lib = dlopen(path ? path : CUDA_SONAME, RTLD_NOW | RTLD_LOCAL | (path ? 0 : RTLD_NOLOAD));
    if (!cu->lib) {
        const char *said = dlerror();
        rc = path ? pvn_err_set(err, -ENOENT, "cannot load %s: %s", path,
                                said ? said : "no reason given")
                  : pvn_err_set(err, -ENOENT,
                                CUDA_SONAME " is not loaded: this process does not use CUDA");
        goto free_handle;
    }
    rc = resolve(cu, path ? path : CUDA_SONAME, err);
    if (rc)
        goto close_lib;
    *out = cu;
    return 0;

close_lib:
    dlclose(cu->lib);
free_handle:
    free(cu);
    return rc;
}

void pvn_cuda_close(struct pvn_cuda *cu)
{
    if (!cu)
        return;
    /* In a forked child the library stays loaded, because its destructors would use the parent's state. */
    if (!is_forked(cu))
        dlclose(cu->lib);
    free(cu);
}

int pvn_cuda_driver_version(const struct pvn_cuda *cu, int *version, struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.driver_version(version);
    return cr ? cu_error(cu, err, "cuDriverGetVersion", cr) : 0;
}

int pvn_cuda_ready(const struct pvn_cuda *cu, int *count, struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    int n = 0;
    pvn_cu_result cr = cu->api.device_count(&n);
    if (cr)
        return cu_error(cu, err, "cuDeviceGetCount", cr);
    if (n <= 0)
        return pvn_err_set(
            err, -ENODEV,
            "the CUDA driver shows no device to this process (CUDA_VISIBLE_DEVICES?)");
    if (count)
        *count = n;
    return 0;
}

int pvn_cuda_current_device(const struct pvn_cuda *cu, int *dev, struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    pvn_cu_context ctx = NULL;
    pvn_cu_result cr = cu->api.ctx_current(&ctx);
    if (cr)
        return cu_error(cu, err, "cuCtxGetCurrent", cr);
    if (!ctx)
        return pvn_err_set(err, -ENOTCONN, "no CUDA context is current on this thread");
    cr = cu->api.ctx_device(dev);
    return cr ? cu_error(cu, err, "cuCtxGetDevice", cr) : 0;
}

int pvn_cuda_bus_id(const struct pvn_cuda *cu, int dev, char out[PVN_CUDA_BUS_ID_LEN],
                    struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    char raw[PVN_CUDA_BUS_ID_LEN] = "";
    pvn_cu_result cr = cu->api.bus_id(raw, sizeof(raw), dev);
    if (cr)
        return cu_error(cu, err, "cuDeviceGetPCIBusId", cr);
    unsigned domain, bus, slot, fn;
    char end;
    if (sscanf(raw, "%x:%x:%x.%x%c", &domain, &bus, &slot, &fn, &end) != 4 || bus > 0xff ||
        slot > 0x1f || fn > 7)
        return pvn_err_set(err, -EIO, "cuDeviceGetPCIBusId: \"%s\" is no PCI address", raw);
    snprintf(out, PVN_CUDA_BUS_ID_LEN, "%04x:%02x:%02x.%x", domain, bus, slot, fn);
    return 0;
}

/* Reads an attribute. INVALID_VALUE means that the driver does not know the attribute, which is no error: the
 * value is then -1. */
static int device_attr(const struct pvn_cuda *cu, int dev, int attr, int *value,
                       struct pvn_err *err)
{
    pvn_cu_result cr = cu->api.device_attr(value, attr, dev);
    if (cr == PVN_CU_SUCCESS)
        return 0;
    *value = -1;
    return cr == PVN_CU_INVALID_VALUE ? 0 : cu_error(cu, err, "cuDeviceGetAttribute", cr);
}

int pvn_cuda_query(const struct pvn_cuda *cu, int dev, struct pvn_cuda_caps *out,
                   struct pvn_err *err)
{
    memset(out, 0, sizeof(*out));
    int rc = pvn_cuda_driver_version(cu, &out->driver, err);
    if (!rc)
        rc = pvn_cuda_bus_id(cu, dev, out->bus_id, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.device_name(out->name, sizeof(out->name), dev);
    if (cr)
        return cu_error(cu, err, "cuDeviceGetName", cr);
    out->name[sizeof(out->name) - 1] = '\0';

    const struct {
        int attr;
        int *value;
    } attrs[] = {
        {PVN_CU_DEV_CC_MAJOR, &out->cc_major},     {PVN_CU_DEV_CC_MINOR, &out->cc_minor},
        {PVN_CU_DEV_GDR_SUPPORTED, &out->gdr},     {PVN_CU_DEV_GDR_WITH_VMM, &out->gdr_vmm},
        {PVN_CU_DEV_DMA_BUF, &out->dma_buf},       {PVN_CU_DEV_GDR_FLUSH_OPTS, &out->flush_options},
        {PVN_CU_DEV_GDR_ORDERING, &out->ordering},
    };
    for (size_t i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
        rc = device_attr(cu, dev, attrs[i].attr, attrs[i].value, err);
        if (rc)
            return rc;
    }
    out->has_flush = cu->api.flush_writes;
    out->has_export = cu->api.range_handle;
    return 0;
}

/* Reads an attribute that cuPointerGetAttributes may not know. *value is unchanged if the driver does not know
 * it. */
static int late_attr(const struct pvn_cuda *cu, uint64_t addr, int attr, void *value,
                     struct pvn_err *err)
{
    pvn_cu_result cr = cu->api.pointer_attr(value, attr, addr);
    if (cr == PVN_CU_SUCCESS || cr == PVN_CU_INVALID_VALUE || cr == PVN_CU_NOT_SUPPORTED)
        return 0;
    return cu_error(cu, err, "cuPointerGetAttribute", cr);
}

int pvn_cuda_pointer(const struct pvn_cuda *cu, uint64_t addr, struct pvn_cuda_ptr *out,
                     struct pvn_err *err)
{
    *out = (struct pvn_cuda_ptr){.mem = PVN_CUDA_MEM_UNKNOWN, .dev = -1, .gdr_capable = -1};
    int rc = check_alive(cu, err);
    if (rc)
        return rc;

    unsigned type = 0, managed = 0;
    int ordinal = -1;
    unsigned long long buffer_id = 0;
    int attrs[] = {PVN_CU_PTR_MEMORY_TYPE, PVN_CU_PTR_IS_MANAGED, PVN_CU_PTR_DEVICE_ORDINAL,
                   PVN_CU_PTR_BUFFER_ID};
    void *values[] = {&type, &managed, &ordinal, &buffer_id};
    pvn_cu_result cr = cu->api.pointer_attrs(sizeof(attrs) / sizeof(attrs[0]), attrs, values, addr);
    if (cr == PVN_CU_INVALID_VALUE)
        return 0;
    if (cr)
        return cu_error(cu, err, "cuPointerGetAttributes", cr);

    if (managed & 1) {
        /* Some drivers write this boolean as one byte and others as four. The variable was 0 before, so bit 0 is
         * right in both cases. */
        out->mem = PVN_CUDA_MEM_MANAGED;
    } else if (type == PVN_CU_MEM_DEVICE) {
        out->mem = PVN_CUDA_MEM_DEVICE;
    } else {
        out->mem = type == PVN_CU_MEM_HOST ? PVN_CUDA_MEM_HOST : PVN_CUDA_MEM_UNKNOWN;
        return 0;
    }
    out->dev = ordinal;
    out->buffer_id = buffer_id;

    unsigned long long block = 0;
    unsigned capable = 0xff;
    rc = late_attr(cu, addr, PVN_CU_PTR_BLOCK_ID, &block, err);
    if (!rc)
        rc = late_attr(cu, addr, PVN_CU_PTR_GDR_CAPABLE, &capable, err);
    if (rc)
        return rc;
    out->block_id = block;
    out->gdr_capable = capable == 0xff ? -1 : (int)(capable & 1);
    return 0;
}

/* Makes a context of dev current unless one is already. It uses dev's primary context only if that is active,
 * because to retain an inactive one would create it. */
static int enter_ctx(const struct pvn_cuda *cu, int dev, bool *pushed, struct pvn_err *err)
{
    *pushed = false;
    pvn_cu_context ctx = NULL;
    pvn_cu_result cr = cu->api.ctx_current(&ctx);
    if (cr)
        return cu_error(cu, err, "cuCtxGetCurrent", cr);
    int now = -1;
    if (ctx && cu->api.ctx_device(&now) == PVN_CU_SUCCESS && now == dev)
        return 0;

    unsigned flags = 0;
    int active = 0;
    cr = cu->api.primary_state(dev, &flags, &active);
    if (cr)
        return cu_error(cu, err, "cuDevicePrimaryCtxGetState", cr);
    if (!active)
        return pvn_err_set(err, -ENOTCONN,
                           "GPU %d has no active CUDA context in this process, and we create none",
                           dev);
    cr = cu->api.primary_retain(&ctx, dev);
    if (cr)
        return cu_error(cu, err, "cuDevicePrimaryCtxRetain", cr);
    cr = cu->api.ctx_push(ctx);
    if (cr) {
        cu->api.primary_release(dev);
        return cu_error(cu, err, "cuCtxPushCurrent", cr);
    }
    *pushed = true;
    return 0;
}

/* Undoes enter_ctx(). `rc` is the result of the work in between; the first error is returned. */
static int leave_ctx(const struct pvn_cuda *cu, int dev, bool pushed, int rc, struct pvn_err *err)
{
    if (!pushed)
        return rc;
    pvn_cu_context ctx = NULL;
    pvn_cu_result cr = cu->api.ctx_pop(&ctx);
    if (cr && !rc)
        rc = cu_error(cu, err, "cuCtxPopCurrent", cr);
    cr = cu->api.primary_release(dev);
    if (cr && !rc)
        rc = cu_error(cu, err, "cuDevicePrimaryCtxRelease", cr);
    return rc;
}

/* Like enter_ctx(), for calls for which any context will do. */
static int enter_any_ctx(const struct pvn_cuda *cu, int dev, bool *pushed, struct pvn_err *err)
{
    pvn_cu_context ctx = NULL;
    pvn_cu_result cr = cu->api.ctx_current(&ctx);
    *pushed = false;
    if (cr)
        return cu_error(cu, err, "cuCtxGetCurrent", cr);
    return ctx ? 0 : enter_ctx(cu, dev, pushed, err);
}

static int range_here(const struct pvn_cuda *cu, uint64_t addr, uint64_t *base, uint64_t *len,
                      struct pvn_err *err)
{
    pvn_cu_ptr b = 0;
    size_t n = 0;
    pvn_cu_result cr = cu->api.address_range(&b, &n, addr);
    if (cr == PVN_CU_INVALID_VALUE ||
        (cr == PVN_CU_SUCCESS && (n == 0 || addr < b || addr - b >= n)))
        return pvn_err_set(err, -EFAULT, "0x%llx is not in any allocation the CUDA driver knows",
                           (unsigned long long)addr);
    if (cr)
        return cu_error(cu, err, "cuMemGetAddressRange", cr);
    *base = b;
    *len = n;
    return 0;
}

int pvn_cuda_range(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t *base, uint64_t *len,
                   struct pvn_err *err)
{
    bool pushed;
    int rc = check_alive(cu, err);
    if (!rc)
        rc = enter_any_ctx(cu, dev, &pushed, err);
    if (rc)
        return rc;
    return leave_ctx(cu, dev, pushed, range_here(cu, addr, base, len, err), err);
}

static int export_here(const struct pvn_cuda *cu, uint64_t addr, uint64_t len, bool pcie, int *fd,
                       struct pvn_err *err)
{
    int got = -1;
    pvn_cu_result cr = cu->api.range_handle(&got, addr, len, PVN_CU_RANGE_DMA_BUF_FD,
                                            pcie ? PVN_CU_RANGE_FLAG_PCIE : 0);
    if (cr)
        return cu_error(cu, err, "cuMemGetHandleForAddressRange", cr);
    if (got < 0)
        return pvn_err_set(err, -EIO, "cuMemGetHandleForAddressRange succeeded with descriptor %d",
                           got);
    if (fcntl(got, F_SETFD, FD_CLOEXEC) < 0) {
        int rc = -errno;
        close(got);
        return pvn_err_set(err, rc, "dma-buf descriptor %d: %s", got, strerror(-rc));
    }
    *fd = got;
    return 0;
}

int pvn_cuda_export(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t len, bool pcie,
                    int *fd, struct pvn_err *err)
{
    *fd = -1;
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    if (!cu->api.range_handle)
        return pvn_err_set(err, -EOPNOTSUPP,
                           "this CUDA driver has no cuMemGetHandleForAddressRange (11.7 or later)");
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (len == 0 || addr % page || len % page)
        return pvn_err_set(
            err, -EINVAL,
            "dma-buf of [0x%llx, +%llu): address and length must be multiples of %llu",
            (unsigned long long)addr, (unsigned long long)len, (unsigned long long)page);
    bool pushed;
    rc = enter_any_ctx(cu, dev, &pushed, err);
    if (rc)
        return rc;
    rc = leave_ctx(cu, dev, pushed, export_here(cu, addr, len, pcie, fd, err), err);
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

int pvn_cuda_flush(const struct pvn_cuda *cu, int dev, struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (rc)
        return rc;
    if (!cu->api.flush_writes)
        return pvn_err_set(err, -EOPNOTSUPP,
                           "this CUDA driver has no cuFlushGPUDirectRDMAWrites (11.3 or later)");
    bool pushed;
    rc = enter_ctx(cu, dev, &pushed, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.flush_writes(PVN_CU_FLUSH_TARGET_CURRENT_CTX, PVN_CU_FLUSH_TO_OWNER);
    if (cr)
        rc = cu_error(cu, err, "cuFlushGPUDirectRDMAWrites", cr);
    return leave_ctx(cu, dev, pushed, rc, err);
}

/* The state to restore after calls that allocate, free or copy: the context and this thread's capture mode. While any
 * thread captures a stream in the default mode such calls are forbidden and would invalidate the capture. The relaxed
 * mode says that the call does not belong to the capture. */
struct gpu_scope {
    bool pushed;
    int mode;
};

static int enter_gpu(const struct pvn_cuda *cu, int dev, struct gpu_scope *s, struct pvn_err *err)
{
    int rc = check_alive(cu, err);
    if (!rc)
        rc = enter_ctx(cu, dev, &s->pushed, err);
    if (rc)
        return rc;
    s->mode = PVN_CU_CAPTURE_RELAXED;
    pvn_cu_result cr = cu->api.capture_mode(&s->mode);
    if (!cr)
        return 0;
    rc = cu_error(cu, err, "cuThreadExchangeStreamCaptureMode", cr);
    return leave_ctx(cu, dev, s->pushed, rc, err);
}

static int leave_gpu(const struct pvn_cuda *cu, int dev, struct gpu_scope *s, int rc,
                     struct pvn_err *err)
{
    cu->api.capture_mode(&s->mode);
    return leave_ctx(cu, dev, s->pushed, rc, err);
}

int pvn_cuda_alloc(const struct pvn_cuda *cu, int dev, size_t len, uint64_t *addr,
                   struct pvn_err *err)
{
    struct gpu_scope scope;
    *addr = 0;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_ptr got = 0;
    pvn_cu_result cr = cu->api.mem_alloc(&got, len);
    if (cr)
        rc = cu_error(cu, err, "cuMemAlloc", cr);
    rc = leave_gpu(cu, dev, &scope, rc, err);
    if (!rc)
        *addr = got;
    return rc;
}

int pvn_cuda_free(const struct pvn_cuda *cu, int dev, uint64_t addr, struct pvn_err *err)
{
    struct gpu_scope scope;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.mem_free(addr);
    if (cr)
        rc = cu_error(cu, err, "cuMemFree", cr);
    return leave_gpu(cu, dev, &scope, rc, err);
}

int pvn_cuda_host_alloc(const struct pvn_cuda *cu, int dev, size_t len, void **out,
                        struct pvn_err *err)
{
    struct gpu_scope scope;
    *out = NULL;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    void *got = NULL;
    pvn_cu_result cr = cu->api.host_alloc(&got, len, PVN_CU_HOST_PORTABLE);
    if (cr)
        rc = cu_error(cu, err, "cuMemHostAlloc", cr);
    rc = leave_gpu(cu, dev, &scope, rc, err);
    if (!rc)
        *out = got;
    return rc;
}

int pvn_cuda_host_free(const struct pvn_cuda *cu, int dev, void *mem, struct pvn_err *err)
{
    struct gpu_scope scope;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.host_free(mem);
    if (cr)
        rc = cu_error(cu, err, "cuMemFreeHost", cr);
    return leave_gpu(cu, dev, &scope, rc, err);
}

int pvn_cuda_stream_open(const struct pvn_cuda *cu, int dev, void **stream, struct pvn_err *err)
{
    struct gpu_scope scope;
    *stream = NULL;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_stream got = NULL;
    pvn_cu_result cr = cu->api.stream_create(&got, PVN_CU_STREAM_NON_BLOCKING);
    if (cr)
        rc = cu_error(cu, err, "cuStreamCreate", cr);
    rc = leave_gpu(cu, dev, &scope, rc, err);
    if (!rc)
        *stream = got;
    return rc;
}

int pvn_cuda_stream_close(const struct pvn_cuda *cu, int dev, void *stream, struct pvn_err *err)
{
    struct gpu_scope scope;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.stream_destroy(stream);
    if (cr)
        rc = cu_error(cu, err, "cuStreamDestroy", cr);
    return leave_gpu(cu, dev, &scope, rc, err);
}

/* Waits for a copy, unless it could not be started (cr), and leaves the scope. */
static int finish_copy(const struct pvn_cuda *cu, int dev, struct gpu_scope *scope, void *stream,
                       const char *call, pvn_cu_result cr, struct pvn_err *err)
{
    int rc = cr ? cu_error(cu, err, call, cr) : 0;
    if (!rc && (cr = cu->api.stream_wait(stream)) != PVN_CU_SUCCESS)
        rc = cu_error(cu, err, "cuStreamSynchronize", cr);
    return leave_gpu(cu, dev, scope, rc, err);
}

int pvn_cuda_copy_in(const struct pvn_cuda *cu, int dev, void *stream, uint64_t to,
                     const void *from, size_t len, struct pvn_err *err)
{
    struct gpu_scope scope;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.copy_in(to, from, len, stream);
    return finish_copy(cu, dev, &scope, stream, "cuMemcpyHtoDAsync", cr, err);
}

int pvn_cuda_copy_out(const struct pvn_cuda *cu, int dev, void *stream, void *to, uint64_t from,
                      size_t len, struct pvn_err *err)
{
    struct gpu_scope scope;
    int rc = enter_gpu(cu, dev, &scope, err);
    if (rc)
        return rc;
    pvn_cu_result cr = cu->api.copy_out(to, from, len, stream);
    return finish_copy(cu, dev, &scope, stream, "cuMemcpyDtoHAsync", cr, err);
}
