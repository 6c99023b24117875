/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The counters of adapters that show lost, damaged or held-up packets: those of RDMA ports and network
 * interfaces in sysfs, and of this machine's interfaces those that only ethtool shows. Which there
 * are, and what each means, is one table: counter_table.c. */
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
    /* As the kernel names it. '#' stands for a number that is part of the name (a priority), '*'
     * for one that is not: those counters (of queues) are added up. */
    const char *name;
    enum pvn_topo_counter_kind kind;
    uint64_t stops_at; /* a value that the hardware does not count beyond, or 0 */
    const char *meaning, *remedy;
};

/* The row of a counter, or NULL where it says nothing of faults. */
const struct pvn_topo_counter_info *pvn_topo_counter_find(enum pvn_topo_counter_source source,
                                                          const char *name);
/* The whole table, for tests. */
const struct pvn_topo_counter_info *pvn_topo_counter_table(int *n);
const char *pvn_topo_counter_source_name(enum pvn_topo_counter_source s); /* "hw_counters" */
const char *pvn_topo_counter_kind_name(enum pvn_topo_counter_kind k);     /* "error" */

struct pvn_topo_counter {
    const struct pvn_topo_counter_info *info;
    char name[PVN_TOPO_NAME_MAX]; /* with its number, where that is part of it */
    uint64_t value;
};

/* An RDMA port or a network interface with the counters of the table that the kernel shows of it. */
struct pvn_topo_counted {
    int rdma, port; /* indexes of the model; -1: an interface */
    int net;        /* the interface, or that of the port; -1: none */
    struct pvn_topo_counter *counters;
    int n;
};

/* The counters that were read at one time. */
struct pvn_topo_look {
    struct pvn_topo_counted *list;
    int n;
};

/* How the kernel is called for ethtool's statistics: as ioctl(SIOCETHTOOL) with data for this
 * interface. 0 or negative errno. */
struct pvn_topo_ethtool {
    int (*call)(void *ctx, const char *ifname, void *data);
    void *ctx;
};
/* This machine's; NULL without a socket. Close it afterwards. */
const struct pvn_topo_ethtool *pvn_topo_ethtool_open(void);
void pvn_topo_ethtool_close(const struct pvn_topo_ethtool *e);
/* Calls each with every statistic of an interface, names without blanks around them. 0 or negative
 * errno; -EOPNOTSUPP where the driver has none. */
int pvn_topo_ethtool_stats(const struct pvn_topo_ethtool *e, const char *ifname,
                           int (*each)(void *ctx, const char *name, uint64_t value), void *ctx);

/* Reads the counters of every RDMA port and every interface that has a PCI device or is a port's; with
 * names (nnames > 0), only of the RDMA devices, ports ("mlx5_0:2") and interfaces of these names, of
 * what a bond, team or VLAN among them stands on, and of the interface of each such port. ethtool may
 * be NULL: its statistics are left out. 0 or -ENOMEM. Free with pvn_topo_look_free. */
int pvn_topo_look_read(struct pvn_topo_fs *fs, const struct pvn_topo *topo,
                       const char *const *names, int nnames, const struct pvn_topo_ethtool *ethtool,
                       struct pvn_topo_look *out);
void pvn_topo_look_free(struct pvn_topo_look *look);
/* Number of counters in all. */
int pvn_topo_look_counters(const struct pvn_topo_look *look);
/* "mlx5_0 port 1", "eth0". Returns buf. */
const char *pvn_topo_counted_name(const struct pvn_topo *topo, const struct pvn_topo_counted *c,
                                  char *buf, size_t cap);
/* The growth of a counter from the first look to the second; 0 where the first has none
 * or more (the driver was loaded again meanwhile). Both looks are of the same model and names. */
uint64_t pvn_topo_look_growth(const struct pvn_topo_look *first, const struct pvn_topo_look *second,
                              int counted, int counter);

#ifdef __cplusplus
}
#endif
#endif
