/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/support/count_memory.h"

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SLOTS  (1u << 17) /* allocations at a time; a power of two */

/* The C library's own functions, which remain reachable by these names. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

static struct {
    uintptr_t from, to; /* the library's addresses; 0: none */
    pthread_mutex_t lock;
    size_t bytes;
    struct {
        void *p; /* NULL: never used; GONE: freed */
        size_t n;
    } slot[SLOTS];
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define GONE ((void *)1)

static size_t place_of(const void *p)
{
    return (size_t)(((uintptr_t)p >> 4) * 0x9e3779b97f4a7c15ull >> 32) % SLOTS;
}

/* Counts allocation p of n bytes if `caller`, the return address, is in the library. */
static void *count(void *p, size_t n, const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    size_t i = place_of(p);

    if (!p || at < memory.from || at >= memory.to)
        return p;
    pthread_mutex_lock(&memory.lock);
    for (size_t k = 0; k < SLOTS; k++, i = (i + 1) % SLOTS) {
        if (memory.slot[i].p && memory.slot[i].p != GONE)
            continue;
        memory.slot[i].p = p;
        memory.slot[i].n = n;
        memory.bytes += n;
        break;
    }
    pthread_mutex_unlock(&memory.lock);
    return p;
}

/* Any library may free the allocation. */
static void discount(void *p)
{
    size_t i = place_of(p);

    if (!p || !memory.to)
        return;
    pthread_mutex_lock(&memory.lock);
    for (size_t k = 0; k < SLOTS && memory.slot[i].p; k++, i = (i + 1) % SLOTS) {
        if (memory.slot[i].p != p)
            continue;
        memory.bytes -= memory.slot[i].n;
        memory.slot[i].p = GONE;
        break;
    }
    pthread_mutex_unlock(&memory.lock);
}

EXPORT void *malloc(size_t n)
{
    void *p = __libc_malloc(n);

    return count(p, malloc_usable_size(p), __builtin_return_address(0));
}

EXPORT void *calloc(size_t n, size_t size)
{
    void *p = __libc_calloc(n, size);

    return count(p, malloc_usable_size(p), __builtin_return_address(0));
}

EXPORT void *realloc(void *old, size_t n)
{
    void *p;

    discount(old);
    p = __libc_realloc(old, n);
    return count(p, malloc_usable_size(p), __builtin_return_address(0));
}

EXPORT void *aligned_alloc(size_t align, size_t n)
{
    void *p = __libc_memalign(align, n);

    return count(p, malloc_usable_size(p), __builtin_return_address(0));
}

EXPORT int posix_memalign(void **out, size_t align, size_t n)
{
    void *p = __libc_memalign(align, n);

    if (!p)
        return ENOMEM;
    *out = count(p, malloc_usable_size(p), __builtin_return_address(0));
    return 0;
}

EXPORT void free(void *p)
{
    discount(p);
    __libc_free(p);
}

EXPORT void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);

    return p == MAP_FAILED ? p : count(p, n, __builtin_return_address(0));
}

EXPORT int munmap(void *p, size_t n)
{
    discount(p);
    return (int)syscall(SYS_munmap, p, n);
}

struct search {
    const char *ends_with;
    int found;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    size_t len = strlen(info->dlpi_name), end = strlen(s->ends_with);

    (void)size;
    if (len < end || strcmp(info->dlpi_name + len - end, s->ends_with) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + h->p_vaddr;

        if (h->p_type == PT_LOAD && h->p_flags & PF_X) {
            memory.from = from;
            memory.to = from + h->p_memsz;
            s->found = 1;
        }
    }
    return s->found;
}

int count_memory_of(const char *ends_with)
{
    struct search s = {ends_with, 0};

    dl_iterate_phdr(look, &s);
    return s.found ? 0 : -1;
}

size_t counted_memory(void)
{
    size_t n;

    pthread_mutex_lock(&memory.lock);
    n = memory.bytes;
    pthread_mutex_unlock(&memory.lock);
    return n;
}
