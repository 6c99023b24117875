/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP lane: several streams between one pair of interfaces.
 *
 * The connector (the sending end of a comm) dials the streams. The acceptor's listener passes
 * accepted sockets in by adopt. Chunks are assigned in order to whichever stream has room, so a
 * slow flow carries fewer chunks and does not set the pace. A fixed header precedes the payload of
 * each chunk (frame.h). The receiver reads payloads directly into the posted buffer; payloads
 * without a buffer stay in the kernel.
 *
 * Large chunks are sent without a copy if a trial on the connection shows that this pays
 * (tcp_trial.c): the stream takes references to the caller's pages (tcp_zerocopy.c). A receiver on
 * the same machine would read those very pages, so a chunk is reported as sent only when the
 * receiver has acknowledged it. A lane that fails or is closed before that resets its streams,
 * because the caller may now overwrite the pages.
 *
 * If ranks may share the comm, the receiver announces its receives by clear-to-send entries
 * (tcp_cts.c). Entries travel against the data on the first stream, and a message goes to the
 * buffer that the sender has chosen for it.
 *
 * All progress is made inside post_write, kick and poll. If the process has worker threads, these
 * make the system calls for large pieces (tcp_workers.h). A stream that has been silent for a while
 * is left to the poller (base/poller.h) and costs no system call until data arrives.
 */
#ifndef PVN_NET_TCP_LANE_H
#define PVN_NET_TCP_LANE_H

#include <stdbool.h>

#include "engine/lane.h"
#include "seal/seal.h"

enum {
    PVN_TCP_MAX_STREAMS = 16,
    PVN_TCP_PREAMBLE_MAX = 64, /* bytes that open a data socket */
    PVN_TCP_DIAL_MAX = 128,    /* bytes that name the address to the connector */
    /* Smaller chunks must be copied, because a receiver reports them before it has sent the
     * acknowledgement. After a reset a zero-copy chunk may have pages that the sender's caller has
     * overwritten. */
    PVN_TCP_ZEROCOPY_LEAST = 8 * 1024
};

struct pvn_tcp_lane_cfg {
    bool sender;
    /* requested, 1 .. PVN_TCP_MAX_STREAMS; the lane uses the smaller number of both ends */
    int streams;
    size_t chunk;      /* bytes; upper bound of a chunk, > 0 */
    size_t lone_chunk; /* bytes; limit of a chunk if there is one stream only, if larger */
    bool batch;        /* messages may share a system call, see worth_sending in tcp_tx.c */
    /* Bytes; chunks from this size on are sent without a copy if the trial says so, but not under
     * bbr nor with workers. 0 turns zero-copy off; else PVN_TCP_ZEROCOPY_LEAST or more (tests may
     * use less). */
    size_t zerocopy_min;
    int workers;       /* threads of the process's pool, see tcp_workers.h; 0: none */
    size_t worker_min; /* bytes; workers take pieces from this size on */
    bool acknowledged; /* the peer acknowledges every chunk: a send is done when it has the bytes */
    bool clear_to_send; /* nothing is sent before a receive; the same at both ends */
    bool large;         /* the set-up's round trip has full-size packets; the same at both ends */
    char name[64];      /* for messages, e.g. "eth2" */
    /* Indices of the device's interface and of its VRF; 0: unknown, or none. If another interface
     * carries the lane, the name becomes "eth3 (device eth2)". */
    unsigned ifindex, master;

    /* Opaque bytes for the connector's dial (address of the acceptor's listener). The acceptor's to fill in; the connector
     * gets them at bind. */
    uint8_t dial_to[PVN_TCP_DIAL_MAX];
    size_t dial_to_len;

    /*
     * Connector. dial starts a connection to the address in the acceptor's dial_to. It returns a
     * non-blocking, close-on-exec socket with all options set (connect in progress or done), or a
     * negative errno with *err filled. *by is 0 on entry; dial sets it to the index of the outgoing
     * interface if that is known. preamble writes the bytes that open stream `stream` and returns
     * their number. ctx must outlive the lane's set-up.
     */
    int (*dial)(void *ctx, const uint8_t *to, size_t len, int lane, int stream, unsigned *by,
                struct pvn_err *err);
    int (*preamble)(void *ctx, int lane, int stream, uint8_t *out);
    /* Both ends: the secret that seals a stream behind its preamble. 0, or a negative errno with
     * *err. NULL: streams are not encrypted. ctx likewise. */
    int (*secret)(void *ctx, int lane, int stream, uint8_t out[PVN_SEAL_SECRET],
                  struct pvn_err *err);
    /* The kernel encrypts sealed streams (kernel TLS), if it can, see pvn_kernel_tls_check. On a
     * sender only if chunks are acknowledged, because a close drops bytes that are encrypted but
     * found no room in TCP. */
    bool sealed_by_kernel;
    void *ctx;
};

/* NULL with errno ENOMEM or EINVAL. ops->close frees the lane and closes its sockets. The kernel
 * still delivers bytes that it has accepted, unless zero-copy chunks are not acknowledged. The
 * caller holds a reference of the poller. */
struct pvn_lane *pvn_tcp_lane_new(const struct pvn_tcp_lane_cfg *cfg);

/* For tests: bytes that a lane sends until its next trial of zero-copy; 0 restores the default. */
void tcp_trial_again_after(uint64_t bytes);
/* For tests: ends a lane's trial with the decision for zero-copy, which a trial on loopback never
 * makes. */
void tcp_trial_zerocopy_pays(struct pvn_lane *l);

/* Counters of a lane, for statistics and tests. */
struct pvn_tcp_lane_stats {
    uint64_t tx_calls, tx_full;  /* sendmsg calls, and those that failed with EAGAIN */
    uint64_t rx_calls;           /* recvmsg calls */
    uint64_t tx_bytes, rx_bytes; /* with headers */
    uint64_t rx_peeks;           /* rx_calls that only peeked (MSG_PEEK) */
    uint64_t jobs;               /* pieces handed to a worker */
    uint64_t idle;               /* times that a stream was left to the poller */
    uint64_t zerocopy_bytes;     /* sent without a copy, with headers */
    uint64_t zerocopy_acks;      /* chunks acknowledged: by the peer (sender), to it (receiver) */
    uint64_t ack_calls; /* calls that read acknowledgements (sender) or sent some (receiver) */
    uint64_t cts_calls; /* calls that sent clear-to-send entries, or read them */
};
const struct pvn_tcp_lane_stats *pvn_tcp_lane_get_stats(const struct pvn_lane *l);

#endif
