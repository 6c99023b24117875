/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/fork.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MARK_BYTES = 4096,
    EPOCH_BASE = 0x50560000 /* the first epoch is one more, see pvn_fork_epoch */
};

/* The epoch of this process before the first mark. */
static const unsigned unmarked = 0;
/* Points to the first word of the page after the first mark. If the kernel does not zero the page in children, this
 * word stays 0 and the process ids are compared. */
const unsigned *pvn_fork_certain = &unmarked;

/* NULL until the first mark. page[0] is the epoch in the marked process and 0 in its children. */
static _Atomic(unsigned *) page;
static atomic_int marker;
static atomic_uint epoch_now;
static atomic_int by_pid; /* the page is not zeroed in children: compare process ids */

/* True if the kernel zeroes the page in children. An emulator of another processor (QEMU 7.2's user mode) returns 0 for
 * any advice and follows none, so an invalid advice is tried first: a real kernel refuses it. */
static bool is_emptied_in_children(void *m)
{
    return madvise(m, MARK_BYTES, -1) != 0 && madvise(m, MARK_BYTES, MADV_WIPEONFORK) == 0;
}

int pvn_fork_mark(void)
{
    unsigned *p = atomic_load(&page);

    if (!p) {
        void *m =
            mmap(NULL, MARK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (m == MAP_FAILED)
            return -errno;
        if (!is_emptied_in_children(m))
            atomic_store(&by_pid, 1);
        p = m;
    }
    /* A child may have its parent's number, in a namespace of its own or after its parent has ended. Where process ids are
     * compared, it is taken for its parent. */
    if (atomic_load(&marker) != (int)getpid() || pvn_forked())
        atomic_fetch_add(&epoch_now, atomic_load(&epoch_now) ? 1 : EPOCH_BASE + 1);
    atomic_store(&marker, (int)getpid());
    if (!atomic_load(&by_pid))
        __atomic_store_n(p, atomic_load(&epoch_now), __ATOMIC_RELAXED);
    atomic_store(&page, p);
    __atomic_store_n(&pvn_fork_certain, p, __ATOMIC_RELEASE);
    return 0;
}

bool pvn_forked(void)
{
    unsigned *p = atomic_load_explicit(&page, memory_order_acquire);

    if (!p)
        return false;
    if (atomic_load_explicit(&by_pid, memory_order_relaxed) != 0)
        return (int)getpid() != marker;
    return __atomic_load_n(p, __ATOMIC_RELAXED) == 0;
}

unsigned pvn_fork_epoch(void)
{
    return atomic_load_explicit(&epoch_now, memory_order_relaxed);
}

bool pvn_fork_in_child_slow(unsigned epoch)
{
    return epoch != pvn_fork_epoch() || pvn_forked();
}

int pvn_fork_parent(void)
{
    return atomic_load(&marker);
}
