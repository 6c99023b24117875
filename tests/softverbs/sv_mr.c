/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Memory regions: registration with the checks of kernel and device, and lookup by key. */
#include "sv_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SV_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SV_TSAN 1
#endif

/* ThreadSanitizer does not see order that another process establishes: this process sent it a
 * word by a socket, and therefore it reads here. So accesses for packets of other processes are
 * hidden from it. */
#ifdef SV_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

/* ThreadSanitizer pairs a release with an acquire of the very same address only. A reader may
 * poll the upper half of a word and then read the lower one. So the upper half is stored last and
 * by itself. */
static void put_word(char *dst, uint64_t w)
{
    uint64_t lower = w;
    memcpy((char *)&lower + 4, dst + 4, 4);
    __atomic_store_n((uint64_t *)(void *)dst, lower, __ATOMIC_RELEASE);
    __atomic_store_n((uint32_t *)(void *)(dst + 4), (uint32_t)(w >> 32), __ATOMIC_RELEASE);
}

static void unseen(bool begin)
{
    if (!sv.remote)
        return;
    if (begin) {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    } else {
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    }
}
#else
static void put_word(char *dst, uint64_t w)
{
    __atomic_store_n((uint64_t *)(void *)dst, w, __ATOMIC_RELEASE);
}

static void unseen(bool begin)
{
}
#endif

enum {
    LINE = 64,
    RKEY_BIT = 1u << 31, /* remote keys are never equal to local ones, so mixing them up shows */
    KEY_GEN_BITS = 8,
    /* Writes up to this size are placed word by word, by release stores. So a program may poll
     * any aligned word while the write lands, for example in a ring of entries, and
     * ThreadSanitizer sees the order. Of longer writes only the first and the last line are
     * placed so. */
    WORDWISE = 32768,
    /* ThreadSanitizer makes and updates a clock for each release store, which took a quarter of
     * test_rdma_lane's time. So of longer writes only the last word of each line is one there,
     * which is what rings poll. */
    LINEWISE = 4096,
    BY_WORDS = 2, /* values of `descend` */
    EVERY_PIECE = 3,
    SEEN_AFTER = 3000, /* turns of a loop, a microsecond or two */
    SLEEPS_EVERY = 64  /* lines */
};

/* Stores aligned words by release stores. A thread that sees a word sees everything placed before
 * it. */
static void put_words(char *dst, const char *src, size_t len)
{
    while (len) {
        uintptr_t at = (uintptr_t)dst;
        size_t n = len >= 8 && !(at & 7) ? 8 : len >= 4 && !(at & 3) ? 4 : 1;
        uint64_t w8;
        uint32_t w4;
        if (n == 8) {
            memcpy(&w8, src, 8);
            put_word(dst, w8);
        } else if (n == 4) {
            memcpy(&w4, src, 4);
            __atomic_store_n((uint32_t *)(void *)dst, w4, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n(dst, *src, __ATOMIC_RELEASE);
        }
        dst += n;
        src += n;
        len -= n;
    }
}

#ifdef SV_TSAN
static void put_lines(char *dst, const char *src, size_t len)
{
    while (len) {
        size_t n = LINE - (uintptr_t)dst % LINE;
        if (n > len)
            n = len;
        if (n < LINE) {
            put_words(dst, src, n);
        } else {
            uint64_t w[LINE / 8];
            memcpy(w, src, LINE);
            for (int i = 0; i < LINE / 8 - 1; i++)
                __atomic_store_n((uint64_t *)(void *)dst + i, w[i], __ATOMIC_RELAXED);
            put_word(dst + LINE - 8, w[LINE / 8 - 1]);
        }
        dst += n;
        src += n;
        len -= n;
    }
}
#else
static void put_lines(char *dst, const char *src, size_t len)
{
    put_words(dst, src, len);
}
#endif

/* Gives a reader time to see a line's last word without the rest. On a busy machine the reader
 * may have no processor at that moment, so now and then this sleeps. */
static void let_be_seen(void)
{
    static __thread unsigned lines;

    for (int i = 0; i < (int)SEEN_AFTER; i++)
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (++lines % SLEEPS_EVERY == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Stores as a processor's copy of more than a cache line may: the last word first. After the last
 * word of each line a reader has time to see it without the rest. */
static void put_backwards(char *dst, const char *src, size_t len)
{
    while (len) {
        size_t n = ((uintptr_t)dst + len) % 8;
        if (!n)
            n = 8;
        if (n > len)
            n = len;
        bool last_of_line = ((uintptr_t)dst + len) % LINE == 0;
        len -= n;
        uint64_t w;
        if (last_of_line || n < sizeof w) { /* of other words nobody polls a half */
            put_words(dst + len, src + len, n);
        } else {
            memcpy(&w, src + len, sizeof w);
            __atomic_store_n((uint64_t *)(void *)(dst + len), w, __ATOMIC_RELEASE);
        }
        if (last_of_line)
            let_be_seen();
    }
}

static void put_bytes(void *to, const void *from, size_t len)
{
    char *dst = to;
    const char *src = from;
    if (len > WORDWISE) {
        put_words(dst, src, LINE);
        memcpy(dst + LINE, src + LINE, len - 2 * LINE);
        put_words(dst + len - LINE, src + len - LINE, LINE); /* behind the rest */
        return;
    }
    if (!sv.p.descend || (sv.p.descend == BY_WORDS && len <= LINE)) {
        if (len > LINEWISE)
            put_lines(dst, src, len);
        else
            put_words(dst, src, len);
        return;
    }
    if (sv.p.descend == BY_WORDS || sv.p.descend == EVERY_PIECE) {
        put_backwards(dst, src, len);
        return;
    }
    while (len) { /* cache lines from the last to the first */
        size_t n = ((uintptr_t)dst + len) % LINE;
        if (!n)
            n = LINE;
        if (n > len)
            n = len;
        len -= n;
        put_words(dst + len, src + len, n);
    }
}

static void get_bytes(void *to, const void *from, size_t len)
{
#ifdef SV_TSAN
    if (len <= WORDWISE) { /* a READ may meet memory that its owner is changing */
        char *dst = to;
        const char *src = from;
        for (; len && ((uintptr_t)src & 7); len--)
            *dst++ = __atomic_load_n(src++, __ATOMIC_RELAXED);
        for (; len >= 8; len -= 8, dst += 8, src += 8) {
            uint64_t w = __atomic_load_n((const uint64_t *)(const void *)src, __ATOMIC_RELAXED);
            memcpy(dst, &w, 8);
        }
        for (; len; len--)
            *dst++ = __atomic_load_n(src++, __ATOMIC_RELAXED);
        return;
    }
#endif
    memcpy(to, from, len);
}

static void put_host(void *dst, const void *src, size_t len)
{
    if (sv_cuda_put(dst, src, len))
        return;
    unseen(true);
    put_bytes(dst, src, len);
    unseen(false);
}

static void get_host(void *dst, const void *src, size_t len)
{
    if (sv_cuda_get(dst, src, len))
        return;
    unseen(true);
    get_bytes(dst, src, len);
    unseen(false);
}

/* Checks by the list of mappings that every page is there, and readable or writable as requested. */
static int mapped(uintptr_t from, uintptr_t to, int write)
{
    FILE *f = fopen("/proc/self/maps", "re");
    unsigned long lo, hi;
    char perm[5], line[512];
    if (!f)
        return errno;
    while (from < to && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %4s", &lo, &hi, perm) == 3 && lo <= from && from < hi &&
            perm[write ? 1 : 0] != '-')
            from = hi;
    }
    fclose(f);
    return from < to ? EFAULT : 0;
}

/* Returns what the kernel's pinning would: it faults the pages in, with the right to write if
 * requested. */
static int pin_host(void *addr, size_t len, int write)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)addr & ~(page - 1);
    uintptr_t to = ((uintptr_t)addr + len + page - 1) & ~(page - 1);
    if (to <= from)
        return EINVAL;
    if (!madvise((void *)from, to - from, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ))
        return 0;
    if (errno != EINVAL)
        return errno == ENOMEM ? EFAULT : errno;
    return mapped(from, to, write); /* kernels before 5.14, and sandboxes */
}

SV_EXPORT struct sv_hooks sv_hooks = {.put = put_host, .get = get_host, .pin = pin_host};

/* ---- registration ---- */

static int mr_slot(uint32_t *index)
{
    if (sv.mr_count + 1 >= sv.mr_cap) {
        uint32_t cap = sv.mr_cap ? sv.mr_cap * 2 : 256;
        struct sv_mr **t = realloc(sv.mr, cap * sizeof *t);
        if (!t)
            return ENOMEM;
        memset(t + sv.mr_cap, 0, (cap - sv.mr_cap) * sizeof *t);
        sv.mr = t;
        sv.mr_cap = cap;
    }
    do /* round robin: a stale key meets nothing for as long as possible; 0 is no key */
        sv.mr_next = (sv.mr_next + 1) % sv.mr_cap;
    while (!sv.mr_next || sv.mr[sv.mr_next]);
    *index = sv.mr_next;
    return 0;
}

static uint64_t pages(const void *addr, size_t len)
{
    return (((uintptr_t)addr & 4095) + len + 4095) / 4096;
}

static int check_access(unsigned int access)
{
    const unsigned int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (access & IBV_ACCESS_ON_DEMAND)
        return EOPNOTSUPP;
    /* A device may ignore optional bits, by their definition. */
    return access & ~(known | IBV_ACCESS_OPTIONAL_RANGE) ? EINVAL : 0;
}

/* Finds the bytes behind a registration. Returns 0 with *mem (and *device if it is on a GPU), or
 * an errno. */
static int find_memory(void *addr, size_t len, uint64_t iova, bool write, int dmabuf_fd,
                       uint64_t offset, char **mem, bool *device)
{
    *mem = dmabuf_fd >= 0 ? (char *)(uintptr_t)iova : addr;
    *device = sv.p.cuda && sv_cuda_is_device(*mem, len);
    if (*device) {
        int err = dmabuf_fd >= 0 ? sv_cuda_check_dmabuf(dmabuf_fd, offset, len) : 0;
        if (dmabuf_fd < 0 && !sv.p.peer_memory)
            err = EFAULT;
        return err ? err : sv_cuda_add(*mem, len);
    }
    if (dmabuf_fd < 0)
        return sv_hooks.pin(addr, len, write);
    /* A double of an exporter gives the buffer's start in its file by the file position. */
    off_t start = lseek(dmabuf_fd, 0, SEEK_CUR);
    void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf_fd,
                     (start > 0 ? start : 0) + (off_t)offset);
    *mem = map == MAP_FAILED ? NULL : map;
    return map == MAP_FAILED ? (errno == EBADF ? EBADF : EINVAL) : 0;
}

static void forget_memory(char *mem, size_t len, bool device, bool mapped)
{
    if (device)
        sv_cuda_remove(mem, len);
    else if (mapped)
        munmap(mem, len);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                          unsigned int access, const char *call, int dmabuf_fd, uint64_t offset)
{
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(pd->context);
    struct sv_mr *mr = NULL;
    char *mem = NULL;
    bool device = false, found = false;
    uint32_t index = 0;
    int err = sv_ctx_check(c);
    if (!err && ((struct sv_pd *)pd)->taken)
        err = EINVAL;
    if (!err)
        err = sv_fault_call(call, c->dev, NULL);
    if (!err && dmabuf_fd >= 0 && !sv.p.dmabuf)
        err = EOPNOTSUPP;
    if (!err && (access & IBV_ACCESS_RELAXED_ORDERING) &&
        (sv.p.relaxed_ordering == SV_RELAXED_REFUSED ||
         (sv.p.relaxed_ordering == SV_RELAXED_NO_DMABUF && dmabuf_fd >= 0)))
        err = EINVAL;
    if (!err)
        err = check_access(access);
    if (!err && (!len || len > (uint64_t)sv.p.max_mr_size))
        err = EINVAL;
    if (!err && sv.mr_count >= (uint64_t)sv.p.max_mr)
        err = ENOMEM;
    if (!err && sv.p.memlock_kb && (sv.pinned + pages(addr, len)) * 4 > (uint64_t)sv.p.memlock_kb)
        err = ENOMEM; /* RLIMIT_MEMLOCK: ib_umem_get */
    if (!err) {
        err = find_memory(addr, len, iova, (access & IBV_ACCESS_LOCAL_WRITE) != 0, dmabuf_fd,
                          offset, &mem, &device);
        found = !err;
    }
    if (!err)
        err = mr_slot(&index);
    if (!err && !(mr = calloc(1, sizeof *mr)))
        err = ENOMEM;
    if (mr) {
        uint32_t key = index << KEY_GEN_BITS | (sv_rand() & 0xff);
        mr->ibv = (struct ibv_mr){.context = pd->context,
                                  .pd = pd,
                                  .addr = addr,
                                  .length = len,
                                  .handle = index,
                                  .lkey = key,
                                  .rkey = key | RKEY_BIT};
        mr->access = (int)access;
        mr->iova = sv.p.ignore_iova && dmabuf_fd < 0 ? (uintptr_t)addr : iova;
        mr->mem = mem;
        mr->mapped = dmabuf_fd >= 0 && !device;
        mr->device = device;
        mr->born = ++sv.born;
        sv.mr[index] = mr;
        sv.mr_count++;
        sv.pinned += pages(addr, len);
        ((struct sv_pd *)pd)->refs++;
        c->refs++;
    } else if (found) {
        forget_memory(mem, len, device, dmabuf_fd >= 0);
    }
    sv_unlock();
    if (!mr)
        errno = err;
    return mr ? &mr->ibv : NULL;
}

SV_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return reg(pd, addr, length, (uintptr_t)addr, (unsigned int)access, "reg_mr", -1, 0);
}

SV_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
                                         uint64_t iova, int access)
{
    return reg(pd, addr, length, iova, (unsigned int)access, "reg_mr", -1, 0);
}

SV_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
                                          uint64_t iova, unsigned int access)
{
    return reg(pd, addr, length, iova, access, "reg_mr", -1, 0);
}

SV_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                           uint64_t iova, int fd, int access)
{
    return reg(pd, NULL, length, iova, (unsigned int)access, "reg_dmabuf_mr", fd < 0 ? 1 << 30 : fd,
               offset);
}

SV_EXPORT int ibv_dereg_mr(struct ibv_mr *ibmr)
{
    struct sv_mr *mr = (struct sv_mr *)ibmr;
    sv_lock();
    struct sv_ctx *c = sv_ctx_of(ibmr->context);
    int rc = mr->taken ? ENOENT : sv_fault_call("dereg_mr", c->dev, NULL);
    if (!rc) {
        sv_take(c, SV_TAKE_MR, mr);
        sv_relaxed_mr_ends(mr);
        forget_memory(mr->mem, ibmr->length, mr->device, mr->mapped);
        if (ibmr->handle < sv.mr_cap && sv.mr[ibmr->handle] == mr) { /* else: a parent's */
            sv.mr[ibmr->handle] = NULL;
            sv.mr_count--;
            sv.pinned -= pages(mr->mapped ? NULL : ibmr->addr, ibmr->length);
        }
        if (!sv.mr_count) {
            free(sv.mr);
            sv.mr = NULL;
            sv.mr_cap = 0;
        }
        ((struct sv_pd *)ibmr->pd)->refs--;
        c->refs--;
        free(mr);
    }
    sv_unlock();
    return rc;
}

/* ---- lookup ---- */

static struct sv_mr *find(uint32_t key, bool remote)
{
    if (remote != !!(key & RKEY_BIT))
        return NULL;
    uint32_t index = (key & ~RKEY_BIT) >> KEY_GEN_BITS;
    struct sv_mr *mr = index < sv.mr_cap ? sv.mr[index] : NULL;
    return mr && !mr->taken && !mr->lost && mr->ibv.lkey == (key & ~RKEY_BIT) ? mr : NULL;
}

const struct sv_mr *sv_mr_by_rkey(uint32_t rkey)
{
    return find(rkey, true);
}

static char *inside(struct sv_mr *mr, uint64_t addr, uint64_t len)
{
    if (addr < mr->iova || addr - mr->iova > mr->ibv.length ||
        len > mr->ibv.length - (addr - mr->iova))
        return NULL;
    return mr->mem + (addr - mr->iova);
}

char *sv_mr_local(struct sv_qp *qp, const struct ibv_sge *sge, bool write)
{
    struct sv_mr *mr = find(sge->lkey, false);
    if (!mr || mr->ibv.pd != qp->ibv.pd || (write && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
        return NULL;
    return inside(mr, sge->addr, sge->length);
}

/* Both the region and the QP must allow the access (IBTA 10.6.3 and 10.2.5). */
char *sv_mr_remote(struct sv_qp *qp, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
    struct sv_mr *mr = find(rkey, true);
    if (!mr || mr->ibv.pd != qp->ibv.pd || !(mr->access & access) ||
        !((int)qp->attr.qp_access_flags & access))
        return NULL;
    return inside(mr, addr, len);
}
