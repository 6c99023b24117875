/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "gpu/lost_lane_gpu.h"
#include "gpu/lost_lane_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ll_cuda cu;
static pvn_cu_context primary;

static int load(const char *path, bool *absent, char *why, size_t why_len)
{
    static const struct {
        const char *name;
        void *to;
    } names[] = {
#define LL_NAME(name, member, params) {#name, &cu.member},
        LL_ENTRIES(LL_NAME)
#undef LL_NAME
    };
    void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    *absent = !lib;
    if (!lib)
        snprintf(why, why_len, "%s: %s", path, dlerror());
    for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++) {
        void *f = dlsym(lib, names[i].name);
        memcpy(names[i].to, &f, sizeof(f));
        if (f)
            continue;
        snprintf(why, why_len, "%s has no %s", path, names[i].name);
        return -1;
    }
    return lib ? 0 : -1;
}

int ll_gpu_open(const char *lib, bool *absent, char *why, size_t why_len)
{
    int count = 0;
    if (load(lib, absent, why, why_len))
        return -1;
    pvn_cu_result cr = cu.init(0);
    if (!cr)
        cr = cu.device_count(&count);
    *absent = cr || count == 0;
    if (*absent)
        snprintf(why, why_len, "no GPU: cuInit gave %d, %d devices", cr, count);
    else if ((cr = cu.retain(&primary, 0)) != 0)
        snprintf(why, why_len, "cuDevicePrimaryCtxRetain: CUDA error %d", cr);
    return *absent || cr ? -1 : 0;
}

struct call {
    void (*f)(void *);
    void *arg;
};

static void *run_call(void *arg)
{
    const struct call *c = arg;
    if (cu.set(primary))
        abort();
    c->f(c->arg);
    return NULL;
}

void ll_gpu_call(void (*f)(void *), void *arg)
{
    struct call c = {.f = f, .arg = arg};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_call, &c) || pthread_join(thread, NULL))
        abort();
}

struct work {
    enum { ALLOC, WRITE, READ, SET, EXPORT } what;
    pvn_cu_ptr gpu;
    const void *from;
    void *to;
    size_t len;
    unsigned char byte;
    int fd;
    pvn_cu_result cr;
};

static void do_work(void *arg)
{
    struct work *w = arg;
    switch (w->what) {
    case ALLOC:
        w->cr = cu.alloc(&w->gpu, w->len);
        break;
    case WRITE:
        w->cr = cu.to_device(w->gpu, w->from, w->len);
        break;
    case READ:
        w->cr = cu.to_host(w->to, w->gpu, w->len);
        break;
    case SET:
        w->cr = cu.set_bytes(w->gpu, w->byte, w->len);
        break;
    case EXPORT:
        w->cr = cu.export_fd(&w->fd, w->gpu, w->len, PVN_CU_RANGE_DMA_BUF_FD, 0);
        break;
    }
    /* A copy or a fill may be complete for the caller before it is for the GPU. */
    if (!w->cr)
        w->cr = cu.sync();
}

int ll_gpu_alloc(pvn_cu_ptr *at, size_t len)
{
    struct work w = {.what = ALLOC, .len = len};
    ll_gpu_call(do_work, &w);
    *at = w.gpu;
    return w.cr;
}

int ll_gpu_write(pvn_cu_ptr to, const void *from, size_t len)
{
    struct work w = {.what = WRITE, .gpu = to, .from = from, .len = len};
    ll_gpu_call(do_work, &w);
    return w.cr;
}

int ll_gpu_read(void *to, pvn_cu_ptr from, size_t len)
{
    struct work w = {.what = READ, .gpu = from, .to = to, .len = len};
    ll_gpu_call(do_work, &w);
    return w.cr;
}

int ll_gpu_set(pvn_cu_ptr to, unsigned char byte, size_t len)
{
    struct work w = {.what = SET, .gpu = to, .byte = byte, .len = len};
    ll_gpu_call(do_work, &w);
    return w.cr;
}

int ll_gpu_export(int *fd, pvn_cu_ptr first, size_t len)
{
    struct work w = {.what = EXPORT, .gpu = first, .len = len, .fd = -1};
    ll_gpu_call(do_work, &w);
    *fd = w.fd;
    return w.cr;
}

bool ll_gpu_has_context(void)
{
    pvn_cu_context ctx = NULL;
    return cu.current(&ctx) || ctx;
}

void ll_gpu_probe(pvn_cu_ptr at, size_t len, char *text, size_t text_len)
{
    unsigned type = 0;
    pvn_cu_ptr base = 0;
    size_t size = 0;
    int fd = -1;
    int found = cu.attribute(&type, PVN_CU_PTR_MEMORY_TYPE, at), range = cu.range(&base, &size, at);
    int exported = cu.export_fd(&fd, at, len, PVN_CU_RANGE_DMA_BUF_FD, 0);
    if (!exported && fd >= 0)
        close(fd);
    snprintf(text, text_len,
             "cuPointerGetAttribute %d, cuMemGetAddressRange %d, cuMemGetHandleForAddressRange %d",
             found, range, exported);
}
