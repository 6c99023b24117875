/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* staging examines the host memory in which NCCL hands data to a network, as this driver makes
 * it. It reports what the kernel lets a network do with that memory: huge pages (MADV_COLLAPSE),
 * vmsplice, MSG_ZEROCOPY and io_uring's registered buffers. It measures how fast a loopback
 * connection, and the plugin over one, move it. NCCL allocates the memory by cudaHostAlloc, or,
 * if another process may map it, in /dev/shm with a registration, or by cuMemCreate on a NUMA
 * node. Ordinary memory, which the GPU does not know, is examined, too. Prints one line for each
 * kind. Exits with 0, 1 (data came back wrong), 2 (usage) or 77 (no GPU or library here). */
#include "config.h"
#include "base/clock.h"
#include "gpu/staging_api.h"
#include "gpu/staging_net.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum { OK = 0, WRONG = 1, USAGE = 2, SKIP = 77 };
enum { BYTES = 8 << 20, HUGE = 2 << 20, PIECE = 64 << 10, RATE_PIECE = 256 << 10, ROUNDS = 5 };

static struct st_cuda cuda;
static struct st_net *net; /* NULL: no plugin was named */
static int wrong;          /* times that data came back different */

/* ---- the kinds: each returns memory of at least BYTES bytes, or NULL with the reason in why
 * ---- */

static char why[160];

static void *because(const char *call, int error)
{
    snprintf(why, sizeof(why), "%s: CUDA error %d", call, error);
    return NULL;
}

static void *own(void)
{
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    snprintf(why, sizeof(why), "mmap: %s", strerror(errno));
    return p == MAP_FAILED ? NULL : p;
}

static void *host_alloc(void)
{
    void *p = NULL;
    int rc = cuda.host_alloc(&p, BYTES, ST_HOST_MAPPED);
    return rc ? because("cuMemHostAlloc", rc) : p;
}

static void *shared_file(void)
{
    char name[64];
    if (!cuda.host_register)
        return because("cuMemHostRegister is not in this driver", 0);
    snprintf(name, sizeof(name), "/dev/shm/pvn-staging-%d", (int)getpid());
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        unlink(name);
    void *p = MAP_FAILED;
    int rc = fd < 0 ? errno : posix_fallocate(fd, 0, BYTES);
    if (!rc) {
        p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        rc = errno;
    }
    if (fd >= 0)
        close(fd);
    if (p == MAP_FAILED) {
        snprintf(why, sizeof(why), "%s: %s", name, strerror(rc));
        return NULL;
    }
    rc = cuda.host_register(p, BYTES, ST_HOST_PORTABLE | ST_HOST_MAPPED);
    return rc ? because("cuMemHostRegister", rc) : p;
}

static void *numa_node(void)
{
    int node = 0, rc = cuda.device_attr(&node, ST_DEV_HOST_NUMA_ID, 0);
    if (!cuda.granularity || !cuda.mem_create || !cuda.reserve || !cuda.mem_map || !cuda.set_access)
        return because("cuMemCreate is not in this driver", 0);
    struct st_mem_prop prop = {
        .type = ST_MEM_PINNED,
        .handle_types = ST_HANDLE_FD,
        .location = {.type = ST_AT_HOST_NUMA, .id = rc || node < 0 ? 0 : node},
    };
    struct st_mem_access access[2] = {
        {.location = prop.location, .flags = ST_ACCESS_READ_WRITE},
        {.location = {.type = ST_AT_DEVICE, .id = 0}, .flags = ST_ACCESS_READ_WRITE},
    };
    size_t grain = 0, bytes;
    st_mem_handle handle;
    pvn_cu_ptr at = 0;
    rc = cuda.granularity(&grain, &prop, ST_GRANULARITY_MINIMUM);
    if (rc || !grain)
        return because("cuMemGetAllocationGranularity", rc);
    bytes = (BYTES + grain - 1) / grain * grain;
    rc = cuda.mem_create(&handle, bytes, &prop, 0);
    if (rc)
        return because("cuMemCreate", rc);
    rc = cuda.reserve(&at, bytes, grain, 0, 0);
    if (!rc)
        rc = cuda.mem_map(at, bytes, 0, handle, 0);
    if (!rc)
        rc = cuda.set_access(at, bytes, access, 2);
    return rc ? because("cuMemMap", rc) : (void *)(uintptr_t)at;
}

/* ---- operations of the kernel on it ---- */

struct place {
    char mapping[128], flags[128];
    long page_kb, huge_kb; /* huge_kb: of huge pages in it, whatever their kind */
};

/* Finds the entry of /proc/self/smaps that has the address. False if there is none. */
static bool find_place(const void *p, struct place *out)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char text[512], perms[8], name[256];
    bool inside = false, found = false;
    memset(out, 0, sizeof(*out));
    while (f && fgets(text, sizeof(text), f)) {
        unsigned long from, to, kb;
        int n = 0;
        name[0] = '\0';
        if (sscanf(text, "%lx-%lx %7s %*s %*s %*s%n", &from, &to, perms, &n) == 3 && n) {
            inside = from <= (uintptr_t)p && (uintptr_t)p < to;
            if (inside) {
                found = true;
                sscanf(text + n, " %255[^\n]", name);
                snprintf(out->mapping, sizeof(out->mapping), "%s,%.100s", perms,
                         name[0] ? name : "anonymous");
            }
        } else if (inside && sscanf(text, "KernelPageSize: %lu", &kb) == 1) {
            out->page_kb = (long)kb;
        } else if (inside && (sscanf(text, "AnonHugePages: %lu", &kb) == 1 ||
                              sscanf(text, "ShmemPmdMapped: %lu", &kb) == 1 ||
                              sscanf(text, "FilePmdMapped: %lu", &kb) == 1)) {
            out->huge_kb += (long)kb;
        } else if (inside && sscanf(text, "VmFlags: %127[^\n]", out->flags) == 1) {
            for (char *c = out->flags; *c; c++)
                *c = *c == ' ' ? ',' : *c;
        }
    }
    if (f)
        fclose(f);
    for (char *c = out->mapping; *c; c++)
        *c = *c == ' ' ? '_' : *c;
    return found;
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(i * 131 + (i >> 8) * 7 + seed);
}

/* Compares the received bytes with those that fill wrote. Returns a word for the line. */
static const char *same(const unsigned char *got, size_t n, unsigned seed, const char *word)
{
    for (size_t i = 0; i < n; i++) {
        if (got[i] != (unsigned char)(i * 131 + (i >> 8) * 7 + seed)) {
            wrong++;
            return "WRONG-DATA";
        }
    }
    return word;
}

/* Returns a word for the line. The C library's own function is newer than the machines that run a
 * bundle. */
static const char *error_word(int error)
{
    static char other[8][16];
    static unsigned next;
    char *out = other[next++ % 8];
    switch (error) {
    case EINVAL:
        return "EINVAL";
    case EFAULT:
        return "EFAULT";
    case EAGAIN:
        return "EAGAIN";
    case ENOMEM:
        return "ENOMEM";
    case ENOBUFS:
        return "ENOBUFS";
    case EOPNOTSUPP:
        return "EOPNOTSUPP";
    case EPERM:
        return "EPERM";
    }
    snprintf(out, sizeof(other[0]), "errno-%d", error);
    return out;
}

static unsigned char landed[PIECE];

static const char *try_vmsplice(unsigned char *p)
{
    int fds[2];
    size_t have = 0;
    if (pipe2(fds, O_CLOEXEC))
        return error_word(errno);
    fcntl(fds[1], F_SETPIPE_SZ, 2 * PIECE);
    fill(p, PIECE, 1);
    struct iovec v = {.iov_base = p, .iov_len = PIECE};
    ssize_t n = vmsplice(fds[1], &v, 1, SPLICE_F_NONBLOCK);
    const char *result = n == PIECE ? NULL : n < 0 ? error_word(errno) : "partly";
    while (!result && have < PIECE) {
        n = read(fds[0], landed + have, PIECE - have);
        if (n <= 0)
            result = "read-failed";
        else
            have += (size_t)n;
    }
    close(fds[0]);
    close(fds[1]);
    return result ? result : same(landed, PIECE, 1, "yes");
}

/* Makes a connection over loopback within this process. False with errno if that fails. */
static bool connection(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = -1;
    if (!bind(listener, (struct sockaddr *)&at, len) && !listen(listener, 1) &&
        !getsockname(listener, (struct sockaddr *)&at, &len) &&
        !connect(fds[0], (struct sockaddr *)&at, len))
        fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int kept = errno, large = 1 << 20;
    close(listener);
    if (fds[1] < 0) {
        close(fds[0]);
        errno = kept;
        return false;
    }
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &large, sizeof(large));
    return true;
}

/* Returns whether the kernel copied, by the acknowledgement of a zero-copy send. Over loopback it
 * does. */
static const char *zerocopy_notice(int fd)
{
    char control[256];
    struct msghdr m = {.msg_control = control, .msg_controllen = sizeof(control)};
    struct pollfd p = {.fd = fd};
    poll(&p, 1, 1000);
    if (recvmsg(fd, &m, MSG_ERRQUEUE) < 0)
        return "yes,no-notice";
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    struct sock_extended_err e = {0};
    if (c)
        memcpy(&e, CMSG_DATA(c), sizeof(e));
    return e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? "yes,copied" : "yes,in-place";
}

static const char *try_zerocopy(unsigned char *p)
{
    int fds[2], on = 1;
    if (!connection(fds))
        return error_word(errno);
    const char *result = NULL;
    size_t have = 0;
    fill(p, PIECE, 2);
    if (setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) ||
        send(fds[0], p, PIECE, MSG_ZEROCOPY) != PIECE)
        result = error_word(errno);
    while (!result && have < PIECE) {
        ssize_t n = recv(fds[1], landed + have, PIECE - have, 0);
        if (n <= 0)
            result = "recv-failed";
        else
            have += (size_t)n;
    }
    if (!result)
        result = same(landed, PIECE, 2, zerocopy_notice(fds[0]));
    close(fds[0]);
    close(fds[1]);
    return result;
}

static const char *try_io_uring(unsigned char *p)
{
    unsigned char params[120] = {0}; /* struct io_uring_params */
    int ring = (int)syscall(425 /* io_uring_setup */, 4, params);
    if (ring < 0)
        return errno == ENOSYS || errno == EPERM ? "no-io_uring" : error_word(errno);
    struct iovec v = {.iov_base = p, .iov_len = BYTES};
    long rc = syscall(427 /* io_uring_register */, ring, 0 /* IORING_REGISTER_BUFFERS */, &v, 1);
    const char *result = rc ? error_word(errno) : "yes";
    close(ring);
    return result;
}

/* Must come before anything else references a page, because the kernel cannot move a page after
 * that. */
static const char *try_collapse(unsigned char *p)
{
    static char result[64];
    unsigned char *at = (unsigned char *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    int done = 0, all = 0, error = 0;
    fill(p, BYTES, 3);
    for (; at + HUGE <= p + BYTES; at += HUGE, all++) {
        if (!madvise(at, HUGE, MADV_COLLAPSE))
            done++;
        else
            error = errno;
    }
    if (error)
        snprintf(result, sizeof(result), "%d-of-%d,%s", done, all, error_word(error));
    else
        snprintf(result, sizeof(result), "yes");
    return same(p, BYTES, 3, result);
}

/* Returns the best GB/s of several rounds in which a thread sends pieces of the memory and
 * receives each in the other half. */
static double rate(unsigned char *p)
{
    int fds[2];
    double best = 0;
    if (!connection(fds))
        return 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = pvn_now_s();
        size_t moved = 0;
        for (size_t at = 0; at + RATE_PIECE <= BYTES / 2; at += RATE_PIECE) {
            size_t out = 0, in = 0;
            while (in < RATE_PIECE) {
                ssize_t n = out == RATE_PIECE
                                ? 0
                                : send(fds[0], p + at + out, RATE_PIECE - out, MSG_DONTWAIT);
                out += n > 0 ? (size_t)n : 0;
                n = recv(fds[1], p + BYTES / 2 + at + in, out - in, out > in ? 0 : MSG_DONTWAIT);
                if (n < 0 && errno != EAGAIN)
                    goto out;
                in += n > 0 ? (size_t)n : 0;
            }
            moved += in;
        }
        double gb = (double)moved * 1e-9 / (pvn_now_s() - start);
        best = gb > best ? gb : best;
    }
    if (memcmp(p, p + BYTES / 2, BYTES / 2))
        wrong++;
out:
    close(fds[0]);
    close(fds[1]);
    return best;
}

/* Returns the GB/s through the plugin, for the line. */
static const char *through_plugin(unsigned char *p)
{
    static char text[2][32], error[160];
    static unsigned next;
    char *out = text[next++ % 2];
    if (!net)
        return "-";
    memset(p + BYTES / 2, 0, BYTES / 2);
    double gb = st_net_rate(net, p, BYTES, error, sizeof(error));
    if (gb < 0 || memcmp(p, p + BYTES / 2, BYTES / 2)) {
        fprintf(stderr, "through the plugin: %s\n", gb < 0 ? error : "data came back different");
        wrong++;
        return "WRONG";
    }
    snprintf(out, sizeof(text[0]), "%.2f", gb);
    return out;
}

static void examine(const char *kind, void *(*make)(void))
{
    struct place before, after;
    unsigned char *p = make();
    if (!p) {
        printf("STAGING %s absent: %s\n", kind, why);
        return;
    }
    fill(p, BYTES, 0);
    if (!find_place(p, &before))
        snprintf(before.mapping, sizeof(before.mapping), "not-in-smaps");
    double small = rate(p);
    const char *net_small = through_plugin(p);
    const char *collapse = try_collapse(p);
    find_place(p, &after);
    double huge = rate(p);
    const char *net_huge = through_plugin(p);
    const char *splice = try_vmsplice(p), *zerocopy = try_zerocopy(p), *uring = try_io_uring(p);
    printf("STAGING %s mapping=%s page_kb=%ld huge_kb=%ld vmsplice=%s zerocopy=%s io_uring=%s "
           "collapse=%s huge_kb_then=%ld loopback_gb_s=%.2f then=%.2f "
           "plugin_gb_s=%s then=%s vmflags=%s\n",
           kind, before.mapping, before.page_kb, before.huge_kb, splice, zerocopy, uring, collapse,
           after.huge_kb, small, huge, net_small, net_huge, before.flags);
}

/* ---- the driver ---- */

static int open_gpu(const char *path)
{
    int count = 0;
    pvn_cu_context ctx;
    void *lib = dlopen(path, RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "%s: %s\n", path, dlerror());
        return SKIP;
    }
#define FIND(name, member, optional, params)                                                       \
    {                                                                                              \
        void *sym = dlsym(lib, #name);                                                             \
        if (!sym && !optional) {                                                                   \
            fprintf(stderr, "%s has no %s\n", path, #name);                                        \
            return SKIP;                                                                           \
        }                                                                                          \
        memcpy(&cuda.member, &sym, sizeof(sym));                                                   \
    }
    ST_ENTRIES(FIND)
#undef FIND
    int rc = cuda.init(0);
    if (!rc)
        rc = cuda.device_count(&count);
    if (!rc && !count)
        rc = PVN_CU_NO_DEVICE;
    if (!rc)
        rc = cuda.primary_retain(&ctx, 0);
    if (!rc)
        rc = cuda.ctx_set(ctx);
    if (rc)
        fprintf(stderr, "no GPU: CUDA error %d\n", rc);
    return rc ? SKIP : OK;
}

int main(int argc, char **argv)
{
    const char *lib = "libcuda.so.1", *plugin = NULL;
    for (int i = 1; i < argc; i += 2) {
        bool known = i + 1 < argc && (!strcmp(argv[i], "--cuda") || !strcmp(argv[i], "--plugin"));
        if (!known) {
            fprintf(stderr, "usage: staging [--cuda LIB] [--plugin PATH]\n");
            return USAGE;
        }
        *(argv[i][2] == 'c' ? &lib : &plugin) = argv[i + 1];
    }
    int rc = open_gpu(lib);
    if (rc)
        return rc;
    if (plugin && !(net = st_net_open(plugin, why, sizeof(why)))) {
        fprintf(stderr, "%s: %s\n", plugin, why);
        return WRONG;
    }
    examine("own", own);
    examine("hostalloc", host_alloc);
    examine("shm", shared_file);
    examine("cumem", numa_node);
    st_net_close(net);
    if (wrong)
        fprintf(stderr, "data came back wrong, or not at all, %d times\n", wrong);
    return wrong ? WRONG : OK;
}
