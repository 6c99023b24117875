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
 * Queries PMIx if the environment does not give the host of rank 0 for certain. 0 if le->master is
 * set; else -ENOENT. The query loads PMIx's library, which stays loaded and starts threads, so call
 * this once and before any fork.
 */
int pvn_pmix_find_master(struct pvn_launch_env *le);

#ifdef __cplusplus
}
#endif

#endif
