/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A double of libcuda.so.1. Device memory is host memory, the test defines the devices, and
 * every entry point can be made to fail. It has the soname of the real library, so that programs
 * find it in the same manner.
 *
 * A test loads the library by path and gets its control table: dlsym(lib, "fakecuda_control").
 *
 * An application (nccl_check under test) may use the double as its driver if FAKECUDA_APP is
 * set. Then retaining a primary context creates it, and copies and streams (fakecuda_app.c)
 * complete at once. FAKECUDA_GPUS (addresses) and FAKECUDA_CC (compute capability, major) define
 * its devices. FAKECUDA_HIDE hides their memory from the processor.
 *
 * Modelled are: the initialisation state; primary and user contexts, and the context stack of
 * each thread; allocations, whose buffer ids are never reused although addresses are; reserved
 * ranges with mapped segments; dma-buf descriptors; a driver that is not initialised in a child
 * of fork(). Kernels are not modelled.
 *
 * A dma-buf descriptor is an open file description of the memory's backing file. Its file
 * position is the start of the exported range: lseek(fd, 0, SEEK_CUR) + offset finds the bytes.
 * fakecuda_dmabuf_len() returns the length of the range. */
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
    /* Restores the state after loading, then defines these devices. */
    void (*reset)(const struct fakecuda_device *devs, int count);
    void (*init)(void); /* calls cuInit */
    void (*set_driver_version)(int version);

    /* Call n of entry point `name`, counted from now (1 = the next, 0 = every one), returns
     * `code`. n < 0 ends that. Aborts if no such entry point exists.
     * FAKECUDA_FAIL="name:n:code,..." does the same at load time. */
    void (*fail)(const char *name, int n, int code);
    int (*fired)(const char *name); /* how often an injected failure occurred */
    int (*calls)(const char *name); /* calls since reset, failed ones included */

    /* The application's side: contexts and memory. */
    void (*activate_primary)(int dev, int active);
    int (*primary_refs)(int dev); /* taken by cuDevicePrimaryCtxRetain and not released */
    void *(*ctx_create)(int dev);
    /* replaces the top of this thread's stack; NULL: makes it empty */
    void (*set_current)(void *ctx);
    void *(*primary)(int dev);
    void *(*current)(void);
    int (*stack_depth)(void);

    uint64_t (*alloc)(int kind, int dev, size_t len, size_t align);
    void (*free)(uint64_t addr);
    size_t (*live)(void); /* allocations and mapped segments */
    void (*set_gdr_capable)(uint64_t addr, int capable);
    /* Reserves a range, into which segments of `seg` bytes are mapped. A descriptor may span
     * segments of one range, unless single_segment_export is set; some drivers cannot do that. */
    uint64_t (*vmm_reserve)(size_t len);
    void (*vmm_map)(uint64_t addr, size_t len, int dev);
    void (*vmm_unmap)(uint64_t addr);
    void (*vmm_release)(uint64_t addr);
    void (*set_single_segment_export)(int on);

    uint64_t (*dmabuf_len)(int fd); /* 0: not a descriptor of the double, or closed */
    int (*dmabuf_open)(void);       /* descriptors returned and still open */
    /* from the processor, so that only copies reach device memory */
    void (*hide)(int on);
};

#endif
