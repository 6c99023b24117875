/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The double's state, which its entry points (fakecuda.c) and its control table (fakecuda_ctl.c)
 * share. Names begin with fake_, which is unique in the process, although none of them is
 * exported. */
#ifndef PVN_TESTS_FAKECUDA_PRIV_H
#define PVN_TESTS_FAKECUDA_PRIV_H

#include "support/fakecuda.h"
#include "memory/cuda_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#define EXPORT      __attribute__((visibility("default")))
#define ARENA_LEN   ((size_t)256 << 20) /* sparse: only touched pages cost memory */
#define MAX_DEVS    8
#define MAX_BLOCKS  512
#define MAX_CTX     32
#define MAX_STACK   16
#define MAX_DMABUF  128
#define MAX_CALLS   48
#define GPU_PAGE    ((size_t)64 << 10)
#define VMM_GRANULE ((size_t)2 << 20)

enum block_kind {
    BLOCK_FREE,
    BLOCK_DEVICE,
    BLOCK_HOST,
    BLOCK_MANAGED,
    BLOCK_RESERVED,
    BLOCK_SEGMENT
};

struct block {
    enum block_kind kind;
    uint64_t base;
    size_t len;
    int dev;
    int gdr_capable;
    uint64_t id;
};

struct ctx {
    int dev;
    bool alive;
};

struct call {
    const char *name;
    int count, fail_in, code, fired;
    bool every;
};

struct dmabuf {
    int fd;
    ino_t inode;
    uint64_t len;
};

struct fake_state {
    bool initialised;
    bool is_app; /* FAKECUDA_APP: the caller is an application and may create contexts */
    pid_t owner;
    int driver;
    int ndevs;
    struct fakecuda_device devs[MAX_DEVS];
    struct ctx primary[MAX_DEVS];
    int refs[MAX_DEVS];
    struct ctx user[MAX_CTX];
    int nuser;
    struct block blocks[MAX_BLOCKS];
    uint64_t next_id;
    bool single_segment;
    struct dmabuf dmabufs[MAX_DMABUF];
    struct call calls[MAX_CALLS];
    int ncalls;
};

extern pthread_mutex_t fake_lock;
extern struct fake_state fake;
extern int fake_arena_fd; /* all memory is one sparse file, mapped once */
extern char *fake_arena;
extern char *fake_own; /* the same memory, mapped for the double's own copies */
extern _Thread_local struct ctx *fake_stack[MAX_STACK];
extern _Thread_local int fake_depth;

void fake_fatal(const char *what);
struct call *fake_find_call(const char *name);
void fake_name_calls(void);
/* Begins an entry point: locks, counts the call, and checks for an injected failure and the
 * driver's state. If it returns non-zero, it has unlocked, and the entry point returns that
 * code. */
int fake_begin(const char *name, bool needs_init);
/* Unlocks and returns rc. */
int fake_end(int rc);
struct ctx *fake_top(void);
/* Returns the innermost block at addr: a mapped segment rather than the range that contains it. */
struct block *fake_find_block(uint64_t addr);
struct block *fake_add_block(enum block_kind kind, uint64_t base, size_t len, int dev);
struct block *fake_place(enum block_kind kind, int dev, size_t len, size_t align);
void fake_drop_block(struct block *b);
/* Returns device memory at an address that the double can use, even while it is hidden from the
 * processor. */
void *fake_memory(uint64_t addr);

EXPORT pvn_cu_result cuInit(unsigned flags);
#define PROTO(name, member, optional, params) EXPORT pvn_cu_result name params;
PVN_CU_ENTRIES(PROTO)
#undef PROTO

#endif
