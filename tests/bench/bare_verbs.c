/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * About the least that a net plugin over RDMA verbs can be. A message of up to 4 KiB needs no
 * clear-to-send entry. isend copies its bytes into a ring, and writes them to the equal offset in
 * the receiver's ring by one RDMA WRITE, whose last word is a number. The test of a receive polls
 * for that number and copies the bytes out. Such a send is done as soon as it is posted. A larger
 * message is written to the address in the receiver's entry, and its number into the ring after it.
 * That send is done when a later entry says that the receiver has the message, or else by its
 * completion. There are no tags, no checks of the peer or the caller, and nothing that survives a
 * fault. It shows what NCCL's interface, its caller and a device leave to any plugin. --bare of
 * tests/bench/rdma.sh, peer_rdma.sh and nccl.sh measures it beside others. It is never installed.
 */
#include "config.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/nccl/net_v12.h"

enum {
    SLOTS = 64,
    COPIED_BYTES = 4096,      /* a message of up to so many goes through the ring */
    SLOT = COPIED_BYTES + 64, /* bytes; a message ends with its slot */
    REPORT_EVERY = 16,        /* messages after which the receiver says how many it has taken */
    SIGNAL_EVERY = 16,        /* writes of the ring of which one has a completion */
    ENTRIES_AT_ONCE = 4,      /* that wait for one write while the sender has others left */
    LOOKS = 16,         /* at memory that find nothing, before a sender asks its completion queue */
    MAX_SIGNALLED = 32, /* completions that may wait in the queue */
    GID_INDEX = 1,      /* as `ib_write_lat -x 1`; NCCL_IB_GID_INDEX says another */
    STATE_AT = 64       /* where connect keeps its comm in the handle */
};

/* Behind the message's bytes. */
struct tail {
    uint32_t bytes, number;
};

/* Clear to send, in the sender's memory. */
struct entry {
    uint64_t to;
    uint32_t rkey;
    uint32_t taken; /* messages that the receiver has */
    uint32_t unused;
    uint32_t number; /* of the message, from 1 on; the last word, visible when the others are */
};

struct side {
    uint32_t qpn, rkey;
    uint64_t ring;
    union ibv_gid gid;
};

struct comm;
struct request {
    struct comm *c;
    bool used;
    char *data;
    uint32_t number; /* of a message that is not copied, else 0 */
};

struct comm {
    int fd;
    bool sender;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct side peer;
    char *ring;                  /* SLOTS of them, the entries, the count of messages taken */
    uint32_t moved, unsignalled; /* messages sent or taken; writes of the ring */
    struct request req[NCCL_NET_MAX_REQUESTS];
    unsigned posted, signalled; /* requests of the caller; completions to come */
    /* Numbers of messages. Receiver: that have their entries written. Sender: whose entries have
     * come; that are at the receiver by its entries; that have their completions. */
    uint32_t offered, cleared, taken, completed;
    unsigned looks;
};

/* One device for all comms. */
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static uint8_t gid_index = GID_INDEX;
static struct sockaddr_in own;

static size_t ring_bytes(void)
{
    return (size_t)SLOTS * (SLOT + sizeof(struct entry)) + sizeof(uint64_t);
}

static struct entry *entry_of(const struct comm *c, uint32_t message)
{
    return (struct entry *)(c->ring + (size_t)SLOTS * SLOT) + message % SLOTS;
}

static uint32_t *taken(const struct comm *c)
{
    return (uint32_t *)(c->ring + ring_bytes() - sizeof(uint64_t));
}

static struct tail *tail_of(const struct comm *c, uint32_t message)
{
    return (struct tail *)(c->ring + (size_t)(message % SLOTS + 1) * SLOT - sizeof(struct tail));
}

static bool open_first_device(void)
{
    const char *index = getenv("NCCL_IB_GID_INDEX");
    struct ibv_device **list = ibv_get_device_list(NULL);
    ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
    if (list)
        ibv_free_device_list(list);
    pd = ctx ? ibv_alloc_pd(ctx) : NULL;
    if (index)
        gid_index = (uint8_t)atoi(index);
    return pd && ibv_query_port(ctx, 1, &port) == 0;
}

/* Finds the address of the interface that NCCL_SOCKET_IFNAME names, or loopback's if it is unset. */
static void find_address(void)
{
    const char *name = getenv("NCCL_SOCKET_IFNAME");
    struct ifaddrs *all;
    own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (!name || getifaddrs(&all) != 0)
        return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET && strcmp(i->ifa_name, name) == 0)
            memcpy(&own, i->ifa_addr, sizeof(own));
    freeifaddrs(all);
}

static ncclResult_t bare_init(void **state, uint64_t id, ncclNetCommConfig_v12_t *config,
                              ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    find_address();
    return pd || open_first_device() ? ncclSuccess : ncclSystemError;
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
                                   .maxP2pBytes = NCCL_MAX_NET_SIZE_BYTES,
                                   .maxCollBytes = NCCL_MAX_NET_SIZE_BYTES,
                                   .maxMultiRequestSize = 1,
                                   .railId = NCCL_NET_ID_UNDEF,
                                   .planeId = NCCL_NET_ID_UNDEF};
    return ncclSuccess;
}

/* Returns a comm with an unconnected queue pair, or NULL if the device cannot create it. */
static struct comm *comm_new(int fd, bool sender)
{
    struct comm *c = fd < 0 ? NULL : calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->fd = fd;
    c->sender = sender;
    c->cq = ibv_create_cq(ctx, 2 * SLOTS, NULL, NULL, 0);
    if (!c->cq || posix_memalign((void **)&c->ring, 4096, ring_bytes()) != 0)
        return NULL;
    memset(c->ring, 0, ring_bytes());
    struct ibv_qp_init_attr init = {.send_cq = c->cq,
                                    .recv_cq = c->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 4 * SLOTS,
                                            .max_recv_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    c->mr = ibv_reg_mr(pd, c->ring, ring_bytes(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    c->qp = c->mr ? ibv_create_qp(pd, &init) : NULL;
    if (!c->qp ||
        ibv_modify_qp(c->qp, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        return NULL;
    return c;
}

static bool ready_to_send(struct comm *c)
{
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = port.active_mtu,
        .dest_qp_num = c->peer.qpn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = c->peer.gid, .sgid_index = gid_index, .hop_limit = 64}}};
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 6, .rnr_retry = 7, .max_rd_atomic = 1};
    return ibv_modify_qp(c->qp, &rtr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
               0 &&
           ibv_modify_qp(c->qp, &rts,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool report(const struct comm *c)
{
    struct side s = {.qpn = c->qp->qp_num, .rkey = c->mr->rkey, .ring = (uintptr_t)c->ring};
    return ibv_query_gid(ctx, 1, gid_index, &s.gid) == 0 &&
           send(c->fd, &s, sizeof(s), MSG_NOSIGNAL) == sizeof(s);
}

static ncclResult_t bare_listen(void *state, int dev, void *handle, void **listener)
{
    struct sockaddr_in at = own;
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

static ncclResult_t bare_connect(void *state, int dev, void *handle, void **comm,
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
    *mr = ibv_reg_mr(pd, data, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return *mr ? ncclSuccess : ncclSystemError;
}

static ncclResult_t bare_dereg(void *comm, void *mr)
{
    return ibv_dereg_mr(mr) == 0 ? ncclSuccess : ncclSystemError;
}

/* Takes all completions from the completion queue. */
static ncclResult_t take_completions(struct comm *c)
{
    struct ibv_wc wc[MAX_SIGNALLED];
    int n = ibv_poll_cq(c->cq, MAX_SIGNALLED, wc);
    for (int i = 0; i < n; i++) {
        if (wc[i].status != IBV_WC_SUCCESS)
            return ncclRemoteError;
        if (wc[i].wr_id)
            c->completed = (uint32_t)wc[i].wr_id;
    }
    c->signalled -= n > 0 ? (unsigned)n : 0;
    return n < 0 ? ncclSystemError : ncclSuccess;
}

/* Writes bytes of the ring to the equal offset in the peer's ring. */
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
        c->unsignalled = 0;
        if (take_completions(c) != ncclSuccess)
            return ncclRemoteError;
        c->signalled++;
    }
    return ibv_post_send(c->qp, &wr, &bad) == 0 ? ncclSuccess : ncclSystemError;
}

/* Sender: reads the entries that have come, and their acknowledgements. */
static void read_entries(struct comm *c)
{
    const struct entry *e = entry_of(c, c->cleared);
    while (__atomic_load_n(&e->number, __ATOMIC_ACQUIRE) == c->cleared + 1) {
        c->taken = e->taken;
        e = entry_of(c, ++c->cleared);
    }
}

/* Receiver: writes the entries of all receives, once they are enough or the sender has none. */
static ncclResult_t offer(struct comm *c)
{
    if ((int32_t)(c->offered - c->moved) < 0)
        c->offered = c->moved; /* copied ones have come without an entry */
    uint32_t first = c->offered % SLOTS, n = c->posted - c->offered;
    if (n == 0 || (n < ENTRIES_AT_ONCE && c->offered != c->moved))
        return ncclSuccess;
    if (n > SLOTS - first)
        n = SLOTS - first;
    for (uint32_t i = 0; i < n; i++)
        entry_of(c, first + i)->taken = c->moved;
    c->offered += n;
    return write_ring(c, entry_of(c, first), n * (uint32_t)sizeof(struct entry));
}

/* Writes the message to its entry's address, and its number into the ring. */
static ncclResult_t write_message(struct comm *c, struct request *r, size_t size, struct ibv_mr *mr)
{
    const struct entry *e = entry_of(c, c->moved);
    struct tail *t = tail_of(c, c->moved);
    *t = (struct tail){(uint32_t)size, ++c->moved};
    r->number = c->moved;
    if (++c->signalled > MAX_SIGNALLED && take_completions(c) != ncclSuccess)
        return ncclRemoteError;
    struct ibv_sge data = {(uintptr_t)r->data, (uint32_t)size, mr->lkey},
                   number = {(uintptr_t)t, sizeof(*t), c->mr->lkey};
    struct ibv_send_wr *bad,
        second = {.wr_id = r->number,
                  .sg_list = &number,
                  .num_sge = 1,
                  .opcode = IBV_WR_RDMA_WRITE,
                  .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
                  .wr.rdma = {c->peer.ring + (uint64_t)((char *)t - c->ring), c->peer.rkey}},
        first = {.next = &second,
                 .sg_list = &data,
                 .num_sge = 1,
                 .opcode = IBV_WR_RDMA_WRITE,
                 .wr.rdma = {e->to, e->rkey}};
    return ibv_post_send(c->qp, &first, &bad) == 0 ? ncclSuccess : ncclSystemError;
}

static struct request *post(struct comm *c, void *data)
{
    struct request *r = &c->req[c->posted % NCCL_NET_MAX_REQUESTS];
    if (r->used)
        return NULL;
    *r = (struct request){.c = c, .used = true, .data = data};
    c->posted++;
    return r;
}

static ncclResult_t bare_isend(void *comm, void *data, size_t size, int tag, void *mr,
                               void *profile, void **request)
{
    struct comm *c = comm;
    struct request *r = NULL;
    *request = NULL;
    read_entries(c);
    if ((size <= COPIED_BYTES || c->cleared > c->moved) &&
        c->moved - __atomic_load_n(taken(c), __ATOMIC_ACQUIRE) < SLOTS)
        r = post(c, data);
    if (!r)
        return ncclSuccess;
    *request = r;
    if (size > COPIED_BYTES)
        return write_message(c, r, size, mr);
    struct tail *t = tail_of(c, c->moved);
    char *to = (char *)t - size;
    memcpy(to, data, size);
    t->bytes = (uint32_t)size;
    if (c->cleared == c->moved)
        c->cleared++; /* its entry may never come */
    t->number = ++c->moved;
    return write_ring(c, to, (uint32_t)(size + sizeof(*t)));
}

static ncclResult_t bare_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
                               void **profiles, void **request)
{
    struct comm *c = comm;
    uint32_t message = c->posted;
    *request = post(c, data[0]);
    if (!*request)
        return ncclSuccess;
    const struct ibv_mr *mr = mrs[0];
    *entry_of(c, message) =
        (struct entry){.to = (uintptr_t)data[0], .rkey = mr ? mr->rkey : 0, .number = message + 1};
    if (sizes[0] <= COPIED_BYTES && c->offered == message)
        c->offered++; /* it needs none */
    return offer(c);
}

static ncclResult_t bare_iflush(void *comm, int n, void **data, int *sizes, void **mrs,
                                void **request)
{
    *request = NULL;
    return ncclSuccess;
}

/* Checks, for a large send, that the receiver has the message. */
static ncclResult_t look(struct comm *c, const struct request *r, bool *there)
{
    ncclResult_t rc = ncclSuccess;
    read_entries(c);
    if ((int32_t)(c->taken - r->number) < 0 && c->looks++ % LOOKS == LOOKS - 1)
        rc = take_completions(c);
    *there = (int32_t)(c->taken - r->number) >= 0 || (int32_t)(c->completed - r->number) >= 0;
    return rc;
}

/* Receives complete in order. Callers test them in order. */
static ncclResult_t bare_test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    struct comm *c = r->c;
    *done = 0;
    if (c->sender) {
        bool there = true;
        ncclResult_t rc = r->number ? look(c, r, &there) : ncclSuccess;
        if (!there)
            return rc;
    } else {
        const struct tail *t = tail_of(c, c->moved);
        if (__atomic_load_n(&t->number, __ATOMIC_ACQUIRE) != c->moved + 1)
            return offer(c);
        if (t->bytes <= COPIED_BYTES)
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

static ncclResult_t bare_finalize(void *state)
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
