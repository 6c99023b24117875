#include "config.h"
#include "core/fork.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MARK_BYTES = 4096 };

/* NULL until marked; page[0] is 1 in the marked process and 0 in its children. */
static _Atomic(_Atomic int *) page;
static atomic_int marker;
static atomic_uint epoch_now;
static atomic_int by_pid;

int pvn_fork_mark(void)
{
    _Atomic int *p = atomic_load(&page);

    if (!p) {
        void *m =
            mmap(NULL, MARK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (m == MAP_FAILED)
            return -errno;
        if (madvise(m, MARK_BYTES, MADV_WIPEONFORK) != 0)
            atomic_store(&by_pid, 1);
        p = m;
    }
    if (atomic_load(&marker) != (int)getpid())
        atomic_fetch_add(&epoch_now, 1);
    atomic_store(&marker, (int)getpid());
    atomic_store(p, 1);
    atomic_store(&page, p);
    return 0;
}

bool pvn_forked(void)
{
    _Atomic int *p = atomic_load_explicit(&page, memory_order_acquire);

    if (!p)
        return false;
    if (atomic_load_explicit(p, memory_order_relaxed) == 0)
        return true;
    return atomic_load_explicit(&by_pid, memory_order_relaxed) != 0 && (int)getpid() != marker;
}

unsigned pvn_fork_epoch(void)
{
    return atomic_load_explicit(&epoch_now, memory_order_relaxed);
}

bool pvn_fork_alien(unsigned epoch)
{
    return epoch != pvn_fork_epoch() || pvn_forked();
}

int pvn_fork_parent(void)
{
    return atomic_load(&marker);
}
