/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/cuda_abi.h"

/* CUDA calls that an application makes and the plugin does not. */
struct pvn_gpu_calls {
    pvn_cu_result (*init)(unsigned flags);
    pvn_cu_result (*retain)(pvn_cu_context *ctx, pvn_cu_device dev);
    pvn_cu_result (*release)(pvn_cu_device dev);
    pvn_cu_result (*set_current)(pvn_cu_context ctx);
    pvn_cu_result (*error_name)(pvn_cu_result error, const char **name);
};

static int failed(const struct pvn_gpu *g, struct pvn_err *err, const char *call, pvn_cu_result cr)
{
    const char *name = NULL;

    if (g->calls->error_name(cr, &name) != PVN_CU_SUCCESS || !name)
        name = "unknown error";
    return pvn_err_set(
        err, cr == PVN_CU_NO_DEVICE ? -ENODEV : -EIO, "%s: %s (%d)%s", call, name, cr,
        cr == PVN_CU_NO_DEVICE
            ? ": the driver shows this process no GPU (nvidia-smi, CUDA_VISIBLE_DEVICES)"
            : "");
}

/* Loads the driver, which is never unloaded, because an initialised driver has threads. */
static int load(struct pvn_gpu_calls *c, const char *path, struct pvn_err *err)
{
    const struct {
        const char *name;
        void *to;
    } names[] = {{"cuInit", &c->init},
                 {"cuDevicePrimaryCtxRetain", &c->retain},
                 {"cuDevicePrimaryCtxRelease_v2", &c->release},
                 {"cuCtxSetCurrent", &c->set_current},
                 {"cuGetErrorName", &c->error_name}};
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!lib)
        return pvn_err_set(err, -ENOENT, "cannot load %s", dlerror());
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *f = dlsym(lib, names[i].name);

        if (!f)
            return pvn_err_set(err, -ENOSYS, "%s has no %s", path, names[i].name);
        memcpy(names[i].to, &f, sizeof(f));
    }
    return 0;
}

/* Makes the context of g->dev current in this thread. */
static int enter(struct pvn_gpu *g, struct pvn_err *err)
{
    pvn_cu_context ctx = NULL;
    pvn_cu_result cr = g->calls->retain(&ctx, g->dev);
    int rc;

    if (cr)
        return failed(g, err, "cuDevicePrimaryCtxRetain", cr);
    cr = g->calls->set_current(ctx);
    rc = cr ? failed(g, err, "cuCtxSetCurrent", cr) : 0;
    if (!rc)
        rc = pvn_cuda_query(g->cu, g->dev, &g->caps, err);
    if (!rc)
        rc = pvn_cuda_stream_open(g->cu, g->dev, &g->stream, err);
    if (rc)
        g->calls->release(g->dev);
    return rc;
}

static void leave(struct pvn_gpu *g)
{
    if (!g->stream)
        return;
    pvn_cuda_stream_close(g->cu, g->dev, g->stream, NULL);
    g->stream = NULL;
    g->calls->set_current(NULL);
    g->calls->release(g->dev);
}

static int start(struct pvn_gpu *g, const char *path, int want, int nth, struct pvn_err *err)
{
    pvn_cu_result cr;
    int rc = load(g->calls, path, err);

    if (rc)
        return rc;
    cr = g->calls->init(0);
    if (cr)
        return failed(g, err, "cuInit", cr);
    rc = pvn_cuda_open(&g->cu, path, err);
    if (!rc)
        rc = pvn_cuda_ready(g->cu, &g->count, err);
    if (rc)
        return rc;
    if (want >= g->count)
        return pvn_err_set(
            err, -ENODEV,
            "--gpu %d: CUDA shows this process %d GPU%s, from number 0 on (nvidia-smi, "
            "CUDA_VISIBLE_DEVICES)",
            want, g->count, g->count == 1 ? "" : "s");
    g->given = want >= 0;
    g->dev = want >= 0 ? want : nth % g->count;
    return enter(g, err);
}

int pvn_gpu_open(struct pvn_gpu **out, int want, int nth, struct pvn_err *err)
{
    struct pvn_gpu *g = calloc(1, sizeof(*g));
    char path[PVN_PARAM_STR_LEN];
    int rc;

    *out = NULL;
    if (g)
        g->calls = calloc(1, sizeof(*g->calls));
    if (!g || !g->calls) {
        free(g);
        return pvn_err_set(err, -ENOMEM, "out of memory");
    }
    rc = pvn_params_load(err);
    if (!rc) {
        snprintf(path, sizeof(path), "%s", pvn_params_get()->cuda_lib);
        snprintf(g->sysfs, sizeof(g->sysfs), "%s", pvn_params_get()->sysfs_root);
        pvn_params_unload();
        rc = start(g, path, want, nth, err);
    }
    if (rc) {
        pvn_gpu_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void pvn_gpu_close(struct pvn_gpu *g)
{
    if (!g)
        return;
    leave(g);
    pvn_cuda_close(g->cu);
    free(g->calls);
    free(g);
}

/* The NUMA node of a device; -1 if unknown. */
static int numa_node(const char *dir)
{
    char path[PATH_MAX];
    FILE *f;
    int node = -1;

    snprintf(path, sizeof(path), "%.*s/numa_node", PATH_MAX - 16, dir);
    f = fopen(path, "re");
    if (f && fscanf(f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose(f);
    return node;
}

int pvn_gpu_nearness(const char *a, const char *b)
{
    int node = numa_node(a), steps = 0;
    const char *x = strstr(a, "/pci"), *y = strstr(b, "/pci");

    while (x && y && *x == '/' && *y == '/') {
        size_t n = strcspn(x + 1, "/"), m = strcspn(y + 1, "/");

        if (n != m || strncmp(x + 1, y + 1, n) != 0)
            break;
        steps++;
        x += n + 1;
        y += m + 1;
    }
    return 2 * steps + (node >= 0 && node == numa_node(b));
}

/* How near GPU dev is to the device at that path; 0 if one of the two is not found. */
static int nearness_of(const struct pvn_gpu *g, int dev, const char *to)
{
    char bus_id[PVN_CUDA_BUS_ID_LEN], link[PATH_MAX], *dir;
    int near = 0;

    if (pvn_cuda_bus_id(g->cu, dev, bus_id, NULL))
        return 0;
    snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", g->sysfs, bus_id);
    dir = realpath(link, NULL);
    if (dir)
        near = pvn_gpu_nearness(dir, to);
    free(dir);
    return near;
}

int pvn_gpu_go_near(struct pvn_gpu *g, const char *pci_path, int nth, struct pvn_err *err)
{
    char *to = pci_path && pci_path[0] ? realpath(pci_path, NULL) : NULL;
    int best = 0, ties = 0, dev = g->dev;

    for (int i = 0; to && i < g->count; i++) {
        int near = nearness_of(g, i, to);

        ties = near > best ? 1 : ties + (near == best);
        best = near > best ? near : best;
    }
    for (int i = 0, k = 0; best && i < g->count; i++)
        if (nearness_of(g, i, to) == best && k++ == nth % ties)
            dev = i;
    free(to);
    if (g->given || dev == g->dev)
        return 0;
    leave(g);
    g->dev = dev;
    return enter(g, err);
}
