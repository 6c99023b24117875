/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "net-pvrdma/rdma_transport.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dev_list.h"
#include "base/log.h"
#include "base/param.h"
#include "base/poller.h"
#include "nccl/types.h"
#include "net-pvrdma/hca.h"
#include "net-pvrdma/probe.h"
#include "net-pvrdma/rdma_adapter.h"
#include "net-tcp/tcp_transport.h"

static_assert((int)PVN_PARAM_RDMA_SHORT_MAX == (int)PVN_RDMA_SHORT_MAX, "what the table allows");

enum {
    RNR_UNLIMITED = 7,    /* rnr_retry: no limit, because a late receiver is no error */
    MIN_CHUNK = 4096,     /* smallest chunk in bytes, unless the adapter takes less per request */
    LONE_CHUNK = 4 << 20, /* chunk size in bytes of a lane with one queue pair */
    IB_LEVELS = 15,       /* the bits of a service level */
    ROCE_LEVELS = 7
};

/* The result of a scan. Only scan, unload and after_fork write it, while no lane exists. */
static struct {
    const struct pvn_verbs *v;
    struct pvn_hca_options options;
    struct pvn_hca_table table;
    struct pvn_rdma_adapter **adapters; /* by the adapter's index in the table */
    struct pvn_rdma_adapter **of_port;  /* by the port's index; unlike the table it never changes */
    bool poller;                        /* a reference to the poller is held */
} found;

static void rdma_unload(void)
{
    for (int i = 0; found.adapters && i < found.table.nhcas; i++)
        pvn_rdma_adapter_free(found.adapters[i]);
    free(found.adapters);
    free(found.of_port);
    if (found.v) {
        pvn_hca_close(found.v, &found.table);
        pvn_verbs_put();
    }
    if (found.poller)
        pvn_poller_put();
    memset(&found, 0, sizeof(found));
}

/* Forgets the parent's objects in a forked child. Nothing is freed, because destroying an object would reach the
 * parent's devices. */
static void rdma_after_fork(void)
{
    memset(&found, 0, sizeof(found));
    pvn_verbs_after_fork();
}

/* After a fork, copy-on-write must not give the parent new pages in place of those that the adapter writes. Kernels since
 * 5.12 see to that themselves. For older ones ibv_fork_init has to be called before the first registration. */
static void protect_from_fork(const struct pvn_verbs *v)
{
    if (v->is_fork_initialized && v->is_fork_initialized() != PVN_VERBS_FORK_DISABLED)
        return;
    int rc = v->fork_init();
    if (rc)
        pvn_info(PVN_NET,
                 "RDMA: no protection against fork() (%d): a child that is forked after this may "
                 "lose data",
                 rc);
}

/* The reason why no lane of this adapter can use relaxed ordering; NULL: lanes in imm mode can (rdma_mode.h). */
static const char *no_use_of_ordering(const struct pvn_hca *h, const struct pvn_params *p)
{
    /* Memory is written by the hypervisor, not by a PCI Express device. The driver passes the access rights on to it
     * unchanged. */
    if (h->kind == PVN_HCA_PVRDMA)
        return "the hypervisor writes the memory of PVRDMA";
    if (p->rdma_mode == PVN_RDMA_MODE_RECORD)
        return "NCCL_PVRDMA_RDMA_MODE=record needs strict order";
    if (p->rdma_mode == PVN_RDMA_MODE_SEND || h->no_write)
        return "the two-sided mode registers no buffers";
    return NULL;
}

static struct pvn_rdma_ordering_cfg ordering_of(const struct pvn_hca *h)
{
    const struct pvn_params *p = pvn_params_get();
    bool alias = pvn_param_source(p, "RELAXED_ORDERING") == PVN_PARAM_FROM_ALIAS;
    return (struct pvn_rdma_ordering_cfg){.mode = (enum pvn_ordering_mode)p->relaxed_ordering,
                                          .from = alias ? "NCCL_IB_PCI_RELAXED_ORDERING"
                                                        : "NCCL_PVRDMA_RELAXED_ORDERING",
                                          .not_here = no_use_of_ordering(h, p)};
}

/* Creates an adapter, which tries GPU memory and relaxed ordering, and logs the results. */
static struct pvn_rdma_adapter *new_adapter(int hca, struct pvn_err *err)
{
    char ordering[200];
    const struct pvn_hca *h = &found.table.hcas[hca];
    const struct pvn_params *p = pvn_params_get();
    struct pvn_rdma_gpu_cfg cfg = {
        .v = found.v,
        .can_write = !h->no_write,
        .can_read = h->max_rd_atomic > 0 && (!h->no_loop || p->flush == PVN_FLUSH_MODE_READ),
        .lacks = h->kind == PVN_HCA_PVRDMA ? "PVRDMA has neither peer memory nor dma-buf" : NULL,
        .mode = (enum pvn_gpu_mem_mode)p->gpu_mem,
        .flush = (enum pvn_flush_mode)p->flush,
        .nccl_no_dmabuf = !p->dmabuf,
        .cuda_lib = p->cuda_lib};
    const struct pvn_rdma_ordering_cfg order = ordering_of(h);
    struct pvn_rdma_adapter *a =
        pvn_rdma_adapter_new(found.v, &found.options, &found.table, hca, &cfg, &order, err);
    if (!a)
        return NULL;
    pvn_info(PVN_INIT | PVN_NET, "%s: %s", h->name, pvn_rdma_adapter_gpu_cap(a)->text);
    pvn_info(PVN_INIT | PVN_NET, "%s: relaxed ordering: %s", h->name,
             pvn_rdma_ordering_text(pvn_rdma_adapter_ordering(a), ordering, sizeof(ordering)));
    return a;
}

/* Tries RDMA WRITE on the adapter's first usable port, and notes what the trial shows. */
static void try_write(int hca)
{
    for (int i = 0; i < found.table.nports; i++) {
        if (found.table.ports[i].hca != hca)
            continue;
        struct pvn_hca *h = &found.table.hcas[hca];
        enum pvn_probe p =
            pvn_probe_write(found.v, h, &found.table.ports[i], pvn_params_get()->pkey);
        if (p != PVN_PROBE_WORKS)
            pvn_info(PVN_INIT | PVN_NET, "%s: %s", found.table.ports[i].name,
                     p == PVN_PROBE_FAILS ? "SEND works and RDMA WRITE does not: two-sided mode"
                     : p == PVN_PROBE_NO_LOOP
                         ? "cannot talk to itself: RDMA WRITE is taken for granted, and GPU memory "
                           "is not flushed by RDMA READ"
                         : "the trial of RDMA WRITE could not be made: it is taken for granted");
        h->no_write = p == PVN_PROBE_FAILS;
        h->no_loop = p == PVN_PROBE_NO_LOOP;
        return;
    }
}

static int use_adapters(struct pvn_err *err)
{
    found.adapters = calloc((size_t)found.table.nhcas + 1, sizeof(struct pvn_rdma_adapter *));
    found.of_port = calloc((size_t)found.table.nports + 1, sizeof(struct pvn_rdma_adapter *));
    if (!found.adapters || !found.of_port)
        return pvn_err_set(err, -ENOMEM, "no memory for the RDMA devices");
    for (int i = 0; i < found.table.nhcas; i++) {
        try_write(i);
        found.adapters[i] = new_adapter(i, err);
        if (!found.adapters[i])
            return err->code;
    }
    for (int i = 0; i < found.table.nports; i++)
        found.of_port[i] = found.adapters[found.table.ports[i].hca];
    return 0;
}

/* The TCP device for the control connections of an RDMA port: the one on the port's interface. If there is none, the first
 * TCP device. */
static int control_device(const struct pvn_hca_port *p, const struct pvn_device *tcp, int ntcp)
{
    for (int i = 0; i < ntcp; i++)
        if (p->ifname[0] && strcmp(tcp[i].ifname, p->ifname) == 0)
            return i;
    return 0;
}

static void fill(struct pvn_device *d, int index, const struct pvn_device *tcp, int ntcp)
{
    const struct pvn_hca_port *p = &found.table.ports[index];
    const struct pvn_hca *h = &found.table.hcas[p->hca];
    const struct pvn_device *t = &tcp[control_device(p, tcp, ntcp)];
    pvn_str_append(d->name, sizeof(d->name), "%s", h->nports > 1 ? p->name : h->name);
    pvn_str_append(d->pci_path, sizeof(d->pci_path), "%s", h->pci_path);
    d->guid = h->guid;
    const struct pvn_gpumem_cap *gpu = pvn_rdma_adapter_gpu_cap(found.adapters[p->hca]);
    d->ptr_support = gpu->ptr_support;
    d->force_flush = gpu->flush.force;
    /* The speed of another interface says nothing about this port. */
    bool own = p->ifname[0] && strcmp(t->ifname, p->ifname) == 0;
    d->speed_known = p->speed_known || (own && t->speed_known);
    d->speed_mbps = p->speed_known ? p->speed_mbps : t->speed_mbps;
    d->port = p->port;
    d->max_comms = 65536;
    d->max_recvs =
        h->no_write || pvn_params_get()->rdma_mode == PVN_RDMA_MODE_SEND ? 1 : PVN_MAX_RECVS;
    int rail, plane;
    pvn_dev_list_place(pvn_params_get()->ib_hca, h->name, p->port, &rail, &plane);
    d->rail = (int16_t)rail;
    d->plane = (int16_t)plane;
    pvn_str_append(d->why, sizeof(d->why), "%s; gpu memory: %s", p->why,
                   !(gpu->ptr_support & NCCL_PTR_CUDA) ? "staged in host memory"
                   : gpu->dmabuf                       ? "by dma-buf"
                                                       : "by peer memory");
    if (!own)
        pvn_str_append(d->why, sizeof(d->why), "; control connections over %s", t->ifname);
    pvn_str_append(d->ifname, sizeof(d->ifname), "%s", t->ifname);
    d->ifindex = t->ifindex;
    d->addr = t->addr;
    d->addr_len = t->addr_len;
    d->prefixlen = t->prefixlen;
    d->nmore = t->nmore;
    memcpy(d->more, t->more, sizeof(d->more));
    d->via[d->nvia].ops = &pvn_rdma_transport;
    d->via[d->nvia++].index = index;
    if (pvn_params_get()->transport == PVN_TRANSPORT_AUTO)
        d->via[d->nvia++] = t->via[0];
}

static int offer_devices(struct pvn_device *out, int max, char *left_out, size_t cap,
                         struct pvn_err *err)
{
    struct pvn_device *tcp = calloc(PVN_MAX_DEVICES, sizeof(*tcp));
    char ignored[512] = "";
    if (found.table.left_out[0])
        pvn_str_append(left_out, cap, "%s%s", left_out[0] ? ", " : "", found.table.left_out);
    if (found.table.nports == 0) {
        free(tcp);
        return 0;
    }
    if (!tcp)
        return pvn_err_set(err, -ENOMEM, "no memory for the device table");
    int ntcp = pvn_tcp_transport.scan(tcp, PVN_MAX_DEVICES, ignored, sizeof(ignored), err);
    if (ntcp == 0)
        ntcp = pvn_err_set(
            err, -ENODEV,
            "RDMA needs an IP interface for control connections, and there is none: %s", ignored);
    int n = 0;
    for (; ntcp > 0 && n < found.table.nports && n < max; n++)
        fill(&out[n], n, tcp, ntcp);
    free(tcp);
    return ntcp < 0 ? ntcp : n;
}

static const char *hca_from(const struct pvn_params *p)
{
    return pvn_param_source(p, "IB_HCA") == PVN_PARAM_FROM_ENV ? PVN_PARAM_PREFIX "IB_HCA" : NULL;
}

/* True if a missing device of the list is an error. NCCL's own variable may be set for all hosts, of which some have no
 * RDMA devices. */
static bool needs_hca(const struct pvn_params *p)
{
    struct pvn_dev_list f = pvn_dev_list_parse(p->ib_hca);
    return !f.empty && !f.exclude && (p->strict || hca_from(p));
}

/* Lists the settings that restrict the GIDs of a port. An index counts alone. */
static void list_gid_settings(const struct pvn_params *p, char *buf, size_t size)
{
    const struct {
        const char *name;
        bool counts;
    } all[] = {{"GID_INDEX", p->gid_index >= 0},
               {"ROCE_VERSION", p->gid_index < 0 && p->roce_version != 0},
               {"ADDR_FAMILY", p->gid_index < 0 && p->addr_family != AF_UNSPEC},
               {"ADDR_RANGE", p->gid_index < 0 && p->addr_range[0]}};
    char one[96];
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].counts)
            pvn_str_append(buf, size, "%s%s", buf[0] ? ", " : "",
                           pvn_param_setting(p, all[i].name, one, sizeof(one)));
}

static int scan_with_library(struct pvn_device *out, int max, char *left_out, size_t cap,
                             struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    found.options = (struct pvn_hca_options){
        .sys_root = p->sysfs_root,
        .hca = p->ib_hca,
        .hca_from = hca_from(p),
        .may_lack_rdma = !needs_hca(p),
        .every_name = p->strict,
        .pkey = p->pkey,
        .gids = {.index = p->gid_index, .roce_version = p->roce_version, .family = p->addr_family}};
    pvn_str_append(found.options.gids.range, sizeof(found.options.gids.range), "%s", p->addr_range);
    pvn_param_setting(p, "PKEY", found.options.pkey_setting, sizeof(found.options.pkey_setting));
    list_gid_settings(p, found.options.gid_settings, sizeof(found.options.gid_settings));
    int rc = pvn_poller_get();
    if (rc < 0)
        return pvn_err_set(err, rc, "RDMA: no epoll descriptor");
    found.poller = true;
    protect_from_fork(found.v);
    rc = pvn_hca_scan(found.v, &found.options, &found.table, err);
    if (rc == 0)
        rc = use_adapters(err);
    return rc < 0 ? rc : offer_devices(out, max, left_out, cap, err);
}

/* Rewrites the error so that it names the variable. The loader's message may begin with the library's name, which is then
 * removed. */
static void name_library(const char *name, struct pvn_err *err)
{
    char why[PVN_ERR_REASON_LEN] = "";
    size_t len = strlen(name);
    bool again = strncmp(err->reason[0], name, len) == 0 && err->reason[0][len] == ':';
    pvn_str_append(why, sizeof(why), "%s", err->reason[0] + (again ? len + 2 : 0));
    pvn_err_set(err, err->code, "NCCL_PVRDMA_VERBS_LIB=%.80s: %.200s; correct it or unset it", name,
                why);
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
}

/* Loads the library that the user has named. If NCCL's variable names one that cannot be loaded, the default library is
 * used, as NCCL does. */
static const struct pvn_verbs *load_verbs(enum pvn_param_source source, struct pvn_err *err)
{
    const char *name = pvn_params_get()->verbs_lib;
    const struct pvn_verbs *v = pvn_verbs_get(name, err);
    if (!v && source == PVN_PARAM_FROM_ENV && strcmp(name, PVN_VERBS_USUAL) != 0)
        name_library(name, err);
    if (v || source != PVN_PARAM_FROM_ALIAS)
        return v;
    pvn_info(PVN_INIT | PVN_NET, "NCCL_IBVERBS_LIB=%.200s cannot be used, the default is: %s", name,
             err->reason[0]);
    pvn_err_clear(err);
    return pvn_verbs_get(NULL, err);
}

/* The error that no port is left beside those that settings leave out. */
static int refuse_settings(struct pvn_err *err)
{
    pvn_err_set(err, -ENODEV, "%s", found.table.left_out);
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return pvn_err_add(err, "settings leave no RDMA port, so RDMA is not used; correct or unset "
                            "them, or set NCCL_PVRDMA_TRANSPORT=tcp");
}

/* If RDMA is missing, this is an error only if RDMA, a library or devices are requested, or if settings leave out ports; else
 * it is only noted in left_out. */
static int rdma_scan(struct pvn_device *out, int max, char *left_out, size_t cap,
                     struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    bool requested = p->transport == PVN_TRANSPORT_RDMA;
    enum pvn_param_source library = pvn_param_source(p, "VERBS_LIB");
    found.v = load_verbs(library, err);
    if (!found.v) {
        if (needs_hca(p)) {
            pvn_err_add(err, "%s=%.80s names RDMA devices",
                        hca_from(p) ? hca_from(p) : "NCCL_IB_HCA", p->ib_hca);
            pvn_err_set_fault(err, PVN_FAULT_USAGE);
        }
        if (requested || library == PVN_PARAM_FROM_ENV || needs_hca(p))
            return err->code;
        pvn_str_append(left_out, cap, "%s", err->reason[0]);
        pvn_err_clear(err);
        return 0;
    }
    int n = scan_with_library(out, max, left_out, cap, err);
    if (n == 0 && requested)
        n = pvn_err_set(err, -ENODEV, "NCCL_PVRDMA_TRANSPORT=rdma, but no RDMA port is usable%s%s",
                        found.table.left_out[0] ? ": " : "", found.table.left_out);
    else if (n == 0 && found.table.by_setting)
        n = refuse_settings(err);
    if (n <= 0)
        rdma_unload();
    return n;
}

static bool has_gpu_memory(const struct pvn_rdma_hold *h)
{
    return pvn_rdma_adapter_gpu_cap(h->adapter)->ptr_support & NCCL_PTR_CUDA;
}

/* pvn_rdma_lane_cfg.modes of this adapter. The two-sided mode copies by processor, so an adapter that offers GPU memory
 * does not accept it unless the user or the adapter requires it. */
static unsigned modes_of(const struct pvn_rdma_hold *h, enum pvn_rdma_mode mode)
{
    if (pvn_params_get()->rdma_mode != PVN_RDMA_MODE_AUTO)
        return 0;
    if (mode != PVN_RDMA_AUTO)
        return 1u << mode | (has_gpu_memory(h) ? 0u : 1u << PVN_RDMA_SEND);
    return has_gpu_memory(h) ? 1u << PVN_RDMA_RECORD | 1u << PVN_RDMA_IMM : 0;
}

/* pvn_rdma_lane_cfg.mode of this adapter. Record mode needs data and record to become visible in order. A network that
 * reorders packets may deliver a later write before an earlier one. GPU memory is written over another path than the host
 * memory of the records. So in both cases imm mode waits for the adapter's completion. */
static enum pvn_rdma_mode mode_of(const struct pvn_rdma_hold *h, bool sender)
{
    const struct pvn_params *p = pvn_params_get();
    if (p->rdma_mode != PVN_RDMA_MODE_AUTO)
        return p->rdma_mode == PVN_RDMA_MODE_IMM    ? PVN_RDMA_IMM
               : p->rdma_mode == PVN_RDMA_MODE_SEND ? PVN_RDMA_SEND
                                                    : PVN_RDMA_RECORD;
    if (h->hca.no_write)
        return PVN_RDMA_SEND;
    bool reorders = p->adaptive_routing < 0 ? !h->port.ethernet : p->adaptive_routing;
    bool into_gpu = !sender && has_gpu_memory(h);
    return reorders || into_gpu ? PVN_RDMA_IMM : PVN_RDMA_AUTO;
}

static int health(void *arg, struct pvn_err *err)
{
    return pvn_rdma_adapter_health(arg, err);
}

static void sends_from(void *arg, const struct pvn_gid_row *own)
{
    pvn_rdma_adapter_send_from(arg, own);
}

static void closed(void *arg)
{
    pvn_rdma_adapter_release(arg);
}

/* The chunk size: RDMA_CHUNK if it is set, else `bytes`, within the port's limits. */
static size_t chunk_of(const struct pvn_params *p, const struct pvn_hca_port *port, uint64_t bytes)
{
    uint64_t chunk = p->rdma_chunk ? p->rdma_chunk : bytes;
    if (chunk < MIN_CHUNK)
        chunk = MIN_CHUNK;
    return pvn_chunk_lines((size_t)(port->max_msg < chunk ? port->max_msg : chunk));
}

static int make_lane(struct pvn_rdma_hold *hold, const struct pvn_lane_args *args,
                     struct pvn_lane **out, struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    const struct pvn_hca_port *port = &hold->port;
    const struct pvn_hca *h = &hold->hca;
    const struct pvn_gpumem_cap *gpu = pvn_rdma_adapter_gpu_cap(hold->adapter);
    struct pvn_rdma_lane_cfg c = {
        .v = found.v,
        .ctx = h->ctx,
        .pd = h->pd,
        .sender = args->sender,
        .acknowledged = args->acknowledged,
        .mode = mode_of(hold, args->sender),
        .modes = modes_of(hold, mode_of(hold, args->sender)),
        .gpu_caps = (gpu->peer ? PVN_LANE_GPU_PEER : 0u) | (gpu->dmabuf ? PVN_LANE_GPU_DMABUF : 0u),
        .flush = gpu->flush.kind,
        .qps = p->qps,
        .max_chunk = chunk_of(p, port, p->tcp_chunk),
        .lone_chunk = chunk_of(p, port, LONE_CHUNK),
        .software = h->kind == PVN_HCA_PVRDMA || !h->pci_path[0],
        .costly_poll = h->costly_poll,
        .idle_poll_ns = p->rdma_poll,
        .short_max = (uint32_t)p->rdma_short,
        .large = args->large,
        .may_block = args->may_block,
        .port = port->port,
        .ethernet = port->ethernet,
        .max_wr = h->max_wr,
        .max_cqe = h->max_cqe,
        .max_inline = h->max_inline,
        .timeout = (uint8_t)p->ib_timeout,
        .retry_cnt = (uint8_t)p->ib_retry_cnt,
        .rnr_retry = RNR_UNLIMITED,
        .sl = args->service_level & (port->ethernet ? ROCE_LEVELS : IB_LEVELS),
        .traffic_class = args->traffic_class < 0 ? 0 : (uint8_t)args->traffic_class,
        .pkey_index = (uint16_t)p->pkey,
        .max_rd_atomic = h->max_rd_atomic,
        .health = health,
        .sends_from = sends_from,
        .closed = closed,
        .health_arg = hold,
        .registrar = hold->registrar,
    };
    pvn_str_append(c.name, sizeof(c.name), "%s", port->name);
    int rc = port->ethernet ? pvn_rdma_adapter_gids(hold, c.gids)
                            : pvn_hca_current_port(found.v, h, &hold->port);
    if (rc < 0)
        return pvn_err_set(err, rc, "the state or the GID table of %s cannot be read", port->name);
    c.ngids = port->ethernet ? rc : 0;
    c.lid = port->lid;
    c.mtu = port->mtu;
    *out = pvn_rdma_lane_new(&c, err);
    return *out ? 0 : err->code;
}

static int rdma_lane_new(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                         struct pvn_err *err)
{
    struct pvn_rdma_hold *hold;
    /* Makes events visible that no poll has taken yet. If the adapter has failed, set-up uses the next transport of
     * the device. */
    pvn_poller_poll_now();
    int rc = pvn_rdma_adapter_hold(found.of_port[index], index, args->may_block, args->spare, &hold,
                                   err);
    if (rc < 0)
        return rc;
    rc = make_lane(hold, args, out, err);
    if (rc < 0)
        pvn_rdma_adapter_release(hold);
    return rc;
}

const struct pvn_transport_ops pvn_rdma_transport = {
    .name = "rdma",
    .chosen_by = "NCCL_IB_HCA",
    .scan = rdma_scan,
    .lane_new = rdma_lane_new,
    .unload = rdma_unload,
    .after_fork = rdma_after_fork,
};
