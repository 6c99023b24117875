/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes of a lane (rdma_lane.h). Each mode has a table of its properties and its data operations, so that
 * the data path never tests the mode. All tables are constant. A lane gets the tables of its mode when the ends
 * have agreed on the mode, and keeps them until it is closed.
 *
 * Calls go down: fence and set-up call the modes. The modes call rdma_one_sided.c (the two-sided mode does not)
 * and the halves of a lane (short messages, rx, tx). These call the functions that post and poll.
 */
#ifndef PVN_NET_PVRDMA_RDMA_MODE_H
#define PVN_NET_PVRDMA_RDMA_MODE_H

#include <infiniband/verbs.h>

#include "engine/lane.h"
#include "net-pvrdma/rdma_lane.h"

struct rdma_lane;

/* Functions that return int return 0 or a negative errno. Any errno but -EAGAIN means that the lane is dead. */
struct rdma_mode {
    int opcode; /* enum ibv_wr_opcode of the request that carries a chunk's bytes */
    /* Arrivals come through the receiver's completion queue, so only polls may take completions from it. */
    bool rx_polls_queue;
    /* The sender's window opens when the receiver has read a chunk's record, not when the chunk has
     * completed. So the receiver has to acknowledge even if completions are cheap to poll. */
    bool window_by_reads;
    /* Each request has a completion, so `outstanding` counts all requests. */
    bool all_signaled;
    /* The sender's device waits while the receiver has no receive posted, with or without a limit of its
     * own. */
    bool waits_for_receives;
    /* Only a chunk's completion shows that its bytes have arrived. So before it the bytes may reach memory in
     * any order, see ordering.h. */
    bool relaxed;
    /* All bytes are copied through the lane's own buffers, so no memory is registered and GPU memory cannot
     * be used. */
    bool copies;

    /* Prepares the lane when the mode has been agreed on. The queue pairs are not connected yet but accept
     * receives, the first of which are posted here. */
    int (*open)(struct rdma_lane *r);
    /* Posts the request that verifies a queue pair. */
    int (*probe)(struct rdma_lane *r, int qp);
    /* Receiver: 0 if the sender is known to be connected, -EAGAIN if it is not yet. */
    int (*peer_connected)(struct rdma_lane *r);
    /* Takes completions outside of polls. Not called while the queue may have arrivals, which only polls
     * report. */
    int (*take)(struct rdma_lane *r);
    /* Fence, with the queue pairs in the error state: saves the arrivals in the completion queue, which
     * destroying the queue pairs would remove. -EAGAIN: call again. */
    int (*save_arrivals)(struct rdma_lane *r);
    /* After the fence: returns the arrivals from before it, short messages excepted. */
    void (*take_landed)(struct rdma_lane *r, struct pvn_event *ev, int max, int *n);
    /* Sends what the peer still waits for, before the lane closes and while its queue pairs still work.
     * Blocks for a second at most. */
    void (*before_close)(struct rdma_lane *r);
    void (*get_stats)(const struct rdma_lane *r, struct pvn_rdma_lane_stats *out);
    const struct pvn_lane_data_ops *data[2]; /* [0]: receiver, [1]: sender */
};

/* rdma_record.c, rdma_imm.c (imm mode without and with counts), rdma_two.c */
extern const struct rdma_mode rdma_record_mode, rdma_imm_mode, rdma_counted_mode, rdma_send_mode;

#endif
