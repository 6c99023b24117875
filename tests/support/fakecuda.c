/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "support/fakecuda_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_state fake;
int fake_arena_fd = -1;
char *fake_arena, *fake_own;
_Thread_local struct ctx *fake_stack[MAX_STACK];
_Thread_local int fake_depth;

void fake_fatal(const char *what)
{
    fprintf(stderr, "fakecuda: %s\n", what);
    abort();
}

struct call *fake_find_call(const char *name)
{
    for (int i = 0; i < fake.ncalls; i++)
        if (!strcmp(fake.calls[i].name, name))
            return &fake.calls[i];
    fprintf(stderr, "fakecuda: no entry point \"%s\"\n", name);
    abort();
}

void fake_name_calls(void)
{
    static const char *const names[] = {"cuInit",
                                        "cuStreamQuery",
                                        "cuMemcpyHtoD_v2",
                                        "cuMemcpyDtoH_v2",
                                        "cuMemHostRegister_v2",
                                        "cuMemGetAllocationGranularity",
                                        "cuMemCreate",
                                        "cuMemAddressReserve",
                                        "cuMemMap",
                                        "cuMemSetAccess",
#define NAME(name, member, optional, params) #name,
                                        PVN_CU_ENTRIES(NAME)
#undef NAME
    };
    fake.ncalls = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        fake.calls[fake.ncalls++] = (struct call){.name = names[i]};
}

/* Counts the call and returns its injected code, or PVN_CU_SUCCESS. The caller holds the lock. */
static int count_call(const char *name)
{
    struct call *c = fake_find_call(name);
    c->count++;
    bool hit = c->every || (c->fail_in > 0 && --c->fail_in == 0);
    if (hit)
        c->fired++;
    return hit ? c->code : PVN_CU_SUCCESS;
}

static bool is_usable(void)
{
    return fake.initialised && fake.owner == getpid();
}

int fake_begin(const char *name, bool needs_init)
{
    pthread_mutex_lock(&fake_lock);
    int rc = count_call(name);
    if (!rc && needs_init && !is_usable())
        rc = PVN_CU_NOT_INITIALIZED;
    if (rc)
        pthread_mutex_unlock(&fake_lock);
    return rc;
}

int fake_end(int rc)
{
    pthread_mutex_unlock(&fake_lock);
    return rc;
}

static bool is_dev(int dev)
{
    return dev >= 0 && dev < fake.ndevs;
}

struct ctx *fake_top(void)
{
    return fake_depth ? fake_stack[fake_depth - 1] : NULL;
}

struct block *fake_find_block(uint64_t addr)
{
    struct block *outer = NULL;
    for (int i = 0; i < MAX_BLOCKS; i++) {
        struct block *b = &fake.blocks[i];
        if (b->kind == BLOCK_FREE || addr < b->base || addr - b->base >= b->len)
            continue;
        if (b->kind != BLOCK_RESERVED)
            return b;
        outer = b;
    }
    return outer;
}

static bool overlaps(uint64_t base, size_t len, uint64_t *past)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        const struct block *b = &fake.blocks[i];
        if (b->kind != BLOCK_FREE && b->kind != BLOCK_SEGMENT && base < b->base + b->len &&
            b->base < base + len) {
            *past = b->base + b->len;
            return true;
        }
    }
    return false;
}

struct block *fake_add_block(enum block_kind kind, uint64_t base, size_t len, int dev)
{
    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (fake.blocks[i].kind == BLOCK_FREE) {
            fake.blocks[i] = (struct block){kind, base, len, dev, 1, ++fake.next_id};
            return &fake.blocks[i];
        }
    }
    fake_fatal("out of blocks");
    return NULL;
}

/* First fit, so a request of the same size gets the addresses of a freed block, as from real
 * allocators. */
struct block *fake_place(enum block_kind kind, int dev, size_t len, size_t align)
{
    uint64_t first = (uint64_t)(uintptr_t)fake_arena, base = (first + align - 1) / align * align,
             past;
    while (overlaps(base, len, &past))
        base = (past + align - 1) / align * align;
    if (base + len > first + ARENA_LEN)
        return NULL;
    return fake_add_block(kind, base, len, dev);
}

void *fake_memory(uint64_t addr)
{
    return fake_own + (addr - (uint64_t)(uintptr_t)fake_arena);
}

void fake_drop_block(struct block *b)
{
    if (b->kind != BLOCK_RESERVED)
        memset(fake_memory(b->base), 0xde, b->len);
    b->kind = BLOCK_FREE;
}

/* ---- entry points ---- */

pvn_cu_result cuInit(unsigned flags)
{
    int rc = fake_begin("cuInit", false);
    if (rc)
        return rc;
    fake.initialised = true;
    fake.owner = getpid();
    return fake_end(flags ? PVN_CU_INVALID_VALUE : PVN_CU_SUCCESS);
}

pvn_cu_result cuDriverGetVersion(int *version)
{
    int rc = fake_begin("cuDriverGetVersion", false);
    if (rc)
        return rc;
    *version = fake.driver;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuGetErrorName(pvn_cu_result error, const char **name)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
        {PVN_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {PVN_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {PVN_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {PVN_CU_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"},
        {PVN_CU_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"},
        {PVN_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {PVN_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {PVN_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {PVN_CU_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {PVN_CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {PVN_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {PVN_CU_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    int rc = fake_begin("cuGetErrorName", false);
    if (rc)
        return rc;
    *name = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].code == error)
            *name = names[i].name;
    return fake_end(*name ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE);
}

pvn_cu_result cuDeviceGetCount(int *count)
{
    int rc = fake_begin("cuDeviceGetCount", true);
    if (rc)
        return rc;
    *count = fake.ndevs;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDeviceGetAttribute(int *value, int attr, pvn_cu_device dev)
{
    int rc = fake_begin("cuDeviceGetAttribute", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    const struct fakecuda_device *d = &fake.devs[dev];
    int v = -1;
    switch (attr) {
    case PVN_CU_DEV_CC_MAJOR:
        v = d->cc_major;
        break;
    case PVN_CU_DEV_CC_MINOR:
        v = d->cc_minor;
        break;
    case PVN_CU_DEV_GDR_WITH_VMM:
        v = d->gdr_vmm;
        break;
    case PVN_CU_DEV_GDR_SUPPORTED:
        v = d->gdr;
        break;
    case PVN_CU_DEV_GDR_FLUSH_OPTS:
        v = d->flush_options;
        break;
    case PVN_CU_DEV_GDR_ORDERING:
        v = d->ordering;
        break;
    case PVN_CU_DEV_DMA_BUF:
        v = d->dma_buf;
        break;
    }
    if (v < 0)
        return fake_end(PVN_CU_INVALID_VALUE);
    *value = v;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDeviceGetName(char *name, int len, pvn_cu_device dev)
{
    int rc = fake_begin("cuDeviceGetName", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    snprintf(name, (size_t)len, "%s", fake.devs[dev].name);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDeviceGetPCIBusId(char *bus_id, int len, pvn_cu_device dev)
{
    int rc = fake_begin("cuDeviceGetPCIBusId", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    snprintf(bus_id, (size_t)len, "%s", fake.devs[dev].bus_id);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuCtxGetCurrent(pvn_cu_context *ctx)
{
    int rc = fake_begin("cuCtxGetCurrent", true);
    if (rc)
        return rc;
    *ctx = fake_top();
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuCtxGetDevice(pvn_cu_device *dev)
{
    int rc = fake_begin("cuCtxGetDevice", true);
    if (rc)
        return rc;
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    if (!fake_top()->alive)
        return fake_end(PVN_CU_CONTEXT_IS_DESTROYED);
    *dev = fake_top()->dev;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuCtxPushCurrent_v2(pvn_cu_context ctx)
{
    int rc = fake_begin("cuCtxPushCurrent_v2", true);
    if (rc)
        return rc;
    if (!ctx || fake_depth == MAX_STACK)
        return fake_end(PVN_CU_INVALID_VALUE);
    fake_stack[fake_depth++] = ctx;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuCtxPopCurrent_v2(pvn_cu_context *ctx)
{
    int rc = fake_begin("cuCtxPopCurrent_v2", true);
    if (rc)
        return rc;
    if (!fake_depth)
        return fake_end(PVN_CU_INVALID_CONTEXT);
    *ctx = fake_stack[--fake_depth];
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDevicePrimaryCtxGetState(pvn_cu_device dev, unsigned *flags, int *active)
{
    int rc = fake_begin("cuDevicePrimaryCtxGetState", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    *flags = 0;
    *active = fake.primary[dev].alive;
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDevicePrimaryCtxRetain(pvn_cu_context *ctx, pvn_cu_device dev)
{
    int rc = fake_begin("cuDevicePrimaryCtxRetain", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    if (!fake.primary[dev].alive && !fake.is_app)
        fake_fatal("the plugin created a primary context");
    fake.primary[dev].alive = true;
    fake.refs[dev]++;
    *ctx = &fake.primary[dev];
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuDevicePrimaryCtxRelease_v2(pvn_cu_device dev)
{
    int rc = fake_begin("cuDevicePrimaryCtxRelease_v2", true);
    if (rc)
        return rc;
    if (!is_dev(dev))
        return fake_end(PVN_CU_INVALID_DEVICE);
    if (fake.refs[dev] == 0)
        fake_fatal("a primary context was released more often than retained");
    fake.refs[dev]--;
    return fake_end(PVN_CU_SUCCESS);
}

/* Stores one attribute, or returns PVN_CU_INVALID_VALUE. The caller holds the lock. */
static int pointer_attr(void *data, int attr, uint64_t addr)
{
    const struct block *b = fake_find_block(addr);
    if (!b || b->kind == BLOCK_RESERVED)
        return PVN_CU_INVALID_VALUE;
    switch (attr) {
    case PVN_CU_PTR_MEMORY_TYPE:
        *(unsigned *)data = b->kind == BLOCK_HOST ? PVN_CU_MEM_HOST : PVN_CU_MEM_DEVICE;
        return PVN_CU_SUCCESS;
    case PVN_CU_PTR_IS_MANAGED:
        *(unsigned *)data = b->kind == BLOCK_MANAGED;
        return PVN_CU_SUCCESS;
    case PVN_CU_PTR_DEVICE_ORDINAL:
        *(int *)data = b->dev;
        return PVN_CU_SUCCESS;
    case PVN_CU_PTR_BUFFER_ID:
        *(unsigned long long *)data = b->id;
        return PVN_CU_SUCCESS;
    case PVN_CU_PTR_GDR_CAPABLE:
        if (fake.driver < 11000)
            return PVN_CU_INVALID_VALUE;
        *(char *)data = (char)b->gdr_capable;
        return PVN_CU_SUCCESS;
    case PVN_CU_PTR_BLOCK_ID:
        if (fake.driver < 11030)
            return PVN_CU_INVALID_VALUE;
        *(unsigned long long *)data = b->id + 1000000;
        return PVN_CU_SUCCESS;
    default:
        return PVN_CU_INVALID_VALUE;
    }
}

pvn_cu_result cuPointerGetAttribute(void *data, int attr, pvn_cu_ptr addr)
{
    int rc = fake_begin("cuPointerGetAttribute", true);
    return rc ? rc : fake_end(pointer_attr(data, attr, addr));
}

pvn_cu_result cuPointerGetAttributes(unsigned count, int *attrs, void **data, pvn_cu_ptr addr)
{
    int rc = fake_begin("cuPointerGetAttributes", true);
    if (rc)
        return rc;
    for (unsigned i = 0; i < count; i++) {
        switch (attrs[i]) {
        case PVN_CU_PTR_GDR_CAPABLE:
        case PVN_CU_PTR_BLOCK_ID:
            return fake_end(PVN_CU_INVALID_VALUE);
        case PVN_CU_PTR_BUFFER_ID:
            *(unsigned long long *)data[i] = 0;
            break;
        case PVN_CU_PTR_DEVICE_ORDINAL:
            *(int *)data[i] = -2;
            break;
        default:
            *(unsigned *)data[i] = 0;
        }
        (void)pointer_attr(data[i], attrs[i], addr);
    }
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuMemGetAddressRange_v2(pvn_cu_ptr *base, size_t *len, pvn_cu_ptr addr)
{
    int rc = fake_begin("cuMemGetAddressRange_v2", true);
    if (rc)
        return rc;
    /* Unlike cuPointerGetAttributes, this call needs a context on its thread
     * (github.com/NVIDIA/cuda-samples, issue 96). */
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    const struct block *b = fake_find_block(addr);
    if (!b || b->kind == BLOCK_RESERVED)
        return fake_end(PVN_CU_INVALID_VALUE);
    *base = b->base;
    *len = b->len;
    return fake_end(PVN_CU_SUCCESS);
}

#ifndef FAKECUDA_BROKEN
pvn_cu_result cuMemAlloc_v2(pvn_cu_ptr *addr, size_t len)
{
    int rc = fake_begin("cuMemAlloc_v2", true);
    if (rc)
        return rc;
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    if (!len)
        return fake_end(PVN_CU_INVALID_VALUE);
    const struct block *b = fake_place(BLOCK_DEVICE, fake_top()->dev, len, 512);
    if (!b)
        return fake_end(PVN_CU_OUT_OF_MEMORY);
    *addr = b->base;
    return fake_end(PVN_CU_SUCCESS);
}
#endif

pvn_cu_result cuMemFree_v2(pvn_cu_ptr addr)
{
    int rc = fake_begin("cuMemFree_v2", true);
    if (rc)
        return rc;
    struct block *b = fake_find_block(addr);
    if (!b || b->base != addr || b->kind != BLOCK_DEVICE)
        return fake_end(PVN_CU_INVALID_VALUE);
    fake_drop_block(b);
    return fake_end(PVN_CU_SUCCESS);
}

pvn_cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
    static _Thread_local int mine;
    int rc = fake_begin("cuThreadExchangeStreamCaptureMode", true);
    if (rc)
        return rc;
    int was = mine;
    mine = *mode;
    *mode = was;
    return fake_end(PVN_CU_SUCCESS);
}

#ifndef FAKECUDA_OLD
pvn_cu_result cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    int rc = fake_begin("cuFlushGPUDirectRDMAWrites", true);
    if (rc)
        return rc;
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    if (target != PVN_CU_FLUSH_TARGET_CURRENT_CTX || scope != PVN_CU_FLUSH_TO_OWNER)
        return fake_end(PVN_CU_INVALID_VALUE);
    if (!(fake.devs[fake_top()->dev].flush_options & PVN_CU_FLUSH_OPT_HOST))
        return fake_end(PVN_CU_NOT_SUPPORTED);
    return fake_end(PVN_CU_SUCCESS);
}

/* Fails unless the range lies in one allocation, up to the end of its last page, or in mapped
 * segments of one device. */
static int check_export(uint64_t addr, size_t len)
{
    const struct block *b = fake_find_block(addr);
    if (!b || (b->kind != BLOCK_DEVICE && b->kind != BLOCK_SEGMENT))
        return PVN_CU_INVALID_VALUE;
    if (fake.devs[b->dev].dma_buf != 1)
        return PVN_CU_NOT_SUPPORTED;
    if (b->kind == BLOCK_DEVICE) {
        uint64_t stop = (b->base + b->len + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE;
        return addr + len <= stop ? PVN_CU_SUCCESS : PVN_CU_INVALID_VALUE;
    }
    int dev = b->dev;
    for (uint64_t at = addr; at < addr + len; at = b->base + b->len) {
        b = fake_find_block(at);
        if (!b || b->kind != BLOCK_SEGMENT || b->dev != dev)
            return PVN_CU_INVALID_VALUE;
        if (fake.single_segment && addr + len > b->base + b->len)
            return PVN_CU_INVALID_VALUE;
    }
    return PVN_CU_SUCCESS;
}

pvn_cu_result cuMemGetHandleForAddressRange(void *handle, pvn_cu_ptr addr, size_t len, int type,
                                            unsigned long long flags)
{
    int rc = fake_begin("cuMemGetHandleForAddressRange", true);
    if (rc)
        return rc;
    /* The documentation does not say if this call needs a context. */
    if (!fake_top())
        return fake_end(PVN_CU_INVALID_CONTEXT);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (type != PVN_CU_RANGE_DMA_BUF_FD || flags > PVN_CU_RANGE_FLAG_PCIE || addr % page ||
        len % page || !len)
        return fake_end(PVN_CU_INVALID_VALUE);
    if (flags && fake.driver < 12080)
        return fake_end(PVN_CU_INVALID_VALUE);
    rc = check_export(addr, len);
    if (rc) {
        /* If an allocation starts within a page, this page still belongs to it. */
        const struct block *b = fake_find_block(addr + page - 1);
        if (!b || b->kind != BLOCK_DEVICE || b->base <= addr ||
            check_export(b->base, addr + len - b->base))
            return fake_end(rc);
    }
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_arena_fd);
    int fd = open(path, O_RDWR);
    if (fd < 0 || lseek(fd, (off_t)(addr - (uint64_t)(uintptr_t)fake_arena), SEEK_SET) < 0)
        fake_fatal("cannot open the memory file again");
    struct stat st;
    if (fstat(fd, &st))
        fake_fatal("fstat");
    for (int i = 0; i < MAX_DMABUF; i++) {
        if (fake.dmabufs[i].len == 0 || fake.dmabufs[i].fd == fd) {
            fake.dmabufs[i] = (struct dmabuf){fd, st.st_ino, len};
            *(int *)handle = fd;
            return fake_end(PVN_CU_SUCCESS);
        }
    }
    fake_fatal("too many descriptors");
    return PVN_CU_UNKNOWN;
}
#endif
