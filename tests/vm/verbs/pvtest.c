/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvtest: tests the verbs that an RC plugin needs, each for effect, order and completion, between two queue pairs
 * of one device.
 *
 *   pvtest DEVICE GID-INDEX [-f FAULT-COMMAND]
 * Prints "ok NAME" or "not ok NAME: what was seen" per check. FAULT-COMMAND, followed by "fail QPN STATUS" or
 * "event TYPE INFO", makes the device do that; if it is given the injected faults are checked, too. Exit status 0
 * if all checks passed, 1 if a check failed, 2 if set-up failed. */
#define _GNU_SOURCE
#include "side.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 1 << 20, IMM = 0x12345678 };

static struct side a, b;
static const char *fault_command;
static bool soft_roce;
static int failed;

static void reconnect(void)
{
    const struct ibv_qp_cap cap = {
        .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 2};
    const struct side_rc rc = {.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .rd_atomic = 1};

    side_new_qp(&a, cap);
    side_new_qp(&b, cap);
    side_connect(&a, &b, &rc);
}

/* Prints a result line. After a failure it makes new queue pairs, because the old ones may be in ERR. */
__attribute__((format(printf, 3, 4))) static void result(const char *name, bool good,
                                                         const char *format, ...)
{
    va_list ap;

    printf("%s %s", good ? "ok" : "not ok", name);
    if (!good) {
        failed++;
        fputs(": ", stdout);
        va_start(ap, format);
        vprintf(format, ap);
        va_end(ap);
        reconnect();
    }
    putchar('\n');
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t id)
{
    return (struct ibv_send_wr){.wr_id = id,
                                .opcode = opcode,
                                .send_flags = IBV_SEND_SIGNALED,
                                .imm_data = htonl(IMM),
                                .wr.rdma = {(uintptr_t)b.buf, b.mr->rkey}};
}

static int send_one(uint64_t id, int flags, size_t offset, uint32_t len)
{
    struct ibv_send_wr wr = request(IBV_WR_SEND, id);

    wr.send_flags = flags;
    return side_post(&a, &wr, offset, len);
}

/* Consumes the completions that are still to come, so that the next check does not see them. */
static void drain(void)
{
    struct ibv_wc wc;

    while (side_wait(&a, &wc, 0.2) > 0 || side_wait(&b, &wc, 0.2) > 0)
        ;
}

struct message_case {
    const char *name;
    enum ibv_wr_opcode opcode;
    enum ibv_wc_opcode send_opcode;
    enum ibv_wc_opcode recv_opcode; /* when recv */
    bool recv, imm;
    uint32_t len;
};

static const struct message_case messages[] = {
    {"SEND 4 KiB", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, 4096},
    {"SEND 256 KiB", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, 262144},
    {"SEND_WITH_IMM", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_WC_RECV, true, true, 4096},
    {"SEND of 0 bytes", IBV_WR_SEND, IBV_WC_SEND, IBV_WC_RECV, true, false, 0},
    {"RDMA_WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0, false, false, 100000},
    {"RDMA_WRITE_WITH_IMM", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
     IBV_WC_RECV_RDMA_WITH_IMM, true, true, 100000},
    {"RDMA_WRITE_WITH_IMM of 0 bytes", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
     IBV_WC_RECV_RDMA_WITH_IMM, true, true, 0},
};

static bool recv_is_right(const struct message_case *m, const struct ibv_wc *wc)
{
    bool imm = (wc->wc_flags & IBV_WC_WITH_IMM) && wc->imm_data == htonl(IMM);

    return wc->status == IBV_WC_SUCCESS && wc->opcode == m->recv_opcode && wc->byte_len == m->len &&
           (imm || !m->imm);
}

static void check_message(const struct message_case *m)
{
    struct ibv_send_wr wr = request(m->opcode, 100);
    struct ibv_wc s, r = {.status = IBV_WC_SUCCESS};
    int ns, nr = 0;
    bool data;

    memset(b.buf, 0, SIZE);
    for (uint32_t i = 0; i < m->len; i++)
        a.buf[i] = (unsigned char)(i * 7 + 1);
    if (m->recv)
        side_post_recv(&b, 900, 0, SIZE / 2);
    side_post(&a, &wr, 0, m->len);
    ns = side_wait(&a, &s, 10);
    if (m->recv)
        nr = side_wait(&b, &r, 10);
    data = !memcmp(a.buf, b.buf, m->len);
    result(m->name,
           ns == 1 && s.status == IBV_WC_SUCCESS && s.wr_id == 100 && s.opcode == m->send_opcode &&
               data && (!m->recv || (nr == 1 && recv_is_right(m, &r))),
           "send n %d status %d opcode %d; receive n %d status %d opcode %d length %u flags %x imm "
           "%x; data %s",
           ns, s.status, s.opcode, nr, r.status, r.opcode, r.byte_len, r.wc_flags,
           ntohl(r.imm_data), data ? "right" : "wrong");
}

static void check_read(void)
{
    struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, 101);
    struct ibv_wc wc;
    int n;

    memset(a.buf, 0, SIZE);
    strcpy((char *)b.buf, "from the other side");
    side_post(&a, &wr, 0, 64);
    n = side_wait(&a, &wc, 10);
    result("RDMA_READ",
           n == 1 && !wc.status && wc.opcode == IBV_WC_RDMA_READ && !memcmp(a.buf, b.buf, 64),
           "n %d status %d opcode %d", n, wc.status, wc.opcode);
}

static void check_atomic(void)
{
    struct ibv_send_wr wr = request(IBV_WR_ATOMIC_CMP_AND_SWP, 102);
    uint64_t old = 5, new = 0;
    struct ibv_wc wc;
    int n;

    memcpy(b.buf, &old, sizeof old);
    wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
    wr.wr.atomic.rkey = b.mr->rkey;
    wr.wr.atomic.compare_add = 5;
    wr.wr.atomic.swap = 77;
    side_post(&a, &wr, 8, 8);
    n = side_wait(&a, &wc, 10);
    memcpy(&old, a.buf + 8, sizeof old);
    memcpy(&new, b.buf, sizeof new);
    result("ATOMIC_CMP_AND_SWP", n == 1 && !wc.status && old == 5 && new == 77,
           "n %d status %d old %llu new %llu", n, wc.status, (unsigned long long)old,
           (unsigned long long)new);
}

static void check_unsignalled(void)
{
    struct ibv_wc wc;
    uint64_t first = 0;
    int n = 0;

    for (int i = 0; i < 4; i++) {
        side_post_recv(&b, i, 0, 4096);
        send_one(200 + i, i == 3 ? IBV_SEND_SIGNALED : 0, 0, 16);
    }
    while (side_wait(&a, &wc, n ? 0.5 : 10) > 0)
        if (!n++)
            first = wc.wr_id;
    result("unsignalled sends are silent", n == 1 && first == 203,
           "%d completions for 3 unsignalled and 1 signalled, first id %llu", n,
           (unsigned long long)first);
    drain();
}

static void check_event(void)
{
    struct pollfd p = {.fd = b.channel->fd, .events = POLLIN};
    struct ibv_cq *cq = NULL;
    void *context;

    ibv_req_notify_cq(b.cq, 0);
    side_post_recv(&b, 301, 0, 4096);
    send_one(300, IBV_SEND_SIGNALED, 0, 16);
    if (poll(&p, 1, 10000) == 1 && !ibv_get_cq_event(b.channel, &cq, &context))
        ibv_ack_cq_events(cq, 1);
    result("completion event", cq == b.cq, "%s", cq ? "of another queue" : "none");
    drain();
}

static void check_late_receive(void)
{
    struct ibv_wc wc;
    int before, after;

    send_one(400, IBV_SEND_SIGNALED, 0, 32);
    before = side_wait(&a, &wc, 0.3);
    side_post_recv(&b, 401, 0, 4096);
    after = side_wait(&a, &wc, 10);
    result("receive posted late", !before && after == 1 && !wc.status,
           "n before %d, after %d, status %d", before, after, wc.status);
    drain();
}

static void check_order(void)
{
    struct ibv_wc wc;
    int sent = 0, received = 0;

    for (int i = 0; i < 32; i++)
        side_post_recv(&b, i, i * 64, 64);
    for (int i = 0; i < 32; i++)
        send_one(500 + i, IBV_SEND_SIGNALED, i * 64, 64);
    while (sent < 32 && side_wait(&a, &wc, 10) == 1 && !wc.status && wc.wr_id == 500u + sent)
        sent++;
    while (received < 32 && side_wait(&b, &wc, 10) == 1 && !wc.status &&
           wc.wr_id == (unsigned)received)
        received++;
    result("32 sends in order", sent == 32 && received == 32, "%d sent, %d received", sent,
           received);
}

/* Returns the asynchronous event that b's device raises within the limit, or -1. */
static int next_async(const struct ibv_qp **qp, int limit_ms)
{
    struct pollfd p = {.fd = b.ctx->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    if (poll(&p, 1, limit_ms) != 1 || ibv_get_async_event(b.ctx, &event))
        return -1;
    *qp = event.element.qp;
    ibv_ack_async_event(&event);
    return event.event_type;
}

static void drop_async(void)
{
    const struct ibv_qp *qp;

    while (next_async(&qp, 0) >= 0)
        ;
}

/* The responder gets an event for an access that it refused, too. */
static void check_bounds(bool want_event)
{
    struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 600);
    const struct ibv_qp *qp = NULL;
    struct ibv_wc wc;
    int n, type;

    drop_async();
    wr.wr.rdma.remote_addr += SIZE;
    side_post(&a, &wr, 0, 64);
    n = side_wait(&a, &wc, 10);
    result("write outside the region refused", n == 1 && wc.status == IBV_WC_REM_ACCESS_ERR,
           "n %d status %d", n, wc.status);
    if (want_event) {
        type = next_async(&qp, 5000);
        result("and the responder hears QP_ACCESS_ERR",
               type == IBV_EVENT_QP_ACCESS_ERR && qp == b.qp, "event %d", type);
    }
    reconnect();
}

static void check_flush(void)
{
    struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;
    int n = 0, rc;

    side_post_recv(&b, 701, 0, 4096);
    side_post_recv(&b, 702, 0, 4096);
    rc = ibv_modify_qp(b.qp, &to_error, IBV_QP_STATE);
    while (side_wait(&b, &wc, n < 2 ? 10 : 0.3) > 0)
        n += wc.status == IBV_WC_WR_FLUSH_ERR;
    result("receives flush in ERR", !rc && n == 2, "modify_qp %d, %d flushed", rc, n);
    reconnect();
}

static void check_too_long(bool want_event)
{
    enum ibv_wc_status want_send = soft_roce ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR;
    enum ibv_wc_status want_recv = soft_roce ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR;
    const struct ibv_qp *qp = NULL;
    struct ibv_wc s, r;
    int ns, nr, type;

    drop_async();
    side_post_recv(&b, 801, 0, 16);
    send_one(800, IBV_SEND_SIGNALED, 0, 64);
    ns = side_wait(&a, &s, 10);
    nr = side_wait(&b, &r, 10);
    result("too long for the receive",
           ns == 1 && s.status == want_send && nr == 1 && r.status == want_recv,
           "send n %d status %d, receive n %d status %d", ns, s.status, nr, r.status);
    if (want_event) {
        type = next_async(&qp, 5000);
        result("and the responder hears QP_REQ_ERR", type == IBV_EVENT_QP_REQ_ERR && qp == b.qp,
               "event %d", type);
    }
    reconnect();
}

/* Memory that was never touched can be registered, too. */
static void check_region(const char *name, size_t offset, size_t len)
{
    char *p = mmap(NULL, offset + len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = p == MAP_FAILED ? NULL : ibv_reg_mr(a.pd, p + offset, len, SIDE_ACCESS);

    result(name, mr, "%m");
    if (mr)
        ibv_dereg_mr(mr);
    if (p != MAP_FAILED)
        munmap(p, offset + len);
}

static bool inject(const char *what, unsigned x, unsigned y)
{
    char command[512];

    snprintf(command, sizeof command, "%s %s %u %u", fault_command, what, x, y);
    return system(command) == 0;
}

/* The device fails a send that waits for a receive, and flushes the send after it. */
static void check_injected_failure(void)
{
    struct ibv_wc first, second;
    int n1, n2;
    bool obeyed;

    send_one(900, IBV_SEND_SIGNALED, 0, 64);
    send_one(901, IBV_SEND_SIGNALED, 0, 64);
    usleep(200000);
    obeyed = inject("fail", a.qp->qp_num, IBV_WC_RETRY_EXC_ERR);
    n1 = side_wait(&a, &first, 10);
    n2 = side_wait(&a, &second, 10);
    result("a failed send ends with its status",
           obeyed && n1 == 1 && first.wr_id == 900 && first.status == IBV_WC_RETRY_EXC_ERR,
           "command %d, n %d id %llu status %d", obeyed, n1, (unsigned long long)first.wr_id,
           first.status);
    result("and what was behind it is flushed",
           n2 == 1 && second.wr_id == 901 && second.status == IBV_WC_WR_FLUSH_ERR,
           "n %d id %llu status %d", n2, (unsigned long long)second.wr_id, second.status);
    reconnect();
}

static void check_injected_event(const char *name, enum ibv_event_type type, unsigned info)
{
    const struct ibv_qp *qp = NULL;
    bool obeyed;
    int got;

    drop_async();
    obeyed = inject("event", type, info);
    got = next_async(&qp, 5000);
    result(name, obeyed && got == (int)type, "command %d, event %d", obeyed, got);
}

int main(int argc, char **argv)
{
    int c;

    while ((c = getopt(argc, argv, "sf:")) != -1) {
        if (c == 's')
            soft_roce = true;
        else if (c == 'f')
            fault_command = optarg;
        else
            return 2;
    }
    if (argc - optind != 2) {
        fprintf(stderr, "usage: pvtest [-s] [-f FAULT-COMMAND] DEVICE GID-INDEX\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    side_open(&a, argv[optind], atoi(argv[optind + 1]), SIZE);
    side_open(&b, argv[optind], atoi(argv[optind + 1]), SIZE);
    reconnect();
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        check_message(&messages[i]);
    check_read();
    check_atomic();
    check_unsignalled();
    check_event();
    check_late_receive();
    check_order();
    check_bounds(fault_command);
    check_flush();
    check_too_long(fault_command);
    check_region("64 MiB region", 0, 64 << 20);
    check_region("unaligned region", 100, 5000);
    check_region("region of two pages' middle", 4000, 200);
    if (fault_command) {
        check_injected_failure();
        check_injected_event("injected PORT_ERR", IBV_EVENT_PORT_ERR, 1);
        check_injected_event("injected PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE, 1);
        check_injected_event("injected QP_FATAL", IBV_EVENT_QP_FATAL, b.qp->qp_num);
    }
    side_close(&a);
    side_close(&b);
    return failed ? 1 : 0;
}
