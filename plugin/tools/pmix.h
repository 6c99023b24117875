/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Queries the launcher through PMIx (Open MPI's mpirun, prterun, srun --mpi=pmix) where rank 0
 * is. */
#ifndef PVN_TOOLS_PMIX_H
#define PVN_TOOLS_PMIX_H

#include <stddef.h>

#include "tools/launch_env.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The host that the launcher put rank 0 of this job on. 0 and host, or -ENOENT: no PMIx launcher
 * (PMIX_NAMESPACE is not set), no libpmix.so.2, or the launcher does not say. The library is loaded
 * for this call only; it starts threads, so: once, before any fork.
 */
int pvn_pmix_rank0_host(char *host, size_t len);

/*
 * Asks PMIx where the environment does not say for sure where rank 0 is. 0: le->master is there; -ENOENT.
 */
int pvn_pmix_find_master(struct pvn_launch_env *le);

#ifdef __cplusplus
}
#endif

#endif
