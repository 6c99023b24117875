/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/device.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "comm/placement.h"
#include "base/log.h"
#include "base/param.h"
#include "memory/gpucopy.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;
static int count, physical;
static bool hidden; /* the virtual devices are not counted */
/* No heap, because interfaces before v11 never free it. */
static struct pvn_device table[PVN_MAX_DEVICES];
/* Interfaces that TCP can use, where the table has RDMA devices. */
static struct pvn_device spare[PVN_MAX_DEVICES];
static int spares;
static char left_out[1024];

/* The caller holds the lock, and there is room. */
static void add_device(const struct pvn_device *d)
{
    struct pvn_device *copy = &table[count];

    *copy = *d;
    if (copy->nmembers == 0) {
        copy->nmembers = 1;
        copy->members[0] = count;
    }
    /* Readers take no lock, so the device is complete before the count includes it. */
    __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
}

static void clear(void)
{
    __atomic_store_n(&count, 0, __ATOMIC_RELEASE);
    physical = 0;
    spares = 0;
    hidden = false;
    left_out[0] = '\0';
    pvn_placement_forget();
}

/* A transport that the user has excluded is not scanned. */
static bool selected(const struct pvn_transport_ops *t)
{
    int choice = pvn_params_get()->transport;

    if (pvn_params_get()->encrypt == PVN_ENCRYPT_ALL && !t->seals)
        return false;
    if (choice == PVN_TRANSPORT_TCP)
        return t->is_fallback;
    return choice != PVN_TRANSPORT_RDMA || !t->is_fallback;
}

/* Half of the table is for virtual devices. If the other half is too small for the physical ones,
 * the first in PCI order are taken. */
static int leave_room(int n, const struct pvn_transport_ops *t)
{
    int most = PVN_MAX_DEVICES / 2;

    if (n <= most)
        return n;
    pvn_str_append(left_out, sizeof(left_out), "%s%d more %s devices (%d are taken; choose by %s)",
                   left_out[0] ? ", " : "", n - most, t->name, most, t->chosen_by);
    return most;
}

/* Finds interfaces for TCP beside RDMA devices. To find none is no fault: there may be other
 * adapters, or no other path. */
static void scan_spares(void)
{
    char ignored[512] = "";
    struct pvn_err err = PVN_ERR_INIT;

    if (count == 0 || pvn_params_get()->transport != PVN_TRANSPORT_AUTO)
        return;
    for (int t = 0; pvn_transports[t]; t++)
        if (pvn_transports[t]->is_fallback && table[0].via[0].ops != pvn_transports[t])
            spares =
                pvn_transports[t]->scan(spare, PVN_MAX_DEVICES, ignored, sizeof(ignored), &err);
    if (spares < 0)
        spares = 0;
}

static void unload_all(void)
{
    clear();
    for (int t = 0; pvn_transports[t]; t++)
        if (pvn_transports[t]->unload)
            pvn_transports[t]->unload();
    pvn_gpucopy_unload();
}

/* A later transport is only scanned if the better ones found nothing. Otherwise NCCL would use the
 * same NIC twice, as an RDMA device and as its own interface. */
static int scan_all(struct pvn_err *err)
{
    struct pvn_device *found = calloc(PVN_MAX_DEVICES, sizeof(*found));
    int i, t, n, rc = 0;
    size_t len;

    if (!found)
        return pvn_err_set(err, -ENOMEM, "no memory for the device table");
    if (pvn_param_source(pvn_params_get(), "TRANSPORT") == PVN_PARAM_FROM_ALIAS)
        pvn_info(PVN_INIT | PVN_NET, "RDMA devices are left alone: NCCL_IB_DISABLE is set; "
                                     "NCCL_PVRDMA_TRANSPORT=auto overrides it");
    if (pvn_params_get()->encrypt == PVN_ENCRYPT_ALL)
        pvn_info(PVN_INIT | PVN_NET,
                 "RDMA devices are left alone: NCCL_PVRDMA_ENCRYPT=all, and "
                 "adapters cannot encrypt; =control has RDMA with data in the clear");
    for (t = 0; pvn_transports[t] && count == 0 && rc == 0; t++) {
        if (!selected(pvn_transports[t]))
            continue;
        memset(found, 0, PVN_MAX_DEVICES * sizeof(*found));
        len = strlen(left_out);
        if (len > 0 && len < sizeof(left_out) - 3)
            len = pvn_str_append(left_out, sizeof(left_out), ", ");
        n = pvn_transports[t]->scan(found, PVN_MAX_DEVICES, left_out + len, sizeof(left_out) - len,
                                    err);
        if (n < 0 && pvn_params_get()->strict)
            rc = n;
        else if (n < 0)
            pvn_warn_err(err);
        if (rc == 0 && n > 0)
            rc = pvn_placement_arrange(found, n, err);
        if (rc == 0)
            n = leave_room(n, pvn_transports[t]);
        for (i = 0; i < n && rc == 0; i++)
            add_device(&found[i]);
    }
    free(found);
    physical = count;
    if (rc == 0)
        scan_spares();
    if (rc == 0 && count == 0 && pvn_params_get()->strict)
        rc = pvn_err_set(err, -ENODEV, "no usable network device%s%s", left_out[0] ? ": " : "",
                         left_out);
    if (rc)
        unload_all(); /* a device may be refused after its adapter has been opened */
    return rc;
}

int pvn_devices_load(struct pvn_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (!loaded)
        rc = scan_all(err);
    loaded = rc == 0;
    pthread_mutex_unlock(&lock);
    return rc;
}

void pvn_devices_unload(void)
{
    pthread_mutex_lock(&lock);
    if (loaded)
        unload_all();
    loaded = false;
    pthread_mutex_unlock(&lock);
}

void pvn_devices_after_fork(void)
{
    pthread_mutex_init(&lock, NULL); /* another thread of the parent may have held it */
    clear();
    loaded = false;
    pvn_gpucopy_after_fork();
    for (int t = 0; pvn_transports[t]; t++)
        if (pvn_transports[t]->after_fork)
            pvn_transports[t]->after_fork();
}

static void hide(bool so)
{
    __atomic_store_n(&hidden, so, __ATOMIC_RELAXED);
}

int pvn_devices_count(void)
{
    return __atomic_load_n(&hidden, __ATOMIC_RELAXED) ? physical
                                                      : __atomic_load_n(&count, __ATOMIC_ACQUIRE);
}

const struct pvn_device *pvn_device_get(int i)
{
    if (i < 0 || i >= __atomic_load_n(&count, __ATOMIC_ACQUIRE))
        return NULL;
    if (i >= physical)
        hide(false);
    return &table[i];
}

void pvn_devices_hide_virtual(void)
{
    hide(true);
}

/* True if an interface is one of these devices'. */
static bool is_among(const char *ifname, const struct pvn_device *const *devs, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(ifname, devs[i]->ifname) == 0)
            return true;
    return false;
}

int pvn_devices_beside(const struct pvn_device *dev, const struct pvn_device **out, int max)
{
    const struct pvn_device *own[PVN_MAX_LANES];
    int n = 0;

    for (int i = 0; i < dev->nmembers; i++)
        own[i] = &table[dev->members[i]];
    for (int i = 0; i < physical + spares && n < max; i++) {
        const struct pvn_device *d = i < physical ? &table[i] : &spare[i - physical];

        if (!is_among(d->ifname, own, dev->nmembers) && !is_among(d->ifname, out, n))
            out[n++] = d;
    }
    return n;
}

bool pvn_devices_have_adapters(void)
{
    for (int i = 0; i < physical + spares; i++) {
        const struct pvn_device *d = i < physical ? &table[i] : &spare[i - physical];

        for (int v = 0; v < d->nvia; v++)
            if (!d->via[v].ops->is_fallback)
                return true;
    }
    return false;
}

const char *pvn_devices_left_out(void)
{
    return left_out;
}

static int check_members(const int *devs, int n, int max, struct pvn_err *err)
{
    int i, j;

    if (n < 1 || n > max || n > PVN_MAX_LANES)
        return pvn_err_set(err, -EINVAL, "a virtual device of %d devices: 1 to %d are possible", n,
                           max < PVN_MAX_LANES ? max : PVN_MAX_LANES);
    for (i = 0; i < n; i++) {
        if (devs[i] < 0 || devs[i] >= physical)
            return pvn_err_set(err, -EINVAL,
                               "a virtual device of device %d: the physical ones are 0 to %d",
                               devs[i], physical - 1);
        for (j = 0; j < i; j++)
            if (devs[j] == devs[i])
                return pvn_err_set(err, -EINVAL, "a virtual device with device %d (%s) twice",
                                   devs[i], table[devs[i]].name);
        if (table[devs[i]].via[0].ops != table[devs[0]].via[0].ops)
            return pvn_err_set(err, -EINVAL,
                               "%s (%s) and %s (%s) cannot be joined: different transports",
                               table[devs[0]].name, table[devs[0]].via[0].ops->name,
                               table[devs[i]].name, table[devs[i]].via[0].ops->name);
    }
    return 0;
}

/* Returns why NCCL would not find this device in the machine's PCI tree, where it looks by itself:
 * the path has to be that of a PCI function, and its address one of the real /sys. NULL: NCCL would
 * find it. */
static const char *why_unplaced(const struct pvn_device *d)
{
    const char *address = strrchr(d->pci_path, '/');
    char path[PATH_MAX], real[PATH_MAX];
    unsigned domain, bus;
    int end = 0;

    if (!address)
        return "has no PCI device";
    if (!realpath(d->pci_path, real))
        return "has a PCI path that is not there";
    if (strncmp(real, "/sys/", strlen("/sys/")) != 0)
        return "has a PCI path outside /sys";
    snprintf(path, sizeof(path), "%s/subsystem", d->pci_path);
    if (!realpath(path, real) || strcmp(strrchr(real, '/'), "/pci") != 0 ||
        sscanf(address, "/%x:%x:%n", &domain, &bus, &end) != 2 || end == 0)
        return "has a path in /sys that is no PCI function's";
    snprintf(path, sizeof(path), "/sys/class/pci_bus/%.*s/../..%s", end - 2, address + 1, address);
    return realpath(path, real) ? NULL : "has a PCI bus that /sys/class/pci_bus does not list";
}

/* Refuses to join devices that NCCL cannot place. NCCL joins devices that it takes for ports of one
 * card, even those without a place in its tree. It then finds no path from a GPU to the joined one,
 * which ends the job. After a refusal it goes on with the members. */
static int check_places(const int *devs, int n, struct pvn_err *err)
{
    int choice = pvn_params_get()->vdevice;
    char names[PVN_NAME_MAX * PVN_MAX_LANES] = "", why[PVN_ERR_REASON_LEN / 2] = "";
    bool refused = choice == 0;

    for (int i = 0; i < n; i++) {
        const struct pvn_device *d = &table[devs[i]];
        const char *unplaced = choice < 0 ? why_unplaced(d) : NULL;

        pvn_str_append(names, sizeof(names), "%s%s", i ? " and " : "", d->name);
        if (unplaced)
            pvn_str_append(why, sizeof(why), "%s%s %s", why[0] ? ", " : "", d->name, unplaced);
        refused |= unplaced != NULL;
    }
    if (!refused)
        return 0;
    if (choice == 0)
        pvn_err_set(err, -EOPNOTSUPP, "%s are not joined: NCCL_PVRDMA_VDEVICE=0", names);
    else
        pvn_err_set(err, -EOPNOTSUPP,
                    "%s are not joined, each stays a device of its own: NCCL would find no path "
                    "from a GPU to the joined device, since %s",
                    names, why);
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return err->code;
}

/* The weakest member decides what the whole can do; speeds add up. */
static void join(struct pvn_device *v, const int *devs, int n)
{
    int i;

    *v = table[devs[0]];
    v->nmembers = n;
    v->members[0] = devs[0];
    for (i = 1; i < n; i++) {
        const struct pvn_device *d = &table[devs[i]];

        v->members[i] = devs[i];
        pvn_str_append(v->name, sizeof(v->name), "+%s", d->name);
        v->ptr_support &= d->ptr_support;
        v->reg_is_global = v->reg_is_global && d->reg_is_global;
        v->force_flush = v->force_flush || d->force_flush;
        v->speed_mbps += d->speed_mbps;
        v->speed_known = v->speed_known && d->speed_known;
        v->latency_us = d->latency_us > v->latency_us ? d->latency_us : v->latency_us;
        v->max_comms = d->max_comms < v->max_comms ? d->max_comms : v->max_comms;
        v->max_recvs = d->max_recvs < v->max_recvs ? d->max_recvs : v->max_recvs;
        v->rail = d->rail == v->rail ? v->rail : -1;
        v->plane = -1;
    }
    snprintf(v->why, sizeof(v->why), "joined by NCCL");
}

int pvn_device_join(const int *devs, int n, int max, int *index, struct pvn_err *err)
{
    struct pvn_device v;
    int i, rc;

    pthread_mutex_lock(&lock);
    rc = check_members(devs, n, max, err);
    if (rc)
        goto out;
    if (n == 1) {
        *index = devs[0];
        goto out;
    }
    rc = check_places(devs, n, err);
    if (rc)
        goto out;
    /* Several communicators of a process request the same device, and one is enough. */
    for (i = physical; i < count; i++)
        if (table[i].nmembers == n &&
            memcmp(table[i].members, devs, sizeof(int) * (size_t)n) == 0) {
            hide(false);
            *index = i;
            goto out;
        }
    if (count == PVN_MAX_DEVICES) {
        rc = pvn_err_set(err, -ENOSPC, "no room for another virtual device, there are %d devices",
                         count);
        goto out;
    }
    join(&v, devs, n);
    *index = count;
    add_device(&v);
    hide(false);
out:
    pthread_mutex_unlock(&lock);
    return rc;
}

const char *pvn_device_describe(const struct pvn_device *d, char *buf, size_t cap)
{
    char addr[PVN_ADDR_TEXT_LEN];
    const char *pci = d->pci_path[0] ? strrchr(d->pci_path, '/') : NULL;
    int i;

    buf[0] = '\0';
    pvn_str_append(buf, cap, "%s %s, ", d->name,
                   pvn_addr_format_host((const struct sockaddr *)&d->addr, addr, sizeof(addr)));
    for (i = 0; i < d->nvia; i++)
        pvn_str_append(buf, cap, "%s%s", i ? " then " : "", d->via[i].ops->name);
    pvn_str_append(buf, cap, ", %g Gb/s%s, %s%s", d->speed_mbps / 1000.0,
                   d->speed_known ? "" : " assumed", pci ? "PCI " : "no PCI device",
                   pci ? pci + 1 : "");
    if (d->why[0])
        pvn_str_append(buf, cap, ": %s", d->why);
    return buf;
}
