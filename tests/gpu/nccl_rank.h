/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* One rank of nccl_check: a process with a GPU context, a communicator and two buffers. */
#ifndef PVN_TESTS_NCCL_RANK_H
#define PVN_TESTS_NCCL_RANK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "gpu/nccl_api.h"

enum { NC_MAX_RANKS = 8, NC_MAX_SIZES = 32, NC_GUARD = 4096 };

enum nc_mode { NC_MODE_CHECK, NC_MODE_BENCH, NC_MODE_KILL };

struct nc_options {
    enum nc_mode mode;
    int ranks, dev, iters;
    int op_timeout_s, timeout_s;
    int stop_s;     /* the last rank is stopped for so long; 0: never */
    bool same_host; /* do not give every rank its own NCCL_HOSTID */
    size_t sizes[NC_MAX_SIZES];
    int nsizes;
    const char *colls; /* comma-separated names; NULL: all */
    const char *cuda_lib, *nccl_lib;
    const char *label; /* of bench lines */
};

/* The rank processes and their parent share this. */
struct nc_shared {
    nc_id id;
    atomic_int id_ready;
    atomic_int arrived, generation; /* barrier */
    atomic_int progress;            /* collectives that rank 0 has finished */
    atomic_int victim_dead;
    atomic_int passed, failed;
    double seconds[NC_MAX_RANKS], cpu[NC_MAX_RANKS];
    double dead_at;                  /* monotonic seconds when the victim was killed */
    double stopped_at, continued_at; /* of the rank that is stopped for a time; 0: not yet */
};

struct nc_rank {
    const struct nc_options *opt;
    struct nc_shared *shared;
    int rank;
    struct nc_cuda cu;
    struct nc_nccl nccl;
    nc_comm comm;
    nc_stream stream;
    pvn_cu_ptr send, recv; /* cap + NC_GUARD bytes each */
    unsigned char *host;   /* pinned, the same size */
    size_t cap;
};

/* Exit statuses of a rank */
enum { NC_OK = 0, NC_FAILED = 1, NC_USAGE = 2, NC_SKIP = 77 };
/* Opens a rank. Returns NC_OK, or the status to exit with after a message on stderr. */
int nc_rank_open(struct nc_rank *r);
void nc_rank_close(struct nc_rank *r);
/* Waits until all ranks are here. False if one has failed meanwhile. */
bool nc_barrier(struct nc_rank *r);
/* Waits for the stream, and checks the communicator's error meanwhile. Returns 0, or -1 with a
 * message if there was an error or the time was up (`what` names the operation). */
int nc_wait(struct nc_rank *r, const char *what);

/* The modes return NC_OK or NC_FAILED. */
int nc_check(struct nc_rank *r);
int nc_bench(struct nc_rank *r);
int nc_survive(struct nc_rank *r);

/* Fills n elements with mul * tab(start + i + seed) + add. The pattern is: value i of rank k is
 * tab(i + seed) + k, small whole numbers. So a sum over ranks is exact in both types, and is
 * ranks * tab(i + seed) + the sum of the ranks. */
void nc_fill(void *buf, int type, size_t n, size_t start, unsigned seed, int mul, int add);
/* Returns the index of the first element that differs from what nc_fill writes, or n. */
size_t nc_compare(const void *buf, int type, size_t n, size_t start, unsigned seed, int mul,
                  int add);
size_t nc_type_size(int type);

#endif
