/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Stores of files other than a directory. Internal to topo/. */
#ifndef PVN_TOPO_CAPTURE_OPEN_H
#define PVN_TOPO_CAPTURE_OPEN_H

#include "topo/fs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens root, a directory or a tar file. 0 or negative errno with a sentence. */
int pvn_topo_fs_open(const char *root, struct pvn_topo_fs **fs, struct pvn_topo_err *err);
/* Opens a tar image in memory, which is copied. */
int pvn_topo_fs_open_tar(const void *image, size_t bytes, struct pvn_topo_fs **fs,
                         struct pvn_topo_err *err);

#ifdef __cplusplus
}
#endif
#endif
