/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The parts of pvn_topo_gather. Internal to topo/. */
#ifndef PVN_TOPO_CAPTURE_GATHER_H
#define PVN_TOPO_CAPTURE_GATHER_H

#include "topo/fs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file, link or directory that was read. */
struct pvn_topo_record {
    char *path; /* from the root, "/sys/..." */
    enum pvn_topo_fs_type type;
    char *data; /* a file's content or a link's text, and a NUL that len does not count; NULL when
                 * empty */
    size_t len;
};

/* Removes data that identifies the machine from the records, see pvn_topo_gather. records are
 * sorted by path. */
int pvn_topo_redact(struct pvn_topo_record **records, int n, unsigned flags);

/* Writes the records as a tar file, all below one directory. */
int pvn_topo_tar_write(int fd, struct pvn_topo_record **records, int n);

#ifdef __cplusplus
}
#endif
#endif
