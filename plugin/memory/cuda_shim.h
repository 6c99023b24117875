/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The calls of the CUDA driver that the plugin uses.
 *
 * libcuda.so.1 is found at run time, never linked. Three rules keep the plugin a guest in a process
 * that belongs to someone else:
 *   - it never initialises CUDA (no cuInit) and never creates a context: every call works on what
 * the application has set up, or says that there is nothing;
 *   - the thread's current context is, after every call here, what it was before;
 *   - after fork() the child may not use the parent's CUDA: a handle opened before the fork answers
 * -ECHILD there.
 *
 * Return values: 0 or a negative errno with the reason in `err` (which may be NULL):
 *   -ENOENT      no libcuda.so.1 in this process, or not at the path given
 *   -ENOSYS      the library lacks an entry point that every supported driver has
 *   -EOPNOTSUPP  the driver or the device lacks this function
 *   -ENODEV      CUDA is not initialised in this process, or has no such device
 *   -ENOTCONN    no context: none is current on the calling thread, and the device's primary
 * context is not active -EFAULT      not memory that the CUDA driver knows -ENOMEM      out of
 * device memory -ECHILD      the handle was opened before a fork() -EIO         any other error of
 * the driver Threads: a handle may be used from any thread at any time; open and close are the
 * owner's business. */
#ifndef PVN_MEMORY_CUDA_SHIM_H
#define PVN_MEMORY_CUDA_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pvn_cuda;

/* Finds the driver's library. `path` NULL or "libcuda.so.1" (the default of NCCL_PVRDMA_CUDA_LIB):
 * only the one that is already in the process, so that the plugin is never what brings CUDA into a
 * program that does not use it; NCCL has always loaded it before it loads us. Any other name or
 * path is loaded. */
int pvn_cuda_open(struct pvn_cuda **out, const char *path, struct pvn_err *err);
/* NULL is allowed. In a child of fork() only memory is given back. */
void pvn_cuda_close(struct pvn_cuda *cu);

/* 13000 for CUDA 13.0. Works before CUDA is initialised. */
int pvn_cuda_driver_version(const struct pvn_cuda *cu, int *version, struct pvn_err *err);
/* 0 when CUDA is initialised in this process and has at least one device; *count (may be NULL) is
 * their number. */
int pvn_cuda_ready(const struct pvn_cuda *cu, int *count, struct pvn_err *err);

/* The device (ordinal as in CUDA_VISIBLE_DEVICES) of the context that is current on this thread:
 * what NCCL has chosen when it calls the plugin. */
int pvn_cuda_current_device(const struct pvn_cuda *cu, int *dev, struct pvn_err *err);
/* PCI addresses are "0000:0b:00.0": domain of four digits or more, lower case, as sysfs writes
 * them. */
#define PVN_CUDA_BUS_ID_LEN 20
int pvn_cuda_device_by_bus_id(const struct pvn_cuda *cu, const char *bus_id, int *dev,
                              struct pvn_err *err);
int pvn_cuda_bus_id(const struct pvn_cuda *cu, int dev, char out[PVN_CUDA_BUS_ID_LEN],
                    struct pvn_err *err);

/* A device's attributes. -1: the driver is too old to know the attribute. */
struct pvn_cuda_caps {
    char name[64];
    char bus_id[PVN_CUDA_BUS_ID_LEN];
    int driver;   /* of the library, 13000 for 13.0 */
    int cc_major; /* compute capability: 8.0 Ampere, 9.0 Hopper, 10.0 Blackwell */
    int cc_minor;
    int gdr;           /* GPUDirect RDMA possible (nvidia_p2p_get_pages); needs 11.3 */
    int gdr_vmm;       /* the same for cuMemCreate memory that requested it */
    int dma_buf;       /* cuMemGetHandleForAddressRange can give dma-buf descriptors; needs 11.7 */
    int flush_options; /* PVN_CU_FLUSH_OPT_*; needs 11.3 */
    int ordering;      /* PVN_CU_ORDER_*: who sees a remote write without a flush; needs 11.3 */
    bool has_flush;    /* the library exports cuFlushGPUDirectRDMAWrites */
    bool has_export;   /* the library exports cuMemGetHandleForAddressRange */
};
int pvn_cuda_query(const struct pvn_cuda *cu, int dev, struct pvn_cuda_caps *out,
                   struct pvn_err *err);

enum pvn_cuda_mem {
    PVN_CUDA_MEM_UNKNOWN, /* ordinary host memory, or anything CUDA has never seen */
    PVN_CUDA_MEM_HOST,    /* pinned or registered host memory */
    PVN_CUDA_MEM_DEVICE,
    PVN_CUDA_MEM_MANAGED, /* migrates between host and device: can never be registered as GPU memory
                           */
};
struct pvn_cuda_ptr {
    enum pvn_cuda_mem mem;
    int dev; /* -1 unless device or managed memory */
    uint64_t
        buffer_id; /* unique for the life of the process: an address that is freed and given out
                           again has another */
    /* Identifies the physical allocation behind a mapped range; 0: the driver does not say */
    uint64_t block_id;
    int gdr_capable; /* 0: this allocation was made without GPUDirect RDMA; -1: not known */
};
/* Ordinary memory is not an error: mem is PVN_CUDA_MEM_UNKNOWN. */
int pvn_cuda_pointer(const struct pvn_cuda *cu, uint64_t addr, struct pvn_cuda_ptr *out,
                     struct pvn_err *err);

/* The allocation, or the mapped segment of a cuMemMap range, that holds addr, of device dev: [*base, *base +
 * *len). The driver requires a current context for it. Threads of this plugin, which register again in a failover, have
 * none: dev's primary context is taken there if it is active. */
int pvn_cuda_range(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t *base, uint64_t *len,
                   struct pvn_err *err);

/* A dma-buf descriptor (close-on-exec; the caller closes it) of [addr, addr + len) of device dev, in a context as
 * pvn_cuda_range. Both must be multiples of the host's page size. `pcie`: request the mapping through BAR1 even where the GPU
 * has another path to the CPU. */
int pvn_cuda_export(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t len, bool pcie,
                    int *fd, struct pvn_err *err);

/* Makes earlier writes of third-party devices visible to device dev: cuFlushGPUDirectRDMAWrites to
 * its owner. Blocks for microseconds. Uses the current context when it is dev's, otherwise dev's
 * primary context if that is active. */
int pvn_cuda_flush(const struct pvn_cuda *cu, int dev, struct pvn_err *err);

/* A small buffer on dev for the registration trial (64 KiB: one page of the GPU's BAR mapping), and
 * its end. Allowed while another thread captures a stream. */
int pvn_cuda_alloc(const struct pvn_cuda *cu, int dev, size_t len, uint64_t *addr,
                   struct pvn_err *err);
int pvn_cuda_free(const struct pvn_cuda *cu, int dev, uint64_t addr, struct pvn_err *err);

/* Host memory that is pinned for every GPU, and its end. May wait for kernels that run. */
int pvn_cuda_host_alloc(const struct pvn_cuda *cu, int dev, size_t len, void **out,
                        struct pvn_err *err);
int pvn_cuda_host_free(const struct pvn_cuda *cu, int dev, void *mem, struct pvn_err *err);

/* A stream on dev that waits for no other stream, the legacy default one included, and its end. */
int pvn_cuda_stream_open(const struct pvn_cuda *cu, int dev, void **stream, struct pvn_err *err);
int pvn_cuda_stream_close(const struct pvn_cuda *cu, int dev, void *stream, struct pvn_err *err);
/* Copies between any host memory and memory of dev. 0 when the bytes are there. Allowed while
 * another thread captures a stream. */
int pvn_cuda_copy_in(const struct pvn_cuda *cu, int dev, void *stream, uint64_t to,
                     const void *from, size_t len, struct pvn_err *err);
int pvn_cuda_copy_out(const struct pvn_cuda *cu, int dev, void *stream, void *to, uint64_t from,
                      size_t len, struct pvn_err *err);

#endif
