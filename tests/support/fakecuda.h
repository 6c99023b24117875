/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A double of libcuda.so.1: device memory lives in host memory, devices are made up by the test,
 * and every entry point can be made to fail. Built with the soname of the real one, so that it can
 * be found as the real one is.
 *
 * A test loads the library by path and gets its control table: dlsym(lib,
 * "fakecuda_control").
 *
 * An application (nccl_check under test) may use the double as its driver: with FAKECUDA_APP set,
 * retaining a primary context creates it, and copies and streams (fakecuda_app.c) work at once. FAKECUDA_GPUS
 * (addresses) and FAKECUDA_CC (compute capability, major) make up its devices, FAKECUDA_HIDE hides their memory from the processor.
 *
 * What is modelled: initialisation state, primary and user contexts and the per-thread context
 * stack; allocations with buffer ids that are never used twice although addresses are; reserved
 * ranges with mapped segments; dma-buf descriptors; a child of fork() meets an uninitialised
 * driver. Not modelled: kernels.
 *
 * A dma-buf descriptor is an open file description of the memory's backing file whose file position
 * is where the exported range begins: lseek(fd, 0, SEEK_CUR) + offset finds the bytes,
 * fakecuda_dmabuf_len() the range's length. */
#ifndef PVN_TESTS_FAKECUDA_H
#define PVN_TESTS_FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

struct fakecuda_device {
    char bus_id[20]; /* as the driver prints it: "0000:0B:00.0" */
    char name[64];
    int cc_major, cc_minor;
    int gdr, gdr_vmm, dma_buf; /* attribute values; -1: INVALID_VALUE, as an old driver answers */
    int flush_options, ordering;
};

/* Kinds of memory for alloc(). */
enum { FAKECUDA_DEVICE, FAKECUDA_HOST, FAKECUDA_MANAGED };

struct fakecuda_control {
    /* Everything back to the state after loading, then these devices. */
    void (*reset)(const struct fakecuda_device *devs, int count);
    void (*init)(void); /* what cuInit does */
    void (*set_driver_version)(int version);

    /* The n-th call from now (1 = the next, 0 = every one) of the entry point `name` answers
     * `code`; until cleared with n < 0. Aborts on a name that does not exist. Also
     * FAKECUDA_FAIL="name:n:code,..." at load time. */
    void (*fail)(const char *name, int n, int code);
    int (*fired)(const char *name); /* how often that has happened */
    int (*calls)(const char *name); /* calls since reset, failed ones included */

    /* The application's side: contexts and memory. */
    void (*activate_primary)(int dev, int active);
    int (*primary_refs)(int dev); /* taken by cuDevicePrimaryCtxRetain and not given back */
    void *(*ctx_create)(int dev);
    void (*set_current)(void *ctx); /* replaces the top of this thread's stack; NULL: empty */
    void *(*primary)(int dev);
    void *(*current)(void);
    int (*stack_depth)(void);

    uint64_t (*alloc)(int kind, int dev, size_t len, size_t align);
    void (*free)(uint64_t addr);
    size_t (*live)(void); /* allocations and mapped segments */
    void (*set_gdr_capable)(uint64_t addr, int capable);
    /* A reserved range; segments of `seg` bytes are mapped into it. Descriptors across segments of
     * one range are given out unless single_segment_export is set, as some drivers do not. */
    uint64_t (*vmm_reserve)(size_t len);
    void (*vmm_map)(uint64_t addr, size_t len, int dev);
    void (*vmm_unmap)(uint64_t addr);
    void (*vmm_release)(uint64_t addr);
    void (*set_single_segment_export)(int on);

    uint64_t (*dmabuf_len)(int fd); /* 0: not one of ours, or closed */
    int (*dmabuf_open)(void);       /* descriptors given out and still open */
    void (*hide)(int on);           /* from the processor: only copies reach device memory */
};

#endif
