/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GPU memory, with `set cuda 1`: the CUDA driver copies the data that an adapter would move over
 * PCI Express. */
#include "sv_int.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Numbers and layouts are facts of cuda.h (CUDA 13.0). Names are those that libcuda.so.1 exports. */
enum {
    CU_MEMORY_TYPE = 2, /* CUpointer_attribute */
    CU_DEVICE_ORDINAL = 9,
    CU_DEVICE_MEMORY = 2, /* CUmemorytype */
    CU_NON_BLOCKING = 1 /* CUstream_flags: does not wait for the default stream, nor that for it */
};

enum { GPUS = 16 };

static struct {
    void *lib;
    int (*pointer_attr)(void *, int, uint64_t);
    int (*address_range)(uint64_t *, size_t *, uint64_t);
    int (*ctx_retain)(void **, int);
    int (*ctx_release)(int);
    int (*ctx_push)(void *);
    int (*ctx_pop)(void **);
    int (*stream_create)(void **, unsigned int);
    int (*stream_destroy)(void *);
    int (*stream_wait)(void *);
    int (*to_device)(uint64_t, const void *, size_t, void *);
    int (*to_host)(void *, uint64_t, size_t, void *);
} cu;

/* A GPU with registered memory */
static struct {
    void *ctx, *stream; /* its primary context, held; a stream of our own, which waits for nobody's
                           kernels */
    unsigned int regions;
} gpu[GPUS];

struct region {
    struct region *next;
    const char *addr;
    size_t len;
    int dev;
};
static struct region *regions;

static bool load(void)
{
    static const struct {
        const char *name;
        void *to;
    } names[] = {{"cuPointerGetAttribute", &cu.pointer_attr},
                 {"cuMemGetAddressRange_v2", &cu.address_range},
                 {"cuDevicePrimaryCtxRetain", &cu.ctx_retain},
                 {"cuDevicePrimaryCtxRelease_v2", &cu.ctx_release},
                 {"cuCtxPushCurrent_v2", &cu.ctx_push},
                 {"cuCtxPopCurrent_v2", &cu.ctx_pop},
                 {"cuStreamCreate", &cu.stream_create},
                 {"cuStreamDestroy_v2", &cu.stream_destroy},
                 {"cuStreamSynchronize", &cu.stream_wait},
                 {"cuMemcpyHtoDAsync_v2", &cu.to_device},
                 {"cuMemcpyDtoHAsync_v2", &cu.to_host}};
    const char *path = getenv("PVN_SOFTVERBS_CUDA_LIB");
    if (cu.lib)
        return true;
    void *lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; lib && i < sizeof names / sizeof names[0]; i++) {
        void *f = dlsym(lib, names[i].name);
        if (!f) {
            fprintf(stderr, "softverbs: no %s in libcuda\n", names[i].name);
            dlclose(lib);
            return false;
        }
        memcpy(names[i].to, &f, sizeof f);
    }
    cu.lib = lib;
    return lib;
}

static int complain(const char *what, int code)
{
    if (code)
        fprintf(stderr, "softverbs: %s: CUDA error %d\n", what, code);
    return code;
}

/* Returns the first GPU address of a range, or NULL if there is none. A region consists of whole
 * pages, so its allocation may begin a little after the region (allocations begin at multiples of
 * 256 bytes). */
static const char *first_on_device(const char *addr, size_t len)
{
    enum { STEP = 256, PAGE = 4096 };
    for (size_t off = 0; off < len && off <= PAGE; off += STEP - ((uintptr_t)addr + off) % STEP) {
        unsigned int type = 0;
        if (!cu.pointer_attr(&type, CU_MEMORY_TYPE, (uintptr_t)addr + off) &&
            type == CU_DEVICE_MEMORY)
            return addr + off;
    }
    return NULL;
}

bool sv_cuda_is_device(const void *addr, size_t len)
{
    return load() && first_on_device(addr, len);
}

static struct region *find(const void *addr)
{
    for (struct region *r = regions; r; r = r->next)
        if ((const char *)addr >= r->addr && (const char *)addr < r->addr + r->len)
            return r;
    return NULL;
}

/* Copies between host memory and a GPU's, allocation by allocation. The copy is complete on
 * return. */
static int copy(int dev, char *device, char *host, size_t len, bool to_device)
{
    void *popped;
    int rc = cu.ctx_push(gpu[dev].ctx);
    if (rc)
        return complain("cuCtxPushCurrent", rc);
    while (!rc && len) {
        uint64_t base = 0;
        size_t size = 0;
        rc = cu.address_range(&base, &size, (uintptr_t)device);
        size_t left = base + size - (uintptr_t)device, n = left < len ? left : len;
        if (!rc)
            rc = to_device ? cu.to_device((uintptr_t)device, host, n, gpu[dev].stream)
                           : cu.to_host(host, (uintptr_t)device, n, gpu[dev].stream);
        device += n;
        host += n;
        len -= n;
    }
    if (!rc)
        rc = cu.stream_wait(gpu[dev].stream);
    cu.ctx_pop(&popped);
    return complain(to_device ? "a copy into device memory" : "a copy out of device memory", rc);
}

static int open_gpu(int dev)
{
    void *popped;
    if (gpu[dev].regions++)
        return 0;
    int rc = cu.ctx_retain(&gpu[dev].ctx, dev);
    if (!rc) {
        rc = cu.ctx_push(gpu[dev].ctx);
        if (!rc) {
            rc = cu.stream_create(&gpu[dev].stream, CU_NON_BLOCKING);
            cu.ctx_pop(&popped);
        }
        if (rc)
            cu.ctx_release(dev);
    }
    if (rc)
        gpu[dev].regions = 0;
    return complain("a stream in the primary context", rc);
}

static void close_gpu(int dev)
{
    void *popped;
    if (--gpu[dev].regions)
        return;
    if (!cu.ctx_push(gpu[dev].ctx)) {
        cu.stream_destroy(gpu[dev].stream);
        cu.ctx_pop(&popped);
    }
    cu.ctx_release(dev);
}

int sv_cuda_add(const void *addr, size_t len)
{
    int dev = -1;
    char byte;
    const char *first = first_on_device(addr, len);
    struct region *r = malloc(sizeof *r);
    if (!r)
        return ENOMEM;
    if (cu.pointer_attr(&dev, CU_DEVICE_ORDINAL, (uintptr_t)first) || dev < 0 || dev >= GPUS ||
        open_gpu(dev)) {
        free(r);
        return EFAULT;
    }
    *r = (struct region){.next = regions, .addr = addr, .len = len, .dev = dev};
    regions = r;
    /* The first copy does set-up that a later one would have to do beside a running kernel, and
     * wait for. */
    if (copy(dev, (char *)(uintptr_t)first, &byte, 1, false)) {
        sv_cuda_remove(addr, len);
        return EFAULT;
    }
    return 0;
}

void sv_cuda_remove(const void *addr, size_t len)
{
    for (struct region **at = &regions; *at; at = &(*at)->next) {
        struct region *r = *at;
        if (r->addr != addr || r->len != len)
            continue;
        *at = r->next;
        close_gpu(r->dev);
        free(r);
        return;
    }
}

bool sv_cuda_put(void *dst, const void *src, size_t len)
{
    const struct region *r = regions ? find(dst) : NULL;
    if (r)
        copy(r->dev, dst, (char *)(uintptr_t)src, len, true);
    return r;
}

bool sv_cuda_get(void *dst, const void *src, size_t len)
{
    const struct region *r = regions ? find(src) : NULL;
    if (r)
        copy(r->dev, (char *)(uintptr_t)src, dst, len, false);
    return r;
}

/* A descriptor of device memory cannot be mapped. The descriptor itself says that it is device
 * memory, and how long. (A double's descriptor is a file with the buffer at its position.) */
int sv_cuda_check_dmabuf(int fd, uint64_t offset, size_t len)
{
    off_t at = lseek(fd, 0, SEEK_CUR), end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return errno == EBADF ? EBADF : EINVAL;
    lseek(fd, at < 0 ? 0 : at, SEEK_SET);
    uint64_t room = (uint64_t)(end - (at < 0 ? 0 : at));
    return offset <= room && len <= room - offset ? 0 : EINVAL;
}
