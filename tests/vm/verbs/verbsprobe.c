/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* verbsprobe: shows which verbs a device really supports, and how each mistake ends.
 *
 *   verbsprobe DEVICE-A DEVICE-B GID-INDEX
 * One line "NAME: RESULT" per probe, between two RC queue pairs of this process (the devices may be
 * the same). The results have no times or addresses, so that they can be compared with a known good list. Exit
 * status 0 if all probes ran, whatever they found; 2 if set-up failed. */
#define _GNU_SOURCE
#include "side.h"

#include <errno.h>
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LEN = 1 << 20, MANY_QPS = 256, MANY_REGIONS = 100 };

static struct side a, b;
static double limit = 20; /* seconds for a completion */

static void reconnect(int rnr_retry)
{
    const struct ibv_qp_cap cap = {128, 128, 4, 4, 64};
    const struct side_rc rc = {
        .timeout = 16, .retry_cnt = 6, .rnr_retry = rnr_retry, .rd_atomic = 16};

    side_new_qp(&a, cap);
    side_new_qp(&b, cap);
    side_connect(&a, &b, &rc);
    memset(a.buf, 0x5a, LEN);
    memset(b.buf, 0, LEN);
}

/* Makes fresh queue pairs and returns a request from the start of a's buffer to the start of b's. */
static struct ibv_send_wr request(enum ibv_wr_opcode opcode)
{
    struct ibv_send_wr wr = {.opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)b.buf, b.mr->rkey}};

    reconnect(6);
    return wr;
}

static const char *status_of(int n, const struct ibv_wc *wc)
{
    return n == 1 ? ibv_wc_status_str(wc->status) : n < 0 ? "poll failed" : "no completion";
}

/* Posts on a, waits, and returns how the send ended. */
static const char *end_of(struct ibv_send_wr *wr, struct ibv_sge *sge, int num_sge)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    int error;

    wr->sg_list = sge;
    wr->num_sge = num_sge;
    error = ibv_post_send(a.qp, wr, &bad);
    if (error)
        return strerror(error);
    return status_of(side_wait(&a, &wc, limit), &wc);
}

static const char *end_of_one(struct ibv_send_wr *wr, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)a.buf, length, a.mr->lkey};

    return end_of(wr, &sge, 1);
}

static const char *same(size_t n)
{
    return memcmp(a.buf, b.buf, n) ? "data differ" : "data ok";
}

static const char *outcome(const void *object)
{
    return object ? "ok" : strerror(errno);
}

static void probe_opcodes(void)
{
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
    struct ibv_wc wc;
    const char *end = end_of_one(&wr, 4096);
    uint64_t old, new;
    int n;

    printf("RDMA_WRITE: %s, %s\n", end, same(4096));
    printf("granted: inline %u, sge %u and %u, wr %u and %u\n", a.cap.max_inline_data,
           a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_send_wr, a.cap.max_recv_wr);

    wr = request(IBV_WR_RDMA_WRITE_WITH_IMM);
    wr.imm_data = 0x12345678;
    side_post_recv(&b, 7, 0, 0);
    end = end_of_one(&wr, 4096);
    n = side_wait(&b, &wc, limit);
    printf("RDMA_WRITE_WITH_IMM: %s; receive %s, opcode %d, imm 0x%x, length %u, %s\n", end,
           status_of(n, &wc), wc.opcode, wc.imm_data, wc.byte_len, same(4096));

    wr = request(IBV_WR_SEND_WITH_IMM);
    wr.imm_data = 77;
    side_post_recv(&b, 7, 0, LEN);
    end = end_of_one(&wr, 4096);
    n = side_wait(&b, &wc, limit);
    printf("SEND_WITH_IMM: %s; receive %s, imm %u, length %u, %s\n", end, status_of(n, &wc),
           wc.imm_data, wc.byte_len, same(4096));

    wr = request(IBV_WR_RDMA_READ);
    memset(b.buf, 9, LEN);
    end = end_of_one(&wr, 4096);
    printf("RDMA_READ: %s, %s\n", end, same(4096));

    wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD);
    old = 40;
    memcpy(b.buf, &old, sizeof old);
    wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
    wr.wr.atomic.rkey = b.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    end = end_of_one(&wr, 8);
    memcpy(&old, a.buf, sizeof old);
    memcpy(&new, b.buf, sizeof new);
    printf("ATOMIC_FETCH_AND_ADD: %s, old %llu new %llu\n", end, (unsigned long long)old,
           (unsigned long long)new);
}

static void probe_shapes(void)
{
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
    struct ibv_sge odd[3] = {{(uintptr_t)a.buf, 100, a.mr->lkey},
                             {(uintptr_t)a.buf + 100, 3, a.mr->lkey},
                             {(uintptr_t)a.buf + 103, 5000, a.mr->lkey}};
    struct ibv_sge no_key = {(uintptr_t)a.buf, 64, 0};
    const char *end;

    printf("three elements of odd sizes: %s", end_of(&wr, odd, 3));
    printf(", %s\n", same(5103));

    wr = request(IBV_WR_RDMA_WRITE);
    printf("RDMA_WRITE of 0 bytes: %s\n", end_of(&wr, NULL, 0));

    wr = request(IBV_WR_RDMA_WRITE);
    wr.send_flags |= IBV_SEND_INLINE;
    end = end_of(&wr, &no_key, 1);
    printf("inline, 64 bytes, lkey 0: %s, %s\n", end, same(64));
}

static void probe_mistakes(void)
{
    struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct ibv_wc wc;
    const char *end;
    int n;

    wr = request(IBV_WR_SEND);
    reconnect(1);
    limit = 4; /* a device may ignore rnr_retry and wait without end */
    printf("SEND, no receive, rnr_retry 1: %s\n", end_of_one(&wr, 4096));
    limit = 20;

    wr = request(IBV_WR_SEND);
    side_post_recv(&b, 7, 0, 100);
    end = end_of_one(&wr, 4096);
    n = side_wait(&b, &wc, limit);
    printf("SEND longer than the receive: %s; receive %s\n", end, status_of(n, &wc));

    wr = request(IBV_WR_RDMA_WRITE);
    wr.wr.rdma.rkey ^= 0x100;
    printf("wrong rkey: %s\n", end_of_one(&wr, 4096));

    wr = request(IBV_WR_RDMA_WRITE);
    wr.wr.rdma.remote_addr += LEN - 100;
    printf("past the end of the region: %s\n", end_of_one(&wr, 4096));

    wr = request(IBV_WR_RDMA_WRITE);
    sge = (struct ibv_sge){(uintptr_t)a.buf, 4096, a.mr->lkey ^ 0x100};
    printf("wrong lkey: %s\n", end_of(&wr, &sge, 1));

    wr = request(IBV_WR_RDMA_WRITE);
    side_new_qp(&b, (struct ibv_qp_cap){128, 128, 4, 4, 64});
    printf("peer's queue pair destroyed: %s\n", end_of_one(&wr, 4096));

    wr = request(IBV_WR_RDMA_WRITE);
    ibv_modify_qp(a.qp, &to_error, IBV_QP_STATE);
    printf("post in ERR: %s\n", end_of_one(&wr, 4096));

    reconnect(6);
    side_post_recv(&b, 7, 0, 100);
    ibv_modify_qp(b.qp, &to_error, IBV_QP_STATE);
    n = side_wait(&b, &wc, limit);
    printf("posted receive when ERR comes: %s\n", status_of(n, &wc));
}

static void probe_event(void)
{
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM);
    struct pollfd p = {.fd = b.channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    struct ibv_wc wc;
    void *context;
    int n;

    side_post_recv(&b, 7, 0, 0);
    ibv_req_notify_cq(b.cq, 0);
    end_of_one(&wr, 4096);
    n = poll(&p, 1, 5000);
    if (n == 1 && !ibv_get_cq_event(b.channel, &cq, &context))
        ibv_ack_cq_events(cq, 1);
    printf("completion event: %s\n", cq == b.cq ? "yes" : "no");
    side_wait(&b, &wc, 1);
}

/* Messages that exceed the max_msg_sz of rdma_rxe's port (8 MiB). */
static void probe_long(size_t mib)
{
    size_t n = mib << 20;
    unsigned char *from = aligned_alloc(4096, n), *to = aligned_alloc(4096, n);
    struct ibv_mr *mr_from = ibv_reg_mr(a.pd, from, n, SIDE_ACCESS);
    struct ibv_mr *mr_to = ibv_reg_mr(b.pd, to, n, SIDE_ACCESS);
    const char *end = "no memory region", *data = "";

    if (mr_from && mr_to) {
        struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
        struct ibv_sge sge = {(uintptr_t)from, (uint32_t)n, mr_from->lkey};

        memset(from, (int)mib, n);
        memset(to, 0, n);
        wr.wr.rdma.remote_addr = (uintptr_t)to;
        wr.wr.rdma.rkey = mr_to->rkey;
        end = end_of(&wr, &sge, 1);
        data = memcmp(from, to, n) ? ", data differ" : ", data ok";
        reconnect(6); /* nothing outstanding may outlive the regions */
    }
    printf("one RDMA_WRITE of %zu MiB: %s%s\n", mib, end, data);
    if (mr_from)
        ibv_dereg_mr(mr_from);
    if (mr_to)
        ibv_dereg_mr(mr_to);
    free(from);
    free(to);
}

static struct ibv_mr *show_mr(const char *what, struct ibv_mr *mr)
{
    printf("%s: %s\n", what, outcome(mr));
    return mr;
}

static void drop_mr(struct ibv_mr *mr)
{
    if (mr)
        ibv_dereg_mr(mr);
}

static void probe_regions(void)
{
    const int odp = SIDE_ACCESS | IBV_ACCESS_ON_DEMAND;
    int fd = memfd_create("region", 0);
    void *shared, *fixed;
    struct ibv_mr *mr;

    if (fd < 0 || ftruncate(fd, LEN))
        err(2, "memfd");
    shared = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    fixed = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || fixed == MAP_FAILED)
        err(2, "mmap");
    drop_mr(show_mr("region, relaxed ordering",
                    ibv_reg_mr(a.pd, a.buf, LEN, SIDE_ACCESS | IBV_ACCESS_RELAXED_ORDERING)));
    mr = show_mr("region at iova 0", ibv_reg_mr_iova(a.pd, a.buf, LEN, 0, SIDE_ACCESS));
    if (mr) {
        struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
        struct ibv_sge sge = {0, 4096, mr->lkey};

        printf("RDMA_WRITE from iova 0: %s", end_of(&wr, &sge, 1));
        printf(", %s\n", same(4096));
        drop_mr(mr);
    }
    drop_mr(show_mr("region, on demand", ibv_reg_mr(a.pd, a.buf, LEN, odp)));
    drop_mr(show_mr("whole address space, on demand", ibv_reg_mr(a.pd, NULL, SIZE_MAX, odp)));
    drop_mr(
        show_mr("dma-buf region of a memfd", ibv_reg_dmabuf_mr(a.pd, 0, LEN, 0, fd, SIDE_ACCESS)));
    drop_mr(show_mr("region of read-only memory", ibv_reg_mr(a.pd, fixed, LEN, SIDE_ACCESS)));
    drop_mr(show_mr("the same, access 0", ibv_reg_mr(a.pd, fixed, LEN, 0)));
    drop_mr(show_mr("region of a shared memfd", ibv_reg_mr(a.pd, shared, LEN, SIDE_ACCESS)));
    munmap(shared, LEN);
    munmap(fixed, LEN);
    close(fd);
}

static void probe_objects(void)
{
    struct ibv_qp_init_attr init = {
        .send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_UC, .cap = {16, 16, 1, 1, 0}};
    struct ibv_mw *window = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2);
    struct ibv_qp *qp[MANY_QPS];
    struct ibv_mr *mr[MANY_REGIONS];
    int n;

    printf("memory window of type 2: %s\n", outcome(window));
    if (window)
        ibv_dealloc_mw(window);
    for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type += IBV_QPT_UD - IBV_QPT_UC) {
        init.qp_type = type;
        qp[0] = ibv_create_qp(a.pd, &init);
        printf("%s queue pair: %s\n", type == IBV_QPT_UC ? "UC" : "UD", outcome(qp[0]));
        if (qp[0])
            ibv_destroy_qp(qp[0]);
    }
    init.qp_type = IBV_QPT_RC;
    for (n = 0; n < MANY_QPS && (qp[n] = ibv_create_qp(a.pd, &init)); n++)
        ;
    printf("%d more RC queue pairs: %d\n", MANY_QPS, n);
    while (n)
        ibv_destroy_qp(qp[--n]);
    for (n = 0; n < MANY_REGIONS && (mr[n] = ibv_reg_mr(a.pd, a.buf, LEN, SIDE_ACCESS)); n++)
        ;
    printf("%d more regions of 1 MiB: %d\n", MANY_REGIONS, n);
    while (n)
        ibv_dereg_mr(mr[--n]);
}

/* Finds the largest ring of each kind by doubling. */
static void probe_rings(void)
{
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RC};
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    int n;

    for (n = 1024; n <= 32768 && (cq = ibv_create_cq(a.ctx, n, NULL, NULL, 0)); n *= 2)
        ibv_destroy_cq(cq);
    printf("completion queue: %d works, %d not: %s\n", n / 2, n,
           n > 32768 ? "untried" : strerror(errno));
    for (int sge = 1; sge <= 4; sge += 3) {
        for (n = 1024; n <= 16384; n *= 2) {
            init.cap = (struct ibv_qp_cap){n, 16, sge, 1, 0};
            qp = ibv_create_qp(a.pd, &init);
            if (!qp)
                break;
            ibv_destroy_qp(qp);
        }
        printf("send queue, %d elements each: %d works, %d not: %s\n", sge, n / 2, n,
               n > 16384 ? "untried" : strerror(errno));
    }
}

static void probe_limits(void)
{
    struct ibv_device_attr device;
    struct ibv_port_attr port;

    if (ibv_query_device(a.ctx, &device) || ibv_query_port(a.ctx, 1, &port))
        err(2, "query_device, query_port");
    printf("limits: max_msg_sz %u, qp_rd_atom %d, max_sge %d, speed %d, width %d\n",
           port.max_msg_sz, device.max_qp_rd_atom, device.max_sge, port.active_speed,
           port.active_width);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: verbsprobe DEVICE-A DEVICE-B GID-INDEX\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    side_open(&a, argv[1], atoi(argv[3]), LEN);
    side_open(&b, argv[2], atoi(argv[3]), LEN);
    probe_opcodes();
    probe_shapes();
    probe_mistakes();
    probe_event();
    probe_long(8);
    probe_long(16);
    probe_regions();
    probe_objects();
    probe_rings();
    probe_limits();
    side_close(&a);
    side_close(&b);
    return 0;
}
