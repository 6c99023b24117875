// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A call into a faulty adapter does not return. Comms on other adapters are not affected.
#include "rdma/plugin_route.h"

#include <atomic>
#include <memory>
#include <thread>

using namespace nccl;

namespace
{

struct PluginBlocked : PluginRdma {
    // A rule that blocks `call` for 20 s, or until a test releases it
    static std::string hang(const char *call)
    {
        return std::string("rule hang block dev=mlx5_0 ms=20000 call=") + call;
    }
    // True if both ends of the new connection have lanes.
    static bool made()
    {
        return sv::lib().sv_rule_seen("made") >= 2;
    }
    static bool blocked()
    {
        return stat().find("blocked=1") != std::string::npos;
    }
};

// receive() and send() are one end of a message each. Each runs in a thread of its own.
void receive(
    Route &r, const std::function<void()> &posted = [] {})
{
    void *req = nullptr, *data = r.dst.data();
    size_t n = r.size;
    int tag = 0, done = 0;
    EXPECT_TRUE(eventually([&] {
        r.recv_rc = pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &n, &tag, &r.rmh, nullptr, &req);
        return req || r.recv_rc;
    }));
    posted();
    EXPECT_TRUE(eventually([&] {
        r.recv_rc = pvn_netdrv_test(r.p.d, req, &done, nullptr);
        return done || r.recv_rc;
    }));
    EXPECT_EQ(1, done) << Log::get().text();
}

void send(Route &r)
{
    void *req = nullptr;
    int done = 0;
    EXPECT_TRUE(eventually([&] {
        r.send_rc = pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), r.size, 0, r.smh, nullptr, &req);
        return req || r.send_rc;
    }));
    EXPECT_TRUE(eventually([&] {
        r.send_rc = pvn_netdrv_test(r.p.d, req, &done, nullptr);
        return done || r.send_rc;
    }));
    EXPECT_EQ(1, done) << Log::get().text();
}

std::atomic<bool> losing;

void lose_acknowledgements()
{
    EXPECT_EQ(0, sv::command("rule lost drop_ack dev=mlx5_1 count=0"));
    losing = true;
}

// The receiver has the message and is not called any more. So only its answer to a HELLO can
// acknowledge the message.
void send_to_one_that_sleeps(Route &r)
{
    EXPECT_TRUE(eventually([&] { return losing.load(); }));
    send(r);
    EXPECT_LT(0, sv::lib().sv_rule_fired("lost"));
    // The log folds like lines that come close together, so only one of these two may be in it.
    EXPECT_TRUE(said("failover: RDMA lane on mlx5_1") || said("failover: mlx5_1 to"))
        << Log::get().text();
}

// A comm tries to return to its adapter, and the attempt hangs there. The receiver of another comm
// has a message whose acknowledgement is lost, and is not called any more. The HELLO of its sender
// is answered nevertheless.
TEST_F(PluginBlocked, AnAttemptToComeBackDelaysNoAnswer)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 2;set timeout_cap_ms 20");
    losing = false;
    Net n(12);
    Route sick(n, 0, 0), other(n, 1, 1);
    unsigned salt = 1;
    for (int i = 0; i < 10 && !blocked(); i++) { // an attempt from before the rule may succeed
        Log::get().clear();
        ASSERT_EQ(0, sv::command("rules clear"));
        ASSERT_EQ(0, sv::command("port mlx5_0 1 down"));
        ASSERT_TRUE(eventually([&] {
            EXPECT_TRUE(sick.move(salt++));
            return HasFailure() || said("connected again after");
        })) << Log::get().text();
        for (int k = 0; k < 50; k++)
            ASSERT_TRUE(sick.move(salt++));
        ASSERT_EQ(0, sv::command(hang("create_qp")));
        ASSERT_EQ(0, sv::command("port mlx5_0 1 up"));
        ASSERT_TRUE(eventually([&] {
            if (blocked())
                return true;
            EXPECT_TRUE(sick.move(salt++));
            return HasFailure() || said("returned after");
        })) << Log::get().text();
    }
    ASSERT_TRUE(blocked()) << Log::get().text();

    std::atomic<bool> again{false};
    std::thread receiver([&] {
        receive(other, lose_acknowledgements);
        EXPECT_TRUE(eventually([&] { return again.load(); }));
        receive(other);
    });
    send_to_one_that_sleeps(other);
    EXPECT_TRUE(blocked()) << "the answer came when the adapter had let go";

    EXPECT_EQ(0, sv::command("rules clear"));
    EXPECT_EQ(0, sv::command("release"));
    again = true;
    send(other);
    receiver.join();
    // A comm that is closed within a failover would keep the plugin and its adapters alive into the
    // next test.
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(sick.move(salt++));
        return HasFailure() || said("returned after");
    })) << Log::get().text();
}

// A thread attends to its own idle comm, which has lost its lanes, and hangs there. Other threads
// make, use and close comms meanwhile.
TEST_F(PluginBlocked, AStepOfAnIdleCommStopsNoOtherThread)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 2;set timeout_cap_ms 20");
    Net n(12);
    Route idle(n, 0, 0), busy(n, 1, 1);
    std::atomic<bool> moved{false}, enough{false};
    std::thread owner([&] {
        EXPECT_TRUE(idle.move(1));
        for (unsigned salt = 2; !enough && !HasFailure(); salt++) {
            EXPECT_TRUE(busy.move(salt));
            moved = true;
        }
    });
    EXPECT_TRUE(eventually([&] { return moved.load(); }));
    EXPECT_EQ(0, sv::command(hang("destroy_qp")));
    EXPECT_EQ(0, sv::command("port mlx5_0 1 down"));
    EXPECT_TRUE(eventually(blocked)) << stat();
    {
        Route other(n, 1, 1);
        for (unsigned salt = 1; salt < 50; salt++)
            EXPECT_TRUE(other.move(salt));
    }
    EXPECT_TRUE(blocked()) << "it went on when the adapter had let go";
    EXPECT_EQ(0, sv::command("rules clear"));
    EXPECT_EQ(0, sv::command("release"));
    enough = true;
    owner.join();
    EXPECT_TRUE(idle.move(2)) << "not in a failover any more, see above";
}

// A connection is given up after its lanes were set up, while the thread of its comm sleeps.
// Threads that may block close the lanes, so no answer is delayed.
TEST_F(PluginBlocked, LanesThatNobodyTakesDelayNoAnswer)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 2;set timeout_cap_ms 20");
    Net n(12);
    losing = false;
    Route left(n, 0, 0), other(n, 1, 1);
    std::atomic<bool> posted{false}, asleep{false}, again{false};
    std::thread sleeper([&] {
        receive(left); // lanes that have delivered nothing are not retried
        void *req = nullptr, *data = left.dst.data();
        size_t size = left.size;
        int tag = 0, done = 0;
        EXPECT_TRUE(eventually([&] {
            left.recv_rc = pvn_netdrv_irecv(left.p.d, left.p.rc, 1, &data, &size, &tag, &left.rmh,
                                            nullptr, &req);
            return req || left.recv_rc;
        }));
        posted = true;
        EXPECT_TRUE(eventually([&] {
            if (made())
                return true;
            left.recv_rc = pvn_netdrv_test(left.p.d, req, &done, nullptr);
            return left.recv_rc || done;
        }));
        EXPECT_FALSE(left.recv_rc || done) << Log::get().text();
        asleep = true;
        EXPECT_TRUE(eventually([&] { return again.load(); }));
        left.close_recv();
    });
    send(left);
    EXPECT_TRUE(eventually([&] { return posted.load(); }));
    EXPECT_EQ(0, sv::command("rule made do call=create_qp nth=1000 : release"));
    EXPECT_EQ(0, sv::command("rule break status status=RETRY_EXC_ERR dev=mlx5_0"));
    void *req = nullptr;
    EXPECT_TRUE(eventually([&] {
        int done = 0;
        if (req)
            left.send_rc = pvn_netdrv_test(left.p.d, req, &done, nullptr);
        else
            left.send_rc = pvn_netdrv_isend(left.p.d, left.p.sc, left.src.data(), left.size, 0,
                                            left.smh, nullptr, &req);
        return left.send_rc || made();
    }));
    EXPECT_TRUE(eventually([&] { return asleep.load(); }));
    left.close_send();
    EXPECT_EQ(0, sv::command(hang("destroy_qp")));

    std::thread receiver([&] { receive(other, lose_acknowledgements); });
    send_to_one_that_sleeps(other);
    receiver.join();
    again = true;
    EXPECT_TRUE(eventually(blocked, 5)) << "the adapter had let go before the answer came";
    EXPECT_EQ(0, sv::command("rules clear"));
    EXPECT_EQ(0, sv::command("release"));
    sleeper.join();
}

// A finalize gives up a connection that connect has begun, and hangs while it closes the lanes.
// Other contexts connect meanwhile.
TEST_F(PluginBlocked, AFinalizeThatHangsStopsNoOtherConnect)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 2;set timeout_cap_ms 20");
    Net stays(12);
    auto gone = std::make_unique<Net>(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;

    ASSERT_EQ(0, sv::command("rule made do call=create_qp nth=1000 : release"));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(stays.d, stays.ctx, 0, handle, &lc));
    ASSERT_TRUE(eventually([&] {
        return pvn_netdrv_connect(gone->d, gone->ctx, 0, handle, &sc) != ncclSuccess || sc ||
               pvn_netdrv_accept(stays.d, lc, &rc) != ncclSuccess || rc || made();
    })) << stat();
    ASSERT_TRUE(made() && !sc && !rc) << "the connection has lanes, and is not up";
    ASSERT_EQ(0, sv::command(hang("destroy_qp")));
    std::thread finalizes([&] { gone.reset(); });
    EXPECT_TRUE(eventually(blocked)) << stat();
    {
        Route other(stays, 1, 1);
        EXPECT_TRUE(other.move(1));
    }
    EXPECT_TRUE(blocked()) << "it went on when the adapter had let go";
    EXPECT_EQ(0, sv::command("rules clear"));
    EXPECT_EQ(0, sv::command("release"));
    finalizes.join();
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(stays.d, lc));
}

} // namespace
