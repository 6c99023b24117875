/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* GPUs and accelerators, and the state of NVIDIA's driver. */
#include "topo/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char nvidia_gpus[] = "/proc/driver/nvidia/gpus";

/* Finds the GPU's kind by its class and maker. False if the function is no GPU. */
static bool gpu_kind(const struct pvn_topo_pci *p, enum pvn_topo_gpu_kind *kind)
{
    int base = p->class_code >> 16, sub = p->class_code >> 8 & 0xff;

    if (p->class_code == PVN_TOPO_UNKNOWN)
        return false;
    if (base == 0x03) {
        /* 0300 VGA, 0302 3D, 0380 other. Display-only chips (management controllers, emulated VGA)
         * have other makers. */
        switch (p->vendor) {
        case 0x10de:
            *kind = PVN_TOPO_GPU_NVIDIA;
            return true;
        case 0x1002:
            *kind = PVN_TOPO_GPU_AMD;
            return true;
        case 0x8086:
            *kind = PVN_TOPO_GPU_INTEL;
            return p->parent >= 0 ||
                   sub != 0; /* on the root bus it would be the processor's own graphics */
        default:
            return false;
        }
    }
    if (base == 0x12) {
        *kind = p->vendor == 0x1002 ? PVN_TOPO_GPU_AMD : PVN_TOPO_GPU_ACCEL;
        return true;
    }
    if (base == 0x0b && sub == 0x40) {
        *kind = PVN_TOPO_GPU_ACCEL;
        return p->vendor != 0x8086; /* QuickAssist */
    }
    return false;
}

/* Copies the value of a "Key: value" line of text to out. */
static bool find_value(const char *text, const char *key, char *out, size_t cap)
{
    const char *at = strstr(text, key);

    if (!at || (at != text && at[-1] != '\n'))
        return false;
    at += strlen(key);
    at += strspn(at, " \t");
    snprintf(out, cap, "%.*s", (int)strcspn(at, "\n"), at);
    pvn_topo_clean_text(out);
    return true;
}

static void read_information(struct pvn_topo_reader *r, struct pvn_topo_gpu *gpu)
{
    char path[PVN_TOPO_NAME_MAX * 2], text[4096], minor[16];
    ssize_t got;

    gpu->minor = PVN_TOPO_UNKNOWN;
    if (gpu->kind != PVN_TOPO_GPU_NVIDIA || !r->fs)
        return;
    snprintf(path, sizeof(path), "%s/%s/information", nvidia_gpus, r->topo->pci[gpu->pci].bdf);
    got = pvn_topo_fs_read(r->fs, path, text, sizeof(text) - 1);
    if (got <= 0)
        return;
    text[got] = '\0';
    find_value(text, "Model:", gpu->model, sizeof(gpu->model));
    find_value(text, "GPU UUID:", gpu->uuid, sizeof(gpu->uuid));
    if (find_value(text, "Device Minor:", minor, sizeof(minor)))
        pvn_topo_parse_int(minor, 10, 0, 65535, &gpu->minor);
}

/* True if the driver lists this function. */
static bool is_listed(struct pvn_topo_reader *r, const struct pvn_topo_pci *p)
{
    char path[PVN_TOPO_NAME_MAX * 2];

    snprintf(path, sizeof(path), "%s/%s", nvidia_gpus, p->bdf);
    return pvn_topo_fs_type(r->fs, path) == PVN_TOPO_FS_DIR;
}

int pvn_topo_read_gpus(struct pvn_topo_reader *r)
{
    struct pvn_topo *t = r->topo;
    /* A machine that is known only from a list has no files. */
    bool driver = r->fs && pvn_topo_fs_type(r->fs, nvidia_gpus) == PVN_TOPO_FS_DIR;

    for (int i = 0; i < t->npci; i++) {
        enum pvn_topo_gpu_kind kind = PVN_TOPO_GPU_NVIDIA;
        struct pvn_topo_gpu *gpu;

        /* A capture may lack ids, but the driver's directory names its GPUs. */
        if (!gpu_kind(&t->pci[i], &kind) &&
            !(driver && t->pci[i].vendor == PVN_TOPO_UNKNOWN && is_listed(r, &t->pci[i])))
            continue;
        gpu = pvn_topo_array_add((void **)&t->gpus, &t->ngpus, sizeof(*gpu));
        if (!gpu)
            return pvn_topo_reader_nomem(r);
        gpu->pci = i;
        gpu->kind = kind;
        if (driver && kind == PVN_TOPO_GPU_NVIDIA)
            gpu->listed = is_listed(r, &t->pci[i]) ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
        read_information(r, gpu);
    }
    return 0;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ..." or "... Open Kernel Module
 * for x86_64  535.104.05  Release Build ...". */
static void read_driver_version(struct pvn_topo_reader *r, struct pvn_topo_nvidia *nv)
{
    char text[1024];
    ssize_t got = pvn_topo_fs_read(r->fs, "/proc/driver/nvidia/version", text, sizeof(text) - 1);
    const char *at;

    if (got <= 0)
        return;
    text[got] = '\0';
    nv->loaded = PVN_TOPO_TRI_YES;
    nv->open_modules = strstr(text, "Open Kernel Module") ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
    for (at = strchr(text, '.'); at; at = strchr(at + 1, '.')) {
        const char *start = at;
        int major, minor;

        while (start > text && start[-1] >= '0' && start[-1] <= '9')
            start--;
        if (sscanf(start, "%5d.%5d", &major, &minor) == 2 && start < at) {
            snprintf(nv->version, sizeof(nv->version), "%.*s", (int)strspn(start, "0123456789."),
                     start);
            return;
        }
    }
}

static void read_peermem(struct pvn_topo_reader *r, struct pvn_topo_nvidia *nv)
{
    static const char *const clients[] = {"/sys/kernel/mm/memory_peers/nv_mem",
                                          "/sys/kernel/mm/memory_peers/nv_mem_nc"};
    static const char *const modules[] = {"nvidia_peermem", "nv_peer_mem"};
    const struct pvn_topo *t = r->topo;

    nv->peermem = t->modules_known == PVN_TOPO_TRI_YES ? PVN_TOPO_TRI_NO : PVN_TOPO_TRI_UNKNOWN;
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        int m = pvn_topo_find_module(t, modules[i]);

        if (m >= 0) {
            nv->peermem = PVN_TOPO_TRI_YES;
            pvn_topo_copy_text(nv->peermem_version, sizeof(nv->peermem_version),
                               t->modules[m].version);
        }
    }
    if (pvn_topo_fs_type(r->fs, "/sys/kernel/mm") == PVN_TOPO_FS_DIR)
        nv->memory_peers = PVN_TOPO_TRI_NO;
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++)
        if (pvn_topo_fs_type(r->fs, clients[i]) == PVN_TOPO_FS_DIR)
            nv->memory_peers = PVN_TOPO_TRI_YES;
}

int pvn_topo_read_nvidia(struct pvn_topo_reader *r)
{
    struct pvn_topo_nvidia *nv = &r->topo->nvidia;
    char text[8192], value[32];
    ssize_t got;

    nv->topo_check_override = PVN_TOPO_UNKNOWN;
    if (r->topo->modules_known == PVN_TOPO_TRI_YES) {
        nv->loaded =
            pvn_topo_find_module(r->topo, "nvidia") >= 0 ? PVN_TOPO_TRI_YES : PVN_TOPO_TRI_NO;
    }
    /* The driver creates this directory, which exists while the driver is loaded. */
    if (nv->loaded == PVN_TOPO_TRI_UNKNOWN &&
        pvn_topo_fs_type(r->fs, nvidia_gpus) == PVN_TOPO_FS_DIR)
        nv->loaded = PVN_TOPO_TRI_YES;
    read_driver_version(r, nv);
    read_peermem(r, nv);
    got = pvn_topo_fs_read(r->fs, "/proc/driver/nvidia/params", text, sizeof(text) - 1);
    if (got > 0) {
        text[got] = '\0';
        if (find_value(text, "GrdmaPciTopoCheckOverride:", value, sizeof(value)))
            pvn_topo_parse_int(value, 10, 0, 255, &nv->topo_check_override);
    }
    return 0;
}
