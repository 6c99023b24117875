/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Lists of hosts: "a,b,c", Slurm's ranges "node[01-04,7]-ib", and host files as Open MPI, MPICH and
 * DeepSpeed read them. */
#ifndef PVN_TOPO_HOSTS_HOST_LIST_H
#define PVN_TOPO_HOSTS_HOST_LIST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PVN_TOPO_HOSTS_MAX = 4096 };

struct pvn_topo_host_list {
    char **name; /* in the order of the list, each once */
    int n, cap;
};

/* Reads a file with one host per line if there is one of that name ("-": standard input), else a
 * list. 0, or a negative errno with a sentence in why. */
int pvn_topo_host_list_read(struct pvn_topo_host_list *list, const char *file_or_list, char *why,
                            size_t why_len);
void pvn_topo_host_list_free(struct pvn_topo_host_list *list);

/* Folds names to the shortest form, "c[0-3,7], login". Returns out, which ends with dots if it is
 * too small. */
const char *pvn_topo_hosts_fold(const char *const *names, int n, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
