/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport: where devices come from and how a lane on one of them is made. net-tcp has one,
 * net-pvrdma has one; the device table (device.h) asks them all once, at init.
 *
 * A device is what NCCL sees as a NIC. Its facts are filled in by the transport that finds it.
 * Whatever carries its data, a device also has an IP address: there the listener of its comms
 * waits, for the control connection is TCP.
 */
#ifndef PVN_CONNECT_TRANSPORT_H
#define PVN_CONNECT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "engine/lane.h"
#include "connect/wire.h"

enum { PVN_MAX_DEVICES = 64 }; /* physical and virtual */

struct pvn_transport_ops;

struct pvn_device {
    char name[PVN_NAME_MAX];
    char pci_path[512]; /* real path of the PCI function in /sys; "": none, a virtual device */
    uint64_t guid;      /* the same for all ports and functions of one adapter */
    int ptr_support;    /* NCCL_PTR_ bits, proved */
    bool reg_is_global;
    bool force_flush;
    int speed_mbps;
    bool speed_known; /* false: speed_mbps is an assumption */
    int port;         /* from 1 where ports are numbered, else 0 or 1 */
    float latency_us;
    int max_comms;
    /* Buffers of one receive that NCCL may post, PVN_MAX_RECVS at most. Above 1 it lets several ranks share
     * a comm (PXN), each with a tag of its own, and a rank may be ahead of the others without limit: only
     * clear-to-send stops one of them and lets the others pass. 1 where there is none. TCP could have it,
     * but would pay for it with an entry for each receive, and has it only behind a faster transport. */
    int max_recvs;
    int16_t rail, plane; /* NCCL_NET_ID_UNDEF: not known */
    char why[192];       /* why this device is offered, for the banner */

    char ifname[PVN_NAME_MAX]; /* the interface of addr */
    unsigned ifindex;
    struct sockaddr_storage addr; /* where listeners bind and from where connectors dial; port 0 */
    socklen_t addr_len;
    unsigned prefixlen; /* bits of its network */
    /* Addresses of the same interface in other networks, a public and a private one for example: peers that
     * share one of these are reached there. */
    int nmore;
    struct {
        struct sockaddr_storage addr;
        unsigned prefixlen;
    } more[PVN_MORE_ADDRS];

    /* Who makes its lanes, in order of preference; a device with a faster transport may list TCP
     * behind it. */
    struct {
        const struct pvn_transport_ops *ops;
        int index; /* the transport's own number of this device */
    } via[2];
    int nvia;

    /* A virtual device: the devices it joins. A physical one: itself. */
    int nmembers;
    int members[PVN_MAX_LANES];
};

/* Arguments for making one lane. Valid during the call of lane_new only, except
 * ctx. */
struct pvn_lane_args {
    const struct pvn_device *dev; /* a physical device */
    bool sender;                  /* this end dials */
    uint64_t session, nonce;      /* for the preambles of the lane's own connections */
    const uint8_t *streams;       /* with a key: PVN_SECRET_BYTES for their tokens; else NULL */
    bool sealed;                  /* TCP connections' data are, by secrets from `streams` */
    bool acknowledged;            /* a send is done when the peer has its bytes (failover) */
    bool clear_to_send;           /* nothing is sent before there is a receive for it */
    bool may_block;               /* no message waits for calls into a sick adapter */
    bool spare;        /* messages wait, which other ports may carry: not one that is down */
    bool large;        /* both ends verify it with full-size packets as well */
    int traffic_class; /* 0 to 255, -1: the system's default */
    /* Acceptor: the address of the listener on this device's interface, with its port. */
    struct sockaddr_storage listen_addr;
    socklen_t listen_len;
};

struct pvn_transport_ops {
    const char *name;      /* for logs and statistics: "tcp", "rdma" */
    const char *chosen_by; /* the variable by which users choose among its devices */
    /* It works between any two ends, and is used where no other transport does. These alone are
     * scanned with NCCL_PVRDMA_TRANSPORT=tcp, and none of them with =rdma. */
    bool is_fallback;
    bool seals; /* its lanes can do what pvn_lane_args' `sealed` requests */
    /*
     * Finds devices: fills up to max entries and returns their number, 0 when there is none.
     * Negative errno with *err only when looking itself failed. `via`, members and why are the
     * transport's to fill as well. left_out gets what was not taken and why, for the log; it may
     * stay empty.
     */
    int (*scan)(struct pvn_device *out, int max, char *left_out, size_t cap, struct pvn_err *err);
    /* A fresh lane, not yet bound: see lane.h for its life. 0 or a negative errno with *err. */
    int (*lane_new)(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                    struct pvn_err *err);
    /* Forgets what scan found. No lane is left. */
    void (*unload)(void); /* may be NULL */
    /* In a forked child: forgets what scan found in the parent and destroys nothing of it, since
     * descriptors, registrations and adapter contexts are still the parent's. */
    void (*after_fork)(void); /* may be NULL */
};

/* The transports of this build, in order of preference; NULL ends the list. */
extern const struct pvn_transport_ops *const pvn_transports[];

#endif
