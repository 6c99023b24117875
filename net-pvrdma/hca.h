/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA adapters and their ports: which ones exist, which of them may carry NCCL's traffic, and their limits.
 *
 * An adapter is opened once and shared by its ports and by all lanes on them. Some devices report limits that
 * are not true. The limits here are the corrected ones, see struct pvn_hca.
 */
#ifndef PVN_NET_PVRDMA_HCA_H
#define PVN_NET_PVRDMA_HCA_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net-pvrdma/gid.h"
#include "net-pvrdma/rdma_lane.h"
#include "net-pvrdma/verbs.h"

enum pvn_hca_kind {
    PVN_HCA_PVRDMA, /* VMware paravirtual: PCI 15ad:0820, driver vmw_pvrdma */
    PVN_HCA_OTHER   /* any other adapter, with any link layer */
};

struct pvn_hca {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    char name[IBV_SYSFS_NAME_MAX];
    enum pvn_hca_kind kind;
    char driver[32]; /* "" if sysfs does not name it */
    /* Real path of the PCI function below the sysfs root; "" if there is none */
    char pci_path[256];
    uint64_t guid; /* node GUID in host byte order */
    int nports;    /* all ports of the adapter, usable or not */

    /* Limits. vmw_pvrdma announces more than its rings hold. A ring has at most 128 pages, i.e. 4096
     * entries of a completion queue, and 4096 requests with one scatter element or 2048 with four
     * (Linux 6.1, drivers/infiniband/hw/vmw_pvrdma; measured). The driver rounds sizes up to powers of two,
     * so the limits are rounded down. */
    uint32_t max_wr;       /* requests of a send or receive queue, with up to four elements each */
    uint32_t max_cqe;      /* entries of a completion queue */
    uint32_t max_inline;   /* inline bytes that a lane requests; vmw_pvrdma has no inline data */
    uint64_t max_mr;       /* bytes of one region; vmw_pvrdma: 1 GiB, although it reports more */
    uint8_t max_rd_atomic; /* READs in flight, the smaller limit of both directions; 0: no READ */
    bool costly_poll;      /* polling an empty completion queue is an exit to the hypervisor */
    /* A trial at the start has shown that RDMA WRITE does not work; that a port cannot talk to itself. */
    bool no_write, no_loop;
};

struct pvn_hca_port {
    int hca; /* index in the table */
    uint8_t port;
    char name[IBV_SYSFS_NAME_MAX + 12]; /* "mlx5_0:1" */
    bool ethernet;                      /* RoCE; else InfiniBand */
    uint16_t lid;
    enum ibv_mtu mtu; /* active */
    int speed_mbps;   /* speed of the link; valid only with speed_known */
    /* False for a paravirtual port, which reports a constant: its interface is read */
    bool speed_known;
    /* Maximum of bytes of one request; IBTA allows 2 GiB. A value of less than a page is ignored, because
     * vmw_pvrdma reports 1024 and accepts any length. */
    uint64_t max_msg;
    char ifname[IF_NAMESIZE]; /* network interface of the port; "" for InfiniBand without IPoIB */
    struct pvn_gid_row gids[PVN_RDMA_MAX_GIDS];
    int ngids;
    char why[192]; /* why the port is offered, and which rows of its GID table are left out */
};

struct pvn_hca_table {
    struct pvn_hca *hcas;
    int nhcas;
    struct pvn_hca_port *ports; /* in the order of the library's devices, then of ports */
    int nports;
    char left_out[1024]; /* "mlx5_1:1 (port is down), ..."; may be empty */
    /* Settings leave out a device or an active port. An exclusion (^) by name does not count, nor does a list of which
     * a device or port is here and is not usable. */
    bool by_setting;
    bool unlisted, listed; /* while it is filled: by_setting may follow */
};

struct pvn_hca_options {
    const char *sys_root; /* NULL or "": "/sys" */
    const char *hca;      /* value of NCCL_IB_HCA; "": all */
    const char *hca_from; /* name of the variable that set `hca`; NULL: NCCL_IB_HCA */
    /* On a host without any RDMA device, a name in `hca` that matches no device is no error. */
    bool may_lack_rdma;
    /* A name in `hca` that matches no device is an error although others match; else it gets a warning. */
    bool every_name;
    struct pvn_gid_policy gids; /* of RoCE ports; InfiniBand ignores it, as in NCCL */
    char gid_settings[192]; /* the variables of this policy, for messages: "NCCL_IB_GID_INDEX=3" */
    int pkey;               /* row of each port's table of partition keys */
    char pkey_setting[48];  /* for messages: "NCCL_IB_PKEY=1" */
    /* Returns the prefix length of an address of this interface as in pvn_gid_row, 0 if it is not known.
     * NULL: the scan reads the interfaces of this process. */
    uint8_t (*prefix)(void *arg, const char *ifname, const uint8_t raw[16]);
    void *prefix_arg;
};

/*
 * Opens the adapters that the filter allows. Returns 0 even if no adapter is usable; left_out then has the
 * reasons. Returns a negative errno with *err if the library cannot list its devices, if memory is short, or
 * if the filter names no device that exists (*err lists those that do). After 0 the caller has to call
 * pvn_hca_close. One thread owns a table.
 */
int pvn_hca_scan(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                 struct pvn_hca_table *out, struct pvn_err *err);

/* Brings the LID and the MTU of *p, the caller's copy of a port, up to date: a subnet manager gives a new LID, and a
 * user another MTU. Returns the rows of the port's GID table, or a negative errno. May be called from any thread while
 * the table is open. */
int pvn_hca_current_port(const struct pvn_verbs *v, const struct pvn_hca *h,
                         struct pvn_hca_port *p);

/* Reads the port's current GID table, filtered by the policy, and does what pvn_hca_current_port does. Returns the
 * number of rows, at most max, or a negative errno. *whole (may be NULL): false if a part could not be read, so that
 * rows or prefixes may be missing. */
int pvn_hca_current_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                         const struct pvn_hca *h, struct pvn_hca_port *p, struct pvn_gid_row *rows,
                         int max, bool *whole);

/* Opens the device h of a table again, found by its name. Returns 0 and a table of this device only, if it has
 * the same node GUID and a usable port; otherwise a negative errno with *err. May be called from any thread. */
int pvn_hca_scan_again(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                       const struct pvn_hca *h, struct pvn_hca_table *out, struct pvn_err *err);
/* Moves the device of `again` into entry `hca` of the table, and its ports into the entries of the same ports.
 * The caller has to close the earlier context of the entry, and `again`. */
void pvn_hca_take_over(struct pvn_hca_table *t, int hca, struct pvn_hca_table *again);

/* Closes all adapters, which must have no lane and no region left. */
void pvn_hca_close(const struct pvn_verbs *v, struct pvn_hca_table *t);

/* Converts a port's speed and width codes to Mb/s; 0 if a code is not known. */
int pvn_hca_speed_mbps(unsigned int speed, unsigned int width);

#endif
