/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Queries the launcher through PMIx (Open MPI's mpirun, prterun, srun --mpi=pmix) for the host of
 * rank 0. */
#ifndef PVN_TOOLS_PMIX_H
#define PVN_TOOLS_PMIX_H

#include <stddef.h>

#include "tools/launch_env.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The host on which the launcher placed rank 0 of this job. 0 and host, or -ENOENT: no PMIx
 * launcher (PMIX_NAMESPACE is not set), no libpmix.so.2, or the launcher does not report it. This
 * call loads the library, which stays loaded and starts threads, so call it once and before any
 * fork.
 */
int pvn_pmix_rank0_host(char *host, size_t len);

/*
 * Queries PMIx if the environment does not give the host of rank 0 for certain. 0 if le->master is
 * set; else -ENOENT.
 */
int pvn_pmix_find_master(struct pvn_launch_env *le);

#ifdef __cplusplus
}
#endif

#endif
