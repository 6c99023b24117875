/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA adapters and their ports: which there are, which of them may carry NCCL's traffic and what
 * they can take.
 *
 * An adapter is opened once and shared by its ports and by all lanes on them. What a port announces
 * is what the device was believed to do, not always what it reports: see the limits.
 */
#ifndef PVN_NET_PVRDMA_HCA_H
#define PVN_NET_PVRDMA_HCA_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net-pvrdma/gid.h"
#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/verbs.h"

enum pvn_hca_kind {
    PVN_HCA_PVRDMA, /* VMware paravirtual: PCI 15ad:0820, driver vmw_pvrdma */
    PVN_HCA_OTHER   /* whatever its ports' link layers are */
};

struct pvn_hca {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    char name[IBV_SYSFS_NAME_MAX];
    enum pvn_hca_kind kind;
    char driver[32];    /* "" where sysfs does not name it */
    char pci_path[256]; /* real path of the PCI function below the sysfs root; "" where there is
                           none */
    uint64_t guid;      /* of the node, host byte order */
    int nports;         /* of the adapter, usable or not */

    /* Limits. vmw_pvrdma announces more than its rings hold: at most 128 pages per ring, so 4096
     * entries of a completion queue and 4096 requests with one scatter element or 2048 with four
     * (Linux 6.1, drivers/infiniband/hw/vmw_pvrdma; measured). Its sizes are powers of two, rounded
     * up by the driver, so these are rounded down. */
    uint32_t max_wr;  /* requests of a send or receive queue, with max_sge elements each */
    uint32_t max_cqe; /* entries of a completion queue */
    uint32_t max_sge;
    uint32_t max_inline;   /* worth requesting, bytes; vmw_pvrdma has none */
    uint64_t max_mr;       /* bytes of one region; vmw_pvrdma: 1 GiB whatever it reports */
    uint8_t max_rd_atomic; /* READs in flight, the smaller of both directions; 0: no READ */
    bool costly_poll;      /* polling an empty completion queue is an exit to the hypervisor */
    bool no_write;         /* a trial at start has shown that RDMA WRITE does not work */
    bool iova_ignored;     /* a region's address is always its address in this process */
};

struct pvn_hca_port {
    int hca; /* index in the table */
    uint8_t port;
    char name[IBV_SYSFS_NAME_MAX + 12]; /* "mlx5_0:1" */
    bool ethernet;                      /* RoCE; else InfiniBand */
    uint16_t lid;
    enum ibv_mtu mtu; /* active */
    int speed_mbps;   /* of the link, where speed_known */
    bool speed_known; /* a paravirtual port announces a constant: false, its interface is read */
    /* Bytes of one request. IBTA allows 2 GiB; a device that reports less than a page is not
     * believed (vmw_pvrdma reports 1024 and takes what it is given). */
    uint64_t max_msg;
    char ifname[IF_NAMESIZE]; /* its network interface; "" for InfiniBand without IPoIB */
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS];
    int ngids;
    char why[192]; /* why it is offered, with what was left out of its GID table */
};

struct pvn_hca_table {
    struct pvn_hca *hcas;
    int nhcas;
    struct pvn_hca_port *ports; /* in the order of the library's devices, then of ports */
    int nports;
    char left_out[1024]; /* "mlx5_1:1 (port is down), ..."; may be empty */
};

struct pvn_hca_options {
    const char *sys_root; /* "/sys" where NULL or empty */
    const char *hca;      /* NCCL_IB_HCA; "": all */
    const char *hca_from; /* the variable that it is from; NULL: NCCL_IB_HCA */
    /* True if a name without a device is no error on a host that has no RDMA device at all. */
    bool may_lack_rdma;
    struct pvn_gid_policy gids;
    /* Length of the network of an address of this interface (counted as in pvn_gid_row), 0: not
     * known. NULL: the process's interfaces are read. */
    uint8_t (*prefix)(void *arg, const char *ifname, const uint8_t raw[16]);
    void *prefix_arg;
};

/*
 * Opens what the filter allows. 0, also when nothing is usable (left_out has the reasons), or a
 * negative errno with *err: the library could not list its devices, or the filter names something
 * that does not exist (with a list of what does). Close with pvn_hca_close in any case of 0. The
 * table's own thread only.
 */
int pvn_hca_scan(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                 struct pvn_hca_table *out, struct pvn_err *err);

/* The port's GID table as it is now, filtered by the policy: rows in use, at most max, or a
 * negative errno. *whole, unless NULL: false if a part could not be read, so that rows or prefixes may be missing. Any thread, while the
 * table is open. */
int pvn_hca_current_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                         const struct pvn_hca *h, const struct pvn_hca_port *p,
                         struct pvn_gid_row *rows, int max, bool *whole);

/* Looks for the device h of a table again, by its name: 0 and *out has it alone, opened, if it is the
 * same one still and a port of it is usable; or a negative errno with *err. Any thread. */
int pvn_hca_scan_again(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                       const struct pvn_hca *h, struct pvn_hca_table *out, struct pvn_err *err);
/* Its context and limits become those of entry `hca`, whose earlier context is the caller's, and its
 * ports those of the table, in their places. `again` is to be closed then as well. */
void pvn_hca_take_over(struct pvn_hca_table *t, int hca, struct pvn_hca_table *again);

/* No lane or region may be left on any of the adapters. */
void pvn_hca_close(const struct pvn_verbs *v, struct pvn_hca_table *t);

/* A port's speed and width codes in Mb/s; 0 where a code is not known. */
int pvn_hca_speed_mbps(unsigned int speed, unsigned int width);

#endif
