/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Files, pipes and standard input that describe a machine, in any form that pvn-topo reads: a tar
 * of pvn-topo gather or of hwloc-gather-topology, compressed or not, or the output of another tool.
 * For the tool; a directory is read by pvn_topo_load. Not thread safe. */
#ifndef PVN_TOPO_INPUT_INPUT_H
#define PVN_TOPO_INPUT_INPUT_H

#include <stddef.h>

#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PVN_TOPO_INPUT_MAX = 256 << 20, /* bytes of an input, before and after it is unpacked */
    PVN_TOPO_INPUT_WAIT_S = 30,     /* how long a pipe may be silent */
};

enum pvn_topo_input_kind {
    PVN_TOPO_INPUT_TAR, /* or none of the other forms */
    PVN_TOPO_INPUT_NCCL_XML,
    PVN_TOPO_INPUT_HWLOC_XML, /* lstopo machine.xml */
    PVN_TOPO_INPUT_ESXCLI,    /* esxcli hardware pci list */
    PVN_TOPO_INPUT_LSPCI,     /* lspci -vv */
    PVN_TOPO_INPUT_JSON,      /* rdma_topo dump */
};

struct pvn_topo_input {
    enum pvn_topo_input_kind kind;
    char *data; /* unpacked, with a NUL behind it */
    size_t len;
};

/* Reads all of path ("-": standard input, which can be read once), unpacks it if it is compressed,
 * and recognises its form. A pipe or FIFO that is silent for wait_s seconds is an error
 * (-ETIMEDOUT); a terminal may be silent. 0 or negative errno with the reason in err, which names
 * path. On success the caller frees *in with pvn_topo_input_free. */
int pvn_topo_input_read(const char *path, int wait_s, struct pvn_topo_input *in,
                        struct pvn_topo_err *err);
void pvn_topo_input_free(struct pvn_topo_input *in);

/* Loads the machine that an input describes. For PVN_TOPO_INPUT_NCCL_XML this is the tree that NCCL
 * states, with invented ports, which suffices to place a guest's devices. name appears in messages
 * and becomes the model's source. Contract as pvn_topo_load. */
int pvn_topo_input_machine(const struct pvn_topo_input *in, const char *name,
                           struct pvn_topo **topo, struct pvn_topo_err *err);

/* Recognises the form of len bytes. */
enum pvn_topo_input_kind pvn_topo_input_recognise(const char *data, size_t len);

/* The readers of the forms other than tar and esxcli; contract as pvn_topo_load. Facts that the
 * text does not state are unknown in the model. */
int pvn_topo_load_hwloc(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err);
int pvn_topo_load_lspci(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err);
int pvn_topo_load_rdma_topo(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                            struct pvn_topo_err *err);
int pvn_topo_load_nccl(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                       struct pvn_topo_err *err);

/* The parts of pvn_topo_input_read. */

/* Reads the bytes unchanged. */
int pvn_topo_input_slurp(const char *path, int wait_s, struct pvn_topo_input *in,
                         struct pvn_topo_err *err);
/* Replaces compressed data (gzip, bzip2, xz, zstd) by the output of the program of that name, which
 * runs without a shell. Other data stays unchanged. */
int pvn_topo_input_unpack(const char *path, struct pvn_topo_input *in, struct pvn_topo_err *err);

#ifdef __cplusplus
}
#endif
#endif
