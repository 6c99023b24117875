/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The double of NCCL tries the configured network, as NCCL does for its first channel. It
 * connects to itself, sends one message in each direction, flushes it and compares it. The
 * buffers are GPU memory if the plugin supports it and NCCL_NET_GDR_LEVEL=SYS permits it, and
 * host memory otherwise. The log gets NCCL's words for what was used. */
#include "config.h"
#include "support/fakenccl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory/cuda_abi.h"
#include "perf/driver/netdrv.h"

enum { BYTES = 1 << 20, ROUNDS = 3, LIMIT_S = 30 };

static struct {
    pvn_cu_result (*alloc)(pvn_cu_ptr *, size_t);
    pvn_cu_result (*free)(pvn_cu_ptr);
    pvn_cu_result (*to_device)(pvn_cu_ptr, const void *, size_t);
    pvn_cu_result (*to_host)(void *, pvn_cu_ptr, size_t);
    pvn_cu_result (*export_fd)(void *, pvn_cu_ptr, size_t, int, unsigned long long);
} cu;

struct link {
    struct pvn_netdrv *d;
    void *ctx, *listen, *send, *recv;
    int support; /* NCCL_PTR_ bits */
    bool gdr;
    void *buf[2], *mh[2]; /* send buffer, receive buffer */
};

static FILE *log_file;

/* Returns the subsystems whose lines NCCL shows at INFO. NCCL_DEBUG_SUBSYS names them. The
 * default is INIT, BOOTSTRAP and ENV (seen with 2.28.9); NET is not among them. */
static unsigned long wanted_subsystems(void)
{
    static const struct {
        const char *name;
        unsigned long bit;
    } names[] = {{"INIT", NCCL_INIT},           {"NET", NCCL_NET},
                 {"GRAPH", NCCL_GRAPH},         {"ENV", NCCL_ENV},
                 {"BOOTSTRAP", NCCL_BOOTSTRAP}, {"ALL", NCCL_ALL}};
    const char *list = getenv("NCCL_DEBUG_SUBSYS");
    unsigned long mask = 0;
    if (!list)
        list = "INIT,BOOTSTRAP,ENV";
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strcspn(at, ",") == strlen(names[i].name) &&
                !strncmp(at, names[i].name, strlen(names[i].name)))
                mask |= names[i].bit;
    return mask;
}

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                   const char *fmt, ...)
{
    va_list ap;
    if (level == NCCL_LOG_TRACE || (level == NCCL_LOG_INFO && !(flags & wanted_subsystems())))
        return;
    fputs(level == NCCL_LOG_WARN ? "NCCL WARN " : "NCCL INFO ", log_file);
    va_start(ap, fmt);
    vfprintf(log_file, fmt, ap);
    va_end(ap);
    fputc('\n', log_file);
}

static bool load_cuda(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    static const struct {
        const char *name;
        void *to;
    } names[] = {{"cuMemAlloc_v2", &cu.alloc},
                 {"cuMemFree_v2", &cu.free},
                 {"cuMemcpyHtoD_v2", &cu.to_device},
                 {"cuMemcpyDtoH_v2", &cu.to_host},
                 {"cuMemGetHandleForAddressRange", &cu.export_fd}};
    for (size_t i = 0; lib && i < sizeof(names) / sizeof(names[0]); i++) {
        void *f = dlsym(lib, names[i].name);
        memcpy(names[i].to, &f, sizeof(f));
    }
    return lib != NULL;
}

static bool in_time(time_t since)
{
    usleep(10);
    return time(NULL) - since < LIMIT_S;
}

static bool join(struct link *l)
{
    char handle[NCCL_NET_HANDLE_MAXSIZE] __attribute__((aligned(8))) = {0};
    time_t since = time(NULL);
    if (pvn_netdrv_listen(l->d, l->ctx, 0, handle, &l->listen))
        return false;
    while (!l->send || !l->recv) {
        if (!l->send && pvn_netdrv_connect(l->d, l->ctx, 0, handle, &l->send))
            return false;
        if ((!l->recv && pvn_netdrv_accept(l->d, l->listen, &l->recv)) || !in_time(since))
            return false;
    }
    return true;
}

static bool get_buffer(struct link *l, int i, void *comm)
{
    pvn_cu_ptr at = 0;
    int fd = -1;
    if (!l->gdr) {
        l->buf[i] = malloc(BYTES);
        return l->buf[i] &&
               !pvn_netdrv_reg_mr(l->d, comm, l->buf[i], BYTES, NCCL_PTR_HOST, &l->mh[i]);
    }
    if (cu.alloc(&at, BYTES))
        return false;
    l->buf[i] = (void *)(uintptr_t)at;
    pvn_cu_ptr page = (pvn_cu_ptr)sysconf(_SC_PAGESIZE), first = at & -page;
    if (!(l->support & NCCL_PTR_DMABUF) ||
        cu.export_fd(&fd, first, ((at + BYTES + page - 1) & -page) - first, PVN_CU_RANGE_DMA_BUF_FD,
                     0))
        return !pvn_netdrv_reg_mr(l->d, comm, l->buf[i], BYTES, NCCL_PTR_CUDA, &l->mh[i]);
    ncclResult_t rc = pvn_netdrv_reg_dmabuf(l->d, comm, l->buf[i], BYTES, NCCL_PTR_CUDA, at - first,
                                            fd, &l->mh[i]);
    close(fd);
    return rc == ncclSuccess;
}

/* Copies between a buffer of the link and ordinary memory. */
static bool fill(struct link *l, int i, const void *from)
{
    if (l->gdr)
        return !cu.to_device((uintptr_t)l->buf[i], from, BYTES);
    memcpy(l->buf[i], from, BYTES);
    return true;
}

static bool fetch(struct link *l, int i, void *to)
{
    if (l->gdr)
        return !cu.to_host(to, (uintptr_t)l->buf[i], BYTES);
    memcpy(to, l->buf[i], BYTES);
    return true;
}

static bool wait_for(struct link *l, void *request)
{
    int done = request ? 0 : 1;
    time_t since = time(NULL);
    while (!done)
        if (pvn_netdrv_test(l->d, request, &done, NULL) || !in_time(since))
            return false;
    return true;
}

/* Posts and tests in turn, because a send may have to wait for a receive that a test has
 * announced. */
static bool move(struct link *l)
{
    void *sr = NULL, *rr = NULL, *fr = NULL;
    size_t size = BYTES;
    int tag = 0, flush_size = BYTES, sd = 0, rd = 0;
    time_t since = time(NULL);
    while (!sd || !rd) {
        if (!rr &&
            pvn_netdrv_irecv(l->d, l->recv, 1, &l->buf[1], &size, &tag, &l->mh[1], NULL, &rr))
            return false;
        if (!sr && pvn_netdrv_isend(l->d, l->send, l->buf[0], BYTES, 0, l->mh[0], NULL, &sr))
            return false;
        if (rr && !rd && pvn_netdrv_test(l->d, rr, &rd, NULL))
            return false;
        if ((sr && !sd && pvn_netdrv_test(l->d, sr, &sd, NULL)) || !in_time(since))
            return false;
    }
    return !pvn_netdrv_iflush(l->d, l->recv, 1, &l->buf[1], &flush_size, &l->mh[1], &fr) &&
           wait_for(l, fr);
}

static bool try_it(struct link *l)
{
    static unsigned char out[BYTES], in[BYTES];
    if (!join(l) || !get_buffer(l, 0, l->send) || !get_buffer(l, 1, l->recv))
        return false;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BYTES; i++)
            out[i] = (unsigned char)(i * 3 + i / 255 + round);
        if (!fill(l, 0, out) || !move(l) || !fetch(l, 1, in) || memcmp(in, out, BYTES))
            return false;
    }
    return true;
}

static void release(struct link *l)
{
    void *comm[2] = {l->send, l->recv};
    for (int i = 0; i < 2; i++) {
        if (l->mh[i])
            pvn_netdrv_dereg_mr(l->d, comm[i], l->mh[i]);
        if (l->gdr && l->buf[i])
            cu.free((uintptr_t)l->buf[i]);
        else
            free(l->buf[i]);
    }
    pvn_netdrv_close_send(l->d, l->send);
    pvn_netdrv_close_recv(l->d, l->recv);
    pvn_netdrv_close_listen(l->d, l->listen);
}

bool fakenccl_try_network(FILE *log, const char *name)
{
    const char *level = getenv("NCCL_NET_GDR_LEVEL");
    ncclNetCommConfig_v12_t config = {.trafficClass = NCCL_NET_TRAFFIC_CLASS_UNDEF};
    ncclNetProperties_v12_t props;
    struct link l = {0};
    char msg[256];
    log_file = log;
    if (pvn_netdrv_open(name, 0, &l.d, msg, sizeof(msg))) {
        fprintf(log, "NCCL INFO NET/Plugin: %s\nNCCL INFO Using network Socket\n", msg);
        return true;
    }
    fprintf(log, "NCCL INFO NET/Plugin: Loaded net plugin %s (v%d)\n", pvn_netdrv_name(l.d),
            pvn_netdrv_abi(l.d));
    bool ok = !pvn_netdrv_init(l.d, &l.ctx, 1, &config, logger, NULL);
    if (ok) {
        ok = !pvn_netdrv_properties(l.d, 0, &props);
        l.support = ok ? props.ptrSupport : 0;
        l.gdr = (l.support & NCCL_PTR_CUDA) && level && !strcmp(level, "SYS") && load_cuda();
        ok = ok && try_it(&l);
        if (ok)
            fprintf(
                log,
                "NCCL INFO Using network %s\nNCCL INFO Channel 00/0 : [send] via NET/%s/0%s%s\n",
                name, pvn_netdrv_name(l.d), l.gdr ? "/GDRDMA" : "",
                l.gdr && (l.support & NCCL_PTR_DMABUF) ? "(dma-buf)" : "");
        release(&l);
        pvn_netdrv_finalize(l.d, l.ctx);
    }
    pvn_netdrv_close(l.d);
    return ok;
}
