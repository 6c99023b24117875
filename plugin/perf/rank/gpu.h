/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU of this process. The plugin never initialises CUDA nor makes a context (memory/cuda_shim.h), since
 * with NCCL the application has; in pvn-perf that application is this file. One thread.
 */
#ifndef PVN_PERF_GPU_H
#define PVN_PERF_GPU_H

#include "base/err.h"
#include "base/param.h"
#include "memory/cuda_shim.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_gpu {
    struct pvn_cuda *cu;
    int dev, count;
    void *stream; /* for copies */
    struct pvn_cuda_caps caps;
    char sysfs[PVN_PARAM_STR_LEN];
    int given; /* dev was given by number */
    struct pvn_gpu_calls *calls;
};

/*
 * Loads the driver's library (the parameter CUDA_LIB), initialises CUDA and makes the primary context of
 * a GPU current: number `want`, or, -1, one of them in turn by `nth`. 0 and *out, or a negative errno
 * with *err: -ENOENT where there is no such library. What was begun lasts until the process ends.
 */
int pvn_gpu_open(struct pvn_gpu **out, int want, int nth, struct pvn_err *err);
/* Unless the GPU was given by number: to the one nearest to the device at this PCI path in sysfs (as
 * getProperties has it), equally near ones in turn by `nth`. */
int pvn_gpu_go_near(struct pvn_gpu *g, const char *pci_path, int nth, struct pvn_err *err);
/* Gives the context and the stream back. NULL is allowed. */
void pvn_gpu_close(struct pvn_gpu *g);

/*
 * The nearness of two directories of PCI functions in sysfs: the steps of the path from the root
 * complex that they share, twice, and 1 more where they are on the same NUMA node. 0: nothing is known.
 */
int pvn_gpu_nearness(const char *a, const char *b);

#ifdef __cplusplus
}
#endif

#endif
