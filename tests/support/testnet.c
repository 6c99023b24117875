/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, correct NCCL net plugin over loopback TCP, to test the tools that drive plugins. A comm
 * has one socket, a message is one frame, and there is no thread. It exports versions 4 (blocking
 * connect and accept), 6 and 12. TESTNET_FAULT makes one rank misbehave; N counts from 1:
 *   corrupt:N  flip one bit of the N-th message sent
 *   swap:N     change the tag of the N-th message
 *   drop:N     never send the N-th message
 *   short:N    report one byte less than received
 *   stuck:N    N-th isend never returns
 *   die:N      N-th isend kills the process
 *   error:N    N-th isend fails with ncclSystemError
 *   overrun:N  write one byte behind a receive
 *   init       init fails
 *   nosize     test never reports sizes
 *   deaf       accept fails
 *   slow:N     every isend takes N us
 *   late:N     from the N-th on, every isend takes 50 ms
 *   reg        no memory can be registered
 *   flush      iflush fails
 * TESTNET_FAULT_RANK limits the fault to the process whose PVN_PERF_RANK is that number.
 * TESTNET_ADDR (default 127.0.0.1) is the address to listen at.
 *
 * TESTNET_PTR is the device's ptrSupport (default: host memory alone), TESTNET_PCI its pciPath,
 * TESTNET_FORCE_FLUSH its forceFlush. GPU memory is only the double's (fakecuda.c), which this
 * processor reaches. If TESTNET_LATE is set, received bytes are in the buffer only after a flush of
 * it is complete.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nccl/net_v12.h"
#include "nccl/net_v4.h"
#include "nccl/net_v6.h"

#define EXPORT __attribute__((visibility("default")))
#define GROUP  8
#define NREQ   32

struct frame {
    uint32_t len;
    int32_t tag;
};

struct buffer {
    char *data;
    size_t size; /* room of a receive, length of a send */
    int tag;
    int taken; /* a receive to which a frame was matched */
    int full;
    size_t got;
};

struct comm;

/* TESTNET_LATE: a receive whose flush is not complete yet. */
struct late {
    char *to, *copy;
    size_t got;
};

struct request {
    int used;
    struct comm *comm;
    uint64_t seq;
    int n;
    int left; /* buffers not yet full; 0: complete */
    struct buffer buf[GROUP];
    char *changed; /* our own copy of a corrupted message */
    struct late *late[GROUP];
};

struct comm {
    int fd;
    int is_send;
    struct request reqs[NREQ];
    uint64_t next_seq;
    /* The frame in progress in each direction. */
    struct frame frame;
    size_t frame_done;
    struct buffer *into;
    struct request *into_req;
    size_t payload_done;
};

static struct {
    char kind[16];
    uint64_t at;
    uint64_t sends;
} fault;

static ncclDebugLogger_t logger;
static struct late late[NREQ * GROUP * 8];

static void read_fault(void)
{
    const char *f = getenv("TESTNET_FAULT"), *rank = getenv("TESTNET_FAULT_RANK");
    const char *me = getenv("PVN_PERF_RANK");
    const char *colon;

    memset(&fault, 0, sizeof(fault));
    if (!f || (rank && me && strcmp(rank, me) != 0))
        return;
    colon = strchr(f, ':');
    snprintf(fault.kind, sizeof(fault.kind), "%.*s", colon ? (int)(colon - f) : (int)strlen(f), f);
    fault.at = colon ? strtoull(colon + 1, NULL, 10) : 0;
}

static int fault_is(const char *kind)
{
    return strcmp(fault.kind, kind) == 0;
}

/* True for the one message that the fault concerns. Logs it, so that a test can see that the
 * fault occurred. */
static int fault_now(const char *kind)
{
    if (!fault_is(kind) || fault.sends != fault.at)
        return 0;
    logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: fault %s fired", kind);
    return 1;
}

static ncclResult_t init_plugin(ncclDebugLogger_t log)
{
    logger = log;
    read_fault();
    if (fault_is("init")) {
        log(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: init fails by request");
        return ncclSystemError;
    }
    log(NCCL_LOG_INFO, NCCL_INIT | NCCL_NET, __func__, __LINE__,
        "testnet: one device, loopback, for tests");
    return ncclSuccess;
}

static ncclResult_t devices(int *ndev)
{
    *ndev = 1;
    return ncclSuccess;
}

static ncclResult_t listen_any(void *handle, void **listen_comm)
{
    const char *addr = getenv("TESTNET_ADDR");
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t len = sizeof(sa);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    inet_pton(AF_INET, addr ? addr : "127.0.0.1", &sa.sin_addr);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&sa, &len))
        return ncclSystemError;
    memset(handle, 0, NCCL_NET_HANDLE_MAXSIZE_V4);
    memcpy(handle, &sa, sizeof(sa));
    *listen_comm = calloc(1, sizeof(int));
    memcpy(*listen_comm, &fd, sizeof(fd));
    return ncclSuccess;
}

static struct comm *new_comm(int fd, int is_send)
{
    struct comm *c = calloc(1, sizeof(*c));
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    c->fd = fd;
    c->is_send = is_send;
    return c;
}

static ncclResult_t connect_any(void *handle, void **send_comm)
{
    struct sockaddr_in sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /*
     * On loopback the kernel completes the connection from the listen queue, so this does not wait
     * for accept.
     */
    memcpy(&sa, handle, sizeof(sa));
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
        close(fd);
        return ncclRemoteError;
    }
    *send_comm = new_comm(fd, 1);
    return ncclSuccess;
}

static ncclResult_t accept_any(void *listen_comm, void **recv_comm)
{
    int lfd, fd;

    memcpy(&lfd, listen_comm, sizeof(lfd));
    *recv_comm = NULL;
    if (fault_is("deaf")) {
        logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: fault deaf fired");
        return ncclSystemError;
    }
    fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EAGAIN ? ncclSuccess : ncclSystemError;
    *recv_comm = new_comm(fd, 0);
    return ncclSuccess;
}

static ncclResult_t accept_blocking(void *listen_comm, void **recv_comm)
{
    ncclResult_t rc;

    do {
        rc = accept_any(listen_comm, recv_comm);
        usleep(200);
    } while (rc == ncclSuccess && !*recv_comm);
    return rc;
}

static struct request *get_request(struct comm *c, int n)
{
    for (int i = 0; i < NREQ; i++) {
        struct request *r = &c->reqs[i];

        if (r->used)
            continue;
        memset(r, 0, sizeof(*r));
        r->used = 1;
        r->comm = c;
        r->seq = c->next_seq++;
        r->n = r->left = n;
        return r;
    }
    return NULL;
}

static struct request *oldest(struct comm *c, int32_t tag, struct buffer **buf)
{
    struct request *best = NULL;

    for (int i = 0; i < NREQ; i++) {
        struct request *r = &c->reqs[i];

        if (!r->used || !r->left || (best && r->seq > best->seq))
            continue;
        for (int k = 0; k < r->n; k++) {
            if (!r->buf[k].taken && (c->is_send || r->buf[k].tag == tag)) {
                best = r;
                *buf = &r->buf[k];
                break;
            }
        }
    }
    return best;
}

static int move(struct comm *c, void *p, size_t len, size_t *done)
{
    while (*done < len) {
        char *at = (char *)p + *done;
        ssize_t k = c->is_send ? send(c->fd, at, len - *done, MSG_NOSIGNAL)
                               : recv(c->fd, at, len - *done, 0);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EAGAIN)
            return -EAGAIN;
        if (k <= 0)
            return -EPIPE;
        *done += (size_t)k;
    }
    return 0;
}

static void finish_frame(struct comm *c)
{
    struct buffer *b = c->into;

    b->got = c->frame.len;
    b->full = 1;
    if (!c->is_send && fault_is("overrun") && b->got < b->size)
        b->data[b->got] ^= 1;
    c->into_req->left--;
    c->into = NULL;
    c->frame_done = c->payload_done = 0;
}

static int progress(struct comm *c)
{
    for (;;) {
        int rc;

        if (!c->into && c->is_send) {
            c->into_req = oldest(c, 0, &c->into);
            if (!c->into_req)
                return 0;
            c->into->taken = 1;
            c->frame.len = (uint32_t)c->into->size;
            c->frame.tag = c->into->tag;
        }
        rc = move(c, &c->frame, sizeof(c->frame), &c->frame_done);
        if (rc)
            return rc;
        if (!c->into) {
            c->into_req = oldest(c, c->frame.tag, &c->into);
            if (!c->into_req)
                return -EAGAIN;
            if (c->frame.len > c->into->size)
                return -EMSGSIZE;
            c->into->taken = 1;
        }
        rc = move(c, c->into->data, c->frame.len, &c->payload_done);
        if (rc)
            return rc;
        finish_frame(c);
    }
}

static ncclResult_t isend_any(struct comm *c, void *data, size_t size, int tag, void **request)
{
    struct request *r;
    char *copy;

    fault.sends++;
    if (fault_is("slow")) {
        if (fault.sends == 1)
            logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: fault slow fired");
        usleep((useconds_t)fault.at);
    }
    fault_now("late");
    if (fault_is("late") && fault.sends >= fault.at)
        usleep(50000);
    if (fault_now("error"))
        return ncclSystemError;
    if (fault_now("die"))
        raise(SIGKILL);
    while (fault_now("stuck"))
        sleep(1000);
    r = get_request(c, 1);
    *request = r;
    if (!r) {
        fault.sends--;
        return ncclSuccess;
    }
    r->buf[0].data = data;
    r->buf[0].size = size;
    r->buf[0].tag = tag;
    if (fault_now("swap"))
        r->buf[0].tag = tag + 1;
    if (size && fault_now("corrupt")) {
        copy = malloc(size);
        memcpy(copy, data, size);
        copy[size / 2] ^= 0x40;
        r->buf[0].data = r->changed = copy;
    }
    if (fault_now("drop")) {
        r->left = 0;
        r->buf[0].taken = r->buf[0].full = 1;
    }
    return ncclSuccess;
}

/* Returns the entry of this buffer, or an unused one. */
static struct late *find_late(const char *to)
{
    struct late *unused = NULL;

    for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
        if (late[i].to == to)
            return &late[i];
        if (!unused && !late[i].to)
            unused = &late[i];
    }
    return unused;
}

static void receive_late(struct request *r, int i)
{
    struct late *l = find_late(r->buf[i].data);

    free(l->copy);
    l->to = r->buf[i].data;
    l->got = 0;
    r->buf[i].data = l->copy = calloc(1, r->buf[i].size + 1);
    r->late[i] = l;
}

/* Called after the last test() of a receive or of a flush. */
static void settle_late(const struct request *r)
{
    for (int i = 0; i < GROUP; i++) {
        struct late *l = r->late[i];

        if (!l)
            continue;
        if (r->n)
            l->got = r->buf[i].got;
        else
            memcpy(l->to, l->copy, l->got);
    }
}

static ncclResult_t irecv_any(struct comm *c, int n, void **data, const size_t *sizes,
                              const int *tags, void **request)
{
    struct request *r = get_request(c, n);

    *request = r;
    for (int i = 0; r && i < n; i++) {
        r->buf[i].data = data[i];
        r->buf[i].size = sizes[i];
        r->buf[i].tag = tags ? tags[i] : 0;
        if (getenv("TESTNET_LATE"))
            receive_late(r, i);
    }
    return ncclSuccess;
}

static ncclResult_t test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    int rc = progress(r->comm);

    *done = 0;
    if (r->left) {
        if (rc == 0 || rc == -EAGAIN)
            return ncclSuccess;
        logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: %s", strerror(-rc));
        return ncclRemoteError;
    }
    *done = 1;
    for (int i = 0; sizes && i < r->n && !fault_is("nosize"); i++) {
        sizes[i] = (int)(r->comm->is_send ? r->buf[i].size : r->buf[i].got);
        if (fault_is("short") && !r->comm->is_send && sizes[i] > 0)
            sizes[i]--;
    }
    settle_late(r);
    free(r->changed);
    r->used = 0;
    return ncclSuccess;
}

static ncclResult_t reg_mr(void *comm, void **mhandle)
{
    *mhandle = comm;
    if (!fault_is("reg"))
        return ncclSuccess;
    logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__,
           "testnet: no memory is registered, by request");
    return ncclSystemError;
}

static ncclResult_t dereg_mr(void *comm, void *mhandle)
{
    return comm == mhandle ? ncclSuccess : ncclInternalError;
}

static ncclResult_t close_comm(void *comm)
{
    struct comm *c = comm;

    close(c->fd);
    free(c);
    return ncclSuccess;
}

static ncclResult_t close_listen(void *listen_comm)
{
    int fd;

    memcpy(&fd, listen_comm, sizeof(fd));
    close(fd);
    free(listen_comm);
    return ncclSuccess;
}

static ncclResult_t flush_nothing(void **request)
{
    *request = NULL;
    return ncclSuccess;
}

static ncclResult_t flush(struct comm *c, int n, void **data, void **request)
{
    struct request *r = get_request(c, 0);

    *request = r;
    if (fault_is("flush")) {
        logger(NCCL_LOG_WARN, NCCL_NET, __func__, __LINE__, "testnet: iflush fails by request");
        return ncclSystemError;
    }
    for (int i = 0; r && i < n && getenv("TESTNET_LATE"); i++)
        r->late[i] = find_late(data[i]);
    return ncclSuccess;
}

/* Version 12. */

static ncclResult_t init_v12(void **ctx, uint64_t id, ncclNetCommConfig_v12_t *config,
                             ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    *ctx = &logger;
    return init_plugin(log);
}

static ncclResult_t properties_v12(int dev, ncclNetProperties_v12_t *p)
{
    const char *ptr = getenv("TESTNET_PTR");

    memset(p, 0, sizeof(*p));
    p->name = "testnet0";
    p->pciPath = getenv("TESTNET_PCI");
    p->ptrSupport = ptr ? atoi(ptr) : NCCL_PTR_HOST;
    p->forceFlush = getenv("TESTNET_FORCE_FLUSH") != NULL;
    p->regIsGlobal = 0;
    p->speed = 10000;
    p->port = 1;
    p->maxComms = 64;
    p->maxRecvs = GROUP;
    p->vProps.ndevs = 1;
    p->vProps.devs[0] = dev;
    p->maxP2pBytes = p->maxCollBytes = 1UL << 31;
    p->maxMultiRequestSize = 1;
    p->railId = p->planeId = NCCL_NET_ID_UNDEF;
    return ncclSuccess;
}

static ncclResult_t listen_v12(void *ctx, int dev, void *handle, void **listen_comm)
{
    return ctx == &logger ? listen_any(handle, listen_comm) : ncclInternalError;
}

static ncclResult_t connect_v12(void *ctx, int dev, void *handle, void **send_comm,
                                ncclNetDeviceHandle_v12_t **dc)
{
    return ctx == &logger ? connect_any(handle, send_comm) : ncclInternalError;
}

static ncclResult_t accept_v12(void *listen_comm, void **recv_comm, ncclNetDeviceHandle_v12_t **dc)
{
    return accept_any(listen_comm, recv_comm);
}

static ncclResult_t reg_v12(void *comm, void *data, size_t size, int type, void **mhandle)
{
    logger(NCCL_LOG_INFO, NCCL_NET, __func__, __LINE__, "testnet: regMr, type %d", type);
    return reg_mr(comm, mhandle);
}

static ncclResult_t reg_dmabuf_v12(void *comm, void *data, size_t size, int type, uint64_t offset,
                                   int fd, void **mhandle)
{
    if (fcntl(fd, F_GETFD) < 0 || type != NCCL_PTR_CUDA)
        return ncclInvalidArgument;
    logger(NCCL_LOG_INFO, NCCL_NET, __func__, __LINE__, "testnet: regMrDmaBuf");
    return reg_mr(comm, mhandle);
}

static ncclResult_t isend_v12(void *comm, void *data, size_t size, int tag, void *mh, void *ph,
                              void **request)
{
    return isend_any(comm, data, size, tag, request);
}

static ncclResult_t irecv_v12(void *comm, int n, void **data, size_t *sizes, int *tags, void **mh,
                              void **ph, void **request)
{
    return irecv_any(comm, n, data, sizes, tags, request);
}

static ncclResult_t iflush_v6(void *comm, int n, void **data, int *sizes, void **mh, void **request)
{
    return flush(comm, n, data, request);
}

static ncclResult_t finalize_v12(void *ctx)
{
    for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++)
        free(late[i].copy);
    memset(late, 0, sizeof(late));
    return ctx == &logger ? ncclSuccess : ncclInternalError;
}

EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = {
    .name = "testnet",
    .init = init_v12,
    .devices = devices,
    .getProperties = properties_v12,
    .listen = listen_v12,
    .connect = connect_v12,
    .accept = accept_v12,
    .regMr = reg_v12,
    .regMrDmaBuf = reg_dmabuf_v12,
    .deregMr = dereg_mr,
    .isend = isend_v12,
    .irecv = irecv_v12,
    .iflush = iflush_v6,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_listen,
    .finalize = finalize_v12,
};

/* Version 6. */

static ncclResult_t properties_v6(int dev, ncclNetProperties_v6_t *p)
{
    memset(p, 0, sizeof(*p));
    p->name = "testnet0";
    p->ptrSupport = NCCL_PTR_HOST;
    p->speed = 10000;
    p->port = 1;
    p->maxComms = 64;
    p->maxRecvs = GROUP;
    return ncclSuccess;
}

static ncclResult_t listen_v4(int dev, void *handle, void **listen_comm)
{
    return listen_any(handle, listen_comm);
}

static ncclResult_t connect_v4(int dev, void *handle, void **send_comm)
{
    return connect_any(handle, send_comm);
}

static ncclResult_t reg_v4(void *comm, void *data, int size, int type, void **mhandle)
{
    return reg_mr(comm, mhandle);
}

static ncclResult_t isend_v6(void *comm, void *data, int size, int tag, void *mh, void **request)
{
    return isend_any(comm, data, (size_t)size, tag, request);
}

static ncclResult_t irecv_v6(void *comm, int n, void **data, int *sizes, int *tags, void **mh,
                             void **request)
{
    size_t wide[GROUP];

    for (int i = 0; i < n; i++)
        wide[i] = (size_t)sizes[i];
    return irecv_any(comm, n, data, wide, tags, request);
}

EXPORT const ncclNet_v6_t ncclNetPlugin_v6 = {
    .name = "testnet",
    .init = init_plugin,
    .devices = devices,
    .getProperties = properties_v6,
    .listen = listen_v4,
    .connect = connect_v4,
    .accept = accept_any,
    .regMr = reg_v4,
    .deregMr = dereg_mr,
    .isend = isend_v6,
    .irecv = irecv_v6,
    .iflush = iflush_v6,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_listen,
};

/* Version 4. */

static ncclResult_t properties_v4(int dev, ncclNetProperties_v4_t *p)
{
    memset(p, 0, sizeof(*p));
    p->name = "testnet0";
    p->ptrSupport = NCCL_PTR_HOST;
    p->speed = 10000;
    p->port = 1;
    p->maxComms = 64;
    return ncclSuccess;
}

static ncclResult_t isend_v4(void *comm, void *data, int size, void *mh, void **request)
{
    return isend_any(comm, data, (size_t)size, 0, request);
}

static ncclResult_t irecv_v4(void *comm, void *data, int size, void *mh, void **request)
{
    size_t wide = (size_t)size;

    return irecv_any(comm, 1, &data, &wide, NULL, request);
}

static ncclResult_t iflush_v4(void *comm, void *data, int size, void *mh, void **request)
{
    return flush_nothing(request);
}

EXPORT const ncclNet_v4_t ncclNetPlugin_v4 = {
    .name = "testnet",
    .init = init_plugin,
    .devices = devices,
    .getProperties = properties_v4,
    .listen = listen_v4,
    .connect = connect_v4,
    .accept = accept_blocking,
    .regMr = reg_v4,
    .deregMr = dereg_mr,
    .isend = isend_v4,
    .irecv = irecv_v4,
    .iflush = iflush_v4,
    .test = test,
    .closeSend = close_comm,
    .closeRecv = close_comm,
    .closeListen = close_listen,
};
