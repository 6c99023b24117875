/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "perf/pin.h"

#define CHECK_PASSES   128  /* idle passes between looks at the clock */
#define CHECK_INTERVAL 0.05 /* seconds between looks at the other ranks */

/* NCCL's logger has no argument of its own: one rank per process. */
static struct {
    struct pvn_rank *r;
    int banner; /* print INFO lines: rank 0 during init */
} log_to;

static void send_row(struct pvn_rank *r, struct pvn_row *row)
{
    const char *p = (const char *)row;
    size_t left = sizeof(*row);

    if (r->row_fd < 0)
        return;
    row->plugin = r->plugin;
    row->repeat = r->repeat;
    row->abi = r->abi;
    while (left) {
        ssize_t n = write(r->row_fd, p, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* the parent is gone, and so will this process be */
        p += n;
        left -= (size_t)n;
    }
}

static void send_text(struct pvn_rank *r, int kind, const char *fmt, va_list ap)
{
    struct pvn_row row = {.kind = kind};

    vsnprintf(row.u.text, sizeof(row.u.text), fmt, ap);
    send_row(r, &row);
}

/* The transports of all ranks' comms, and the lanes of this rank in words. */
static void gather_lanes(struct pvn_rank *r, struct pvn_row_result *res)
{
    struct pvn_own_stats own;
    uint32_t *all;

    if (r->nranks == 1)
        return;
    pvn_own_stats_read(&own);
    snprintf(res->lanes, sizeof(res->lanes), "%s", own.lanes);
    all = calloc((size_t)r->nranks, sizeof(*all));
    if (!all)
        pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
    else if (pvn_boot_allgather(&r->boot, &own.via, all, sizeof(*all)))
        pvn_rank_fail_boot(r);
    for (int i = 0; all && i < r->nranks; i++)
        res->via |= all[i];
    free(all);
}

void pvn_rank_result(struct pvn_rank *r, const struct pvn_row_result *res)
{
    struct pvn_row row = {.kind = PVN_ROW_RESULT};

    row.u.result = *res;
    row.u.result.pinned = r->pin_fd >= 0;
    gather_lanes(r, &row.u.result);
    send_row(r, &row);
}

void pvn_rank_hist(struct pvn_rank *r, const struct pvn_hist *h)
{
    const uint32_t nbins = PVN_HIST_BUCKETS / PVN_BIN_BUCKETS;
    struct pvn_row row = {.kind = PVN_ROW_BINS};
    struct pvn_row_bins *b = &row.u.bins;

    for (uint32_t i = 0; i < nbins; i++) {
        uint64_t count = i + 1 == nbins ? h->over : 0;

        for (uint32_t k = 0; k < PVN_BIN_BUCKETS; k++)
            count += h->bucket[i * PVN_BIN_BUCKETS + k];
        if (!count)
            continue;
        b->bin[b->n].bin = i;
        b->bin[b->n++].count = count;
        if (b->n == PVN_ROW_BINS_MAX) {
            send_row(r, &row);
            b->n = 0;
        }
    }
    if (b->n)
        send_row(r, &row);
}

void pvn_rank_say_sizes(const struct pvn_rank *r, int rc)
{
    if (!rc && r->sizes_missing)
        fprintf(stderr,
                "pvn-perf: rank %d: plugin %s does not report in test() how much was received\n",
                r->rank, r->o->plugin[r->plugin].name);
}

void pvn_rank_interval(struct pvn_rank *r, const struct pvn_row_interval *i)
{
    struct pvn_row row = {.kind = PVN_ROW_INTERVAL};

    row.u.interval = *i;
    send_row(r, &row);
}

void pvn_rank_error(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_ERROR};

    snprintf(row.u.text, sizeof(row.u.text), "%s", r->err);
    send_row(r, &row);
}

void pvn_rank_note(struct pvn_rank *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    send_text(r, PVN_ROW_NOTE, fmt, ap);
    va_end(ap);
}

void pvn_rank_progress(struct pvn_rank *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    send_text(r, PVN_ROW_PROGRESS, fmt, ap);
    va_end(ap);
}

static void plugin_log(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
                       const char *fmt, ...)
{
    struct pvn_rank *r = log_to.r;
    char text[PVN_LOG_LINE + 64];
    va_list ap;

    if (level > NCCL_LOG_INFO && level != NCCL_LOG_ABORT)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (level == NCCL_LOG_INFO && !log_to.banner && !r->o->verbose)
        return;
    if (level == NCCL_LOG_INFO && log_to.banner)
        pvn_rank_note(r, "%s: %s", r->o->plugin[r->plugin].name, text);
    else
        dprintf(STDERR_FILENO, "pvn-perf: rank %d: %s%s: %s\n", r->rank,
                r->o->plugin[r->plugin].name, level == NCCL_LOG_INFO ? "" : " warns", text);
}

int pvn_rank_idle(struct pvn_rank *r)
{
    double now;

    if (!r->o->spin)
        sched_yield();
    if (pvn_rank_stops(r))
        return -1;
    if (++r->idle % CHECK_PASSES)
        return 0;
    atomic_fetch_add_explicit(&r->beat->count, 1, memory_order_relaxed);
    now = pvn_boot_now();
    if (r->idle == CHECK_PASSES)
        r->idle_since = now;
    if (now >= r->next_check) {
        r->next_check = now + CHECK_INTERVAL;
        if (pvn_boot_check(&r->boot))
            return pvn_rank_fail_boot(r);
    }
    return now - r->idle_since > r->o->timeout;
}

double pvn_rank_cpu(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

void *pvn_rank_alloc(struct pvn_rank *r, size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p != MAP_FAILED)
        return p;
    pvn_rank_fail(r, "cannot allocate %zu bytes: %s", len, strerror(errno));
    return NULL;
}

void *pvn_rank_alloc_messages(struct pvn_rank *r, size_t len)
{
    void *p = pvn_rank_alloc(r, len);
    char why[160];

    if (!p || r->o->memory == PVN_PERF_MOVABLE)
        return p;
    r->pin_fd = pvn_pin(p, len, why, sizeof(why));
    if (r->pin_fd >= 0)
        return p;
    munmap(p, len);
    if (r->o->memory == PVN_PERF_PINNED_IF_POSSIBLE) {
        pvn_rank_note(r, "messages lie in memory that can be moved, unlike NCCL's: %s", why);
        return pvn_rank_alloc(r, len);
    }
    pvn_rank_fail(r, "--memory pinned: cannot pin %zu bytes: %s; use --memory movable", len, why);
    return NULL;
}

void pvn_rank_free_messages(struct pvn_rank *r, void *p, size_t len)
{
    munmap(p, len);
    if (r->pin_fd >= 0)
        close(r->pin_fd);
    r->pin_fd = -1;
}

/* Bytes that can be had without harm to others; SIZE_MAX: unknown. */
static size_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib;
    size_t bytes = SIZE_MAX;
    char line[128];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (size_t)kib * 1024;
    if (f)
        fclose(f);
    return bytes;
}

int pvn_rank_room(struct pvn_rank *r, size_t len)
{
    int here = r->external ? 1 : r->nranks;
    size_t room = available();

    if (len > room / (size_t)here)
        return pvn_rank_fail(r,
                             "buffers of %zu MiB in each of %d ranks do not fit into the %zu MiB "
                             "that are free here: give smaller --sizes, --depth or --channels",
                             len >> 20, here, room >> 20);
    return 0;
}

static void set_environment(const struct pvn_rank *r)
{
    char num[16];

    snprintf(num, sizeof(num), "%d", r->rank);
    setenv("PVN_PERF_RANK", num, 1);
    for (int i = 0; i < r->o->nenv; i++) {
        const struct pvn_perf_env *e = &r->o->env[i];

        if (!e->plugin[0] || strcmp(e->plugin, r->o->plugin[r->plugin].name) == 0)
            setenv(e->key, e->value, 1);
    }
}

/* A device by number, or by the name the plugin gives it. */
static int find_device(struct pvn_rank *r, const char *want, int ndev)
{
    char *end, names[256] = "";
    long v = strtol(want, &end, 10);

    if (!*end && v >= 0 && v < ndev)
        return (int)v;
    for (int i = 0; i < ndev; i++) {
        ncclNetProperties_v12_t p;
        ncclResult_t rc = pvn_netdrv_properties(r->drv, i, &p);

        if (rc != ncclSuccess)
            return pvn_rank_fail_call(r, "getProperties", rc);
        if (p.name && strcmp(p.name, want) == 0)
            return i;
        snprintf(names + strlen(names), sizeof(names) - strlen(names), " %d=%s", i,
                 p.name ? p.name : "?");
    }
    return pvn_rank_fail(r, "--dev %s: plugin %s has the devices%s", want,
                         r->o->plugin[r->plugin].name, names);
}

static void report_plugin(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_PLUGIN};

    if (r->rank != 0)
        return;
    pvn_rank_note(r, "%s: %s, interface v%d, %s", r->o->plugin[r->plugin].name,
                  pvn_netdrv_name(r->drv), r->abi, pvn_netdrv_path(r->drv));
    snprintf(row.u.plugin.name, sizeof(row.u.plugin.name), "%s", pvn_netdrv_name(r->drv));
    snprintf(row.u.plugin.path, sizeof(row.u.plugin.path), "%s", pvn_netdrv_path(r->drv));
    pvn_sha256_file(row.u.plugin.path, row.u.plugin.sha256);
    send_row(r, &row);
}

static int report_peer(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_PEER};
    char text[480];

    if (pvn_rank_hear_peer(r, &row.u.peer, text, sizeof(text)))
        return -1;
    if (r->rank == 0)
        pvn_rank_note(r, "%s: %s", r->o->plugin[r->plugin].name, text);
    else /* the server has no table */
        dprintf(STDOUT_FILENO, "  %s\n", text);
    send_row(r, &row);
    return 0;
}

static int load_plugin(struct pvn_rank *r)
{
    const struct pvn_perf_plugin *p = &r->o->plugin[r->plugin];
    ncclNetCommConfig_v12_t config = {r->o->traffic_class};
    char why[320];
    ncclResult_t rc;

    set_environment(r);
    pvn_rank_at(r, "loading");
    if (pvn_netdrv_open(r->path, p->abi, &r->drv, why, sizeof(why)))
        return pvn_rank_fail(r, "%s%s", why, r->looked);
    r->abi = pvn_netdrv_abi(r->drv);
    report_plugin(r);
    log_to.r = r;
    log_to.banner = r->rank == 0;
    pvn_rank_at(r, "init");
    rc = pvn_netdrv_init(r->drv, &r->ctx, 0x70766e, &config, plugin_log, NULL);
    log_to.banner = 0;
    if (rc != ncclSuccess) {
        pvn_netdrv_close(r->drv);
        r->drv = NULL;
        return pvn_rank_fail_call(r, "init", rc);
    }
    return 0;
}

static int pick_devices(struct pvn_rank *r)
{
    ncclResult_t rc;
    int ndev = 0;

    pvn_rank_at(r, "devices");
    rc = pvn_netdrv_devices(r->drv, &ndev);
    if (rc != ncclSuccess)
        return pvn_rank_fail_call(r, "devices", rc);
    if (ndev < 1)
        return pvn_rank_fail(r, "plugin %s has no device here", r->o->plugin[r->plugin].name);
    for (int c = 0; c < r->o->channels; c++) {
        r->link[c].dev = find_device(r, r->o->dev[c % r->o->ndevs], ndev);
        if (r->link[c].dev < 0)
            return -1;
    }
    return 0;
}

/* Every rank's devices, each once, to the parent. */
static int report_devices(struct pvn_rank *r)
{
    int ndistinct = r->o->channels < r->o->ndevs ? r->o->channels : r->o->ndevs;

    for (int c = 0; c < ndistinct; c++) {
        struct pvn_row_device mine = {.rank = r->rank, .dev = r->link[c].dev}, *all;
        ncclNetProperties_v12_t p;
        ncclResult_t nr = pvn_netdrv_properties(r->drv, mine.dev, &p);
        int rc;

        if (nr != ncclSuccess)
            return pvn_rank_fail_call(r, "getProperties", nr);
        mine.speed = p.speed;
        mine.port = p.port;
        mine.max_recvs = p.maxRecvs;
        mine.max_comms = p.maxComms;
        mine.ptr_support = p.ptrSupport;
        mine.latency = p.latency;
        mine.guid = p.guid;
        gethostname(mine.host, sizeof(mine.host) - 1);
        snprintf(mine.name, sizeof(mine.name), "%s", p.name ? p.name : "?");
        snprintf(mine.pci, sizeof(mine.pci), "%s", p.pciPath ? p.pciPath : "");
        if (r->o->nnetns)
            snprintf(mine.netns, sizeof(mine.netns), "%s", r->o->netns[r->rank % r->o->nnetns]);
        all = calloc((size_t)r->nranks, sizeof(*all));
        if (!all)
            return pvn_rank_fail(r, "out of memory for %d ranks", r->nranks);
        rc = pvn_boot_allgather(&r->boot, &mine, all, sizeof(mine));
        for (int i = 0; !rc && i < r->nranks; i++) {
            struct pvn_row row = {.kind = PVN_ROW_DEVICE};

            row.u.device = all[i];
            send_row(r, &row);
        }
        free(all);
        if (rc)
            return pvn_rank_fail_boot(r);
    }
    return 0;
}

/* Calls connect and accept of all channels in turn until each has given a comm, as NCCL does. */
static int connect_links(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE])
{
    int waiting = 2 * r->o->channels;

    r->idle = 0;
    while (waiting) {
        int before = waiting, idle;

        if (pvn_rank_stops(r))
            return -1;
        for (int c = 0; c < r->o->channels; c++) {
            struct pvn_link *l = &r->link[c];
            ncclResult_t rc;

            pvn_rank_at(r, "connect");
            if (!l->send) {
                rc = pvn_netdrv_connect(r->drv, r->ctx, l->dev, handle[c], &l->send);
                if (rc != ncclSuccess)
                    return pvn_rank_fail_call(r, "connect", rc);
                waiting -= l->send ? 1 : 0;
            }
            pvn_rank_at(r, "accept");
            if (!l->recv) {
                rc = pvn_netdrv_accept(r->drv, l->listen, &l->recv);
                if (rc != ncclSuccess)
                    return pvn_rank_fail_call(r, "accept", rc);
                waiting -= l->recv ? 1 : 0;
            }
        }
        if (waiting < before) {
            pvn_rank_moved(r);
            continue;
        }
        idle = pvn_rank_idle(r);
        if (idle < 0)
            return -1;
        if (idle)
            return pvn_rank_fail(r, "plugin %s did not connect ranks %d, %d and %d within %.0f s",
                                 r->o->plugin[r->plugin].name,
                                 (r->rank + r->nranks - 1) % r->nranks, r->rank,
                                 (r->rank + 1) % r->nranks, r->o->timeout);
    }
    return 0;
}

static int make_ring(struct pvn_rank *r)
{
    size_t one = NCCL_NET_HANDLE_MAXSIZE, mine = one * (size_t)r->o->channels;
    char(*all)[NCCL_NET_HANDLE_MAXSIZE] = calloc((size_t)r->nranks, mine);
    int rc = 0;

    if (!all)
        return pvn_rank_fail(r, "out of memory for the handles of %d ranks", r->nranks);
    for (int c = 0; c < r->o->channels && !rc; c++) {
        char *h = all[r->rank * r->o->channels + c];
        ncclResult_t nr;

        pvn_rank_at(r, "listen");
        nr = pvn_netdrv_listen(r->drv, r->ctx, r->link[c].dev, h, &r->link[c].listen);
        if (nr != ncclSuccess)
            rc = pvn_rank_fail_call(r, "listen", nr);
    }
    if (!rc && pvn_boot_allgather(&r->boot, all[r->rank * r->o->channels], all, mine))
        rc = pvn_rank_fail_boot(r);
    if (!rc)
        rc = connect_links(r, &all[(r->rank + 1) % r->nranks * r->o->channels]);
    free(all);
    if (!rc && pvn_boot_barrier(&r->boot))
        rc = pvn_rank_fail_boot(r);
    return rc;
}

/* Resident memory of this process in KiB. */
static double resident(void)
{
    unsigned long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f && fscanf(f, "%lu %lu", &size, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

int pvn_rank_open(struct pvn_rank *r)
{
    double before;

    pvn_rank_hold(r);
    if (load_plugin(r) == 0)
        pick_devices(r);
    if (pvn_rank_agree(r) || (r->o->served && report_peer(r)) || report_devices(r))
        return -1;
    before = resident();
    if (r->nranks > 1 && make_ring(r))
        return -1;
    r->rss_per_comm = (resident() - before) / (2.0 * r->o->channels);
    return 0;
}

static void close_one(struct pvn_rank *r, const char *call,
                      ncclResult_t (*fn)(struct pvn_netdrv *, void *), void *comm)
{
    ncclResult_t rc;

    if (!comm)
        return;
    pvn_rank_at(r, call);
    rc = fn(r->drv, comm);
    if (rc != ncclSuccess && r->status != PVN_PERF_FAILED)
        pvn_rank_fail_call(r, call, rc);
}

void pvn_rank_close(struct pvn_rank *r)
{
    struct pvn_own_stats own;
    ncclResult_t rc;

    if (r->status == PVN_PERF_INTERRUPTED) {
        pvn_rank_at(r, "waiting for the other ranks");
        pvn_boot_stop(&r->boot);
    }
    if (!r->drv)
        return;
    /* After a failure the plugin may be in any state: the end of the process cleans up. */
    if (r->status == PVN_PERF_FAILED && !r->orderly)
        return;
    for (int c = 0; c < r->o->channels; c++) {
        close_one(r, "closeSend", pvn_netdrv_close_send, r->link[c].send);
        close_one(r, "closeRecv", pvn_netdrv_close_recv, r->link[c].recv);
        close_one(r, "closeListen", pvn_netdrv_close_listen, r->link[c].listen);
    }
    /* The file goes with the plugin's last communicator. */
    pvn_own_stats_read(&own);
    r->doorbells = own.doorbells;
    pvn_rank_at(r, "finalize");
    rc = pvn_netdrv_finalize(r->drv, r->ctx);
    if (rc != ncclSuccess && r->status != PVN_PERF_FAILED)
        pvn_rank_fail_call(r, "finalize", rc);
    if (r->status != PVN_PERF_FAILED || r->orderly) {
        pvn_rank_at(r, "unloading");
        pvn_netdrv_close(r->drv);
        r->drv = NULL;
    }
}

void pvn_rank_doorbells(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_DOORBELLS};
    struct pvn_doorbells *all, *sum = &row.u.doorbells.sum;

    /* A rank that failed has reported it to the others, which do not wait for it then. */
    if (r->status == PVN_PERF_FAILED || r->status == PVN_PERF_INTERRUPTED)
        return;
    all = calloc((size_t)r->nranks, sizeof(*all));
    if (!all) {
        pvn_rank_fail(r, "out of memory for the doorbells of %d ranks", r->nranks);
        return;
    }
    pvn_rank_at(r, "waiting for the other ranks");
    if (pvn_boot_allgather(&r->boot, &r->doorbells, all, sizeof(*all)))
        pvn_rank_fail_boot(r);
    for (int i = 0; i < r->nranks; i++) {
        sum->comms += all[i].comms;
        sum->msgs += all[i].msgs;
        sum->send += all[i].send;
        sum->recv += all[i].recv;
        sum->empty += all[i].empty;
    }
    free(all);
    row.u.doorbells.ranks = r->nranks;
    if (sum->msgs && r->status != PVN_PERF_FAILED)
        send_row(r, &row);
}
