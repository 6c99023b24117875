/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * About the least that a net plugin over TCP can be. Each comm has one stream. isend sends a header
 * of 16 bytes and the payload at once, by one sendmsg. The receiver reads by one recvmsg straight
 * into the posted buffer. There is no striping, no batching, no check of the peer or the caller,
 * and nothing that waits or sleeps. It shows what the kernel's TCP allows to a plugin that copies.
 * tests/bench/tcp.sh --bare measures it beside the others. It is never installed.
 *
 * Settings show what is possible for a plugin whose comms can survive the loss of a connection.
 * PVN_BARE_ACKNOWLEDGES: a send of more than 4 KiB is done when the receiver has acknowledged it,
 * by a byte. PVN_BARE_CONTROL=N: a comm has a second connection, and is ready when each end has
 * greeted the other N times on it, in turn. PVN_BARE_OPTIONS=N, PVN_BARE_PAGES=N: N socket options
 * are set and N pages of memory are touched for each listener, sender and receiver.
 *
 * To read header and payload in one call, the receiver must know the length beforehand. It assumes
 * that a stream of messages of one length continues. If a message is shorter, the call has read
 * bytes of the next one too, and carries these over. It has then overwritten the buffer after the
 * message, which is allowed.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "plugin/nccl/net_v12.h"

enum {
    HEADER = 16, /* bytes */
    STEADY = 16, /* messages of one length in a row, after which the next is expected to have it */
    ACKNOWLEDGED_FROM = 4097, /* bytes */
    GREETING = 64,            /* bytes */
    PAGE = 4096,              /* bytes */
    STATE_AT = 64             /* where connect keeps its comm in the handle */
};

struct comm;
struct request {
    struct comm *c;
    bool used, done;
    char *data;
    size_t size;  /* to be sent, or that may come; then, that came */
    size_t moved; /* with the header */
    uint64_t head[HEADER / 8];
};

struct comm {
    int fd, control; /* -1: there is none */
    bool sender;
    unsigned greeted;       /* by the other end, on the control connection */
    struct comm *accepting; /* listener: it has a stream and lacks its control connection */
    unsigned acknowledged;  /* sender: bytes that have come and belong to no send yet */
    unsigned oldest;        /* sender: request that may wait for the next of them */
    struct request req[NCCL_NET_MAX_REQUESTS];
    unsigned posted, next; /* requests: made, complete; they complete in order */
    /* receiver */
    size_t last;     /* length of the latest message */
    unsigned steady; /* messages before it that had the same */
    char *carry;     /* bytes that were read too far: [carried, carry_end) */
    size_t carried, carry_end;
    char *ballast; /* memory that is only touched */
};

static struct sockaddr_in own;
static char own_name[IF_NAMESIZE];
static bool acknowledges;
static unsigned greetings; /* of each end; 0: no control connection */
static unsigned options = 1, pages;

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *value = getenv(name);
    return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static ncclResult_t bare_init(void **ctx, uint64_t id, ncclNetCommConfig_v12_t *config,
                              ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
    struct ifaddrs *all;
    acknowledges = getenv("PVN_BARE_ACKNOWLEDGES") != NULL;
    greetings = setting("PVN_BARE_CONTROL", 0);
    options = setting("PVN_BARE_OPTIONS", 1);
    pages = setting("PVN_BARE_PAGES", 0);
    if (getifaddrs(&all) != 0)
        return ncclSystemError;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        bool loop = i->ifa_flags & IFF_LOOPBACK;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            (loop && own_name[0]))
            continue;
        memcpy(&own, i->ifa_addr, sizeof(own));
        strncpy(own_name, i->ifa_name, sizeof(own_name) - 1);
        if (!loop)
            break;
    }
    freeifaddrs(all);
    return own_name[0] ? ncclSuccess : ncclSystemError;
}

static ncclResult_t bare_devices(int *n)
{
    *n = 1;
    return ncclSuccess;
}

static ncclResult_t bare_properties(int dev, ncclNetProperties_v12_t *p)
{
    *p = (ncclNetProperties_v12_t){.name = own_name,
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

static ncclResult_t comm_new(int fd, bool sender, void **out)
{
    int on = 1;
    struct comm *c = fd < 0 ? NULL : calloc(1, sizeof(*c));
    if (!c)
        return ncclSystemError;
    for (unsigned i = 0; i < options; i++)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->ballast = pages ? malloc(pages * PAGE) : NULL;
    for (unsigned i = 0; c->ballast && i < pages; i++)
        c->ballast[i * PAGE] = 1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    c->fd = fd;
    c->control = -1;
    c->sender = sender;
    *out = c;
    return ncclSuccess;
}

static ncclResult_t bare_listen(void *ctx, int dev, void *handle, void **listener)
{
    struct sockaddr_in at = own;
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    at.sin_port = 0;
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return ncclSystemError;
    memcpy(handle, &at, sizeof(at));
    return comm_new(fd, false, listener);
}

static int dial(const void *handle)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 || connect(fd, handle, sizeof(struct sockaddr_in)) != 0 ? -1 : fd;
}

/* Returns 1 if the greeting has come, 0 if it has not, -1 if the connection is broken. */
static int greeted(int fd)
{
    char greeting[GREETING];
    ssize_t n = recv(fd, greeting, sizeof(greeting), MSG_DONTWAIT);
    return n == sizeof(greeting) ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
}

static bool greet(int fd)
{
    char greeting[GREETING] = {0};
    return send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
}

static ncclResult_t bare_connect(void *ctx, int dev, void *handle, void **comm,
                                 ncclNetDeviceHandle_v12_t **dev_comm)
{
    struct comm *c;
    *comm = NULL;
    memcpy(&c, (char *)handle + STATE_AT, sizeof(c));
    if (!c) {
        if (comm_new(dial(handle), true, (void **)&c) != ncclSuccess)
            return ncclSystemError;
        if (greetings && ((c->control = dial(handle)) < 0 || !greet(c->control)))
            return ncclSystemError;
        memcpy((char *)handle + STATE_AT, &c, sizeof(c));
    }
    int rc = c->control < 0 ? 1 : greeted(c->control);
    if (rc == 1 && ++c->greeted < greetings)
        rc = greet(c->control) ? 0 : -1;
    *comm = rc == 1 ? c : NULL;
    return rc < 0 ? ncclRemoteError : ncclSuccess;
}

/* The stream is the first of a comm's two connections, because they are dialled in that order. */
static ncclResult_t bare_accept(void *listener, void **comm, ncclNetDeviceHandle_v12_t **dev_comm)
{
    struct comm *l = listener, *c = l->accepting;
    *comm = NULL;
    if (!c || c->control < 0) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return errno == EAGAIN ? ncclSuccess : ncclSystemError;
        if (c)
            c->control = fd;
        else if (comm_new(fd, false, (void **)&l->accepting) != ncclSuccess)
            return ncclSystemError;
        c = l->accepting;
    }
    if (greetings) {
        int rc = c->control < 0 ? 0 : greeted(c->control);
        if (rc <= 0)
            return rc < 0 ? ncclRemoteError : ncclSuccess;
        if (!greet(c->control))
            return ncclRemoteError;
        if (++c->greeted < greetings)
            return ncclSuccess;
    }
    l->accepting = NULL;
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

/* Returns the call's result: 1 if bytes moved, 0 if the kernel has no room or no bytes, -1 if the
 * stream is broken. */
static int outcome(ssize_t n)
{
    return n > 0 ? 1 : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Returns the rest of the header and of the payload, up to `size` bytes of the payload. */
static int pieces(struct request *r, size_t size, struct iovec *iov)
{
    size_t in_head = r->moved < HEADER ? r->moved : HEADER, in_data = r->moved - in_head;
    int n = 0;
    if (in_head < HEADER)
        iov[n++] = (struct iovec){(char *)r->head + in_head, HEADER - in_head};
    if (in_data < size)
        iov[n++] = (struct iovec){r->data + in_data, size - in_data};
    return n;
}

/* True if the kernel has taken all of a send. */
static bool written(const struct request *r)
{
    return r->moved == HEADER + r->size;
}

/* True if the receiver acknowledges this send, which is not done until then. */
static bool is_acknowledged(const struct request *r)
{
    return acknowledges && r->size >= ACKNOWLEDGED_FROM;
}

static int send_some(struct comm *c, struct request *r)
{
    struct iovec iov[2];
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = (size_t)pieces(r, r->size, iov)};
    ssize_t n = sendmsg(c->fd, &mh, MSG_NOSIGNAL);
    if (n > 0)
        r->moved += (size_t)n;
    r->done = written(r) && !is_acknowledged(r);
    return outcome(n);
}

/* Sender: completes the sends that the receiver has acknowledged, in order. */
static int take_acknowledgements(struct comm *c)
{
    char bytes[NCCL_NET_MAX_REQUESTS];
    while (c->oldest != c->next) {
        struct request *r = &c->req[c->oldest % NCCL_NET_MAX_REQUESTS];
        if (is_acknowledged(r)) {
            ssize_t n = c->acknowledged ? 0 : recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
            if (n < 0)
                return outcome(n);
            c->acknowledged += (unsigned)n;
            if (c->acknowledged == 0)
                return -1;
            c->acknowledged--;
            r->done = true;
        }
        c->oldest++;
    }
    return 1;
}

static ssize_t from_carry(struct comm *c, const struct iovec *iov, int count)
{
    size_t taken = 0;
    for (int i = 0; i < count; i++) {
        size_t left = c->carry_end - c->carried, n = iov[i].iov_len < left ? iov[i].iov_len : left;
        memcpy(iov[i].iov_base, c->carry + c->carried, n);
        c->carried += n;
        taken += n;
    }
    return (ssize_t)taken;
}

/* Completes a message whose bytes are all here, perhaps with more behind them. */
static int finish(struct comm *c, struct request *r, size_t len)
{
    size_t extra = r->moved - HEADER - len;
    if (extra) {
        size_t left = c->carry_end - c->carried;
        char *all = malloc(extra + left);
        if (!all)
            return -1;
        memcpy(all, r->data + len, extra);
        if (left)
            memcpy(all + extra, c->carry + c->carried, left);
        free(c->carry);
        c->carry = all;
        c->carried = 0;
        c->carry_end = extra + left;
    }
    c->steady = len == c->last ? c->steady + 1 : 0;
    c->last = len;
    r->size = len;
    r->done = true;
    if (is_acknowledged(r) && send(c->fd, "", 1, MSG_NOSIGNAL) != 1)
        return -1;
    return 1;
}

static int receive_some(struct comm *c, struct request *r)
{
    struct iovec iov[2];
    size_t want = r->moved >= HEADER ? r->head[0] : c->steady >= STEADY ? c->last : 0;
    int count = pieces(r, want < r->size ? want : r->size, iov);
    struct msghdr mh = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    ssize_t n = c->carried < c->carry_end ? from_carry(c, iov, count) : recvmsg(c->fd, &mh, 0);
    if (n <= 0)
        return outcome(n);
    r->moved += (size_t)n;
    if (r->moved >= HEADER && r->head[0] > r->size)
        return -1;
    return r->moved >= HEADER && r->moved - HEADER >= r->head[0] ? finish(c, r, r->head[0]) : 1;
}

/* Moves all bytes that can be moved now. */
static ncclResult_t progress(struct comm *c)
{
    while (c->next != c->posted) {
        struct request *r = &c->req[c->next % NCCL_NET_MAX_REQUESTS];
        int rc = c->sender ? send_some(c, r) : receive_some(c, r);
        if (rc <= 0)
            return rc < 0 ? ncclRemoteError : ncclSuccess;
        c->next += c->sender ? written(r) : r->done;
    }
    if (c->sender && c->oldest != c->next && take_acknowledgements(c) < 0)
        return ncclRemoteError;
    return ncclSuccess;
}

/* Returns NULL if all requests are in use. */
static struct request *post(struct comm *c, void *data, size_t size)
{
    struct request *r = &c->req[c->posted % NCCL_NET_MAX_REQUESTS];
    if (r->used)
        return NULL;
    *r = (struct request){.c = c, .used = true, .data = data, .size = size, .head = {size}};
    c->posted++;
    return r;
}

static ncclResult_t bare_isend(void *comm, void *data, size_t size, int tag, void *mr,
                               void *profile, void **request)
{
    struct comm *c = comm;
    *request = post(c, data, size);
    return *request ? progress(c) : ncclSuccess;
}

static ncclResult_t bare_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
                               void **profiles, void **request)
{
    *request = post(comm, data[0], sizes[0]);
    return ncclSuccess;
}

static ncclResult_t bare_iflush(void *comm, int n, void **data, int *sizes, void **mrs,
                                void **request)
{
    *request = NULL;
    return ncclSuccess;
}

static ncclResult_t bare_test(void *request, int *done, int *sizes)
{
    struct request *r = request;
    ncclResult_t rc = r->done ? ncclSuccess : progress(r->c);
    *done = r->done;
    if (!r->done)
        return rc;
    if (sizes)
        sizes[0] = (int)r->size;
    r->used = false;
    return ncclSuccess;
}

static ncclResult_t bare_close(void *comm)
{
    struct comm *c = comm;
    close(c->fd);
    if (c->control >= 0)
        close(c->control);
    free(c->carry);
    free(c->ballast);
    free(c);
    return ncclSuccess;
}

static ncclResult_t bare_finalize(void *ctx)
{
    return ncclSuccess;
}

__attribute__((visibility("default")))
const ncclNet_v12_t ncclNetPlugin_v12 = {.name = "bare TCP",
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
                                         .closeListen = bare_close,
                                         .finalize = bare_finalize};
