/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport finds devices and makes lanes on them. net-tcp has one, net-pvrdma has one; the
 * device table (device.h) scans all of them once, at init.
 *
 * A device is what NCCL sees as a NIC. The transport that finds it fills in its facts. Each device
 * has an IP address, whatever carries its data: the listener of its comms waits there, because the
 * control connection is TCP.
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
    /* Buffers of one receive that NCCL may post, PVN_MAX_RECVS at most. Above 1, NCCL lets several
     * ranks share a comm (PXN), each with a tag of its own. A rank may then be ahead of the others
     * without limit, and only clear-to-send stops it and lets the others pass. So this is 1 for
     * lanes without clear-to-send. TCP could have it, but would pay for it with an entry for each
     * receive, and has it only behind a faster transport. */
    int max_recvs;
    int16_t rail, plane; /* NCCL_NET_ID_UNDEF: not known */
    char why[192];       /* why this device is offered, for the banner */

    char ifname[PVN_NAME_MAX]; /* the interface of addr */
    unsigned ifindex;
    struct sockaddr_storage addr; /* where listeners bind and from where connectors dial; port 0 */
    socklen_t addr_len;
    unsigned prefixlen; /* bits of its network */
    /* Addresses of the same interface in other networks, for example a public and a private one. A
     * peer that is in one of these networks, too, is reached there. */
    int nmore;
    struct {
        struct sockaddr_storage addr;
        unsigned prefixlen;
    } more[PVN_MORE_ADDRS];

    /* The transports that make its lanes, in order of preference. A device with a faster transport
     * may list TCP behind it. */
    struct {
        const struct pvn_transport_ops *ops;
        int index; /* the transport's own number of this device */
    } via[2];
    int nvia;

    /* A virtual device: the devices that it joins. A physical device: itself. */
    int nmembers;
    int members[PVN_MAX_LANES];
};

/* Arguments for making one lane. They stay valid until the lane is closed, so a lane may keep the
 * pointer. */
struct pvn_lane_args {
    const struct pvn_device *dev; /* a physical device */
    bool sender;                  /* this end dials */
    uint64_t session, nonce;      /* for the preambles of the lane's own connections */
    const uint8_t *streams; /* with a key: secret of PVN_SECRET_BYTES for their tokens; else NULL */
    bool sealed; /* the data of TCP connections are sealed, with secrets derived from `streams` */
    bool acknowledged;  /* a send is done when the peer has acknowledged its bytes (failover) */
    bool clear_to_send; /* nothing is sent before there is a receive for it */
    bool may_block;     /* calls into a sick adapter may block, because no message waits for them */
    /* Messages wait, and other ports may carry them: a port that is down is not waited for. */
    bool spare;
    bool large;            /* both ends verify it with full-size packets as well */
    int traffic_class;     /* 0 to 255, -1: the system's default */
    uint8_t service_level; /* a number of which an RDMA lane takes as many bits as its link has */
    /* Acceptor: the address of the listener on this device's interface, with its port. Valid while
     * the lane is made. */
    const struct sockaddr_storage *listen_addr;
};

struct pvn_transport_ops {
    const char *name;      /* for logs and statistics: "tcp", "rdma" */
    const char *chosen_by; /* the variable by which users choose among its devices */
    /* Works between any two ends, and is used where no other transport works.
     * NCCL_PVRDMA_TRANSPORT=tcp scans these transports alone, =rdma none of them. */
    bool is_fallback;
    bool seals; /* its lanes can seal data (`sealed` in struct pvn_lane_args) */
    /* A connector's offer names nothing that may change until a late peer reads it, as an adapter's
     * addresses may. */
    bool offer_keeps;
    /*
     * Finds devices: fills in up to `max` entries and returns their number, 0 if there is none. The
     * transport also fills in `via`, members and why. Negative errno with *err only if the search
     * itself failed. left_out gets the devices that were not taken and why, for the log; it may
     * stay empty.
     */
    int (*scan)(struct pvn_device *out, int max, char *left_out, size_t cap, struct pvn_err *err);
    /* Makes a lane, which is not bound yet: lane.h describes its life. 0 or a negative errno with
     * *err. */
    int (*lane_new)(int index, const struct pvn_lane_args *args, struct pvn_lane **out,
                    struct pvn_err *err);
    /* Forgets the devices that scan found. All lanes have been closed. */
    void (*unload)(void); /* may be NULL */
    /* In a forked child: forgets the devices that scan found in the parent. Destroys nothing,
     * because descriptors, registrations and adapter contexts still belong to the parent. */
    void (*after_fork)(void); /* may be NULL */
};

/* The transports of this build, in order of preference; NULL ends the list. */
extern const struct pvn_transport_ops *const pvn_transports[];

#endif
