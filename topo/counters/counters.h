/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Counters that show lost, damaged or delayed packets: those of RDMA ports and network interfaces
 * in sysfs and, on this machine, those of interfaces that only ethtool shows. counter_table.c lists
 * them with their meanings. */
#ifndef PVN_TOPO_COUNTERS_COUNTERS_H
#define PVN_TOPO_COUNTERS_COUNTERS_H

#include "topo/fs.h"
#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pvn_topo_counter_source {
    PVN_TOPO_COUNTER_PORT = 0, /* /sys/class/infiniband/DEVICE/ports/N/counters */
    PVN_TOPO_COUNTER_HW,       /* hw_counters of the port or of the device */
    PVN_TOPO_COUNTER_NET,      /* /sys/class/net/INTERFACE/statistics */
    PVN_TOPO_COUNTER_ETHTOOL,  /* ethtool -S INTERFACE */
};

enum pvn_topo_counter_kind {
    PVN_TOPO_COUNTER_ERROR = 0,  /* packets were lost, damaged or refused */
    PVN_TOPO_COUNTER_CONGESTION, /* somebody had to wait or slow down; normal to some degree */
};

/* A row of the table. */
struct pvn_topo_counter_info {
    enum pvn_topo_counter_source source;
    /* The kernel's name. '#' stands for a number that is part of the name (a priority), '*' for one
     * that is not: counters that differ in it (of queues) are added up. */
    const char *name;
    enum pvn_topo_counter_kind kind;
    uint64_t stops_at; /* the value at which the hardware stops counting, or 0 */
    const char *meaning, *remedy;
};

/* The row of a counter, or NULL if the counter does not show faults. */
const struct pvn_topo_counter_info *pvn_topo_counter_find(enum pvn_topo_counter_source source,
                                                          const char *name);
/* The whole table, for tests. */
const struct pvn_topo_counter_info *pvn_topo_counter_table(int *n);
const char *pvn_topo_counter_source_name(enum pvn_topo_counter_source s); /* "hw_counters" */
const char *pvn_topo_counter_kind_name(enum pvn_topo_counter_kind k);     /* "error" */

struct pvn_topo_counter {
    const struct pvn_topo_counter_info *info;
    char name[PVN_TOPO_NAME_MAX]; /* with its number if that is part of the name */
    uint64_t value;
};

/* An RDMA port or a network interface, with the table's counters that the kernel shows for it. */
struct pvn_topo_counted {
    int rdma, port; /* indexes of the model; -1: an interface */
    int net;        /* the interface, or that of the port; -1: none */
    struct pvn_topo_counter *counters;
    int n;
};

/* A snapshot of counters. */
struct pvn_topo_look {
    struct pvn_topo_counted *list;
    int n;
};

/* Calls the kernel for ethtool's statistics: as ioctl(SIOCETHTOOL) with data for this interface. 0
 * or negative errno. */
struct pvn_topo_ethtool {
    int (*call)(void *ctx, const char *ifname, void *data);
    void *ctx;
};
/* Access to this machine's statistics; NULL if no socket could be opened. Close it afterwards. */
const struct pvn_topo_ethtool *pvn_topo_ethtool_open(void);
void pvn_topo_ethtool_close(const struct pvn_topo_ethtool *e);
/* Calls each with every statistic of an interface; names are without surrounding blanks. 0 or
 * negative errno; -EOPNOTSUPP if the driver has none. */
int pvn_topo_ethtool_stats(const struct pvn_topo_ethtool *e, const char *ifname,
                           int (*each)(void *ctx, const char *name, uint64_t value), void *ctx);

/* Reads the counters of every RDMA port, and of every interface that has a PCI device or belongs to
 * a port. With names (nnames > 0), reads only those of the RDMA devices, ports ("mlx5_0:2") and
 * interfaces of these names, of the interfaces below a named bond, team or VLAN, and of the
 * interface of each such port. If ethtool is NULL, its statistics are left out. 0 or -ENOMEM. Free
 * with pvn_topo_look_free. */
int pvn_topo_look_read(struct pvn_topo_fs *fs, const struct pvn_topo *topo,
                       const char *const *names, int nnames, const struct pvn_topo_ethtool *ethtool,
                       struct pvn_topo_look *out);
void pvn_topo_look_free(struct pvn_topo_look *look);
/* Total number of counters. */
int pvn_topo_look_counters(const struct pvn_topo_look *look);
/* "mlx5_0 port 1", "eth0". Returns buf. */
const char *pvn_topo_counted_name(const struct pvn_topo *topo, const struct pvn_topo_counted *c,
                                  char *buf, size_t cap);
/* The growth of a counter from the first snapshot to the second; 0 if the first lacks it or has a
 * larger value (the driver was loaded again in between). Both snapshots are of the same model and
 * names. */
uint64_t pvn_topo_look_growth(const struct pvn_topo_look *first, const struct pvn_topo_look *second,
                              int counted, int counter);

#ifdef __cplusplus
}
#endif
#endif
