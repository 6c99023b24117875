/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A double of libnccl.so.2 for nccl_check. The ranks are processes of one machine that exchange
 * data through a shared memory file. Every call is complete when it returns. Sums are formed as
 * by NCCL, in the element's type.
 *
 * It finds and loads a network plugin as NCCL does (NCCL_NET_PLUGIN, LD_LIBRARY_PATH), tries it
 * on a connection to itself (fakenccl_net.c), and logs the result in NCCL_DEBUG_FILE. It uses
 * the plugin for nothing else.
 *
 * If NCCL_TOPO_DUMP_FILE is set, it copies the file that FAKENCCL_TOPO names to that path.
 *
 * The memory file is in FAKENCCL_DIR (/dev/shm). FAKENCCL_FAULT makes rank 1 misbehave, so that
 * a test can see that nccl_check notices:
 *   flip:N     one bit of the N-th collective's result is wrong
 *   stale:N    the N-th collective leaves its result unchanged
 *   overrun:N  the N-th collective writes one byte past its result */
#include "config.h"
#include "gpu/nccl_api.h"
#include "support/fakenccl.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { RANKS = 8, SLOT = 1 << 20, CALLS = 64 };

struct world {
    atomic_int arrived, generation;
    atomic_int pids[RANKS];
    unsigned char slot[RANKS][SLOT];
};

struct comm {
    struct world *w;
    char name[sizeof(nc_id) + 1];
    int rank, ranks, collectives;
    nc_result failed;
};

struct pending {
    bool is_send;
    void *buf;
    size_t bytes;
    int peer;
};

static struct pending queue[CALLS];
static int queued, grouped;
static struct comm *queue_comm;

#define DECLARE(name, member, params) EXPORT nc_result name params;
NC_NCCL_ENTRIES(DECLARE)
#undef DECLARE
EXPORT const char *ncclGetErrorString(nc_result r);

static size_t type_size(int type)
{
    return type == NC_FLOAT32 ? 4 : 2;
}

/* Waits for all ranks. False if a rank has died meanwhile. */
static bool barrier(struct comm *c)
{
    struct world *w = c->w;
    int generation = atomic_load(&w->generation);
    if (atomic_fetch_add(&w->arrived, 1) + 1 == c->ranks) {
        atomic_store(&w->arrived, 0);
        atomic_fetch_add(&w->generation, 1);
        return true;
    }
    for (unsigned n = 0; atomic_load(&w->generation) == generation; n++) {
        usleep(20);
        for (int i = 0; n % 64 == 63 && i < c->ranks; i++)
            if (kill(atomic_load(&w->pids[i]), 0))
                return false;
    }
    return true;
}

/* Each rank shows `bytes` bytes of its buffer `mine`. Then take() runs on each rank and reads
 * all slots. A buffer larger than a slot goes in pieces. */
typedef void (*take_fn)(struct comm *c, void *arg, size_t offset, size_t bytes);

static nc_result exchange(struct comm *c, const void *mine, size_t bytes, take_fn take, void *arg)
{
    for (size_t at = 0; at < bytes; at += SLOT) {
        size_t part = bytes - at < SLOT ? bytes - at : SLOT;
        memcpy(c->w->slot[c->rank], (const char *)mine + at, part);
        if (!barrier(c))
            return c->failed = NC_REMOTE_ERROR;
        take(c, arg, at, part);
        if (!barrier(c))
            return c->failed = NC_REMOTE_ERROR;
    }
    return NC_SUCCESS;
}

/* A part of the shown data and its destination: bytes [begin, end) of rank `from`, or the sum
 * over all ranks if `sum` is set, go to `to`. */
struct want {
    char *to;
    size_t begin, end;
    int from, type;
    bool sum;
};

static float as_float(const unsigned char *p, int type)
{
    uint32_t bits = 0;
    if (type == NC_FLOAT32)
        memcpy(&bits, p, 4);
    else
        memcpy((char *)&bits + 2, p, 2);
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static void take_want(struct comm *c, void *arg, size_t offset, size_t bytes)
{
    const struct want *w = arg;
    size_t begin = w->begin > offset ? w->begin : offset;
    size_t end = w->end < offset + bytes ? w->end : offset + bytes;
    if (begin >= end)
        return;
    if (!w->sum) {
        memcpy(w->to + (begin - w->begin), c->w->slot[w->from] + (begin - offset), end - begin);
        return;
    }
    size_t size = type_size(w->type);
    for (size_t i = begin; i < end; i += size) {
        float total = 0;
        for (int r = 0; r < c->ranks; r++)
            total += as_float(c->w->slot[r] + (i - offset), w->type);
        memcpy(w->to + (i - w->begin), (char *)&total + (4 - size), size);
    }
}

/* Each rank shows a copy of its data, because an operation in place may overwrite data that it
 * has not shown yet. */
static nc_result collective(struct comm *c, const void *send, size_t bytes, struct want *parts,
                            int n)
{
    char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, send, bytes);
    char kind[16] = "";
    int nth = 0;
    const char *fault = getenv("FAKENCCL_FAULT");
    bool hit = fault && sscanf(fault, "%15[a-z]:%d", kind, &nth) == 2 && c->rank == 1 &&
               ++c->collectives == nth;
    nc_result nr = NC_SUCCESS;
    for (int i = 0; i < n && !nr; i++) {
        char *to = parts[i].to;
        size_t len = parts[i].end - parts[i].begin;
        char *dump = hit && !strcmp(kind, "stale") ? malloc(len) : NULL;
        if (dump)
            parts[i].to = dump;
        nr = exchange(c, copy, bytes, take_want, &parts[i]);
        free(dump);
        if (hit && len && !strcmp(kind, "flip"))
            to[len / 2] ^= 1;
        if (hit && len && !strcmp(kind, "overrun"))
            to[len] ^= 1;
    }
    free(copy);
    return nr;
}

/* Writes NCCL's lines about the network to the file that NCCL_DEBUG_FILE names. Of its patterns,
 * only %p is supported. */
static bool try_network(void)
{
    const char *name = getenv("NCCL_NET_PLUGIN"), *file = getenv("NCCL_DEBUG_FILE");
    char path[512];
    if (!file)
        return true;
    const char *mark = strstr(file, "%p");
    snprintf(path, sizeof(path), "%.*s%d", mark ? (int)(mark - file) : (int)strlen(file), file,
             (int)getpid());
    FILE *log = fopen(path, "a");
    if (!log)
        return false;
    bool ok = fakenccl_try_network(log, name ? name : "none");
    fclose(log);
    return ok;
}

static bool dump_topology(void)
{
    const char *from = getenv("FAKENCCL_TOPO"), *to = getenv("NCCL_TOPO_DUMP_FILE");
    if (!from || !to)
        return true;
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    for (int c; in && out && (c = fgetc(in)) != EOF;)
        fputc(c, out);
    bool ok = in && out;
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    return ok;
}

/* Some tools read the version from the library's file, as with the real library. */
static const char version_text[] __attribute__((used)) = "NCCL version 2.28.9+double";

nc_result ncclGetVersion(int *version)
{
    *version = 22809;
    return NC_SUCCESS;
}

nc_result ncclGetUniqueId(nc_id *id)
{
    memset(id, 0, sizeof(*id));
    const char *dir = getenv("FAKENCCL_DIR");
    int n = snprintf(id->bytes, sizeof(id->bytes), "%s/pvn-fakenccl-%d", dir ? dir : "/dev/shm",
                     (int)getpid());
    if (n >= (int)sizeof(id->bytes))
        return NC_SYSTEM_ERROR;
    int fd = open(id->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct world)))
        return NC_SYSTEM_ERROR;
    close(fd);
    return NC_SUCCESS;
}

nc_result ncclCommInitRank(nc_comm *out, int ranks, nc_id id, int rank)
{
    struct comm *c = calloc(1, sizeof(*c));
    c->rank = rank;
    c->ranks = ranks;
    memcpy(c->name, id.bytes, sizeof(c->name) - 1);
    int fd = open(c->name, O_RDWR);
    c->w =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*c->w), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (c->w == MAP_FAILED) {
        free(c);
        return NC_SYSTEM_ERROR;
    }
    if (!try_network() || (rank == 0 && !dump_topology()))
        return NC_SYSTEM_ERROR;
    atomic_store(&c->w->pids[rank], (int)getpid());
    if (!barrier(c))
        return NC_REMOTE_ERROR;
    unlink(c->name); /* every rank has it mapped, so the first one removes the name */
    *out = c;
    return NC_SUCCESS;
}

nc_result ncclCommDestroy(nc_comm comm)
{
    struct comm *c = comm;
    munmap(c->w, sizeof(*c->w));
    free(c);
    return NC_SUCCESS;
}

nc_result ncclCommAbort(nc_comm comm)
{
    return ncclCommDestroy(comm);
}

nc_result ncclCommGetAsyncError(nc_comm comm, nc_result *out)
{
    *out = ((struct comm *)comm)->failed;
    return NC_SUCCESS;
}

nc_result ncclAllReduce(const void *send, void *recv, size_t n, int type, int op, nc_comm comm,
                        nc_stream stream)
{
    struct want w = {recv, 0, n * type_size(type), 0, type, true};
    return collective(comm, send, w.end, &w, 1);
}

nc_result ncclBroadcast(const void *send, void *recv, size_t n, int type, int root, nc_comm comm,
                        nc_stream stream)
{
    struct want w = {recv, 0, n * type_size(type), root, type, false};
    return collective(comm, send, w.end, &w, 1);
}

nc_result ncclReduceScatter(const void *send, void *recv, size_t n, int type, int op, nc_comm comm,
                            nc_stream stream)
{
    const struct comm *c = comm;
    size_t share = n * type_size(type), begin = share * (size_t)c->rank;
    struct want w = {recv, begin, begin + share, 0, type, true};
    return collective(comm, send, share * (size_t)c->ranks, &w, 1);
}

nc_result ncclAllGather(const void *send, void *recv, size_t n, int type, nc_comm comm,
                        nc_stream stream)
{
    const struct comm *c = comm;
    size_t share = n * type_size(type);
    struct want w[RANKS];
    for (int r = 0; r < c->ranks; r++)
        w[r] = (struct want){(char *)recv + share * (size_t)r, 0, share, r, type, false};
    return collective(comm, send, share, w, c->ranks);
}

static nc_result enqueue(bool is_send, void *buf, size_t bytes, int peer, struct comm *c)
{
    if (!grouped || queued == CALLS)
        return NC_SYSTEM_ERROR;
    queue[queued++] = (struct pending){is_send, buf, bytes, peer};
    queue_comm = c;
    return NC_SUCCESS;
}

nc_result ncclSend(const void *buf, size_t n, int type, int peer, nc_comm comm, nc_stream stream)
{
    return enqueue(true, (void *)(uintptr_t)buf, n * type_size(type), peer, comm);
}

nc_result ncclRecv(void *buf, size_t n, int type, int peer, nc_comm comm, nc_stream stream)
{
    return enqueue(false, buf, n * type_size(type), peer, comm);
}

nc_result ncclGroupStart(void)
{
    grouped++;
    return NC_SUCCESS;
}

/* Runs one round for each destination, in which every rank shows the data that it sends there.
 * All ranks call with the same sizes, as nccl_check does. */
nc_result ncclGroupEnd(void)
{
    struct comm *c = queue_comm;
    nc_result nr = NC_SUCCESS;
    int n = queued;
    queued = 0;
    if (--grouped || !c || !n)
        return NC_SUCCESS;
    size_t bytes = queue[0].bytes;
    for (int dest = 0; dest < c->ranks && !nr; dest++) {
        const void *mine = queue[0].buf;
        for (int i = 0; i < n; i++)
            if (queue[i].is_send && queue[i].peer == dest)
                mine = queue[i].buf;
        struct want w[RANKS];
        int parts = 0;
        for (int i = 0; i < n && dest == c->rank; i++)
            if (!queue[i].is_send)
                w[parts++] =
                    (struct want){queue[i].buf, 0, bytes, queue[i].peer, NC_FLOAT32, false};
        /* Every rank needs the same number of rounds: the longest list has one entry per rank. */
        while (parts < c->ranks)
            w[parts++] = (struct want){NULL, 0, 0, 0, NC_FLOAT32, false};
        nr = collective(c, mine, bytes, w, parts);
    }
    return nr;
}

const char *ncclGetErrorString(nc_result r)
{
    return r == NC_REMOTE_ERROR ? "remote process exited" : r ? "system error" : "no error";
}
