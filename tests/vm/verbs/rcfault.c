/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* rcfault: shows how an RC connection behaves under a fault.
 *
 * Writes a pattern from one device to another by RDMA WRITE, checks every byte, runs a shell
 * command (the fault), writes again and reports how the work request ended and after how long.
 *   rcfault [-a DEVICE] [-b DEVICE] [-g GID-INDEX] [-n BYTES] [-t TIMEOUT] [-r RETRY-COUNT]
 *           [-f FAULT-COMMAND] [-u UNDO-COMMAND] [-x STATUS]
 * STATUS is the completion status (enum ibv_wc_status) expected after the fault; TIMEOUT and
 * RETRY-COUNT are the queue pair's (rdma_rxe retries without end if the count is 7). Exit status 0: the first write
 * was good and the second ended as expected; its data are checked if the expected status is 0. */
#include "side.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

struct options {
    const char *device[2];
    const char *fault, *undo;
    size_t len;
    int gid_index, want;
    struct side_rc rc;
};

static void parse(struct options *o, int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "a:b:g:n:t:r:f:u:x:")) != -1) {
        switch (c) {
        case 'a':
            o->device[0] = optarg;
            break;
        case 'b':
            o->device[1] = optarg;
            break;
        case 'g':
            o->gid_index = atoi(optarg);
            break;
        case 'n':
            o->len = strtoul(optarg, NULL, 0);
            break;
        case 't':
            o->rc.timeout = atoi(optarg);
            break;
        case 'r':
            o->rc.retry_cnt = atoi(optarg);
            break;
        case 'f':
            o->fault = optarg;
            break;
        case 'u':
            o->undo = optarg;
            break;
        case 'x':
            o->want = atoi(optarg);
            break;
        default:
            exit(2);
        }
    }
}

/* Returns the completion status, or -1 if there was no completion. */
static int write_once(struct side *a, struct side *b, unsigned seed)
{
    struct ibv_send_wr wr = {.wr_id = seed,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)b->buf, b->mr->rkey}};
    struct ibv_wc wc;
    double start = pvn_now_s();
    int n;

    for (size_t i = 0; i < a->len; i++)
        a->buf[i] = (unsigned char)(i * 31 + (i >> 9) + seed);
    memset(b->buf, 0, b->len);
    if (side_post(a, &wr, 0, a->len))
        err(2, "post_send");
    n = side_wait(a, &wc, 40);
    if (n < 0)
        errx(2, "poll_cq");
    if (!n) {
        printf("write %u: no completion in 40 s\n", seed);
        return -1;
    }
    printf("write %u: %s (%d), vendor_err 0x%x, %.3f s\n", seed, ibv_wc_status_str(wc.status),
           wc.status, wc.vendor_err, pvn_now_s() - start);
    if (wc.status == IBV_WC_SUCCESS && memcmp(a->buf, b->buf, a->len))
        errx(3, "the data differ");
    return wc.status;
}

static void show_state(struct side *s)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_port_attr port;

    if (ibv_query_qp(s->qp, &attr, IBV_QP_STATE, &init) || ibv_query_port(s->ctx, 1, &port))
        err(2, "query_qp, query_port");
    printf("qp state %d, port %s\n", attr.qp_state, ibv_port_state_str(port.state));
}

int main(int argc, char **argv)
{
    struct options o = {.device = {"rxe0", "rxe1"},
                        .len = 1 << 20,
                        .rc = {.timeout = 14, .retry_cnt = 3, .rnr_retry = 6, .rd_atomic = 1}};
    struct ibv_qp_cap cap = {
        .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1};
    struct side a, b;
    int got = 0, want = 0;

    parse(&o, argc, argv);
    side_open(&a, o.device[0], o.gid_index, o.len);
    side_open(&b, o.device[1], o.gid_index, o.len);
    side_new_qp(&a, cap);
    side_new_qp(&b, cap);
    side_connect(&a, &b, &o.rc);
    got = write_once(&a, &b, 1);
    if (!got && o.fault) {
        want = o.want;
        if (system(o.fault))
            errx(2, "the fault command failed: %s", o.fault);
        got = write_once(&a, &b, 2);
        show_state(&a);
        if (o.undo && system(o.undo))
            errx(2, "the undo command failed: %s", o.undo);
    }
    side_close(&a);
    side_close(&b);
    return got == want ? 0 : 4;
}
