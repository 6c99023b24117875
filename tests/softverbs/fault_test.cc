// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Fault rules: each does what README.md says, counts how often it did, and does nothing else.
#include "softverbs/fixture.h"
#include "support/signals.h"

#include <arpa/inet.h>
#include <atomic>
#include <dlfcn.h>
#include <thread>

namespace
{

using namespace sv;

constexpr int kNone = 31; // no completion

class Fault : public PairTest
{
  protected:
    Params quick; // a timeout of 1 ms, few retries
    Fault()
    {
        quick.timeout = 1;
        quick.retry = 3;
    }
    int write(uint64_t id = 1, size_t len = 64, size_t at = 0)
    {
        return a->post(IBV_WR_RDMA_WRITE, at, len, id, b->addr(at), b->mr->rkey);
    }
    static int64_t fired(const char *name)
    {
        return lib().sv_rule_fired(name);
    }
};

TEST_F(Fault, CallsFailWithTheirErrno)
{
    start("rule mr fail call=reg_mr errno=ENOMEM nth=3 count=2\n" // 1 and 2 are the ends' buffers
          "rule qp fail call=create_qp errno=ENOMEM nth=3\n"
          "rule pd fail call=alloc_pd errno=ENOMEM nth=3\n"
          "rule cq fail call=create_cq errno=EINVAL nth=3\n"
          "rule post fail call=post_send errno=EIO nth=2\n"
          "rule recv fail call=post_recv errno=EIO\n"
          "rule poll fail call=poll_cq nth=2\n"
          "rule modify fail call=modify_qp errno=ETIMEDOUT nth=7");
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(a->reg(a->buf, 64, kAll), nullptr);
        EXPECT_EQ(errno, ENOMEM);
    }
    EXPECT_EQ(fired("mr"), 2);
    ibv_mr *m = a->reg(a->buf, 64, kAll);
    EXPECT_NE(m, nullptr) << "the third attempt works";
    lib().ibv_dereg_mr(m);
    EXPECT_EQ(lib().ibv_alloc_pd(a->ctx), nullptr);
    EXPECT_EQ(lib().ibv_create_cq(a->ctx, 16, nullptr, nullptr, 0), nullptr);
    ibv_qp_init_attr q{};
    q.send_cq = q.recv_cq = a->cq;
    q.qp_type = IBV_QPT_RC;
    EXPECT_EQ(lib().ibv_create_qp(a->pd, &q), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(write(), 0);
    EXPECT_EQ(write(), EIO);
    EXPECT_EQ(a->recv(0, 8, 1), EIO);
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(a->cq, 1, &wc), 1);
    EXPECT_EQ(ibv_poll_cq(a->cq, 1, &wc), -1);
    EXPECT_EQ(a->to(IBV_QPS_ERR), ETIMEDOUT);
    EXPECT_EQ(a->qp->state, IBV_QPS_RTS);
    for (const char *name : {"qp", "pd", "cq", "post", "recv", "poll", "modify"})
        EXPECT_EQ(fired(name), 1) << name;
}

TEST_F(Fault, ABlockedCallHoldsNobodyElse)
{
    start("rule hang block call=alloc_pd ms=60000 nth=3");
    std::atomic<bool> returned{false};
    std::thread hung([&] {
        EXPECT_EQ(lib().ibv_dealloc_pd(lib().ibv_alloc_pd(a->ctx)), 0);
        returned = true;
    });
    char stat[512] = "";
    while (!strstr(stat, "blocked=1"))
        ASSERT_EQ(lib().sv_command("stat", stat, sizeof stat), 0);
    EXPECT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_FALSE(returned);
    EXPECT_EQ(command("release"), 0);
    hung.join();
    EXPECT_EQ(fired("hang"), 1);
    ASSERT_EQ(lib().sv_command("stat", stat, sizeof stat), 0);
    EXPECT_NE(strstr(stat, "blocked=0"), nullptr);
}

// A signal makes the driver of vmw_pvrdma give up its wait. The drivers of other adapters continue.
TEST_F(Fault, ASignalEndsACommand)
{
    char stat[512] = "";
    for (const char *profile : {"pvrdma", "roce"}) {
        bool fails = !strcmp(profile, "pvrdma");
        start(std::string("profile ") + profile);
        {
            ASSERT_EQ(command("set command_us 20000"), 0);
            Signals signals;
            errno = 0;
            ibv_pd *pd = lib().ibv_alloc_pd(a->ctx);
            EXPECT_EQ(pd == nullptr, fails);
            EXPECT_EQ(errno == ETIMEDOUT, fails);
            if (pd) {
                EXPECT_EQ(lib().ibv_dealloc_pd(pd), 0);
            }
            ibv_mr *mr = a->reg(a->buf, 4096, kAll);
            EXPECT_EQ(mr == nullptr, fails);
            if (mr) {
                EXPECT_EQ(lib().ibv_dereg_mr(mr), 0);
            }
            EXPECT_EQ(a->to(IBV_QPS_ERR), fails ? ETIMEDOUT : 0);
            EXPECT_EQ(lib().ibv_destroy_qp(a->qp), 0) << "its answer is not waited for";
            a->qp = nullptr;
        }
        ASSERT_EQ(lib().sv_command("stat", stat, sizeof stat), 0);
        EXPECT_NE(strstr(stat, fails ? "interrupted=3" : "interrupted=0"), nullptr) << stat;
        TearDown();
        a = b = nullptr;
    }
}

TEST_F(Fault, StatusComesInOrderAndFlushesTheRest)
{
    start("set async 1\nrule s status status=REM_OP_ERR op=WRITE nth=3");
    for (uint64_t i = 1; i <= 5; i++)
        ASSERT_EQ(write(i, 8, 8 * i), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ibv_wc wc = a->wait();
    EXPECT_EQ(wc.wr_id, 3u);
    EXPECT_EQ(wc.status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(a->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(a->poll_all(), 0);
    EXPECT_EQ(fired("s"), 1);
}

TEST_F(Fault, LostRequestIsRepeated)
{
    for (const char *mode : {"set async 0\n", "set async 1\n"}) {
        start(std::string(mode) + "rule lost drop nth=2", quick);
        for (uint64_t i = 0; i < 6; i++) {
            a->buf[i * 8] = char(i + 1);
            ASSERT_EQ(write(i, 8, i * 8), 0);
        }
        for (uint64_t i = 0; i < 6; i++) {
            ibv_wc wc = a->wait();
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.wr_id, i);
            EXPECT_EQ(b->buf[i * 8], char(i + 1));
        }
        EXPECT_EQ(fired("lost"), 1);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

TEST_F(Fault, EverythingLostIsRetryExceeded)
{
    start("rule lost drop count=0", quick);
    ASSERT_EQ(write(7), 0);
    ibv_wc wc = a->wait();
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(fired("lost"), 1 + quick.retry) << "the first transmission and every retry";
}

TEST_F(Fault, RetryCountOfSevenNeverEndsOnSoftRoce)
{
    quick.retry = 7;
    start("profile rxe\nrule lost drop count=20", quick);
    ASSERT_EQ(write(), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(fired("lost"), 20);
}

TEST_F(Fault, LostAnswerDoesNotExecuteTwice)
{
    start("rule ack drop_ack count=1", quick);
    auto *counter = reinterpret_cast<uint64_t *>(b->buf);
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr w{}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    w.send_flags = IBV_SEND_SIGNALED;
    w.wr.atomic.remote_addr = b->addr();
    w.wr.atomic.rkey = b->mr->rkey;
    w.wr.atomic.compare_add = 1;
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(*counter, 1u);
    EXPECT_EQ(fired("ack"), 1);
    ASSERT_EQ(command("rules clear"), 0);
    ASSERT_EQ(command("rule send drop_ack op=SEND"), 0);
    ASSERT_EQ(b->recv(64, 64, 1), 0);
    ASSERT_EQ(b->recv(128, 64, 2), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 8, 5), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b->poll_all(), 1) << "one receive for one SEND";
    EXPECT_EQ(fired("send"), 1);
}

TEST_F(Fault, LostReadAnswerIsFetchedAgain)
{
    start("rule ack drop_ack op=READ", quick);
    b->fill(3, 700000);
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 0, 700000, 1, b->addr(), b->mr->rkey), 0);
    ASSERT_EQ(
        a->post(IBV_WR_RDMA_WRITE, End::kSize - 8, 8, 2, b->addr(End::kSize - 8), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().wr_id, 1u);
    EXPECT_EQ(a->wait().wr_id, 2u);
    EXPECT_EQ(memcmp(a->buf, b->buf, 700000), 0);
    EXPECT_EQ(fired("ack"), 1);
}

// The sender sees a failure although the data have arrived. This makes replay hard.
TEST_F(Fault, RetryExceededAlthoughTheDataArrived)
{
    start("rule ack drop_ack count=0", quick);
    a->fill(5, 64);
    ASSERT_EQ(write(), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(memcmp(a->buf, b->buf, 64), 0);
    EXPECT_GT(fired("ack"), 1);
}

TEST_F(Fault, DelayHoldsOneQpInOrder)
{
    start("rule slow delay ms=30 nth=2");
    for (uint64_t i = 0; i < 4; i++)
        ASSERT_EQ(write(i, 8, 8 * i), 0);
    EXPECT_EQ(a->poll_all(), 1);
    for (uint64_t i = 1; i < 4; i++)
        EXPECT_EQ(a->wait().wr_id, i);
    EXPECT_EQ(fired("slow"), 1);
}

TEST_F(Fault, ReorderLetsOtherQpsPass)
{
    start("set async 1\nrule swap reorder op=WRITE hold=2 ms=20000");
    End c, d;
    c.create();
    d.create();
    ASSERT_EQ(c.connect(d.address()), 0);
    ASSERT_EQ(d.connect(c.address()), 0);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait(0.02).status, kNone) << "held until two others have passed";
    for (uint64_t i = 0; i < 2; i++) {
        ASSERT_EQ(c.post(IBV_WR_RDMA_WRITE, 0, 8, i, d.addr(), d.mr->rkey), 0);
        EXPECT_EQ(c.wait().wr_id, i);
    }
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(fired("swap"), 1);
}

std::atomic<uint64_t> own_ns{1000000};

TEST_F(Fault, ADelayByTheTestsClock)
{
    auto *hooks = static_cast<struct sv_hooks *>(dlsym(lib().handle, "sv_hooks"));
    hooks->now = [] { return own_ns.load(); };
    start("rule slow delay ms=10 count=0");
    memcpy(a->buf, "first", 6);
    for (int i = 1; i <= 3; i++) {
        ASSERT_EQ(write(1), 0);
        for (int ms = 0; ms < 10; ms++) {
            EXPECT_EQ(command("timers"), 0);
            EXPECT_EQ(a->poll_all(), 0) << ms;
            own_ns += 1000000;
        }
        EXPECT_EQ(command("timers"), 0);
        EXPECT_EQ(a->poll_all(), 1) << i;
        EXPECT_EQ(fired("slow"), i);
    }
    EXPECT_STREQ(b->buf, "first");
    hooks->now = nullptr;
}

TEST_F(Fault, LateCopyLandsWhileTheQpIsOpen)
{
    start("rule late dup ms=600000 nth=1");
    memcpy(a->buf, "first", 6);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    memcpy(a->buf, "again", 6);
    ASSERT_EQ(write(2), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_STREQ(b->buf, "again");
    ASSERT_EQ(command("release"), 0);
    EXPECT_STREQ(b->buf, "first")
        << "the late copy overwrites newer data: this is what a fence is for";
    EXPECT_EQ(fired("late"), 1);
    char text[512];
    ASSERT_EQ(lib().sv_command("stat", text, sizeof text), 0);
    EXPECT_NE(strstr(text, "ghosts_landed=1"), nullptr) << text;
}

TEST_F(Fault, LateCopyIsStoppedByErrorResetDestructionAndDeregistration)
{
    const char *const how[] = {"error", "reset", "destroy", "dereg"};
    for (int i = 0; i < 4; i++) {
        start("rule late dup ms=600000");
        a->fill(1, 64);
        ASSERT_EQ(write(1), 0);
        EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
        memset(b->buf, 0, 64);
        if (i == 0) {
            ASSERT_EQ(b->to(IBV_QPS_ERR), 0);
        } else if (i == 1) {
            ASSERT_EQ(b->to(IBV_QPS_RESET), 0);
        } else if (i == 2) {
            b->drop();
        } else {
            ASSERT_EQ(lib().ibv_dereg_mr(b->mr), 0);
            b->mr = b->reg(b->buf, End::kSize, kAll);
        }
        ASSERT_EQ(command("release"), 0);
        EXPECT_EQ(b->buf[0], 0) << how[i];
        EXPECT_EQ(fired("late"), 1);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

TEST_F(Fault, DeadQpIsABlackHole)
{
    start("rule gone die nth=2", quick);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    a->fill(1, 64);
    ASSERT_EQ(write(2), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(b->buf[0], 0);
    ASSERT_EQ(b->post(IBV_WR_RDMA_WRITE, 0, 8, 3, a->addr(), a->mr->rkey), 0);
    EXPECT_EQ(b->wait().status, IBV_WC_RETRY_EXC_ERR) << "it does not answer either";
    EXPECT_EQ(fired("gone"), 1);
}

TEST_F(Fault, HungQpNeverCompletesUntilItIsMovedToError)
{
    start("rule gone die mode=2", quick);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait(0.05).status, kNone);
    ASSERT_EQ(a->to(IBV_QPS_ERR), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(fired("gone"), 1);
}

TEST_F(Fault, PortDownAndUp)
{
    quick.timeout = 12; // 17 ms
    start("rule down do nth=2 : port * 1 down", quick);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(write(2), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_PORT_ERR);
    EXPECT_EQ(b->event(), IBV_EVENT_PORT_ERR);
    EXPECT_EQ(fired("down"), 1);
    ASSERT_EQ(command("port * 1 up"), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_PORT_ACTIVE);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS) << "a short outage is ridden out by the retries";
    ASSERT_EQ(command("port * 1 down"), 0);
    ASSERT_EQ(write(3), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Fault, ARenumberedGidIsAnEventAndEndsRequests)
{
    start("profile roce\nrule renumber do nth=2 : gid * 1 3 192.168.7.7 v2", [] {
        Params p;
        p.timeout = 1;
        p.retry = 1;
        p.gid_index = 3;
        return p;
    }());
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(write(2), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR)
        << "the address the QPs were made for is gone";
    EXPECT_EQ(fired("renumber"), 1);
    EXPECT_EQ(a->address(3).gid.raw[15], 7);
}

TEST_F(Fault, RoceVersionsDoNotMix)
{
    ASSERT_EQ(lib().sv_configure("profile roce"), 0);
    a = new End;
    b = new End;
    a->create();
    b->create();
    Params v1 = quick, v2 = quick;
    v1.gid_index = 2;
    v2.gid_index = 3;
    Address x = a->address(2), y = a->address(3);
    EXPECT_EQ(memcmp(&x.gid, &y.gid, 16), 0) << "one address, two versions";
    ASSERT_EQ(a->connect(b->address(3), v1), 0);
    ASSERT_EQ(b->connect(a->address(2), v2), 0);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Fault, UnroutedNetworksDoNotMeet)
{
    for (bool routed : {true, false}) {
        start(std::string("set devices 2\nset routed ") + (routed ? "1" : "0"), quick, true);
        ASSERT_EQ(write(1), 0);
        EXPECT_EQ(a->wait().status, routed ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

TEST_F(Fault, DeadDeviceSaysSoOnceAndNeverCompletes)
{
    start("rule fatal do nth=2 : fatal *", quick);
    ASSERT_EQ(write(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(write(2), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(a->wait(0.05).status, kNone);
    EXPECT_EQ(write(3), EIO);
    EXPECT_EQ(a->reg(a->buf, 64, kAll), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(fired("fatal"), 1);
}

// Completions stay readable, because providers read them from memory.
TEST_F(Fault, DeadDeviceLeavesWhatItCompletedBefore)
{
    for (bool renewed : {false, true}) {
        start("rule fatal do nth=3 : fatal *", quick);
        ASSERT_EQ(a->recv(0, 8, 9), 0);
        for (uint64_t id = 1; id <= 3; id++)
            ASSERT_EQ(write(id), 0);
        EXPECT_EQ(a->event(), IBV_EVENT_DEVICE_FATAL);
        EXPECT_EQ(fired("fatal"), 1);
        EXPECT_EQ(command("qp " + std::to_string(a->qp->qp_num) + " error"), 0);
        if (renewed) {
            EXPECT_EQ(command("renew *"), 0);
        }
        for (uint64_t id = 1; id <= 2; id++) {
            ibv_wc wc = a->wait(0.05);
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << renewed;
            EXPECT_EQ(wc.wr_id, id);
        }
        EXPECT_EQ(a->wait(0.05).status, kNone) << "the third, or a receive that is flushed";
        delete a;
        delete b;
        a = b = nullptr;
    }
}

// Newer objects go first, as in the kernel: memory that was registered after the queue pair was
// created is gone, and the queue pair is not. The peer notices before the program does.
TEST_F(Fault, ARemovedDeviceLosesItsNewestMemoryFirst)
{
    start("profile roce\nset devices 2", quick, true);
    static char late[64];
    ibv_mr *mr = b->reg(late, sizeof late, kAll);
    auto to_late = [&](uint64_t id) {
        return a->post(IBV_WR_RDMA_WRITE, 0, 8, id, reinterpret_cast<uintptr_t>(late), mr->rkey);
    };
    ASSERT_EQ(to_late(1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(command("fatal mlx5_1 gone 3600000"), 0);
    EXPECT_EQ(b->event(0), -1);
    EXPECT_EQ(b->reg(late, sizeof late, kAll), nullptr);
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(b->to(IBV_QPS_ERR), EIO);
    EXPECT_EQ(lib().ibv_destroy_qp(b->qp), EIO);
    ASSERT_EQ(write(2), 0) << "to memory that is older";
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(to_late(3), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_REM_ACCESS_ERR);
    // The command completes the removal.
    ASSERT_EQ(command("renew mlx5_1"), 0);
    EXPECT_EQ(b->event(), IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(b->event(), IBV_EVENT_DEVICE_FATAL);
    EXPECT_EQ(lib().ibv_destroy_qp(b->qp), EIO);
    // The queue pair is left to its closed context. These queue pairs stay reachable here.
    static std::vector<End *> left;
    EXPECT_EQ(lib().ibv_dereg_mr(mr), 0);
    EXPECT_EQ(lib().ibv_dereg_mr(b->mr), 0);
    EXPECT_EQ(lib().ibv_close_device(b->ctx), 0);
    left.push_back(b);
    b = nullptr;
}

TEST_F(Fault, ACommandEndsAQueuePair)
{
    start();
    ASSERT_EQ(a->recv(0, 8, 4), 0);
    ASSERT_EQ(command("qp " + std::to_string(a->qp->qp_num) + " fatal"), 0);
    EXPECT_EQ(a->event(), IBV_EVENT_QP_FATAL);
    EXPECT_EQ(a->wait().status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_NE(lib().sv_command("qp 1 die", nullptr, 0), 0) << "no such QP";
}

TEST_F(Fault, RulesAreNarrowed)
{
    start("rule one fail call=post_send qp=1\n"
          "rule big status status=FATAL_ERR min_len=100\n"
          "rule third drop nth=2 every=3 count=0",
          quick);
    EXPECT_EQ(write(1), 0) << "the QP of serial 0";
    EXPECT_EQ(b->post(IBV_WR_RDMA_WRITE, 0, 8, 1, a->addr(), a->mr->rkey), EIO);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_EQ(write(2, 101), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_FATAL_ERR);
    EXPECT_EQ(fired("one"), 1);
    EXPECT_EQ(fired("big"), 1);
    EXPECT_EQ(fired("third"), 1);
    EXPECT_EQ(lib().sv_rule_seen("third"), 2);
    EXPECT_EQ(fired("no such rule"), -1);
}

TEST_F(Fault, ChanceIsReproducible)
{
    std::vector<int64_t> counts;
    for (int seed : {1, 1, 2}) {
        start("set seed " + std::to_string(seed) + "\nrule x fail call=post_send prob=0.5 count=0");
        for (int i = 0; i < 200; i++)
            write();
        counts.push_back(fired("x") * 1000 + lib().sv_rule_seen("x"));
        delete a;
        delete b;
        a = b = nullptr;
    }
    EXPECT_EQ(counts[0], counts[1]) << "same seed, same run";
    EXPECT_NE(counts[0], counts[2]);
    EXPECT_GT(counts[0] / 1000, 60);
    EXPECT_LT(counts[0] / 1000, 140);
}

// Retransmissions under heavy random loss deliver every byte right, in order, and once.
TEST_F(Fault, LossOfEveryKindIsInvisible)
{
    for (int seed = 1; seed <= 6; seed++) {
        Params p;
        p.timeout = 1;
        p.retry = 7;
        start("set seed " + std::to_string(seed) + "\nset async " + std::to_string(seed & 1) +
                  "\nset retry7_endless 1"
                  "\nrule d drop prob=0.2 count=0\nrule k drop_ack prob=0.2 count=0\n"
                  "rule w delay ms=1 prob=0.05 count=0",
              p);
        const unsigned n = 60;
        for (unsigned i = 0; i < n; i++) {
            ASSERT_EQ(b->recv(i * 8192, 8192, i), 0);
            if (i % 2) {
                *reinterpret_cast<uint64_t *>(a->buf + i * 8192) = i * 1000003;
                ASSERT_EQ(a->post(IBV_WR_SEND, i * 8192, 1 + i * 100, i), 0);
            } else {
                ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, i * 8192, 8, i, b->addr(i * 8192),
                                  b->mr->rkey, IBV_SEND_SIGNALED, htonl(i)),
                          0);
            }
            ibv_wc s = a->wait(), r = b->wait();
            ASSERT_EQ(s.status, IBV_WC_SUCCESS) << "seed " << seed << " message " << i;
            ASSERT_EQ(s.wr_id, i);
            ASSERT_EQ(r.status, IBV_WC_SUCCESS);
            ASSERT_EQ(r.wr_id, i);
            ASSERT_EQ(memcmp(a->buf + i * 8192, b->buf + i * 8192, i % 2 ? 1 + i * 100 : 8), 0);
        }
        EXPECT_EQ(b->poll_all(), 0);
        EXPECT_GT(fired("d"), 0);
        EXPECT_GT(fired("k"), 0);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

TEST(FaultSyntax, MistakesAreNamed)
{
    for (const char *line : {"rule",
                             "rule x",
                             "rule x explode",
                             "rule x drop nth",
                             "rule x drop nth=many",
                             "rule x fail errno=EIO",
                             "rule x fail call=post_send errno=ENONSENSE",
                             "rule x status status=BAD",
                             "rule x do",
                             "rule x block ms=5",
                             "rule x drop op=FLY",
                             "rule x drop dev=nothing0",
                             "port * 9 up",
                             "port * 1 sideways",
                             "gid * 1 900 10.0.0.1",
                             "gid * 1 1 not-an-address",
                             "event * 1 QP_FATAL",
                             "fatal nothing0",
                             "fatal * gone soon",
                             "qp",
                             "set max_sge 3",
                             "set async yes",
                             "fly",
                             ""}) {
        char why[256] = "";
        EXPECT_NE(lib().sv_command(line, why, sizeof why), 0) << line;
        EXPECT_STRNE(why, "") << line;
    }
}

} // namespace
