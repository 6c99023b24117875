/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "support/fakecuda_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void ctl_reset(const struct fakecuda_device *devs, int count)
{
    pthread_mutex_lock(&fake_lock);
    if (count > MAX_DEVS)
        fake_fatal("too many devices");
    uint64_t id = fake.next_id;
    memset(&fake, 0, sizeof(fake));
    fake.next_id = id;
    fake.driver = 13000;
    fake.ndevs = count;
    for (int i = 0; i < count; i++) {
        fake.devs[i] = devs[i];
        fake.primary[i] = (struct ctx){i, false};
    }
    fake_name_calls();
    fake_depth = 0;
    pthread_mutex_unlock(&fake_lock);
}

static void ctl_init(void)
{
    cuInit(0);
}

static void ctl_set_driver_version(int version)
{
    fake.driver = version;
}

static void ctl_fail(const char *name, int n, int code)
{
    pthread_mutex_lock(&fake_lock);
    struct call *c = fake_find_call(name);
    c->every = n == 0;
    c->fail_in = n > 0 ? n : 0;
    c->code = code;
    pthread_mutex_unlock(&fake_lock);
}

static int ctl_fired(const char *name)
{
    return fake_find_call(name)->fired;
}

static int ctl_calls(const char *name)
{
    return fake_find_call(name)->count;
}

static void ctl_activate_primary(int dev, int active)
{
    fake.primary[dev].alive = active;
}

static int ctl_primary_refs(int dev)
{
    return fake.refs[dev];
}

static void *ctl_ctx_create(int dev)
{
    if (fake.nuser == MAX_CTX)
        fake_fatal("too many contexts");
    fake.user[fake.nuser] = (struct ctx){dev, true};
    return &fake.user[fake.nuser++];
}

static void ctl_set_current(void *ctx)
{
    if (!ctx) {
        fake_depth = 0;
        return;
    }
    if (!fake_depth)
        fake_depth = 1;
    fake_stack[fake_depth - 1] = ctx;
}

static void *ctl_primary(int dev)
{
    return &fake.primary[dev];
}

static void *ctl_current(void)
{
    return fake_top();
}

static int ctl_stack_depth(void)
{
    return fake_depth;
}

static uint64_t ctl_alloc(int kind, int dev, size_t len, size_t align)
{
    static const enum block_kind kinds[] = {BLOCK_DEVICE, BLOCK_HOST, BLOCK_MANAGED};
    pthread_mutex_lock(&fake_lock);
    const struct block *b = fake_place(kinds[kind], dev, len, align);
    uint64_t base = b ? b->base : 0;
    pthread_mutex_unlock(&fake_lock);
    return base;
}

static struct block *exact_block(uint64_t addr, enum block_kind kind)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (fake.blocks[i].base == addr && fake.blocks[i].kind == kind)
            return &fake.blocks[i];
    fake_fatal("no such block");
    return NULL;
}

static void ctl_free(uint64_t addr)
{
    pthread_mutex_lock(&fake_lock);
    struct block *b = fake_find_block(addr);
    if (!b || b->base != addr || b->kind == BLOCK_RESERVED || b->kind == BLOCK_SEGMENT)
        fake_fatal("free of what was not allocated");
    fake_drop_block(b);
    pthread_mutex_unlock(&fake_lock);
}

static size_t ctl_live(void)
{
    size_t n = 0;
    for (int i = 0; i < MAX_BLOCKS; i++)
        n += fake.blocks[i].kind != BLOCK_FREE && fake.blocks[i].kind != BLOCK_RESERVED;
    return n;
}

static void ctl_set_gdr_capable(uint64_t addr, int capable)
{
    fake_find_block(addr)->gdr_capable = capable;
}

static uint64_t ctl_vmm_reserve(size_t len)
{
    pthread_mutex_lock(&fake_lock);
    const struct block *b = fake_place(BLOCK_RESERVED, -1, len, VMM_GRANULE);
    uint64_t base = b ? b->base : 0;
    pthread_mutex_unlock(&fake_lock);
    return base;
}

static void ctl_vmm_map(uint64_t addr, size_t len, int dev)
{
    pthread_mutex_lock(&fake_lock);
    const struct block *b = fake_find_block(addr);
    if (!b || b->kind != BLOCK_RESERVED || addr % VMM_GRANULE || len % VMM_GRANULE ||
        addr + len > b->base + b->len)
        fake_fatal("segments are multiples of 2 MiB inside a reserved range");
    memset((void *)(uintptr_t)addr, 0, len);
    fake_add_block(BLOCK_SEGMENT, addr, len, dev);
    pthread_mutex_unlock(&fake_lock);
}

static void ctl_vmm_unmap(uint64_t addr)
{
    pthread_mutex_lock(&fake_lock);
    fake_drop_block(exact_block(addr, BLOCK_SEGMENT));
    pthread_mutex_unlock(&fake_lock);
}

static void ctl_vmm_release(uint64_t addr)
{
    pthread_mutex_lock(&fake_lock);
    fake_drop_block(exact_block(addr, BLOCK_RESERVED));
    pthread_mutex_unlock(&fake_lock);
}

static void ctl_set_single_segment_export(int on)
{
    fake.single_segment = on;
}

static bool is_dmabuf(const struct dmabuf *d)
{
    struct stat st;
    return d->len && !fstat(d->fd, &st) && st.st_ino == d->inode;
}

static uint64_t ctl_dmabuf_len(int fd)
{
    for (int i = 0; i < MAX_DMABUF; i++)
        if (fake.dmabufs[i].fd == fd && is_dmabuf(&fake.dmabufs[i]))
            return fake.dmabufs[i].len;
    return 0;
}

static int ctl_dmabuf_open(void)
{
    int n = 0;
    for (int i = 0; i < MAX_DMABUF; i++)
        n += is_dmabuf(&fake.dmabufs[i]);
    return n;
}

/* The processor faults on the addresses of a real GPU, too. */
static void ctl_hide(int on)
{
    if (mprotect(fake_arena, ARENA_LEN, on ? PROT_NONE : PROT_READ | PROT_WRITE))
        fake_fatal("mprotect");
}

EXPORT extern const struct fakecuda_control fakecuda_control;
const struct fakecuda_control fakecuda_control = {
    .reset = ctl_reset,
    .init = ctl_init,
    .set_driver_version = ctl_set_driver_version,
    .fail = ctl_fail,
    .fired = ctl_fired,
    .calls = ctl_calls,
    .activate_primary = ctl_activate_primary,
    .primary_refs = ctl_primary_refs,
    .ctx_create = ctl_ctx_create,
    .set_current = ctl_set_current,
    .primary = ctl_primary,
    .current = ctl_current,
    .stack_depth = ctl_stack_depth,
    .alloc = ctl_alloc,
    .free = ctl_free,
    .live = ctl_live,
    .set_gdr_capable = ctl_set_gdr_capable,
    .vmm_reserve = ctl_vmm_reserve,
    .vmm_map = ctl_vmm_map,
    .vmm_unmap = ctl_vmm_unmap,
    .vmm_release = ctl_vmm_release,
    .set_single_segment_export = ctl_set_single_segment_export,
    .dmabuf_len = ctl_dmabuf_len,
    .dmabuf_open = ctl_dmabuf_open,
    .hide = ctl_hide,
};

static void read_env(void)
{
    const char *spec = getenv("FAKECUDA_FAIL");
    char name[64];
    int n, code, used;
    while (spec && *spec) {
        if (sscanf(spec, "%63[^:,]:%d:%d%n", name, &n, &code, &used) != 3)
            fake_fatal("FAKECUDA_FAIL is name:n:code,...");
        ctl_fail(name, n, code);
        spec += used;
        spec += *spec == ',';
    }
}

/* Reads the devices' addresses from FAKECUDA_GPUS=0000:0B:00.0,... and their generation from
 * FAKECUDA_CC. */
static void read_devices(struct fakecuda_device *devs, int *count)
{
    const char *gpus = getenv("FAKECUDA_GPUS"), *cc = getenv("FAKECUDA_CC");
    const struct fakecuda_device first = devs[0];
    int used = 0;
    for (int i = 0; gpus && i < MAX_DEVS && sscanf(gpus, "%19[^,]%n", devs[i].bus_id, &used) == 1;
         i++) {
        char at[sizeof(first.bus_id)];
        memcpy(at, devs[i].bus_id, sizeof(at));
        devs[i] = first;
        memcpy(devs[i].bus_id, at, sizeof(at));
        gpus += used + (gpus[used] == ',');
        *count = i + 1;
    }
    for (int i = 0; cc && i < *count; i++)
        devs[i].cc_major = atoi(cc);
}

__attribute__((constructor)) static void load(void)
{
    fake_arena_fd = memfd_create("fakecuda", MFD_CLOEXEC);
    if (fake_arena_fd < 0 || ftruncate(fake_arena_fd, (off_t)ARENA_LEN))
        fake_fatal("memfd_create");
    fake_arena =
        mmap(NULL, ARENA_LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fake_arena_fd, 0);
    fake_own =
        mmap(NULL, ARENA_LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fake_arena_fd, 0);
    if (fake_arena == MAP_FAILED || fake_own == MAP_FAILED)
        fake_fatal("mmap");
    struct fakecuda_device devs[MAX_DEVS] = {{"0000:0B:00.0", "Fake GPU", 8, 0, 1, 1, 1, 1, 0}};
    int count = 1;
    read_devices(devs, &count);
    ctl_reset(devs, count);
    fake.is_app = getenv("FAKECUDA_APP") != NULL;
    if (getenv("FAKECUDA_HIDE"))
        ctl_hide(1);
    read_env();
}

__attribute__((destructor)) static void unload(void)
{
    munmap(fake_arena, ARENA_LEN);
    munmap(fake_own, ARENA_LEN);
    close(fake_arena_fd);
}
