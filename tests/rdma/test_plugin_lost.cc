// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Adapters of softverbs are lost, and come back.
#include "rdma/plugin_route.h"
#include "support/handle_proxy.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "net-pvrdma/rdma_lane.h"
}

using namespace nccl;

namespace
{

struct PluginLost : PluginRdma {
    // Moves messages until the log has `words`, and expects each to arrive right. salt: that of the
    // next message.
    static void move_until(Route &r, unsigned &salt, const char *words)
    {
        EXPECT_TRUE(eventually([&] {
            EXPECT_TRUE(r.move(salt++));
            return HasFailure() || said(words);
        })) << Log::get().text();
    }

    // Expects a comm to keep its lane after these commands have changed the table of GIDs. It runs
    // for longer than the plugin waits for a GID that is missing. first: softverbs' configuration
    // at the start.
    static void expect_no_loss(const std::vector<const char *> &commands,
                               const std::string &first = "set gid_tbl_len 8")
    {
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        setenv("NCCL_PVRDMA_VDEVICE", "1", 1);
        sv::ForPlugin::play("roce", first);
        Net n(12);
        Route r(n);
        ASSERT_TRUE(r.move(1));
        ASSERT_TRUE(said("::ffff:10.100.0.1 (RoCE v2)")) << Log::get().text();
        for (const char *c : commands)
            ASSERT_EQ(0, sv::command(c)) << c;
        auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3500);
        unsigned salt = 2;
        while (std::chrono::steady_clock::now() < until)
            ASSERT_TRUE(r.move(salt++)) << Log::get().text();
        EXPECT_TRUE(said("mlx5_0 port 1: its table of GIDs has changed")) << Log::get().text();
        EXPECT_FALSE(said("has not had its GID")) << Log::get().text();
        EXPECT_FALSE(said("connected again after")) << Log::get().text();
    }
};

// A dead device ends its own comms, and no others. Each end reports the reason.
TEST_F(PluginLost, ADeadDeviceHurtsOnlyItsComms)
{
    without_failover();
    adapters("roce", "set devices 2");
    Net n(12);
    Route dead(n, 0, 0), alive(n, 1, 1);
    ASSERT_TRUE(dead.move(1));
    ASSERT_TRUE(alive.move(2));
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    EXPECT_FALSE(dead.move(3, true));
    EXPECT_NE(ncclSuccess, dead.send_rc);
    EXPECT_NE(ncclSuccess, dead.recv_rc);
    // Either the failed post or the event shows first.
    EXPECT_TRUE(said("mlx5_0 has failed: the device reported") ||
                said("mlx5_0:1, posting to the send queue"))
        << Log::get().warnings();
    EXPECT_TRUE(alive.move(4));
}

// A device that failed before a connection is made is not used for it.
TEST_F(PluginLost, ADeadDeviceIsNotConnectedOver)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    Route before(n);
    ASSERT_TRUE(before.move(1));
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    ASSERT_EQ(0, sv::command("rule made do call=create_qp count=0 nth=1000000 : release"));
    Route after(n);
    ASSERT_TRUE(after.p.up());
    EXPECT_TRUE(after.move(2)) << "over TCP";
    EXPECT_EQ(0, sv::lib().sv_rule_seen("made")) << "nothing is made on the failed device";
    // The device is back. A connection opens it, while old lanes still use the lost context.
    ASSERT_EQ(0, sv::command("renew mlx5_0"));
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    Route again(n);
    ASSERT_TRUE(again.p.up());
    EXPECT_TRUE(again.move(3));
    EXPECT_LT(0, sv::lib().sv_rule_seen("made")) << "over RDMA";
    EXPECT_TRUE(said("mlx5_0 has been opened again")) << Log::get().text();
}

// Another device that has taken over the name is not used.
TEST_F(PluginLost, AnotherDeviceOfTheSameNameIsNotTheLostOne)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    {
        Route before(n);
        ASSERT_TRUE(before.move(1));
    }
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    ASSERT_EQ(0, sv::command("renew mlx5_0 other"));
    Route after(n);
    ASSERT_TRUE(after.p.up());
    EXPECT_TRUE(after.move(2)) << "over TCP";
    EXPECT_TRUE(said("mlx5_0 is another device now, of node GUID")) << Log::get().text();
}

// One of two joined adapters is lost. The comm goes on over the other one, and later returns to
// both.
TEST_F(PluginLost, OneOfTwoJoinedAdapters)
{
    for (const char *fault :
         {"fatal mlx5_1 gone", "fatal mlx5_1", "fatal mlx5_0", "port mlx5_1 1 down",
          "rule break status status=RETRY_EXC_ERR op=WRITE nth=3"}) {
        SCOPED_TRACE(fault);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        adapters("roce", "set devices 2");
        Net n(12);
        ncclNetVDeviceProps_v12_t join = {};
        join.ndevs = 2;
        join.devs[1] = 1;
        int both = -1;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &both, &join));
        Route r(n, both, both);
        ASSERT_TRUE(r.move(1));
        EXPECT_TRUE(said("2 lanes: rdma on mlx5_0:1")) << Log::get().text();
        Log::get().clear();
        ASSERT_EQ(0, sv::command(fault));
        const bool queue_pair = strncmp(fault, "rule", 4) == 0;
        unsigned salt = 2;
        move_until(r, salt, "connected again after");
        if (queue_pair) {
            EXPECT_EQ(1u, sv::lib().sv_rule_fired("break"));
            continue;
        }
        for (int i = 0; i < 50; i++)
            ASSERT_TRUE(r.move(salt++));
        const bool first = strstr(fault, "mlx5_0") != nullptr;
        EXPECT_TRUE(said(first ? "s: rdma on mlx5_1:1" : "s: rdma on mlx5_0:1"))
            << Log::get().text();
        ASSERT_EQ(0, sv::command(strncmp(fault, "port", 4) == 0 ? "port mlx5_1 1 up"
                                 : first                        ? "renew mlx5_0"
                                                                : "renew mlx5_1"));
        // The next connection is made beside the current one.
        move_until(r, salt, "2 lanes: rdma on mlx5_0:1");
        for (int i = 0; i < 50; i++)
            ASSERT_TRUE(r.move(salt++));
    }
}

// The control connections of a comm pass through a proxy.
struct Proxied {
    std::unique_ptr<ChaosProxy> proxy;
    Route r;

    Proxied(Net &n, int dev)
        : r(n, dev, dev, [this](char *handle) { proxy = proxy_of_handle(handle); })
    {
    }
    // The newest connection loses what the connector sends from now on. Returns its number.
    int swallow() const
    {
        ChaosFault lost;
        lost.swallow_at = 0;
        int conn = proxy->connections() - 1;
        proxy->set(conn, ChaosProxy::kToServer, lost);
        return conn;
    }
    bool has_swallowed(int conn) const
    {
        return proxy->counters(conn, ChaosProxy::kToServer).swallowed > 0;
    }
};

// A comm returns to both of its adapters, and SWITCH is lost together with the control connection. The receiver has posted its
// receive and uses its lane no more, so nothing else shows it that the sender has left that lane.
TEST_F(PluginLost, ASwitchThatIsLostWithTheControlConnection)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 2");
    Net n(12);
    Proxied c(n, joined(n, 2));
    Route &r = c.r;
    ASSERT_TRUE(r.move(1));
    ASSERT_EQ(0, sv::command("fatal mlx5_1"));
    unsigned salt = 2;
    move_until(r, salt, "connected again after");
    const int control = c.swallow(); // the next attempt to return is a second away
    Log::get().clear();

    void *req = nullptr, *data = r.dst.data();
    size_t size = r.size;
    int tag = 0, done = 0, got = -1;
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &size, &tag, &r.rmh, nullptr, &req));
        return req || HasFailure();
    }));
    ASSERT_EQ(0, sv::command("renew mlx5_1"));
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, req, &done, &got));
        return c.has_swallowed(control) || HasFailure();
    })) << "the sender has not switched: "
        << Log::get().text();
    c.proxy->reset(control);

    void *sent = nullptr;
    int over = 0;
    bytes::fill(r.src.data(), r.size, salt);
    EXPECT_TRUE(eventually([&] {
        ncclResult_t rc = ncclSuccess;
        if (!sent)
            rc = pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), r.size, 0, r.smh, nullptr, &sent);
        if (sent && !over && rc == ncclSuccess)
            rc = pvn_netdrv_test(r.p.d, sent, &over, nullptr);
        if (!done && rc == ncclSuccess)
            rc = pvn_netdrv_test(r.p.d, req, &done, &got);
        EXPECT_EQ(ncclSuccess, rc);
        return (over && done) || HasFailure();
    })) << "the receiver does not know of the switch: "
        << Log::get().text();
    EXPECT_EQ(r.src, r.dst);
    EXPECT_TRUE(said("the control connection is there again")) << Log::get().text();
    EXPECT_TRUE(said("failback: ")) << Log::get().text();
    EXPECT_FALSE(said("failover: ")) << Log::get().text();
    EXPECT_TRUE(r.move(salt + 1));
}

// The peer's address does not answer this device on the link within the kernel's second, `times`
// times; 0: never. The rule hits a queue pair's second step (nth=2), after the one to INIT.
int let_address_be_late(const char *device, int times)
{
    return sv::command("rule late fail call=modify_qp errno=ETIMEDOUT nth=2 count=" +
                       std::to_string(times) + " dev=" + device);
}

// The attempt is repeated, at either end.
TEST_F(PluginLost, AnAddressThatAnswersLateIsLookedForAgain)
{
    for (const char *device : {"mlx5_0", "mlx5_1"}) {
        SCOPED_TRACE(device);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        adapters("roce", "set devices 2");
        Net n(12);
        Log::get().clear();
        ASSERT_EQ(0, let_address_be_late(device, 3));
        Route r(n, 0, 1);
        ASSERT_TRUE(r.move(1));
        EXPECT_EQ(3u, sv::lib().sv_rule_fired("late"));
        EXPECT_TRUE(said("does not answer on the link yet")) << Log::get().text();
        EXPECT_TRUE(said("1 lane: rdma on mlx5_0:1")) << Log::get().text();
        EXPECT_FALSE(said("is left out")) << Log::get().text();
    }
}

// The lane is given up for TCP before the other end's lanes have waited for too long.
TEST_F(PluginLost, AnAddressThatNeverAnswersIsLeftToTcp)
{
    for (const char *device : {"mlx5_0", "mlx5_1"}) {
        SCOPED_TRACE(device);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        setenv("NCCL_PVRDMA_VERIFY_TIMEOUT", "2s", 1);
        adapters("roce", "set devices 2");
        Net n(12);
        unsetenv("NCCL_PVRDMA_VERIFY_TIMEOUT");
        Log::get().clear();
        ASSERT_EQ(0, let_address_be_late(device, 0));
        Route r(n, 0, 1);
        ASSERT_TRUE(r.move(1));
        EXPECT_LT(3u, sv::lib().sv_rule_fired("late"));
        EXPECT_TRUE(said("(is the peer's address reachable from this port?), "))
            << Log::get().text();
        EXPECT_TRUE(said("1 lane: tcp on")) << Log::get().text();
    }
}

// An adapter's driver is removed or reset while messages move. The kernel destroys the memory
// regions before the queue pairs, so both ends see a wrong request before any event.
TEST_F(PluginLost, AnAdapterThatIsRemovedLosesItsMemoryFirst)
{
    const struct {
        const char *mode, *op, *device, *first;
    } rows[] = {
        {"record", "WRITE", "mlx5_1", "mlx5_0:1: a request completed with status 10 "},
        {"imm", "WRITE_IMM", "mlx5_1", "mlx5_0:1: a request completed with status 10 "},
        {"send", "SEND", "mlx5_1", "mlx5_0:1: a request completed with status 11 "},
        {"record", "WRITE", "mlx5_0", "mlx5_0:1: a request completed with status 4 "},
        {"imm", "WRITE_IMM", "mlx5_0", "mlx5_0:1: a request completed with status 4 "},
    };
    for (const auto &row : rows) {
        SCOPED_TRACE(std::string(row.mode) + " " + row.device);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        setenv("NCCL_PVRDMA_RDMA_MODE", row.mode, 1);
        // An attempt of the last comm to return to RDMA may still have the adapter open.
        ASSERT_TRUE(eventually([] { return sv::lib().sv_configure("profile roce") == 0; }));
        adapters("roce", "set devices 2");
        Net n(12);
        Route r(n, 0, 1);
        ASSERT_TRUE(r.move(1));
        ASSERT_TRUE(said("1 lane: rdma on mlx5_0:1")) << Log::get().text();
        Log::get().clear();
        ASSERT_EQ(0, sv::command(std::string("rule removed do min_len=4096 nth=2 op=") + row.op +
                                 " : fatal " + row.device + " gone 100"));
        unsigned salt = 2;
        move_until(r, salt, "connected again after");
        EXPECT_EQ(1u, sv::lib().sv_rule_fired("removed"));
        EXPECT_TRUE(said(row.first)) << Log::get().text();
        EXPECT_TRUE(said("is being removed or reset")) << Log::get().text();
        EXPECT_TRUE(said(": tcp on ")) << Log::get().text();
        for (int i = 0; i < 50; i++)
            ASSERT_TRUE(r.move(salt++)) << Log::get().text();
    }
}

// A request that is really wrong fails on the next lanes, too. The comm ends, and reports that.
TEST_F(PluginLost, AWrongRequestEndsTheCommOnceItFailsAgain)
{
    const struct {
        const char *name, *text;
    } rows[] = {{"REM_ACCESS_ERR", "status 10 "},
                {"LOC_PROT_ERR", "status 4 "},
                {"REM_OP_ERR", "status 11 "}};
    for (const auto &row : rows) {
        SCOPED_TRACE(row.name);
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        adapters("roce", "");
        Net n(12);
        Route r(n);
        ASSERT_TRUE(r.move(1));
        ASSERT_TRUE(r.move(2));
        Log::get().clear();
        ASSERT_EQ(0, sv::command(std::string("rule wrong status min_len=4096 count=0 status=") +
                                 row.name));
        EXPECT_FALSE(r.move(3, true));
        EXPECT_NE(ncclSuccess, r.send_rc);
        EXPECT_NE(ncclSuccess, r.recv_rc);
        EXPECT_EQ(2u, sv::lib().sv_rule_fired("wrong"));
        EXPECT_TRUE(said("failover: ")) << Log::get().text();
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
        EXPECT_TRUE(said("the request itself is wrong")) << Log::get().text();
        EXPECT_TRUE(said(row.text)) << Log::get().text();
    }
}

// The address of an adapter's interface changes. Its queue pairs are given up at once instead of
// after half a minute of retransmissions. New ones use the new address.
TEST_F(PluginLost, AGidThatIsRenumbered)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    ASSERT_TRUE(said("::ffff:10.100.0.1 (RoCE v2)")) << Log::get().text();
    ASSERT_EQ(0, sv::command("gid mlx5_0 1 3 ::ffff:10.200.0.77 v2"));
    unsigned salt = 2;
    move_until(r, salt, "connected again after");
    EXPECT_TRUE(said("mlx5_0 port 1 has not had its GID ::ffff:10.100.0.1 (RoCE v2) in row 3 for "))
        << Log::get().text();
    for (int i = 0; i < 50; i++)
        ASSERT_TRUE(r.move(salt++));
    EXPECT_TRUE(said("::ffff:10.200.0.77 (RoCE v2)")) << Log::get().text();
}

// The receiver's process is late, and meanwhile the address changes. The connector has called its
// listener, and offers the new address when that process answers.
TEST_F(PluginLost, AGidThatIsRenumberedWhileThePeerIsLate)
{
    adapters("roce", "");
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    for (int i = 0; i < 20; i++) {
        ASSERT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(0, sv::command("gid mlx5_0 1 3 ::ffff:10.200.0.77 v2"));
    ncclResult_t failed = ncclSuccess;
    EXPECT_TRUE(eventually([&] {
        if (!sc)
            failed = pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc);
        if (!rc && failed == ncclSuccess)
            failed = pvn_netdrv_accept(n.d, lc, &rc);
        return (sc && rc) || failed != ncclSuccess;
    }));
    EXPECT_TRUE(sc && rc) << Log::get().text();
    EXPECT_TRUE(said("::ffff:10.200.0.77 (RoCE v2)")) << Log::get().text();
    EXPECT_TRUE(said("1 lane: rdma")) << Log::get().text();
    EXPECT_FALSE(said("left out")) << Log::get().text();
    if (sc)
        pvn_netdrv_close_send(n.d, sc);
    if (rc)
        pvn_netdrv_close_recv(n.d, rc);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
}

// An address that soon returns, as after a renewal, is no loss. Nor is the loss of the adapter's
// other addresses.
TEST_F(PluginLost, AGidThatComesBack)
{
    expect_no_loss({"gid mlx5_0 1 3 none", "gid mlx5_0 1 5 ::ffff:10.200.0.77 v2",
                    "gid mlx5_0 1 3 ::ffff:10.100.0.1 v2"});
}

// An adapter with two ports is opened again while one of them is down. Nothing waits for that port.
TEST_F(PluginLost, APortThatIsDownWhenItsAdapterIsOpenedAgain)
{
    adapters("roce", "set ports 2");
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    Net n(12);
    {
        Route r(n);
        ASSERT_TRUE(r.move(1));
        ASSERT_EQ(0, sv::command("port mlx5_0 1 down"));
        unsigned salt = 2;
        move_until(r, salt, "connected again after");
    }
    for (int i = 0; i < 3; i++) {
        Log::get().clear();
        Route r(n);
        ASSERT_TRUE(r.move(1)) << Log::get().text();
        EXPECT_TRUE(said("1 lane: tcp on")) << Log::get().text();
        EXPECT_FALSE(said("left out")) << "the port was tried\n" << Log::get().text();
    }
    ASSERT_EQ(0, sv::command("port mlx5_0 1 up"));
    EXPECT_TRUE(eventually([&] {
        Log::get().clear();
        Route r(n);
        return r.move(1) && said("1 lane: rdma");
    })) << Log::get().text();
}

// The MTU of an adapter's interface is lowered. New lanes agree on it: they would pass the handshake
// with the old one, and lose their data.
TEST_F(PluginLost, AnMtuThatIsLowered)
{
    adapters("roce", "");
    Net n(12);
    {
        Route r(n);
        ASSERT_TRUE(r.move(1));
        EXPECT_TRUE(said("MTU 4096")) << Log::get().text();
    }
    ASSERT_EQ(0, sv::command("set mtu 3")); // 1024 bytes
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    Route r(n);
    ASSERT_TRUE(r.move(2));
    EXPECT_TRUE(said("MTU 1024")) << Log::get().text();
}

// An address that is removed and added again gets another row, because queue pairs hold the old one,
// which is empty in the adapter.
TEST_F(PluginLost, AGidThatComesBackInAnotherRow)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    ASSERT_EQ(0, sv::command("gid mlx5_0 1 3 none"));
    ASSERT_EQ(0, sv::command("gid mlx5_0 1 5 ::ffff:10.100.0.1 v2"));
    unsigned salt = 2;
    move_until(r, salt, "connected again after");
    EXPECT_TRUE(said("has not had its GID ::ffff:10.100.0.1 (RoCE v2) in row 3 for "))
        << Log::get().text();
    EXPECT_TRUE(said("GID 5 ::ffff:10.100.0.1 (RoCE v2)")) << Log::get().text();
}

// The address still exists behind new ones, which are more than an offer has room for. That is no
// loss either.
TEST_F(PluginLost, AGidBehindManyOthers)
{
    std::string rows = ";gid * 1 clear all";
    for (int i = 1; i < PVN_RDMA_MAX_GIDS; i++)
        rows += ";gid * 1 " + std::to_string(i) + " ::ffff:10.50.0." + std::to_string(i) + " v1";
    rows += ";gid * 1 " + std::to_string(PVN_RDMA_MAX_GIDS) + " ::ffff:10.100.0.1 v2";
    expect_no_loss({"gid mlx5_0 1 0 ::ffff:10.50.1.1 v1"}, "set gid_tbl_len 64" + rows);
}

// Each end has two joined adapters. The sender loses its first one. The port of the receiver's
// first one went down so recently that its lane has not ended. The adapters that are left are
// paired, and nothing waits for that port.
TEST_F(PluginLost, APortThatIsDownIsNoPartnerOfTheAdapterThatIsLeft)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters("roce", "set devices 4");
    Net n(12);
    ncclNetVDeviceProps_v12_t join = {};
    join.ndevs = 2;
    join.devs[0] = 2;
    join.devs[1] = 3;
    const int ours = joined(n, 2);
    int theirs = -1;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &theirs, &join));
    Route r(n, ours, theirs);
    ASSERT_TRUE(r.move(1));
    Log::get().clear();
    ASSERT_EQ(0, sv::command("port mlx5_2 1 down"));
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    unsigned salt = 2;
    move_until(r, salt, "connected again after");
    EXPECT_TRUE(said("no rdma lane on mlx5_2: mlx5_2 port 1 has been down for"))
        << Log::get().text();
    EXPECT_TRUE(said("s: rdma on mlx5_1:1")) << Log::get().text();
    EXPECT_TRUE(said("s: rdma on mlx5_3:1")) << Log::get().text();
    EXPECT_FALSE(said("does not work and is left out")) << Log::get().text();
}

// Two networks do not reach each other. Each end has an adapter in each, and no rails are known.
// The sender loses the first of its adapters.
TEST_F(PluginLost, TheAdapterThatIsLeftKeepsItsPartner)
{
    setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
    adapters(
        "roce",
        "set devices 4;set routed 0;set link_local 0;gid mlx5_2 1 1 ::ffff:10.100.0.2 v2;gid mlx5_3 1 1 ::ffff:10.104.0.2 v2");
    Net n(12);
    ncclNetVDeviceProps_v12_t join = {};
    join.ndevs = 2;
    join.devs[0] = 2;
    join.devs[1] = 3;
    const int ours = joined(n, 2);
    int theirs = -1;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &theirs, &join));
    Route r(n, ours, theirs);
    ASSERT_TRUE(r.move(1));
    ASSERT_TRUE(said("2 lanes: rdma on mlx5_0:1")) << Log::get().text();
    Log::get().clear();
    ASSERT_EQ(0, sv::command("fatal mlx5_0"));
    unsigned salt = 2;
    move_until(r, salt, "connected again after");
    EXPECT_TRUE(said("s: rdma on mlx5_1:1")) << Log::get().text();
    EXPECT_TRUE(said("s: rdma on mlx5_3:1")) << Log::get().text();
    EXPECT_FALSE(said("does not work and is left out")) << Log::get().text();
}

// The receiver has a message, but its device never completes the acknowledgement. No request is
// open there, and only the sender's comm is called. The receiver's comm must notice nevertheless.
// (In the other modes a request of the sender fails.)
TEST_F(PluginLost, AnAcknowledgementThatTheDeviceNeverEnds)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "send", 1);
    setenv("NCCL_IB_TIMEOUT", "10", 1); // given up after 5.1 s, see rdma_overdue.c
    adapters("pvrdma", "");
    Net n(12);
    unsetenv("NCCL_IB_TIMEOUT");
    Route r(n);
    ASSERT_TRUE(r.move(1));
    // A message of one piece is two requests: the piece, and the credit that acknowledges it.
    ASSERT_EQ(0, sv::command("rule silent die mode=2 op=SEND nth=2"));
    EXPECT_TRUE(r.move(2)) << Log::get().text();
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("silent"));
    EXPECT_TRUE(said("neither success nor an error for ")) << Log::get().text();
    EXPECT_TRUE(r.move(3));
    EXPECT_TRUE(said("connected again after")) << Log::get().text();
}

// A message has begun to arrive that is larger than the unexpected-message queue. Its receive is
// late, and the lane is lost.
TEST_F(PluginLost, AMessageWithoutAReceiveThatCouldNotBeKept)
{
    setenv("NCCL_PVRDMA_RDMA_MODE", "send", 1);
    adapters("pvrdma", "");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    size_t size = (64 << 20) + 1;
    std::vector<unsigned char> src(size), dst(size);
    void *smh = nullptr, *rmh = nullptr, *sent = nullptr, *req = nullptr, *data = dst.data();
    int tag = 0, sd = 0, rd = 0;
    bytes::fill(src.data(), size, 5);
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(r.p.d, r.p.sc, src.data(), size, NCCL_PTR_HOST, &smh));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(r.p.d, r.p.rc, dst.data(), size, NCCL_PTR_HOST, &rmh));
    ASSERT_EQ(0, sv::command("rule break status status=RETRY_EXC_ERR op=SEND nth=9"));
    EXPECT_TRUE(eventually(
        [&] {
            const int rc =
                sent ? pvn_netdrv_test(r.p.d, sent, &sd, nullptr)
                     : pvn_netdrv_isend(r.p.d, r.p.sc, src.data(), size, 0, smh, nullptr, &sent);
            EXPECT_EQ(ncclSuccess, rc);
            return HasFailure() || said("connected again after");
        },
        10));
    EXPECT_TRUE(eventually(
        [&] {
            int rc = ncclSuccess;
            if (!req)
                rc = pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &size, &tag, &rmh, nullptr, &req);
            else if (!rd)
                rc = pvn_netdrv_test(r.p.d, req, &rd, nullptr);
            EXPECT_EQ(ncclSuccess, rc);
            if (!sd) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(r.p.d, sent, &sd, nullptr));
            }
            return HasFailure() || (rd && sd);
        },
        30))
        << Log::get().text();
    EXPECT_EQ(1u, sv::lib().sv_rule_fired("break"));
    EXPECT_TRUE(bytes::same(dst.data(), src.data(), size));
}

// A buffer that NCCL registers with a receiver while the comm has lost its lanes. NCCL goes on
// without a buffer that is refused.
struct PluginLateBuffer : PluginLost {
    std::vector<char> big = std::vector<char>(32 << 20);
    void *mh = nullptr;
    int calls = 0; // of reg_mr, which the registration has made

    static void limited(const std::string &set)
    {
        setenv("NCCL_PVRDMA_TRANSPORT", "auto", 1);
        adapters("roce", set);
    }
    ncclResult_t reg(const Route &r)
    {
        return pvn_netdrv_reg_mr(r.p.d, r.p.rc, big.data(), big.size(), NCCL_PTR_HOST, &mh);
    }
    // Moves a message whose lanes are lost by the command `loss`. Registers the buffer as soon as
    // `due` is true after a call of the sender. Returns the result of that.
    ncclResult_t move_and_reg(Route &r, const char *loss, const std::function<bool()> &due)
    {
        void *sr = nullptr, *rr = nullptr, *data = r.dst.data();
        size_t size = Route::SIZE;
        int tag = 0, sd = 0, rd = 0, got = 0;
        bool made = false;
        ncclResult_t rc = ncclSuccess;

        bytes::fill(r.src.data(), size, 77);
        Log::get().clear();
        EXPECT_EQ(0, sv::command("rule made do call=reg_mr count=0 nth=1000000 : release"));
        EXPECT_EQ(0, sv::command(loss));
        EXPECT_TRUE(eventually([&] {
            if (!rr)
                r.recv_rc =
                    pvn_netdrv_irecv(r.p.d, r.p.rc, 1, &data, &size, &tag, &r.rmh, nullptr, &rr);
            else if (!rd)
                r.recv_rc = pvn_netdrv_test(r.p.d, rr, &rd, &got);
            if (!sr)
                r.send_rc =
                    pvn_netdrv_isend(r.p.d, r.p.sc, r.src.data(), size, 0, r.smh, nullptr, &sr);
            else if (!sd)
                r.send_rc = pvn_netdrv_test(r.p.d, sr, &sd, nullptr);
            if (!made && !rd && due()) {
                made = true;
                const int before = sv::lib().sv_rule_seen("made");
                rc = reg(r);
                calls = sv::lib().sv_rule_seen("made") - before;
            }
            return (sd && rd) || r.send_rc || r.recv_rc;
        }));
        EXPECT_TRUE(made) << "the moment for the registration did not come";
        EXPECT_EQ(ncclSuccess, r.send_rc);
        EXPECT_EQ(ncclSuccess, r.recv_rc) << Log::get().text();
        EXPECT_TRUE(bytes::same(r.dst.data(), r.src.data(), size));
        EXPECT_TRUE(said("connected again after")) << Log::get().text();
        return rc;
    }
};

// Both ends' new lanes have registered their own memory and the buffers, and the receiver is still in
// the failover.
TEST_F(PluginLateBuffer, RefusedByTheNewLanesIsNoEnd)
{
    limited("set memlock_kb 8192");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    EXPECT_NE(ncclSuccess,
              move_and_reg(r, "rule lost status status=RETRY_EXC_ERR op=WRITE_IMM nth=1",
                           [] { return sv::lib().sv_rule_seen("made") >= 4; }));
    EXPECT_TRUE(said("RLIMIT_MEMLOCK")) << Log::get().text();
    EXPECT_FALSE(said("do not take the memory")) << Log::get().text();
    EXPECT_TRUE(r.move(2)) << Log::get().text();
}

// The comm has no lanes yet. Those of the same adapter would refuse the buffer as well.
TEST_F(PluginLateBuffer, RefusedBeforeTheNewLanesKeepsRdma)
{
    limited("set memlock_kb 8192");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    EXPECT_NE(ncclSuccess,
              move_and_reg(r, "rule lost status status=RETRY_EXC_ERR op=WRITE_IMM nth=1",
                           [] { return said("failover: the peer"); }));
    EXPECT_EQ(1, calls);
    EXPECT_TRUE(said("RLIMIT_MEMLOCK")) << Log::get().text();
    EXPECT_FALSE(said("do not take the memory")) << Log::get().text();
    EXPECT_TRUE(r.move(2)) << Log::get().text();
}

// A device that has failed refuses everything, or blocks the call. TCP takes the buffer.
TEST_F(PluginLateBuffer, AFailedDeviceRefusesNoBuffer)
{
    limited("");
    Net n(12);
    Route r(n);
    ASSERT_TRUE(r.move(1));
    EXPECT_EQ(ncclSuccess,
              move_and_reg(r, "fatal mlx5_0", [] { return said("the connection is made again"); }));
    EXPECT_EQ(0, calls);
    EXPECT_TRUE(said("tcp on mlx5_0")) << Log::get().text();
    EXPECT_TRUE(r.move(2)) << Log::get().text();
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(r.p.d, r.p.rc, mh));
}

} // namespace
