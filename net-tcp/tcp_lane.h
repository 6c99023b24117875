/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP lane: several streams between one pair of interfaces.
 *
 * The connector (the sending end of a comm) dials the streams, the acceptor's listener hands the
 * accepted sockets in by adopt. Chunks are assigned in order to whichever stream has room, so a
 * slow flow takes less instead of setting the pace; each is announced by a fixed header in front of
 * its payload (frame.h). The receiver reads payloads straight into the posted buffer; what has no
 * buffer yet stays in the kernel.
 *
 * Large chunks are sent without a copy where a trial on the connection shows that this pays
 * (tcp_trial.c): the stream takes references to the caller's pages (tcp_zerocopy.c). A receiver on
 * the same machine would read those very pages, so a chunk is reported sent only when the receiver
 * has acknowledged it. A lane that fails or is closed before that resets its streams, for the caller
 * may now overwrite the pages.
 *
 * Where ranks may share the comm, the receiver announces its receives (tcp_cts.c): entries come against
 * the data, on the first stream, and a message goes to the buffer that the sender has taken for it.
 *
 * Everything moves inside post_write, kick and poll, unless the process has worker threads, which then
 * make the system calls for large pieces (tcp_workers.h). A stream that has been
 * silent for a while is left to the poller (base/poller.h) and costs no system call until it has
 * something to say.
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
    /* A receiver reports a smaller chunk before it has sent the acknowledgement: after a reset that would
     * be pages that the sender's owner has overwritten. */
    PVN_TCP_ZEROCOPY_LEAST = 8 * 1024
};

struct pvn_tcp_lane_cfg {
    bool sender;
    int streams;       /* requested, 1 .. PVN_TCP_MAX_STREAMS; the smaller of both ends' is used */
    size_t chunk;      /* bytes; upper bound of a chunk, > 0 */
    size_t lone_chunk; /* bytes; the same where there is one stream only, if larger */
    bool batch;        /* messages may share a system call, see worth_sending in tcp_tx.c */
    /* bytes; chunks from this size on are sent without a copy if the trial says so, but not under bbr,
     * nor with workers; 0: none, else PVN_TCP_ZEROCOPY_LEAST or more (but in tests) */
    size_t zerocopy_min;
    int workers;        /* threads of the process's pool, see tcp_workers.h; 0: none */
    size_t worker_min;  /* bytes; pieces from this size on are theirs */
    bool acknowledged;  /* every chunk is: a send is done when the peer has its bytes */
    bool clear_to_send; /* nothing is sent before a receive; the same at both ends */
    bool large;         /* the round trip has full-size packets; the same at both ends */
    char name[64];      /* for messages, e.g. "eth2" */
    /* Indices of that device's interface and of the VRF it belongs to; 0: not known, or none. Where another
     * interface carries the lane, the name becomes "eth3 (device eth2)". */
    unsigned ifindex, master;

    /* Acceptor: opaque bytes for the connector's dial (address of the listener). */
    uint8_t dial_to[PVN_TCP_DIAL_MAX];
    size_t dial_to_len;

    /*
     * Connector. dial starts a connection of its own to what the acceptor put into dial_to: a
     * non-blocking, close-on-exec socket with all options set is returned (connect in progress or
     * done), or a negative errno with *err filled; *by, which is 0, may become the interface that its
     * packets leave by, if that is known. preamble writes the bytes that open stream
     * `stream` and returns their number. ctx must outlive the lane's set-up.
     */
    int (*dial)(void *ctx, const uint8_t *to, size_t len, int lane, int stream, unsigned *by,
                struct pvn_err *err);
    int (*preamble)(void *ctx, int lane, int stream, uint8_t *out);
    /* Both ends: the secret by which a stream is sealed behind its preamble: 0, or a negative errno with *err. NULL: streams
     * are in the clear. ctx likewise. */
    int (*secret)(void *ctx, int lane, int stream, uint8_t out[PVN_SEAL_SECRET],
                  struct pvn_err *err);
    /* The kernel seals such streams, for a sender those only whose chunks are acknowledged: a close drops what it has
     * sealed and TCP had no room for. Only where it can, see pvn_kernel_tls_check. */
    bool sealed_by_kernel;
    void *ctx;
};

/* NULL with errno ENOMEM or EINVAL. Freed by its ops->close, which closes the sockets: bytes that
 * the kernel has accepted are still delivered, unless zero-copy chunks are not acknowledged.
 * The caller holds a reference of the poller. */
struct pvn_lane *pvn_tcp_lane_new(const struct pvn_tcp_lane_cfg *cfg);

/* Bytes that a lane sends until its next trial of zero-copy, for tests; 0: as usual. */
void tcp_trial_again_after(uint64_t bytes);
/* Ends a lane's trial with the decision to send without a copy, for tests: on loopback it never is. */
void tcp_trial_zerocopy_pays(struct pvn_lane *l);

/* Counters of a lane, for statistics and tests. */
struct pvn_tcp_lane_stats {
    uint64_t tx_calls, tx_full;  /* sendmsg calls; those that the kernel refused (EAGAIN) */
    uint64_t rx_calls, rx_empty; /* recvmsg calls; those that found nothing */
    uint64_t tx_bytes, rx_bytes; /* with headers */
    uint64_t rx_peeks;           /* of rx_calls, those that left what they found with the kernel */
    uint64_t rx_copied;          /* payload bytes that came through the staging buffer */
    uint64_t jobs;               /* pieces handed to a worker */
    uint64_t idle;               /* times that a stream was left to the poller */
    uint64_t zerocopy_bytes;     /* sent without a copy, with headers */
    uint64_t zerocopy_acks;      /* chunks acknowledged: by the peer (sender), to it (receiver) */
    uint64_t ack_calls; /* that looked for acknowledgements (sender), or sent some (receiver) */
    uint64_t cts_calls; /* that sent clear-to-send entries, or looked for them */
};
const struct pvn_tcp_lane_stats *pvn_tcp_lane_get_stats(const struct pvn_lane *l);

#endif
