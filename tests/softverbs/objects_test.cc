// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Objects and their lifetimes: QP states, completion queues and events, memory regions, doorbell
// counts
#include "softverbs/fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>

namespace
{

using namespace sv;

class Objects : public PairTest
{
};

// ---- life of a QP ----

TEST_F(Objects, ErrorFlushesEverythingAndLaterPosts)
{
    start("set async 1");
    ASSERT_EQ(b->recv(0, 64, 1), 0);
    ASSERT_EQ(b->recv(0, 64, 2), 0);
    ASSERT_EQ(b->to(IBV_QPS_ERR), 0);
    for (uint64_t id : {1u, 2u}) {
        ibv_wc wc = b->wait();
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        EXPECT_EQ(wc.wr_id, id);
    }
    ASSERT_EQ(b->post(IBV_WR_RDMA_WRITE, 0, 8, 3, a->addr(), a->mr->rkey, 0), 0);
    ASSERT_EQ(b->recv(0, 64, 4), 0);
    EXPECT_EQ(b->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(b->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a->buf[0], 0);
}

TEST_F(Objects, NothingIsWrittenIntoAQpInError)
{
    Params p;
    p.timeout = 1;
    p.retry = 2;
    start("", p);
    ASSERT_EQ(b->to(IBV_QPS_ERR), 0);
    a->fill(1, 64);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 64, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
    for (int i = 0; i < 64; i++)
        ASSERT_EQ(b->buf[i], 0);
}

// softverbs counts QPs that are created while another one is destroyed, because the provider of
// vmw_pvrdma may then lose the new one. Each context has a table of its own.
TEST_F(Objects, AQpThatIsMadeWhileAnotherOneGoesIsCounted)
{
    start("rule hang block call=destroy_qp ms=60000");
    auto overlaps = [](const char *n) {
        char stat[512] = "";
        EXPECT_EQ(lib().sv_command("stat", stat, sizeof stat), 0);
        EXPECT_NE(strstr(stat, (std::string("overlaps=") + n).c_str()), nullptr) << stat;
    };
    std::thread goes([&] { EXPECT_EQ(lib().ibv_destroy_qp(a->qp), 0); });
    for (char stat[512] = ""; !strstr(stat, "blocked=1");)
        ASSERT_EQ(lib().sv_command("stat", stat, sizeof stat), 0);
    b->drop();
    b->create();
    overlaps("0");
    a->create();
    overlaps("1");
    EXPECT_EQ(command("release"), 0);
    goes.join();
}

TEST_F(Objects, DestroyedPeerIsSilence)
{
    Params p;
    p.timeout = 1;
    p.retry = 1;
    start("", p);
    b->drop();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 64, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Objects, ResetStartsAgain)
{
    start();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 64, 1, b->addr(), b->mr->rkey), 0);
    ASSERT_EQ(a->to(IBV_QPS_RESET), 0);
    EXPECT_EQ(a->poll_all(), 0) << "completions of a QP go with its reset";
    ASSERT_EQ(b->to(IBV_QPS_RESET), 0);
    ASSERT_EQ(a->connect(b->address()), 0);
    ASSERT_EQ(b->connect(a->address()), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 64, 2, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().wr_id, 2u);
}

TEST_F(Objects, PacketNumbersMustAgree)
{
    ASSERT_EQ(lib().sv_configure(""), 0);
    a = new End;
    b = new End;
    a->create();
    b->create();
    Params p, q;
    p.timeout = q.timeout = 1;
    p.retry = 1;
    q.psn = 78;
    ASSERT_EQ(a->connect(b->address(), p), 0);
    ASSERT_EQ(b->connect(a->address(), q), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 64, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Objects, StateMachineAndMasks)
{
    start();
    a->drop();
    a->create();
    Address peer = b->address();
    ibv_sge s = a->sge(0, 8);
    ibv_recv_wr r{}, *rbad;
    r.sg_list = &s;
    r.num_sge = 1;
    EXPECT_EQ(ibv_post_recv(a->qp, &r, &rbad), EINVAL) << "receive in RESET";
    EXPECT_EQ(a->to(IBV_QPS_RTS), EINVAL);
    EXPECT_EQ(a->to_rtr(peer), EINVAL) << "RESET to RTR";
    EXPECT_EQ(a->to(IBV_QPS_INIT), EINVAL) << "INIT without port, key and access";
    ASSERT_EQ(a->to_init(), 0);
    EXPECT_EQ(ibv_post_recv(a->qp, &r, &rbad), 0) << "receive in INIT";
    EXPECT_EQ(a->post(IBV_WR_SEND, 0, 8, 1), EINVAL) << "send in INIT";
    EXPECT_EQ(a->to_rts(), EINVAL) << "INIT to RTS";
    ibv_qp_attr x{};
    x.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(lib().ibv_modify_qp(a->qp, &x, IBV_QP_STATE | IBV_QP_AV), EINVAL)
        << "half of what RTR needs";
    Params bad;
    bad.gid_index = 200;
    EXPECT_EQ(a->to_rtr(peer, bad), EINVAL) << "an empty row of the GID table";
    bad = Params();
    bad.mtu = static_cast<ibv_mtu>(6);
    EXPECT_EQ(a->to_rtr(peer, bad), EINVAL);
    bad = Params();
    bad.gid_index = 0;
    EXPECT_EQ(a->to_rtr(peer, bad), ENETUNREACH) << "link-local to IPv4";
    ASSERT_EQ(a->to_rtr(peer), 0);
    EXPECT_EQ(a->post(IBV_WR_SEND, 0, 8, 1), EINVAL) << "send in RTR";
    bad = Params();
    bad.retry = 8;
    EXPECT_EQ(a->to_rts(bad), EINVAL);
    bad = Params();
    bad.rd_atomic = 17;
    EXPECT_EQ(a->to_rts(bad), EINVAL);
    ASSERT_EQ(a->to_rts(), 0);
    ibv_qp_attr got;
    ibv_qp_init_attr init;
    ASSERT_EQ(lib().ibv_query_qp(a->qp, &got, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(got.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(got.dest_qp_num, peer.qpn);
    x.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(lib().ibv_modify_qp(a->qp, &x, IBV_QP_STATE | IBV_QP_TIMEOUT), EINVAL)
        << "ERR takes no attributes";
    EXPECT_EQ(a->to(IBV_QPS_ERR), 0);
    EXPECT_EQ(a->to(IBV_QPS_RTS), EINVAL) << "out of ERR only by RESET";
    EXPECT_EQ(a->to(IBV_QPS_RESET), 0);
}

TEST_F(Objects, BusyObjectsAreNotDestroyed)
{
    start();
    EXPECT_EQ(lib().ibv_destroy_cq(a->cq), EBUSY);
    EXPECT_EQ(lib().ibv_dealloc_pd(a->pd), EBUSY);
    EXPECT_EQ(lib().ibv_destroy_comp_channel(a->channel), EBUSY);
    EXPECT_EQ(lib().sv_configure(""), EBUSY);
}

// ---- completion queues ----

TEST_F(Objects, AnArmedQueueGivesOneEvent)
{
    start();
    auto ready = [&](int ms) {
        pollfd f{b->channel->fd, POLLIN, 0};
        return poll(&f, 1, ms) == 1;
    };
    auto take = [&] {
        ibv_cq *cq = nullptr;
        void *context = nullptr;
        ASSERT_EQ(lib().ibv_get_cq_event(b->channel, &cq, &context), 0);
        EXPECT_EQ(cq, b->cq);
        EXPECT_EQ(context, b);
        lib().ibv_ack_cq_events(cq, 1);
    };
    for (uint64_t i = 0; i < 6; i++)
        ASSERT_EQ(b->recv(0, 64, i), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 1), 0);
    EXPECT_FALSE(ready(20)) << "not armed";
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    EXPECT_FALSE(ready(20)) << "armed after the completion came: no event for it";
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 2), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 3), 0);
    ASSERT_TRUE(ready(2000));
    take();
    EXPECT_FALSE(ready(20)) << "one event per arming";
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 4), 0);
    EXPECT_FALSE(ready(20)) << "not solicited";
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 5, 0, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED), 0);
    ASSERT_TRUE(ready(2000));
    take();
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 1), 0);
    ASSERT_EQ(b->to(IBV_QPS_ERR), 0);
    ASSERT_TRUE(ready(2000)) << "a failed completion counts as solicited";
    take();
}

TEST_F(Objects, DestroyWaitsForAcknowledgements)
{
    start();
    ASSERT_EQ(b->recv(0, 64, 1), 0);
    ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 1), 0);
    ibv_cq *cq = nullptr;
    void *context;
    ASSERT_EQ(lib().ibv_get_cq_event(b->channel, &cq, &context), 0);
    b->drop();
    bool acked = false;
    std::thread late([&] {
        usleep(20000);
        __atomic_store_n(&acked, true, __ATOMIC_RELEASE);
        lib().ibv_ack_cq_events(cq, 1);
    });
    ASSERT_EQ(lib().ibv_destroy_cq(b->cq), 0);
    EXPECT_TRUE(__atomic_load_n(&acked, __ATOMIC_ACQUIRE));
    late.join();
    b->cq = lib().ibv_create_cq(b->ctx, 16, nullptr, b->channel, 0);
}

TEST_F(Objects, OverrunOfACqIsFatalToItsQps)
{
    ASSERT_EQ(lib().sv_configure(""), 0);
    a = new End(0, 4);
    b = new End;
    a->create();
    b->create();
    ASSERT_EQ(a->connect(b->address()), 0);
    ASSERT_EQ(b->connect(a->address()), 0);
    for (uint64_t i = 0; i < 5; i++)
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, i, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_CQ_ERR);
    EXPECT_EQ(a->event(), IBV_EVENT_QP_FATAL);
    EXPECT_EQ(a->qp->state, IBV_QPS_ERR);
}

TEST_F(Objects, CommEstWhenDataComesBeforeRts)
{
    ASSERT_EQ(lib().sv_configure(""), 0);
    a = new End;
    b = new End;
    a->create();
    b->create();
    ASSERT_EQ(b->to_init(), 0);
    ASSERT_EQ(b->to_rtr(a->address()), 0);
    ASSERT_EQ(a->connect(b->address()), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b->event(), IBV_EVENT_COMM_EST);
}

// ---- memory regions ----

TEST_F(Objects, RegistrationIsChecked)
{
    start("profile pvrdma\nset max_mr 4");
    EXPECT_EQ(a->reg(a->buf, 4096, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL) << "remote write without local write";
    EXPECT_EQ(a->reg(a->buf, 0, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(a->reg(a->buf, (1ul << 30) + 1, 0), nullptr);
    EXPECT_EQ(errno, EINVAL) << "longer than the device takes";
    void *hole = mmap(nullptr, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(hole, 8192);
    EXPECT_EQ(a->reg(hole, 8192, 0), nullptr);
    EXPECT_EQ(errno, EFAULT);
    void *ro = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(a->reg(ro, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ibv_mr *ok = a->reg(ro, 4096, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
    ASSERT_NE(ok, nullptr) << strerror(errno);
    EXPECT_NE(ok->lkey, ok->rkey);
    ibv_mr *last = a->reg(a->buf + 100, 5000, kAll);
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(a->reg(a->buf, 4096, kAll), nullptr);
    EXPECT_EQ(errno, ENOMEM) << "max_mr";
    EXPECT_EQ(lib().ibv_dereg_mr(ok), 0);
    EXPECT_EQ(lib().ibv_dereg_mr(last), 0);
    munmap(ro, 4096);
    EXPECT_EQ(lib().ibv_reg_dmabuf_mr(a->pd, 0, 4096, 0, 0, kAll), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Objects, RegistrationsStayWithinTheLimitOfLockedMemory)
{
    start("set memlock_kb 2112"); // the two buffers of 1 MiB, and 64 KiB
    ibv_mr *m = a->reg(a->buf, 65536, kAll);
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(a->reg(a->buf, 4096, kAll), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(lib().ibv_dereg_mr(m), 0);
    m = a->reg(a->buf, 4096, kAll);
    ASSERT_NE(m, nullptr) << "deregistration gives the room back";
    EXPECT_EQ(lib().ibv_dereg_mr(m), 0);
}

TEST_F(Objects, DmabufWhereTheDeviceHasIt)
{
    start("profile roce");
    int fd = memfd_create("gpu", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 8192), 0);
    ibv_mr *m = lib().ibv_reg_dmabuf_mr(b->pd, 4096, 4096, 0x1000, fd, kAll);
    ASSERT_NE(m, nullptr) << strerror(errno);
    memcpy(a->buf, "into the buffer", 16);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 16, 1, 0x1008, m->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    char back[16];
    ASSERT_EQ(pread(fd, back, 16, 4096 + 8), 16);
    EXPECT_STREQ(back, "into the buffer");
    EXPECT_EQ(lib().ibv_dereg_mr(m), 0);
    EXPECT_EQ(lib().ibv_reg_dmabuf_mr(b->pd, 0, 4096, 0, -1, kAll), nullptr);
    EXPECT_EQ(errno, EBADF);
    close(fd);
}

TEST_F(Objects, IovaIsHonouredOrIgnored)
{
    for (bool honoured : {true, false}) {
        start(honoured ? "profile roce" : "profile pvrdma");
        ibv_mr *m = lib().ibv_reg_mr_iova2(b->pd, b->buf, 4096, 0, kAll);
        ASSERT_NE(m, nullptr);
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, 16, m->rkey), 0);
        EXPECT_EQ(a->wait().status, honoured ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
        EXPECT_EQ(lib().ibv_dereg_mr(m), 0);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

// ---- doorbells ----

TEST_F(Objects, DoorbellsAreCountedByThePvrdmaRule)
{
    start();
    sv_stats q, c, t;
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr w[4] = {}, *bad;
    for (int i = 0; i < 4; i++) {
        w[i].next = i < 3 ? &w[i + 1] : nullptr;
        w[i].sg_list = &s;
        w[i].num_sge = 1;
        w[i].opcode = IBV_WR_RDMA_WRITE;
        w[i].send_flags = IBV_SEND_SIGNALED;
        w[i].wr.rdma.remote_addr = b->addr();
        w[i].wr.rdma.rkey = b->mr->rkey;
    }
    ASSERT_EQ(ibv_post_send(a->qp, w, &bad), 0);
    lib().sv_qp_stats(a->qp, &q);
    EXPECT_EQ(q.post_send, 1u);
    EXPECT_EQ(q.send_wr, 4u);
    EXPECT_EQ(q.doorbells, 1u) << "a chain rings once";
    ibv_wc wc[8];
    EXPECT_EQ(ibv_poll_cq(a->cq, 2, wc), 2);
    lib().sv_cq_stats(a->cq, &c);
    EXPECT_EQ(c.doorbells, 0u) << "as many as requested: the ring was not found empty";
    EXPECT_EQ(ibv_poll_cq(a->cq, 8, wc), 2);
    lib().sv_cq_stats(a->cq, &c);
    EXPECT_EQ(c.poll, 2u);
    EXPECT_EQ(c.poll_empty, 1u);
    EXPECT_EQ(c.doorbells, 1u) << "asking for more than there is meets the empty ring";
    EXPECT_EQ(c.cqe, 4u);
    ASSERT_EQ(b->recv(0, 8, 1), 0);
    lib().sv_ctx_stats(b->ctx, &t);
    EXPECT_EQ(t.post_recv, 1u);
    EXPECT_EQ(t.doorbells, 1u);
    w[0].num_sge = 9;
    EXPECT_EQ(ibv_post_send(a->qp, w, &bad), EINVAL);
    lib().sv_qp_stats(a->qp, &q);
    EXPECT_EQ(q.post_send, 1u) << "nothing was queued, nothing was rung";
    lib().sv_total_stats(&t);
    EXPECT_EQ(t.doorbells, 3u);
}

TEST_F(Objects, ADoorbellKeepsItsCallerForItsTime)
{
    start("set doorbell_ns 2000000");
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr w = {}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    w.opcode = IBV_WR_RDMA_WRITE;
    w.wr.rdma.remote_addr = b->addr();
    w.wr.rdma.rkey = b->mr->rkey;
    ibv_wc wc;
    auto since = std::chrono::steady_clock::now();
    auto rung = [&] { return (std::chrono::steady_clock::now() - since).count() / 2000000; };
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_GE(rung(), 1);
    ASSERT_EQ(b->recv(0, 8, 1), 0);
    EXPECT_GE(rung(), 2);
    EXPECT_EQ(ibv_poll_cq(a->cq, 1, &wc), 0);
    EXPECT_GE(rung(), 3) << "the poll of an empty queue";
    EXPECT_EQ(ibv_req_notify_cq(a->cq, 0), 0);
    EXPECT_GE(rung(), 4);
}

TEST_F(Objects, EmptyPollsAreFreeOnOtherDevices)
{
    start("profile roce");
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(a->cq, 1, &wc), 0);
    sv_stats c;
    lib().sv_cq_stats(a->cq, &c);
    EXPECT_EQ(c.poll_empty, 1u);
    EXPECT_EQ(c.doorbells, 0u);
}

} // namespace
