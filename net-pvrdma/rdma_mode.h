/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes of a lane (rdma_lane.h): a table for each with what it does differently, and its data operations,
 * so that the data path never tests the mode. All tables are constant. A lane has none until its mode has been
 * agreed on, and then those of its mode to its end.
 *
 * Calls go down: fence and set-up call the modes, these rdma_one_sided.c (but for the two-sided mode)
 * and the halves of a lane (short messages, rx, tx), these what posts and polls.
 */
#ifndef PVN_NET_PVRDMA_RDMA_MODE_H
#define PVN_NET_PVRDMA_RDMA_MODE_H

#include <infiniband/verbs.h>

#include "engine/lane.h"
#include "net-pvrdma/rdma_lane.h"

struct rdma_lane;

/* Functions that return int: 0, or a negative errno, which except for -EAGAIN is the lane's end. */
struct rdma_mode {
    int opcode; /* enum ibv_wr_opcode of the request that carries a chunk's bytes */
    /* The completion queue of a receiver has its arrivals, so nothing but polls takes from it. */
    bool rx_polls_queue;
    /* The sender's window opens when the receiver has read a chunk's record, not with the chunk's
     * completion: the receiver acknowledges also where completions are cheap to poll. */
    bool window_by_reads;
    /* Each request has a completion, so `outstanding` counts them. */
    bool all_signaled;
    /* The sender's device waits while the receiver has no receive posted, with a limit of its own
     * or without one. */
    bool waits_for_receives;
    /* A chunk's completion, and nothing before it, says that its bytes are there: until then they may reach memory in
     * any order, see ordering.h. */
    bool relaxed;
    /* All bytes go through buffers of the lane's own: no memory is registered, and none of a GPU is reached. */
    bool copies;

    /* The mode has been agreed on; the queue pairs are not connected yet, but take receives, the first
     * of which are posted here. */
    int (*open)(struct rdma_lane *r);
    /* Sends what verifies a queue pair. */
    int (*probe)(struct rdma_lane *r, int qp);
    /* Receiver: whether the sender is known to be connected; -EAGAIN: not yet. */
    int (*peer_connected)(struct rdma_lane *r);
    /* Takes completions beside the polls, of a lane whose queue has no arrivals for these alone. */
    int (*take)(struct rdma_lane *r);
    /* Fence, the queue pairs are in the error state: saves arrivals that destroying them would take
     * out of the completion queue. -EAGAIN: call again. */
    int (*save_arrivals)(struct rdma_lane *r);
    /* Fenced: takes what arrived before, but for short messages. */
    void (*take_landed)(struct rdma_lane *r, struct pvn_event *ev, int max, int *n);
    /* The lane closes, its queue pairs still work: lets go what the peer waits for. Blocks for a
     * moment at most. */
    void (*before_close)(struct rdma_lane *r);
    void (*get_stats)(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out);
    const struct pvn_lane_data_ops *data[2]; /* [1]: of a sender */
};

/* rdma_record.c, rdma_imm.c (imm mode without and with counts), rdma_two.c */
extern const struct rdma_mode rdma_record_mode, rdma_imm_mode, rdma_counted_mode, rdma_send_mode;

#endif
