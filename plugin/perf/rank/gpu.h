/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU of this process. The plugin neither initialises CUDA nor makes a context
 * (memory/cuda_shim.h), because with NCCL the application has done so. In pvn-perf this file acts
 * as that application. One thread.
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
 * Loads the driver's library (the parameter CUDA_LIB), initialises CUDA and makes the primary
 * context of a GPU current: GPU number `want` or, if that is -1, one by turns, selected by `nth`.
 * Returns 0 and *out, or a negative errno with *err: -ENOENT if there is no such library. After an
 * error, the library and CUDA stay as they are until the process ends.
 */
int pvn_gpu_open(struct pvn_gpu **out, int want, int nth, struct pvn_err *err);
/* Changes to the GPU nearest to the device at this PCI path in sysfs (as from getProperties),
 * unless the user has given the GPU's number. Equally near GPUs are taken by turns, selected by
 * `nth`. */
int pvn_gpu_go_near(struct pvn_gpu *g, const char *pci_path, int nth, struct pvn_err *err);
/* Releases the context and the stream. NULL is allowed. */
void pvn_gpu_close(struct pvn_gpu *g);

/*
 * The nearness of two directories of PCI functions in sysfs: twice the number of path components
 * that they share from the root complex on, plus 1 if they are on the same NUMA node. 0 if nothing
 * is known.
 */
int pvn_gpu_nearness(const char *a, const char *b);

#ifdef __cplusplus
}
#endif

#endif
