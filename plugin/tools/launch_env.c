/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/launch_env.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/boot.h"

/*
 * The port if MASTER_PORT is not set. It depends on the job, so that two jobs on one machine rarely
 * have the same.
 */
#define PORT_BASE  23000
#define PORT_RANGE 5000

uint64_t pvn_launch_hash(uint64_t h, const char *s)
{
    if (!h)
        h = 14695981039346656037ull;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211ull;
    return h;
}

/* Reads a number: 1 and *out, 0 if it is not set, -EINVAL with a sentence. */
static int env_int(const char *name, int min, int max, int *out, char *why, size_t why_len)
{
    const char *s = getenv(name);
    char *end;
    long v;

    if (!s || !*s)
        return 0;
    errno = 0;
    v = strtol(s, &end, 10);
    if (errno || *end || v < min || v > max) {
        snprintf(why, why_len, "%s=%s in the environment is not a number from %d to %d", name, s,
                 min, max);
        return -EINVAL;
    }
    *out = (int)v;
    return 1;
}

int pvn_launch_first_host(const char *nodelist, char *host, size_t len)
{
    const char *open = strpbrk(nodelist, "[,");
    const char *rest = "";
    int digits = 0, n;

    if (!open) {
        n = snprintf(host, len, "%s", nodelist);
    } else if (*open == ',') {
        n = snprintf(host, len, "%.*s", (int)(open - nodelist), nodelist);
    } else {
        while (isdigit((unsigned char)open[1 + digits]))
            digits++;
        rest = strchr(open, ']');
        if (!digits || !rest)
            return -EINVAL;
        rest++;
        n = snprintf(host, len, "%.*s%.*s%.*s", (int)(open - nodelist), nodelist, digits, open + 1,
                     (int)strcspn(rest, ","), rest);
    }
    return n > 0 && (size_t)n < len ? 0 : -EINVAL;
}

static const struct {
    const char *launcher, *rank, *nranks;
} known[] = {
    {"torchrun", "RANK", "WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    /* A batch script's environment also has SLURM_PROCID and SLURM_NTASKS, but not the step's
     * variables. */
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

static int read_ranks(struct pvn_launch_env *le, char *why, size_t why_len)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        int a = env_int(known[i].rank, 0, PVN_BOOT_MAX_RANKS - 1, &le->rank, why, why_len);
        int b = env_int(known[i].nranks, 1, PVN_BOOT_MAX_RANKS, &le->nranks, why, why_len);

        if (a < 0 || b < 0)
            return -EINVAL;
        if (!a || !b)
            continue;
        if (le->rank >= le->nranks) {
            snprintf(why, why_len, "%s=%d is not below %s=%d", known[i].rank, le->rank,
                     known[i].nranks, le->nranks);
            return -EINVAL;
        }
        le->launcher = known[i].launcher;
        return 0;
    }
    return 0;
}

static void read_job(struct pvn_launch_env *le)
{
    static const char *const ids[] = {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_JOBID",
                                      "SLURM_JOB_ID", "SLURM_STEP_ID"};

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        const char *s = getenv(ids[i]);

        if (s)
            le->job = pvn_launch_hash(le->job, s);
    }
}

/* True if srun's user has placed each rank on a host (-m arbitrary), in another order than the
 * list's. */
static int ranks_are_placed(void)
{
    const char *how = getenv("SLURM_DISTRIBUTION");

    return how && strncmp(how, "arbitrary", 9) == 0;
}

static int read_master(struct pvn_launch_env *le, char *why, size_t why_len)
{
    const char *addr = getenv("MASTER_ADDR"), *nodes = getenv("SLURM_STEP_NODELIST");
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int local_size = 0, rc;

    rc = env_int("MASTER_PORT", 1, 65535, &le->port, why, why_len);
    if (rc < 0)
        return rc;
    if (rc == 0)
        le->port = PORT_BASE + (int)(le->job % PORT_RANGE);
    else if (agent && strcmp(agent, "True") == 0)
        le->port = le->port < 65535 ? le->port + 1 : le->port - 1; /* torchrun's store uses it */
    if (addr && *addr) {
        snprintf(le->master, sizeof(le->master), "%s", addr);
        return 0;
    }
    if (env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1, PVN_BOOT_MAX_RANKS, &local_size, why, why_len) <
            0 ||
        (!local_size &&
         env_int("MPI_LOCALNRANKS", 1, PVN_BOOT_MAX_RANKS, &local_size, why, why_len) < 0))
        return -EINVAL;
    if (local_size == le->nranks)
        snprintf(le->master, sizeof(le->master), "127.0.0.1");
    else if (nodes && !ranks_are_placed() &&
             pvn_launch_first_host(nodes, le->master, sizeof(le->master)) == 0)
        le->guessed = 1;
    else
        le->master[0] = '\0';
    return 0;
}

int pvn_launch_env_read(struct pvn_launch_env *le, char *why, size_t why_len)
{
    int rc;

    memset(le, 0, sizeof(*le));
    rc = read_ranks(le, why, why_len);
    if (rc || !le->launcher)
        return rc;
    read_job(le);
    return read_master(le, why, why_len);
}
