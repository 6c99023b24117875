/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/param.h"
#include "nccl/types.h"
#include "topo/nccl/report.h"

static struct pvn_topo_placement placed; /* valid between arrange and log */

static const char *from_environment(const char *name, void *user)
{
    return getenv(name);
}

static void to_log(const char *text, void *user)
{
    pvn_info(PVN_INIT | PVN_NET | PVN_GRAPH, "%s", text);
}

/* True if NCCL logs INFO. NCCL filters the lines of its logger and does not say how, but its
 * variable does. */
static bool is_logged(void)
{
    const char *debug = getenv("NCCL_DEBUG");

    return pvn_log_enabled(PVN_LOG_INFO) && debug &&
           (strcasecmp(debug, "INFO") == 0 || strcasecmp(debug, "TRACE") == 0);
}

/* NCCL finds the function again by this path, below whatever /sys this process has. A device that
 * is no PCI function must have no path, because NCCL would take its last part for an address. */
static void set_pci_path(struct pvn_device *d, const struct pvn_topo_placed *at)
{
    const char *sysfs = pvn_params_get()->sysfs_root, *last = strrchr(d->pci_path, '/');

    if (at->pci_path)
        snprintf(d->pci_path, sizeof(d->pci_path), "%.200s%.300s", sysfs,
                 at->pci_path + strlen("/sys"));
    else if (!at->on_pci && last && !strchr(last, ':'))
        d->pci_path[0] = '\0';
}

static void complete(struct pvn_device *d, const struct pvn_topo_placed *at)
{
    set_pci_path(d, at);
    d->guid = at->guid;
    d->port = at->port;
    if (at->rail >= 0)
        d->rail = (int16_t)at->rail;
    if (!d->speed_known && at->speed_mbps > 0) {
        d->speed_mbps = at->speed_mbps;
        d->speed_known = true;
    }
}

static int place(const struct pvn_device *d, int n, struct pvn_err *err)
{
    const struct pvn_params *p = pvn_params_get();
    struct pvn_topo_nic_device given[PVN_MAX_DEVICES];
    char why[512];
    int i, rc;

    for (i = 0; i < n; i++)
        given[i] = (struct pvn_topo_nic_device){
            .name = d[i].name,
            .pci_path = d[i].pci_path,
            /* an RDMA device has the interface of its control connections here */
            .ifname = strcmp(d[i].ifname, d[i].name) == 0 ? d[i].ifname : NULL,
            .ifindex = (int)d[i].ifindex,
            .guid = d[i].guid,
            .port = d[i].port,
            .speed_mbps = d[i].speed_known ? d[i].speed_mbps : 0,
            .rail = d[i].rail,
            .gpu_memory = (d[i].ptr_support & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF)) != 0,
        };
    rc = pvn_topo_placement_make("/", p->sysfs_root, given, n, p->rails, &placed, why, sizeof(why));
    if (rc)
        pvn_err_set(err, rc, "NCCL_PVRDMA_RAILS=%.200s: %s", p->rails, why);
    if (rc == -EINVAL)
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return rc;
}

int pvn_placement_arrange(struct pvn_device *d, int n, struct pvn_err *err)
{
    struct pvn_device *before = malloc((size_t)n * sizeof(*before) + 1);
    int i, rc;

    if (!before)
        return pvn_err_set(err, -ENOMEM, "no memory for the device table");
    memcpy(before, d, (size_t)n * sizeof(*before));
    pvn_topo_placement_free(&placed);
    rc = place(before, n, err);
    for (i = 0; rc == 0 && i < n; i++) {
        d[i] = before[placed.list[i].from];
        complete(&d[i], &placed.list[i]);
    }
    free(before);
    return rc;
}

void pvn_placement_log(void)
{
    if (is_logged())
        pvn_topo_placement_report(&placed, from_environment, to_log, NULL);
    pvn_placement_forget();
}

void pvn_placement_forget(void)
{
    pvn_topo_placement_free(&placed);
}
