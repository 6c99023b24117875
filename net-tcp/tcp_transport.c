/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/tcp_transport.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/dev_list.h"
#include "base/log.h"
#include "base/param.h"
#include "connect/route.h"
#include "connect/sock.h"
#include "connect/token.h"
#include "nccl/types.h"
#include "net-tcp/iface.h"
#include "net-tcp/sockopt.h"
#include "net-tcp/steer.h"
#include "net-tcp/tcp_lane.h"
#include "net-tcp/tcp_workers.h"
#include "seal/seal_begin.h"

enum {
    MAX_COMMS = 65536,
    LONE_CHUNK = 4 << 20, /* bytes; chunks of a lane that has one stream */
    AUTO_WORKERS = 4,
    WORKER_MIN = 128 << 10, /* bytes; far more than is copied while a worker wakes up; not tuned */
    WORKERS_FROM_MBPS = 50000,
    DIAL_TO_LEN = 19 /* family, port, address */
};
/* Limit of the wait for an address in duplicate detection, or for a link that was just set up, if
 * no other interface leads out. */
#define COMES_NS (2 * PVN_NS_PER_S)

/* Facts from the scan that lanes need, by the device's index. scan writes them before any lane
 * exists. */
static struct {
    enum pvn_iface_kind kind;
    int speed_mbps;
    unsigned master;
    struct pvn_tcp_own own;
} facts[PVN_MAX_DEVICES];
static const struct pvn_iface_source *source;

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;

    while (n--)
        h = (h ^ *p++) * UINT64_C(0x100000001b3);
    return h;
}

/* Functions of one adapter share their PCI address but for the last digit. An interface without a
 * PCI function counts as an adapter of its own. */
static uint64_t guid_of(const struct pvn_iface *i)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const char *dot = strrchr(i->pci_path, '.');

    if (i->pci_path[0] && dot)
        return hash(h, i->pci_path, (size_t)(dot - i->pci_path));
    h = hash(h, i->name, strlen(i->name));
    return hash(h, i->hwaddr, i->hwaddr_len);
}

static void fill(struct pvn_device *d, const struct pvn_iface_pick *p, bool named, int index)
{
    const struct pvn_iface *i = p->iface;

    snprintf(d->name, sizeof(d->name), "%s", i->name);
    snprintf(d->ifname, sizeof(d->ifname), "%s", i->name);
    snprintf(d->pci_path, sizeof(d->pci_path), "%s", i->pci_path);
    snprintf(d->why, sizeof(d->why), "%s", p->why);
    d->guid = guid_of(i);
    d->ptr_support = NCCL_PTR_HOST;
    d->speed_mbps = i->speed_mbps;
    d->speed_known = i->speed_known;
    d->port = 1;
    d->latency_us = 0; /* depends on the path; NCCL's tuner has its own figure for sockets */
    d->max_comms = MAX_COMMS;
    d->max_recvs = 1;
    d->rail = d->plane = NCCL_NET_ID_UNDEF;
    d->ifindex = i->ifindex;
    d->addr = p->addr;
    d->addr_len = pvn_addr_len((const struct sockaddr *)&p->addr);
    d->prefixlen = p->prefixlen;
    _Static_assert(PVN_IFACE_MORE_ADDRS <= (int)PVN_MORE_ADDRS, "a device has room for them");
    for (d->nmore = 0; d->nmore < p->nmore; d->nmore++) {
        d->more[d->nmore].addr = p->more[d->nmore]->ss;
        d->more[d->nmore].prefixlen = p->more[d->nmore]->prefixlen;
    }
    d->via[0].ops = &pvn_tcp_transport;
    d->via[0].index = index;
    d->nvia = 1;
    facts[index].kind = i->kind;
    facts[index].speed_mbps = i->speed_mbps;
    facts[index].master = i->master;
    snprintf(facts[index].own.ifname, sizeof(facts[index].own.ifname), "%s", i->name);
    facts[index].own.ifindex = i->ifindex;
    facts[index].own.addr = p->addr;
    facts[index].own.prefixlen = p->prefixlen;
    facts[index].own.shares_net = p->shares_net;
    facts[index].own.named = named;
}

/* True if no pick leads out of this machine, or beyond its link. */
static bool leads_nowhere(const struct pvn_iface_pick *picks, int n)
{
    return n < 1 || picks[0].iface->kind == PVN_IFACE_LOOPBACK ||
           pvn_addr_is_link_local((const struct sockaddr *)&picks[0].addr);
}

/* True if the link may come up soon. The kernel reports the carrier up to a second after a link was
 * set up, for example a container's when its first process starts. A bridge without a carrier does
 * not count: none of its members is running, and that may last. */
static bool may_get_link(const struct pvn_iface *i)
{
    return i->up && !i->running && i->naddrs > 0 &&
           (i->kind <= PVN_IFACE_MACVLAN || i->kind == PVN_IFACE_VETH);
}

/* True if an address is still in IPv6 duplicate detection, which takes the kernel a second or
 * two. */
static bool has_tentative(const struct pvn_iface *i)
{
    for (int k = 0; i->up && i->running && k < i->naddrs; k++)
        if (i->addrs[k].tentative)
            return true;
    return false;
}

/* True if an interface may lead out soon. */
static bool one_may_come(const struct pvn_iface_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        if (may_get_link(&table->v[i]) || has_tentative(&table->v[i]))
            return true;
    return false;
}

/* True if a job on several hosts may need this interface: it is up, or somebody gave it an address.
 * A bridge without an uplink does not count, because its address may serve nothing, as with
 * Docker's. */
static bool may_lead_out(const struct pvn_iface *i)
{
    if (i->kind == PVN_IFACE_LOOPBACK)
        return false;
    if (i->up && i->running)
        return true;
    if (i->kind == PVN_IFACE_OTHER || (i->kind == PVN_IFACE_BRIDGE && !i->has_uplink))
        return false;
    for (int k = 0; k < i->naddrs; k++)
        if (!pvn_addr_is_link_local((const struct sockaddr *)&i->addrs[k].ss))
            return true;
    return false;
}

/* Warns if only loopback is used although another interface exists, because the job then cannot
 * leave this machine. If loopback is the only interface, as in a container without a network, that
 * is intended. */
static void warn_of_loopback(const struct pvn_iface_table *table, const struct pvn_params *p,
                             const char *left_out)
{
    for (size_t i = 0; i < table->n; i++)
        if (may_lead_out(&table->v[i])) {
            pvn_warn("only loopback is used%s, so no other machine can be reached; not used: %s",
                     p->socket_family == AF_INET    ? " (NCCL_SOCKET_FAMILY=AF_INET)"
                     : p->socket_family == AF_INET6 ? " (NCCL_SOCKET_FAMILY=AF_INET6)"
                                                    : "",
                     left_out);
            return;
        }
}

static int tcp_scan(struct pvn_device *out, int max, char *left_out, size_t cap,
                    struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    struct pvn_iface_pick picks[PVN_MAX_DEVICES];
    struct pvn_iface_table table = {0};
    uint64_t until = pvn_now_ns() + COMES_NS;
    struct pvn_dev_list named = pvn_dev_list_parse(p->socket_ifname);
    bool is_named = !named.empty && !named.exclude;
    int i, n;

    pvn_dev_list_warn("NCCL_SOCKET_IFNAME", p->socket_ifname);
    source = pvn_iface_source_default(p->nl_lib);
    if (max > PVN_MAX_DEVICES)
        max = PVN_MAX_DEVICES;
    for (;;) {
        n = pvn_iface_load(source, &table, err);
        if (n < 0)
            return n;
        pvn_err_clear(err);
        n = pvn_iface_choose(&table, p->socket_ifname, p->socket_family, picks, (size_t)max,
                             left_out, cap, err);
        bool lo_is_named = is_named && n > 0 && picks[0].iface->kind == PVN_IFACE_LOOPBACK;
        if (lo_is_named || !leads_nowhere(picks, n) || !one_may_come(&table) ||
            pvn_now_ns() >= until)
            break;
        pvn_iface_free(&table);
        nanosleep(&(struct timespec){.tv_nsec = 50 * (long)PVN_NS_PER_MS}, NULL);
    }
    if (n > 0 && picks[0].iface->kind == PVN_IFACE_LOOPBACK && !is_named)
        warn_of_loopback(&table, p, left_out);
    for (i = 0; i < n; i++)
        fill(&out[i], &picks[i], is_named, i);
    pvn_iface_free(&table);
    return n;
}

/* Workers pay if the link is faster than one core copies, some 60 Gb/s, and if NCCL's threads and
 * the application leave processors free. */
static int workers_for(int index)
{
    int threads = pvn_params_get()->tcp_threads;
    cpu_set_t cpus;
    int n;

    if (threads >= 0)
        return threads;
    if (facts[index].speed_mbps < WORKERS_FROM_MBPS || sched_getaffinity(0, sizeof(cpus), &cpus))
        return 0;
    n = CPU_COUNT(&cpus) / 4;
    return n < 2 ? 0 : n < AUTO_WORKERS ? n : AUTO_WORKERS;
}

/* The number of streams that the user has set; 0: none. NCCL's own variable counts per thread. */
static int requested_streams(void)
{
    const struct pvn_params *p = pvn_params_get();
    int streams = p->tcp_streams;

    if (pvn_param_source(p, "TCP_STREAMS") == PVN_PARAM_FROM_ALIAS &&
        pvn_param_source(p, "TCP_THREADS") == PVN_PARAM_FROM_ALIAS && p->tcp_threads > 1)
        streams *= p->tcp_threads;
    return streams < PVN_TCP_MAX_STREAMS ? streams : PVN_TCP_MAX_STREAMS;
}

static bool is_virtual(int index)
{
    switch (facts[index].kind) {
    case PVN_IFACE_PHYSICAL:
    case PVN_IFACE_BOND:
    case PVN_IFACE_VLAN:
    case PVN_IFACE_MACVLAN:
        return false;
    default:
        return true;
    }
}

/* One stream fills a virtual link, because one core copies for both ends. On a real link clouds and
 * switches limit a flow. */
static int streams_by_link(int index)
{
    int mbps = facts[index].speed_mbps;

    if (is_virtual(index))
        return 1;
    return mbps >= 100000 ? 8 : mbps >= 25000 ? 4 : 2;
}

/* A worker moves one stream's bytes at a time, so a comm on its own needs several. */
static int streams_for(int index, int workers)
{
    int streams = requested_streams();
    int least = workers < AUTO_WORKERS ? workers : AUTO_WORKERS;

    if (streams > 0)
        return streams;
    streams = streams_by_link(index);
    return streams > least ? streams : least;
}

static size_t zerocopy_min(void)
{
    size_t min = (size_t)pvn_params_get()->tcp_zerocopy_min;

    return min > 0 && min < PVN_TCP_ZEROCOPY_LEAST ? PVN_TCP_ZEROCOPY_LEAST : min;
}

/* The transport's own number of a lane's device. */
static int index_of(const struct pvn_device *dev)
{
    int v = 0;

    while (dev->via[v].ops != &pvn_tcp_transport)
        v++;
    return dev->via[v].index;
}

static int dial(void *ctx, const uint8_t *to, size_t len, int lane, int stream, unsigned *by,
                struct pvn_err *err)
{
    const struct pvn_lane_args *a = ctx;
    struct pvn_wire_addr addr = {0};
    const struct sockaddr_storage *from;
    struct sockaddr_storage ss;
    socklen_t ss_len;
    int fd, rc;

    (void)lane;
    (void)stream;
    if (len == DIAL_TO_LEN) {
        addr.family = to[0];
        addr.port = (uint16_t)(to[1] | to[2] << 8);
        memcpy(addr.bytes, to + 3, sizeof(addr.bytes));
    }
    if ((addr.family != 4 && addr.family != 6) || addr.port == 0)
        return pvn_err_set(err, -EPROTO, "the peer's offer names no address for data connections");
    ss_len = pvn_wire_addr_to_sockaddr(&addr, a->dev->ifindex, &ss);
    fd = pvn_sock_open(&ss, a->traffic_class, err);
    if (fd < 0)
        return fd;
    pvn_tcp_sockopt_data(fd, pvn_params_get());
    from = pvn_route_source(a->dev, (const struct sockaddr *)&ss);
    if (source &&
        pvn_tcp_steer(fd, source, &facts[index_of(a->dev)].own, (const struct sockaddr *)&ss) &&
        from == &a->dev->addr)
        *by = a->dev->ifindex;
    rc = pvn_sock_connect(fd, from, from ? a->dev->addr_len : 0, &ss, ss_len, err);
    return rc < 0 ? rc : fd;
}

static int preamble(void *ctx, int lane, int stream, uint8_t *out)
{
    const struct pvn_lane_args *a = ctx;
    struct pvn_preamble p = {.version = PVN_WIRE_VERSION,
                             .kind = PVN_PREAMBLE_STREAM,
                             .lane = (uint8_t)lane,
                             .stream = (uint16_t)stream,
                             .session = a->session,
                             .nonce = a->nonce};

    _Static_assert(PVN_PREAMBLE_MOST <= (int)PVN_TCP_PREAMBLE_MAX, "a stream's preamble must fit");
    /* A stream without a token, which is not expected, is refused by the listener. */
    if (a->streams && pvn_token_of_stream(a->streams, lane, stream, p.token, NULL) == 0)
        p.kind = PVN_PREAMBLE_STREAM_KEY;
    return pvn_preamble_encode(out, &p);
}

static int secret(void *ctx, int lane, int stream, uint8_t out[PVN_SEAL_SECRET],
                  struct pvn_err *err)
{
    const struct pvn_lane_args *a = ctx;

    _Static_assert(PVN_SEAL_SECRET == (int)PVN_SECRET_BYTES, "a secret is one of a stream");
    return pvn_token_seal_of_stream(a->streams, lane, stream, out, err);
}

static int tcp_lane_new(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                        struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    int workers = workers_for(index);
    struct pvn_tcp_lane_cfg cfg = {.sender = args->sender,
                                   .streams = streams_for(index, workers),
                                   .workers = workers,
                                   .worker_min = WORKER_MIN,
                                   .chunk = pvn_chunk_lines((size_t)p->tcp_chunk),
                                   .lone_chunk = LONE_CHUNK,
                                   .batch = p->tcp_batch,
                                   .zerocopy_min = zerocopy_min(),
                                   .acknowledged = args->acknowledged,
                                   .clear_to_send = args->clear_to_send,
                                   .ifindex = args->dev->ifindex,
                                   .master = facts[index].master,
                                   .large = args->large,
                                   .dial = dial,
                                   .preamble = preamble,
                                   .secret = args->sealed ? secret : NULL,
                                   .sealed_by_kernel = args->sealed && !pvn_seal_kernel_refusal(),
                                   .ctx = (void *)args};
    struct pvn_wire_addr a;

    snprintf(cfg.name, sizeof(cfg.name), "%s", args->dev->name);
    if (!args->sender) {
        if (pvn_wire_addr_from_sockaddr(&a, (const struct sockaddr *)args->listen_addr) != 0)
            return pvn_err_set(err, -EINVAL, "device %s has no listening address", args->dev->name);
        cfg.dial_to[0] = a.family;
        cfg.dial_to[1] = (uint8_t)a.port;
        cfg.dial_to[2] = (uint8_t)(a.port >> 8);
        memcpy(cfg.dial_to + 3, a.bytes, sizeof(a.bytes));
        cfg.dial_to_len = DIAL_TO_LEN;
    }
    *out = pvn_tcp_lane_new(&cfg);
    if (!*out)
        return pvn_err_set(err, -errno, "making a TCP lane on %s", args->dev->name);
    return 0;
}

static void tcp_after_fork(void)
{
    pvn_iface_after_fork();
    tcp_workers_after_fork();
}

const struct pvn_transport_ops pvn_tcp_transport = {
    .name = "tcp",
    .chosen_by = "NCCL_SOCKET_IFNAME",
    .is_fallback = true,
    .seals = true,
    .offer_keeps = true,
    .scan = tcp_scan,
    .lane_new = tcp_lane_new,
    .unload = NULL,
    .after_fork = tcp_after_fork,
};
