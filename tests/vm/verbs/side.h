/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* One end of an RC connection, for the verbs test programs: device, memory, completion queue and queue pair. It is
 * connected to another side of the same process, so nothing has to be exchanged.
 *
 * Set-up failures end the program with status 2 and a message, because nothing can be tested then. */
#ifndef PVN_TESTS_VM_VERBS_SIDE_H
#define PVN_TESTS_VM_VERBS_SIDE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#define SIDE_ACCESS                                                                                \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

struct side {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq; /* for sends and receives; events go to channel */
    struct ibv_qp *qp;
    struct ibv_mr *mr; /* all of buf, SIDE_ACCESS */
    unsigned char *buf;
    size_t len;
    union ibv_gid gid;
    int gid_index;
    struct ibv_qp_cap cap; /* what create_qp granted */
};

/* Values as in struct ibv_qp_attr: timeout t stands for 4.096 us * 2^t. */
struct side_rc {
    int timeout, retry_cnt, rnr_retry, rd_atomic;
};

void side_open(struct side *s, const char *device, int gid_index, size_t len);
void side_close(struct side *s);

/* Makes a new queue pair in RESET. The old one is destroyed and its completions are discarded. */
void side_new_qp(struct side *s, struct ibv_qp_cap want);

/* Connects the two queue pairs and moves them to RTS. The path MTU is the port's active one. */
void side_connect(struct side *a, struct side *b, const struct side_rc *rc);

/* Polls for one completion. Returns 1, or 0 after limit seconds, or a negative value if polling fails. */
int side_wait(struct side *s, struct ibv_wc *wc, double limit);

/* Posts one work request with one scatter element (none if length is 0). Returns 0 or an errno. */
int side_post(struct side *s, struct ibv_send_wr *wr, size_t offset, uint32_t length);
int side_post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length);

#endif
