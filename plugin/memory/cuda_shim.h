/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The functions of the CUDA driver that the plugin uses.
 *
 * libcuda.so.1 is found at run time, never linked. Three rules keep the plugin from disturbing the
 * application whose process it is in:
 *   - It never initialises CUDA (no cuInit) and never creates a context. Every call uses what the
 *     application has set up, or fails if there is nothing.
 *   - Every call leaves the thread's current context as it was.
 *   - A forked child may not use the parent's CUDA: there a handle opened before the fork returns -ECHILD.
 *
 * Return values: 0 or a negative errno with the reason in `err` (which may be NULL):
 *   -ENOENT      no libcuda.so.1 in this process, or not at the given path
 *   -ENOSYS      the library lacks an entry point that every supported driver has
 *   -EOPNOTSUPP  the driver or the device lacks this function
 *   -ENODEV      CUDA is not initialised in this process, or has no such device
 *   -ENOTCONN    no context is current on the calling thread, and the device's primary context is not active
 *   -EFAULT      memory that the CUDA driver does not know
 *   -ENOMEM      out of device memory
 *   -ECHILD      the handle was opened before a fork()
 *   -EIO         any other error of the driver
 *
 * Threads: a handle may be used from any thread at any time. The owner must not call close while another
 * thread uses the handle. */
#ifndef PVN_MEMORY_CUDA_SHIM_H
#define PVN_MEMORY_CUDA_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pvn_cuda;

/* Opens the driver's library. `path` NULL or "libcuda.so.1" (the default of NCCL_PVRDMA_CUDA_LIB) finds it
 * only if the process has loaded it already, so that the plugin never brings CUDA into a program that does
 * not use it; NCCL always loads it before the plugin. Any other name or path is loaded. */
int pvn_cuda_open(struct pvn_cuda **out, const char *path, struct pvn_err *err);
/* NULL is allowed. In a forked child this only frees memory. */
void pvn_cuda_close(struct pvn_cuda *cu);

/* 13000 for CUDA 13.0. Works before CUDA is initialised. */
int pvn_cuda_driver_version(const struct pvn_cuda *cu, int *version, struct pvn_err *err);
/* 0 if CUDA is initialised in this process and has at least one device. *count (may be NULL) is the number of
 * devices. */
int pvn_cuda_ready(const struct pvn_cuda *cu, int *count, struct pvn_err *err);

/* The device (ordinal as in CUDA_VISIBLE_DEVICES) of this thread's current context. In NCCL's calls of the
 * plugin that is the device that NCCL has chosen. */
int pvn_cuda_current_device(const struct pvn_cuda *cu, int *dev, struct pvn_err *err);
/* PCI addresses have the form of sysfs, "0000:0b:00.0": lower case, with a domain of four digits or more. */
#define PVN_CUDA_BUS_ID_LEN 20
int pvn_cuda_bus_id(const struct pvn_cuda *cu, int dev, char out[PVN_CUDA_BUS_ID_LEN],
                    struct pvn_err *err);

/* Attributes of a device. -1 means that the driver is too old to know the attribute. */
struct pvn_cuda_caps {
    char name[64];
    char bus_id[PVN_CUDA_BUS_ID_LEN];
    int driver;   /* version of the library, 13000 for 13.0 */
    int cc_major; /* compute capability: 8.0 Ampere, 9.0 Hopper, 10.0 Blackwell */
    int cc_minor;
    int gdr;           /* supports GPUDirect RDMA (nvidia_p2p_get_pages); needs 11.3 */
    int gdr_vmm;       /* supports it for cuMemCreate memory that requested it */
    int dma_buf;       /* cuMemGetHandleForAddressRange can export dma-bufs; needs 11.7 */
    int flush_options; /* PVN_CU_FLUSH_OPT_*; needs 11.3 */
    int ordering;   /* PVN_CU_ORDER_*: devices that see remote writes without a flush; needs 11.3 */
    bool has_flush; /* the library exports cuFlushGPUDirectRDMAWrites */
    bool has_export; /* the library exports cuMemGetHandleForAddressRange */
};
int pvn_cuda_query(const struct pvn_cuda *cu, int dev, struct pvn_cuda_caps *out,
                   struct pvn_err *err);

enum pvn_cuda_mem {
    PVN_CUDA_MEM_UNKNOWN, /* ordinary host memory, or anything that CUDA does not know */
    PVN_CUDA_MEM_HOST,    /* pinned or registered host memory */
    PVN_CUDA_MEM_DEVICE,
    PVN_CUDA_MEM_MANAGED, /* migrates between host and device, so it cannot be registered */
};
struct pvn_cuda_ptr {
    enum pvn_cuda_mem mem;
    int dev; /* -1 unless device or managed memory */
    /* Unique during the life of the process. Memory that is freed and allocated again at the same address has
     * another id. */
    uint64_t buffer_id;
    /* Identifies the physical allocation of a mapped range; 0: not known */
    uint64_t block_id;
    int gdr_capable; /* 0: this allocation was made without GPUDirect RDMA; -1: not known */
};
/* Ordinary memory is no error; its mem is PVN_CUDA_MEM_UNKNOWN. */
int pvn_cuda_pointer(const struct pvn_cuda *cu, uint64_t addr, struct pvn_cuda_ptr *out,
                     struct pvn_err *err);

/* The allocation of device dev, or the mapped segment of a cuMemMap range, that holds addr: [*base, *base + *len). The
 * driver requires a current context. NCCL's thread of the data calls, which registers memory again in a failover, may have
 * none: before CUDA 12 cudaSetDevice makes none current. The call uses dev's primary context there if that is active. */
int pvn_cuda_range(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t *base, uint64_t *len,
                   struct pvn_err *err);

/* Exports [addr, addr + len) of device dev as a dma-buf (close-on-exec; the caller closes it). addr and len must be
 * multiples of the host's page size. The context is as in pvn_cuda_range. `pcie` requests the mapping through BAR1 even if
 * the GPU has another path to the CPU. */
int pvn_cuda_export(const struct pvn_cuda *cu, int dev, uint64_t addr, uint64_t len, bool pcie,
                    int *fd, struct pvn_err *err);

/* Makes earlier writes of other devices visible to device dev, with cuFlushGPUDirectRDMAWrites. Blocks for
 * microseconds. Uses the current context if it belongs to dev, otherwise dev's primary context if that is active. */
int pvn_cuda_flush(const struct pvn_cuda *cu, int dev, struct pvn_err *err);

/* Allocate and free a small buffer on dev for the registration trial (64 KiB: one page of the GPU's BAR mapping).
 * Allowed while another thread captures a stream. */
int pvn_cuda_alloc(const struct pvn_cuda *cu, int dev, size_t len, uint64_t *addr,
                   struct pvn_err *err);
int pvn_cuda_free(const struct pvn_cuda *cu, int dev, uint64_t addr, struct pvn_err *err);

/* Allocate and free host memory that is pinned for every GPU. May wait for running kernels. */
int pvn_cuda_host_alloc(const struct pvn_cuda *cu, int dev, size_t len, void **out,
                        struct pvn_err *err);
int pvn_cuda_host_free(const struct pvn_cuda *cu, int dev, void *mem, struct pvn_err *err);

/* Open and close a stream on dev that waits for no other stream, not even for the legacy default stream. */
int pvn_cuda_stream_open(const struct pvn_cuda *cu, int dev, void **stream, struct pvn_err *err);
int pvn_cuda_stream_close(const struct pvn_cuda *cu, int dev, void *stream, struct pvn_err *err);
/* Copy between any host memory and memory of dev, and return when the copy is complete. Allowed while another
 * thread captures a stream. */
int pvn_cuda_copy_in(const struct pvn_cuda *cu, int dev, void *stream, uint64_t to,
                     const void *from, size_t len, struct pvn_err *err);
int pvn_cuda_copy_out(const struct pvn_cuda *cu, int dev, void *stream, void *to, uint64_t from,
                      size_t len, struct pvn_err *err);

#endif
