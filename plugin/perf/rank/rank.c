/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/rank/rank.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

#define CHECK_PASSES   128  /* idle passes between readings of the clock */
#define CHECK_INTERVAL 0.05 /* seconds between checks of the other ranks */
/* After NAP_AFTER seconds without progress, an idle pass sleeps for a thousandth of that time. It
 * leaves the processor to others, and the delay is too short to show in a figure. */
#define NAP_AFTER   0.05 /* seconds */
#define NAP_LONGEST 1000 /* microseconds */

/* NCCL's logger has no argument for a context, so a process has one rank. */
static struct {
    struct pvn_rank *r;
    int banner; /* print INFO lines: rank 0 during init */
} log_to;

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
    /* Until the clock is read in this wait, nap_us belongs to an earlier one. */
    bool naps = r->nap_us > 0 && r->idle >= CHECK_PASSES;
    double now, waited;

    if (naps)
        usleep(r->nap_us);
    else if (!r->o->spin)
        sched_yield();
    if (pvn_rank_stops(r))
        return -1;
    if (++r->idle % CHECK_PASSES && !naps)
        return 0;
    atomic_fetch_add_explicit(&r->beat->count, 1, memory_order_relaxed);
    now = pvn_now_s();
    if (r->idle == CHECK_PASSES)
        r->idle_since = now;
    else
        r->idle_since += pvn_boot_stopped(r->looked_at, now);
    r->looked_at = now;
    waited = now - r->idle_since;
    r->nap_us = r->o->spin || waited < NAP_AFTER ? 0
                : waited * 1e3 < NAP_LONGEST     ? (unsigned)(waited * 1e3)
                                                 : NAP_LONGEST;
    if (now >= r->next_check) {
        r->next_check = now + CHECK_INTERVAL;
        if (pvn_boot_check(&r->boot))
            return pvn_rank_fail_boot(r);
    }
    return waited > r->o->timeout;
}

double pvn_rank_cpu(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void set_environment(const struct pvn_rank *r)
{
    char num[16], stall_warn[32];

    snprintf(num, sizeof(num), "%d", r->rank);
    setenv("PVN_PERF_RANK", num, 1);
    for (int i = 0; i < r->o->nenv; i++) {
        const struct pvn_perf_env *e = &r->o->env[i];

        if (!e->plugin[0] || strcmp(e->plugin, r->o->plugin[r->plugin].name) == 0)
            setenv(e->key, e->value, 1);
    }
    if (pvn_opts_stall_warn(r->o, stall_warn, sizeof(stall_warn)))
        setenv(PVN_PERF_STALL_WARN, stall_warn, 1);
}

/* Finds a device by number, or by the name that the plugin gives it. */
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
    pvn_rank_row(r, &row);
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
    pvn_rank_row(r, &row);
    return 0;
}

static int load_plugin(struct pvn_rank *r)
{
    const struct pvn_perf_plugin *p = &r->o->plugin[r->plugin];
    ncclNetCommConfig_v12_t config = {r->o->traffic_class};
    char why[320];
    ncclResult_t rc;

    set_environment(r);
    if (pvn_messages_start(r))
        return -1;
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

/* Reports every rank's devices, each once, to the parent. */
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
            pvn_rank_row(r, &row);
        }
        free(all);
        if (rc)
            return pvn_rank_fail_boot(r);
    }
    return 0;
}

int pvn_rank_listen(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE])
{
    for (int c = 0; c < r->o->channels; c++) {
        ncclResult_t rc;

        pvn_rank_at(r, "listen");
        rc = pvn_netdrv_listen(r->drv, r->ctx, r->link[c].dev, handle[c], &r->link[c].listen);
        if (rc != ncclSuccess)
            return pvn_rank_fail_call(r, "listen", rc);
    }
    return 0;
}

int pvn_rank_connect(struct pvn_rank *r, char (*handle)[NCCL_NET_HANDLE_MAXSIZE], int from, int to)
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
            return pvn_rank_fail(r,
                                 "plugin %s did not connect rank %d to rank %d and from rank %d "
                                 "within %.0f s " PVN_RANK_TIMEOUT,
                                 r->o->plugin[r->plugin].name, r->rank, to, from, r->o->timeout);
    }
    return 0;
}

static int make_ring(struct pvn_rank *r)
{
    size_t one = NCCL_NET_HANDLE_MAXSIZE, mine = one * (size_t)r->o->channels;
    char(*all)[NCCL_NET_HANDLE_MAXSIZE] = calloc((size_t)r->nranks, mine);
    int rc;

    if (!all)
        return pvn_rank_fail(r, "out of memory for the handles of %d ranks", r->nranks);
    rc = pvn_rank_listen(r, &all[r->rank * r->o->channels]);
    if (!rc && pvn_boot_allgather(&r->boot, all[r->rank * r->o->channels], all, mine))
        rc = pvn_rank_fail_boot(r);
    if (!rc)
        rc = pvn_rank_connect(r, &all[(r->rank + 1) % r->nranks * r->o->channels],
                              (r->rank + r->nranks - 1) % r->nranks, (r->rank + 1) % r->nranks);
    free(all);
    if (!rc && pvn_boot_barrier(&r->boot))
        rc = pvn_rank_fail_boot(r);
    return rc;
}

double pvn_rank_resident(void)
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
    if (load_plugin(r) == 0 && pick_devices(r) == 0)
        pvn_messages_settle(r);
    if (pvn_rank_agree(r) || (r->o->served && report_peer(r)) || report_devices(r))
        return -1;
    before = pvn_rank_resident();
    if (r->nranks > 1 && r->o->mode != PVN_PERF_MESH && !pvn_opts_of_pairs(r->o) && make_ring(r))
        return -1;
    r->rss_per_comm = (pvn_rank_resident() - before) / (2.0 * r->o->channels);
    return 0;
}

void pvn_rank_close_one(struct pvn_rank *r, const char *call,
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

void pvn_rank_forget(struct pvn_rank *r)
{
    for (int c = 0; c < r->o->channels; c++)
        r->link[c].send = r->link[c].recv = r->link[c].listen = NULL;
}

void pvn_rank_disconnect(struct pvn_rank *r)
{
    for (int c = 0; c < r->o->channels; c++) {
        pvn_rank_close_one(r, "closeSend", pvn_netdrv_close_send, r->link[c].send);
        pvn_rank_close_one(r, "closeRecv", pvn_netdrv_close_recv, r->link[c].recv);
        pvn_rank_close_one(r, "closeListen", pvn_netdrv_close_listen, r->link[c].listen);
    }
    pvn_rank_forget(r);
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
    if (r->close_more)
        r->close_more(r);
    pvn_rank_disconnect(r);
    /* The statistics file is removed with the plugin's last communicator. */
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
        pvn_messages_end(r);
    }
}

void pvn_rank_doorbells(struct pvn_rank *r)
{
    struct pvn_row row = {.kind = PVN_ROW_DOORBELLS};
    struct pvn_doorbells *all, *sum = &row.u.doorbells.sum;

    /* A rank that failed has reported this to the others, so they do not wait for it. */
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
        pvn_rank_row(r, &row);
}
