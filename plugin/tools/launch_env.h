/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank, number of ranks and the host of rank 0, as set by the launcher of this process. They are
 * read from the environment of torchrun (or another program that sets RANK, WORLD_SIZE, MASTER_ADDR
 * and MASTER_PORT), Open MPI's mpirun (OMPI_COMM_WORLD_*), Hydra and other PMI launchers (PMI_RANK,
 * PMI_SIZE) and srun (SLURM_PROCID, SLURM_STEP_*), in this order.
 */
#ifndef PVN_TOOLS_LAUNCH_ENV_H
#define PVN_TOOLS_LAUNCH_ENV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_launch_env {
    const char *launcher; /* "torchrun", "mpirun", "PMI", "srun"; NULL: none */
    int rank;
    int nranks;
    int port;
    char master[256]; /* "": unknown */
    int guessed;      /* master is the first host of a list of nodes, where rank 0 usually is */
    uint64_t job;     /* equal in all ranks of one job, else 0 */
};

/*
 * 0 and *le; launcher is NULL if there is none. -EINVAL with a sentence if a variable has no valid
 * value, or if a required one is missing.
 */
int pvn_launch_env_read(struct pvn_launch_env *le, char *why, size_t why_len);

/* First host of a Slurm node list such as "gpu[003-010,12]-ib,login"; 0 or -EINVAL. */
int pvn_launch_first_host(const char *nodelist, char *host, size_t len);

/* FNV-1a of a string, continuing from h; start with 0. */
uint64_t pvn_launch_hash(uint64_t h, const char *s);

#ifdef __cplusplus
}
#endif

#endif
