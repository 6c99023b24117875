/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * About the least that a net plugin over RDMA verbs can be, for messages of up to 4 KiB: isend
 * copies the bytes into a ring and writes them to the same place in the receiver's ring as one RDMA
 * WRITE, whose last word is a number; test of a receive looks for that number and copies the bytes
 * out. A send is done as soon as it is posted. No clear-to-send entries, no tags, no checks of its
 * peer or its caller. It shows what NCCL's interface, pvn-perf and a device allow to a plugin that
 * carries short messages: tests/bench/rdma.sh --bare measures it beside perftest and ours. Never
 * installed.
 */
#include "config.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/nccl/net_v12.h"

enum {
    SLOTS = 64,
    MAX_BYTES = 4096,
    SLOT = MAX_BYTES + 64, /* bytes; a message ends with its slot */
    REPORT_EVERY = 16,     /* messages after which the receiver says how many it has taken */
    SIGNAL_EVERY = 16,     /* requests of which one has a completion */
    GID_INDEX = 1,         /* as `ib_write_lat -x 1` */
    STATE_AT = 64          /* where connect keeps its comm in the handle */
};

/* Behind the message's bytes. */
struct tail {
    uint32_t bytes, number;
};

struct side {
    uint32_t qpn, rkey;
    uint64_t ring;
};

struct comm;
struct request {
    struct comm *c;
    bool used;
    char *data;
};

struct comm {
    int fd;
    bool sender;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct side peer;
    char *ring;                  /* SLOTS of them, then the count of messages taken */
    uint32_t moved, unsignalled; /* messages sent or taken; requests */
    struct request req[NCCL_NET_MAX_REQUESTS];
    unsigned posted;
};

static size_t ring_bytes(void)
{
    return (size_t)SLOTS * SLOT + sizeof(uint64_t);
}

static uint32_t *taken(const struct comm *c)
{
    return (uint32_t *)(c->ring + (size_t)SLOTS * SLOT);
}

static struct tail *tail_of(const struct comm *c, uint32_t message)
{
    return (struct tail *)(c->ring + (size_t)(message % SLOTS + 1) * SLOT - sizeof(struct tail));
}

static ncclResult_t bare_init(void **ctx, uint64_t id, ncclNetCommConfig_v12_t *config,
                              ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    return ncclSuccess;
}

static ncclResult_t bare_devices(int *n)
{
    *n = 1;
    return ncclSuccess;
}

static ncclResult_t bare_properties(int dev, ncclNetProperties_v12_t *p)
{
    *p = (ncclNetProperties_v12_t){.name = "bare",
                                   .ptrSupport = NCCL_PTR_HOST,
                                   .speed = 10000,
                                   .maxComms = 65536,
                                   .maxRecvs = 1,
                                   .netDeviceType = NCCL_NET_DEVICE_HOST,
                                   .netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION,
                                   .vProps = {.ndevs = 1},
                                   .maxP2pBytes = MAX_BYTES,
                                   .maxCollBytes = MAX_BYTES,
                                   .maxMultiRequestSize = 1,
                                   .railId = NCCL_NET_ID_UNDEF,
                                   .planeId = NCCL_NET_ID_UNDEF};
    return ncclSuccess;
}

static struct ibv_context *first_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
    if (list)
        ibv_free_device_list(list);
    return ctx;
}

/* A comm with a queue pair that is not connected; NULL: the device does not have it. */
static struct comm *comm_new(int fd, bool sender)
{
    struct comm *c = fd < 0 ? NULL : calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->fd = fd;
    c->sender = sender;
    c->ctx = first_device();
    c->pd = c->ctx ? ibv_alloc_pd(c->ctx) : NULL;
    c->cq = c->pd ? ibv_create_cq(c->ctx, SLOTS, NULL, NULL, 0) : NULL;
    if (!c->cq || posix_memalign((void **)&c->ring, 4096, ring_bytes()) != 0)
        return NULL;
    memset(c->ring, 0, ring_bytes());
    struct ibv_qp_init_attr init = {.send_cq = c->cq,
                                    .recv_cq = c->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 2 * SLOTS,
                                            .max_recv_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    c->mr =
        ibv_reg_mr(c->pd, c->ring, ring_bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    c->qp = c->mr ? ibv_create_qp(c->pd, &init) : NULL;
    if (!c->qp ||
        ibv_modify_qp(c->qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return NULL;
    return c;
}

/* Both ends are on one device, so its own GID is the peer's. */
static bool ready_to_send(struct comm *c)
{
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_4096,
                              .dest_qp_num = c->peer.qpn,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 12,
                              .ah_attr = {.is_global = 1,
                                          .port_num = 1,
                                          .grh = {.sgid_index = GID_INDEX, .hop_limit = 64}}};
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 7, .max_rd_atomic = 1};
    return ibv_query_gid(c->ctx, 1, GID_INDEX, &rtr.ah_attr.grh.dgid) == 0 &&
           ibv_modify_qp(c->qp, &rtr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
               0 &&
           ibv_modify_qp(c->qp, &rts,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool report(const struct comm *c)
{
    struct side s = {c->qp->qp_num, c->mr->rkey, (uintptr_t)c->ring};
    return send(c->fd, &s, sizeof(s), MSG_NOSIGNAL) == sizeof(s);
}

static ncclResult_t bare_listen(void *ctx, int dev, void *handle, void **listener)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
        *l = malloc(sizeof(*l));
    if (!l || fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return ncclSystemError;
    memcpy(handle, &at, sizeof(at));
    *l = fd;
    *listener = l;
    return ncclSuccess;
}

static ncclResult_t bare_connect(void *ctx, int dev, void *handle, void **comm,
                                 ncclNetDeviceHandle_v12_t **dev_comm)
{
    struct comm *c;
    *comm = NULL;
    memcpy(&c, (char *)handle + STATE_AT, sizeof(c));
    if (!c) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, handle, sizeof(struct sockaddr_in)) != 0)
            return ncclSystemError;
        c = comm_new(fd, true);
        if (!c || !report(c))
            return ncclSystemError;
        memcpy((char *)handle + STATE_AT, &c, sizeof(c));
    }
    ssize_t n = recv(c->fd, &c->peer, sizeof(c->peer), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return ncclSuccess;
    if (n != sizeof(c->peer) || !ready_to_send(c))
        return ncclSystemError;
    *comm = c;
    return ncclSuccess;
}

static ncclResult_t bare_accept(void *listener, void **comm, ncclNetDeviceHandle_v12_t **dev_comm)
{
    int fd = accept4(*(int *)listener, NULL, NULL, SOCK_CLOEXEC);
    *comm = NULL;
    if (fd < 0 && errno == EAGAIN)
        return ncclSuccess;
    struct comm *c = comm_new(fd, false);
    if (!c || recv(fd, &c->peer, sizeof(c->peer), MSG_WAITALL) != sizeof(c->peer) ||
        !ready_to_send(c) || !report(c))
        return ncclSystemError;
    *comm = c;
    return ncclSuccess;
}

static ncclResult_t bare_reg(void *comm, void *data, size_t size, int type, void **mr)
{
    *mr = NULL;
    return ncclSuccess;
}

static ncclResult_t bare_dereg(void *comm, void *mr)
{
    return ncclSuccess;
}

/* Bytes of the ring to where they are in the peer's. */
static ncclResult_t write_ring(struct comm *c, const void *from, uint32_t len)
{
    bool signalled = ++c->unsignalled == SIGNAL_EVERY;
    struct ibv_sge sge = {(uintptr_t)from, len, c->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {.sg_list = &sge,
              .num_sge = 1,
              .opcode = IBV_WR_RDMA_WRITE,
              .send_flags = (len <= 64 ? IBV_SEND_INLINE : 0) | (signalled ? IBV_SEND_SIGNALED : 0),
              .wr.rdma = {c->peer.ring + (uint64_t)((const char *)from - c->ring), c->peer.rkey}};
    if (signalled) {
        /* The one before is long complete. */
        struct ibv_wc wc;
        c->unsignalled = 0;
        if (ibv_poll_cq(c->cq, 1, &wc) > 0 && wc.status != IBV_WC_SUCCESS)
            return ncclRemoteError;
    }
    return ibv_post_send(c->qp, &wr, &bad) == 0 ? ncclSuccess : ncclSystemError;
}

static struct request *post(struct comm *c, void *data)
{
    struct request *r = &c->req[c->posted % NCCL_NET_MAX_REQUESTS];
    if (r->used)
        return NULL;
    *r = (struct request){c, true, data};
    c->posted++;
    return r;
}

static ncclResult_t bare_isend(void *comm, void *data, size_t size, int tag, void *mr,
                               void *profile, void **request)
{
    struct comm *c = comm;
    struct request *r = NULL;
    *request = NULL;
    if (c->moved - __atomic_load_n(taken(c), __ATOMIC_ACQUIRE) < SLOTS)
        r = post(c, data);
    if (!r)
        return ncclSuccess;
    struct tail *t = tail_of(c, c->moved);
    char *to = (char *)t - size;
    memcpy(to, data, size);
    t->bytes = (uint32_t)size;
    t->number = ++c->moved;
    *request = r;
    return write_ring(c, to, (uint32_t)(size + sizeof(*t)));
}

static ncclResult_t bare_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
                               void **profiles, void **request)
{
    *request = post(comm, data[0]);
    return ncclSuccess;
}

static ncclResult_t bare_iflush(void *comm, int n, void **data, int *sizes, void **mrs,
                                void **request)
{
    *request = NULL;
    return ncclSuccess;
}

/* Receives complete in order, and pvn-perf tests them in order. */
static ncclResult_t bare_test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    struct comm *c = r->c;
    *done = 0;
    if (!c->sender) {
        const struct tail *t = tail_of(c, c->moved);
        if (__atomic_load_n(&t->number, __ATOMIC_ACQUIRE) != c->moved + 1)
            return ncclSuccess;
        memcpy(r->data, (const char *)t - t->bytes, t->bytes);
        if (sizes)
            sizes[0] = (int)t->bytes;
        if (++c->moved % REPORT_EVERY == 0) {
            *taken(c) = c->moved;
            if (write_ring(c, taken(c), sizeof(uint32_t)) != ncclSuccess)
                return ncclSystemError;
        }
    }
    *done = 1;
    r->used = false;
    return ncclSuccess;
}

static ncclResult_t bare_close(void *comm)
{
    struct comm *c = comm;
    ibv_destroy_qp(c->qp);
    ibv_destroy_cq(c->cq);
    ibv_dereg_mr(c->mr);
    ibv_dealloc_pd(c->pd);
    ibv_close_device(c->ctx);
    close(c->fd);
    free(c->ring);
    free(c);
    return ncclSuccess;
}

static ncclResult_t bare_close_listen(void *listener)
{
    close(*(int *)listener);
    free(listener);
    return ncclSuccess;
}

static ncclResult_t bare_finalize(void *ctx)
{
    return ncclSuccess;
}

__attribute__((visibility("default")))
const ncclNet_v12_t ncclNetPlugin_v12 = {.name = "bare verbs",
                                         .init = bare_init,
                                         .devices = bare_devices,
                                         .getProperties = bare_properties,
                                         .listen = bare_listen,
                                         .connect = bare_connect,
                                         .accept = bare_accept,
                                         .regMr = bare_reg,
                                         .deregMr = bare_dereg,
                                         .isend = bare_isend,
                                         .irecv = bare_irecv,
                                         .iflush = bare_iflush,
                                         .test = bare_test,
                                         .closeSend = bare_close,
                                         .closeRecv = bare_close,
                                         .closeListen = bare_close_listen,
                                         .finalize = bare_finalize};
