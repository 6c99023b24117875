// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The state machine of connection set-up. Both ends run in one thread over real sockets, with lanes
// whose results the test plans.
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

extern "C" {
#include "base/clock.h"
#include "connect/handshake.h"
#include "connect/listener.h"
#include "base/log.h"
#include "base/param.h"
}
#include "support/memlane.h"

// Replaces the C library's accept4 to count the calls of this program's listeners.
static unsigned accept_calls;
extern "C" int accept4(int fd, sockaddr *addr, socklen_t *len, int flags)
{
    accept_calls++;
    return static_cast<int>(syscall(SYS_accept4, fd, addr, len, flags));
}

namespace
{

TEST(Table, EveryStateEndsAndNothingFollowsTheEnd)
{
    for (int s = 0; s < PVN_CONN_STATES; s++) {
        auto from = static_cast<pvn_conn_state>(s);
        EXPECT_STRNE("?", pvn_conn_state_name(from));
        bool ended = from == PVN_CONN_CLOSED || from == PVN_CONN_FAILED;
        EXPECT_EQ(!ended, pvn_conn_may_follow(from, PVN_CONN_FAILED)) << s;
        EXPECT_FALSE(pvn_conn_may_follow(from, PVN_CONN_START)) << s;
        EXPECT_FALSE(pvn_conn_may_follow(PVN_CONN_CLOSED, from)) << s;
        if (from != PVN_CONN_CLOSED && from != PVN_CONN_UP) {
            EXPECT_TRUE(pvn_conn_may_follow(from, PVN_CONN_CLOSED)) << s;
        }
    }
    EXPECT_TRUE(pvn_conn_may_follow(PVN_CONN_HELLO, PVN_CONN_DIAL)) << "dialling again";
    EXPECT_FALSE(pvn_conn_may_follow(PVN_CONN_OFFER, PVN_CONN_DIAL));
    EXPECT_FALSE(pvn_conn_may_follow(PVN_CONN_UP, PVN_CONN_CLOSED)) << "by DRAIN only";
    EXPECT_STREQ("?", pvn_conn_state_name(static_cast<pvn_conn_state>(99)));
}

std::string captured;
void capture(void *, pvn_log_level level, unsigned long, const char *, int, const char *text)
{
    if (level == PVN_LOG_WARN)
        captured += std::string(text) + "\n";
}

struct Handshake : testing::Test {
    pvn_params params = *pvn_params_get();
    pvn_device dev = {};
    pvn_listener *l = nullptr;
    uint8_t handle[PVN_HANDLE_BYTES] = {};
    pvn_conn *a = nullptr, *s = nullptr; // acceptor, sender
    int ra = -EAGAIN, rs = -EAGAIN;
    pvn_err accept_err = {};
    pvn_err why = {}; // why a connection for an established comm failed

    void SetUp() override
    {
        pvn_memlane_reset();
        captured.clear();
        pvn_log_set_capture(capture, nullptr);
        ASSERT_EQ(0, pvn_poller_get());
        pvn_memlane_device(&dev, "mem0");
        lanes(2);
        pvn_params_override(&params);
    }
    void TearDown() override
    {
        pvn_conn_close(a, nullptr);
        pvn_conn_close(s, nullptr);
        if (l)
            pvn_listener_close(l);
        EXPECT_EQ(0, pvn_memlane_open) << "a lane was left";
        EXPECT_EQ(0, pvn_poller_watches()) << "a watch was left";
        pvn_poller_put();
        pvn_params_override(nullptr);
        pvn_log_set_capture(nullptr, nullptr);
    }
    void lanes(int n)
    {
        dev.nvia = n;
        for (int i = 0; i < n; i++) {
            dev.via[i].ops = i ? &pvn_mem2_transport : &pvn_mem_transport;
            dev.via[i].index = i;
        }
    }
    void begin(bool lazy = false)
    {
        pvn_listener_cfg lc = {};
        pvn_err err = {};
        lc.dev = lc.port[0] = &dev;
        lc.nports = 1;
        lc.traffic_class = -1;
        lc.lazy = lazy;
        ASSERT_EQ(0, pvn_listener_open(&lc, handle, &l, &err)) << err.reason[0];
        pvn_handle h;
        ASSERT_EQ(0, pvn_handle_decode(handle, sizeof(handle), &h, &err));
        pvn_conn_cfg cc = {};
        cc.sender = true;
        cc.dev = cc.port[0] = &dev;
        cc.nports = 1;
        cc.session = h.session;
        cc.traffic_class = -1;
        cc.lazy = lazy;
        cc.peer_len = pvn_wire_addr_to_sockaddr(&h.addr, 0, &cc.peer);
        s = pvn_conn_new(&cc);
        ASSERT_NE(nullptr, s);
    }
    // Restores the state before begin().
    void again()
    {
        pvn_conn_close(a, nullptr);
        pvn_conn_close(s, nullptr);
        pvn_listener_close(l);
        a = s = nullptr;
        l = nullptr;
        ra = rs = -EAGAIN;
        pvn_memlane_reset();
    }
    void step_acceptor()
    {
        if (!a && ra == -EAGAIN) {
            int rc = pvn_listener_accept(l, &a, &accept_err);
            if (a || rc)
                ra = rc;
        }
    }
    void step_sender()
    {
        if (rs == -EAGAIN)
            rs = pvn_conn_step(s);
    }
    bool until(const std::function<bool()> &f)
    {
        uint64_t end = pvn_now_ns() + 20 * PVN_NS_PER_S;
        while (!f()) {
            if (pvn_now_ns() > end)
                return false;
            std::this_thread::yield();
        }
        return true;
    }
    bool both()
    {
        return until([&] {
            step_sender();
            step_acceptor();
            return rs != -EAGAIN && ra != -EAGAIN;
        });
    }
    // A lane of the acceptor blocks during a step of the set-up. The set-up succeeds nevertheless.
    void take_a_long_step(const std::function<void()> &steps)
    {
        for (auto &lane : pvn_memlane_plan[1])
            lane.verify = -EAGAIN;
        pvn_memlane_plan[1][0].verify_blocks_ms = 3000;
        begin();
        EXPECT_TRUE(until([&] {
            steps();
            return pvn_memlane_plan[1][0].verify_blocks_ms == 0;
        })) << "no step was long";
        EXPECT_EQ(-EAGAIN, rs) << s->err.reason[0];
        for (auto &lane : pvn_memlane_plan[1])
            lane.verify = 0;
        ASSERT_TRUE(both());
        EXPECT_EQ(0, ra) << accept_err.reason[0];
        EXPECT_EQ(0, rs) << s->err.reason[0];
    }
    void one_lane_comes_up()
    {
        begin();
        ASSERT_TRUE(both());
        ASSERT_EQ(0, rs) << s->err.reason[0];
        ASSERT_EQ(0, ra) << accept_err.reason[0];
        ASSERT_EQ(1, s->nlanes);
        ASSERT_EQ(1, a->nlanes);
    }
};

TEST_F(Handshake, BothLanesComeUpInTheSameOrder)
{
    begin();
    ASSERT_TRUE(both());
    ASSERT_EQ(0, rs) << s->err.reason[0];
    ASSERT_EQ(0, ra) << accept_err.reason[0];
    ASSERT_EQ(2, s->nlanes);
    ASSERT_EQ(2, a->nlanes);
    for (int i = 0; i < 2; i++) {
        EXPECT_STREQ(s->lane[i]->ops->name, a->lane[i]->ops->name);
        EXPECT_EQ(i, s->lane[i]->idx);
        EXPECT_EQ(i, a->lane[i]->idx);
    }
    EXPECT_NE(nullptr, strstr(s->who, "pid"));
    EXPECT_EQ("", captured);
}

// Rails of the connector's ports, rails of the acceptor's ports (-1: unknown), and the acceptor's
// port of each pair, in the order of the connector's ports.
struct Rails : Handshake, testing::WithParamInterface<std::vector<std::vector<int>>> {
};

TEST_P(Rails, LanesOfOneRailFaceEachOther)
{
    const std::vector<int> &ours = GetParam()[0], &theirs = GetParam()[1], &want = GetParam()[2];
    pvn_device port[2][PVN_MAX_LANES];
    pvn_listener_cfg lc = {};
    pvn_conn_cfg cc = {};
    pvn_handle h;
    pvn_err err = {};
    lanes(1);
    for (int end = 0; end < 2; end++)
        for (size_t i = 0; i < (end ? theirs : ours).size(); i++) {
            port[end][i] = dev;
            port[end][i].rail = (int16_t)(end ? theirs : ours)[i];
            (end ? lc.port : cc.port)[i] = &port[end][i];
        }
    lc.dev = lc.port[0];
    lc.nports = (int)theirs.size();
    lc.traffic_class = cc.traffic_class = -1;
    ASSERT_EQ(0, pvn_listener_open(&lc, handle, &l, &err)) << err.reason[0];
    ASSERT_EQ(0, pvn_handle_decode(handle, sizeof(handle), &h, &err));
    cc.sender = true;
    cc.dev = cc.port[0];
    cc.nports = (int)ours.size();
    cc.session = h.session;
    cc.peer_len = pvn_wire_addr_to_sockaddr(&h.addr, 0, &cc.peer);
    s = pvn_conn_new(&cc);
    ASSERT_NE(nullptr, s);
    ASSERT_TRUE(both());
    ASSERT_EQ(0, rs) << s->err.reason[0];
    ASSERT_EQ(0, ra) << accept_err.reason[0];
    ASSERT_EQ((int)want.size(), s->nlanes);
    ASSERT_EQ((int)want.size(), a->nlanes);
    for (size_t k = 0; k < want.size(); k++)
        EXPECT_EQ(&port[1][want[k]], a->lane_args[a->lane_arg[k]].dev) << "pair " << k;
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, Rails,
    testing::Values(std::vector<std::vector<int>>{{0, 1}, {1, 0}, {1, 0}}, // crossed over
                    std::vector<std::vector<int>>{{0, 1}, {0, 1}, {0, 1}},
                    std::vector<std::vector<int>>{{-1, -1}, {1, 0}, {0, 1}}, // by order
                    std::vector<std::vector<int>>{{-1, 1}, {1, 5}, {1, 0}},  // 1 keeps its own
                    std::vector<std::vector<int>>{{2, 3, 4}, {4, 2}, {1, 0}}));

TEST_F(Handshake, ALaneThatDoesNotVerifyIsLeftOutWithASentence)
{
    pvn_memlane_plan[1][0].verify = -ENETUNREACH; // the sender's first lane
    ASSERT_NO_FATAL_FAILURE(one_lane_comes_up());
    EXPECT_STREQ("mem2", s->lane[0]->ops->name);
    EXPECT_STREQ("mem2", a->lane[0]->ops->name);
    EXPECT_EQ(0, s->lane[0]->idx);
    EXPECT_EQ(0, a->lane[0]->idx) << "renumbered at both ends";
    EXPECT_NE(std::string::npos, captured.find("fails at verify by request")) << captured;
    EXPECT_NE(std::string::npos, captured.find("is left out")) << captured;
    EXPECT_NE(std::string::npos, captured.find("the peer could not use the lane")) << captured;
}

TEST_F(Handshake, EachEndMayLoseALaneOfItsOwn)
{
    // the acceptor's first lane and the sender's second: no lane is left
    pvn_memlane_plan[0][0].bind = -EIO;
    pvn_memlane_plan[1][1].verify = -EIO;
    begin();
    ASSERT_TRUE(both());
    EXPECT_NE(0, rs);
    EXPECT_NE(0, ra);
}

TEST_F(Handshake, StrictNeedsAllLanes)
{
    params.strict = true;
    pvn_memlane_plan[1][0].verify = -ENETUNREACH;
    begin();
    ASSERT_TRUE(both());
    EXPECT_EQ(-ENETUNREACH, rs);
    EXPECT_NE(nullptr, strstr(s->err.reason[1], "NCCL_PVRDMA_STRICT"));
    EXPECT_NE(0, ra) << "the acceptor hears of it";
    EXPECT_NE(nullptr, strstr(accept_err.reason[0], "fails at verify by request"));
}

TEST_F(Handshake, ALaneThatNeverVerifiesIsLeftOutInTime)
{
    params.verify_timeout = 50 * PVN_NS_PER_MS;
    pvn_memlane_plan[0][1].verify = -EAGAIN; // never completes
    ASSERT_NO_FATAL_FAILURE(one_lane_comes_up());
    EXPECT_NE(std::string::npos, captured.find("NCCL_PVRDMA_VERIFY_TIMEOUT")) << captured;
}

// As with RDMA, the acceptor begins its round trip when the connector has ended its own. If one
// path is dead, that takes the connector all of its time.
TEST_F(Handshake, ADeadLaneTakesNoTimeFromThoseThatWaitForThePeer)
{
    params.verify_timeout = 50 * PVN_NS_PER_MS;
    for (auto &end : pvn_memlane_plan)
        end[0].caps = end[1].caps = PVN_LANE_CONNECTOR_FIRST;
    pvn_memlane_plan[1][1].verify = -EAGAIN;
    ASSERT_NO_FATAL_FAILURE(one_lane_comes_up());
    EXPECT_STREQ("mem", a->lane[0]->ops->name);
}

// The acceptor's wait for a silent connector has a limit, too.
TEST_F(Handshake, AnAcceptorThatGoesSecondWaitsForALimitedTime)
{
    params.verify_timeout = params.ready_timeout = 50 * PVN_NS_PER_MS;
    for (auto &end : pvn_memlane_plan)
        end[0].caps = end[1].caps = PVN_LANE_CONNECTOR_FIRST;
    pvn_memlane_plan[1][0].verify = -EAGAIN;
    begin();
    ASSERT_TRUE(until([&] {
        if (s->state < PVN_CONN_VERIFY)
            step_sender();
        step_acceptor();
        return ra != -EAGAIN;
    }));
    EXPECT_EQ(-ETIMEDOUT, ra);
    EXPECT_NE(std::string::npos, captured.find("lane 0")) << captured;
}

// A peer whose connection is being set up counts as connected; its states have time limits of their
// own. If the machine interrupts a step for longer than the limit, the peer seems to be away. Such
// a trial proves nothing, so another one follows.
TEST_F(Handshake, AcceptWaitsForThePeerThatIsThere)
{
    params.accept_timeout = 50 * PVN_NS_PER_MS;
    for (int trial = 1;; trial++) {
        uint64_t last, longest = 0;

        pvn_memlane_plan[0][0].verify = pvn_memlane_plan[0][1].verify = -EAGAIN;
        begin();
        last = pvn_now_ns();
        uint64_t end = last + 3 * params.accept_timeout;
        EXPECT_TRUE(until([&] {
            step_sender();
            step_acceptor();
            uint64_t now = pvn_now_ns();
            longest = std::max(longest, now - last);
            last = now;
            return now > end || ra != -EAGAIN;
        }));
        if (ra == -EAGAIN || longest < params.accept_timeout || trial == 20)
            break;
        again();
    }
    EXPECT_EQ(-EAGAIN, ra) << accept_err.reason[0];
    pvn_memlane_plan[0][0].verify = pvn_memlane_plan[0][1].verify = 0;
    params.accept_timeout = 20 * PVN_NS_PER_S;
    ASSERT_TRUE(both());
    EXPECT_EQ(0, ra) << accept_err.reason[0];
    EXPECT_EQ(0, rs) << s->err.reason[0];
}

// A process that is stopped during a step, or a step that blocks, does not mean that the peer
// stopped driving the set-up.
TEST_F(Handshake, AStepThatTakesLongIsNoAbsenceOfThePeer)
{
    params.accept_timeout = 2 * PVN_NS_PER_S;
    take_a_long_step([&] {
        step_sender();
        step_acceptor();
    });
}

// A long step uses up no time of a state either if the peer is an older one, which does not say
// that it drives the set-up.
TEST_F(Handshake, AStepThatTakesLongIsNoDelayOfThePeer)
{
    params.verify_timeout = params.ready_timeout = 2 * PVN_NS_PER_S;
    take_a_long_step([&] {
        if (s->state > PVN_CONN_HELLO)
            s->theirs.features &= ~static_cast<uint64_t>(PVN_FEATURE_BEATS);
        step_sender();
        if (pvn_memlane_plan[1][0].verify_blocks_ms)
            step_acceptor();
    });
    EXPECT_EQ(2, s->nlanes);
}

// If all lanes of an end work, it is ready at once, but the other end may need all of its time.
TEST_F(Handshake, ReadyIsWaitedForWhileThePeerVerifies)
{
    params.verify_timeout = 1000 * PVN_NS_PER_MS;
    params.ready_timeout = 800 * PVN_NS_PER_MS;
    for (int dead : {0, 1}) {
        pvn_memlane_plan[dead][1].verify = -EAGAIN;
        begin();
        ASSERT_TRUE(both());
        ASSERT_EQ(0, rs) << s->err.reason[0];
        ASSERT_EQ(0, ra) << accept_err.reason[0];
        EXPECT_EQ(1, s->nlanes);
        EXPECT_EQ(1, a->nlanes);
        again();
    }
}

TEST_F(Handshake, ALaneThatCannotBeMadeIsDoneWithout)
{
    pvn_memlane_plan[0][0].lane_new = -ENODEV;
    begin();
    ASSERT_TRUE(both());
    ASSERT_EQ(0, rs) << s->err.reason[0];
    ASSERT_EQ(0, ra) << accept_err.reason[0];
    ASSERT_EQ(1, s->nlanes);
    EXPECT_STREQ("mem2", s->lane[0]->ops->name);
    EXPECT_NE(std::string::npos, captured.find("is not made by request")) << captured;
}

TEST_F(Handshake, NoLaneAtAllFailsBothEnds)
{
    pvn_memlane_plan[0][0].lane_new = pvn_memlane_plan[0][1].lane_new = -ENODEV;
    begin();
    ASSERT_TRUE(both());
    EXPECT_EQ(-ENODEV, ra);
    EXPECT_EQ(-EREMOTEIO, rs);
    EXPECT_NE(nullptr, strstr(s->err.reason[0], "is not made by request"))
        << "the other end's words";
}

// NCCL's thread may be away, which is no fault of the peer.
TEST_F(Handshake, DeadlinesCountOnlyWhileSomebodyCalls)
{
    params.accept_timeout = 200 * PVN_NS_PER_MS;
    begin();
    for (int i = 0; i < 10; i++)
        step_sender();
    ASSERT_EQ(-EAGAIN, rs);
    ASSERT_EQ(PVN_CONN_HELLO, s->state);
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    step_sender();
    EXPECT_EQ(-EAGAIN, rs) << "away for 0.7 s, and no error";
    EXPECT_TRUE(until([&] {
        step_sender();
        return rs != -EAGAIN;
    }));
    EXPECT_EQ(-ETIMEDOUT, rs) << "but calling for 0.2 s without progress is one";
}

// The last call before the pause is the one that entered the state, shortly after the state began.
TEST_F(Handshake, AwayFromTheMomentAStateBegan)
{
    params.accept_timeout = 5 * PVN_NS_PER_S;
    begin();
    ASSERT_TRUE(until([&] {
        step_sender();
        return s->state == PVN_CONN_HELLO;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    step_sender();
    EXPECT_EQ(-EAGAIN, rs) << s->err.reason[0];
}

// NCCL's v4 requires early returns of connect and accept. The set-up is completed when the user
// transfers, however late.
TEST_F(Handshake, LazyEndsWaitWithoutDeadline)
{
    params.offer_timeout = params.hello_timeout = 20 * PVN_NS_PER_MS;
    params.verify_timeout = params.ready_timeout = params.bind_timeout = 20 * PVN_NS_PER_MS;
    begin(true);
    ASSERT_TRUE(until([&] {
        step_sender();
        return pvn_conn_hello_sent(s);
    }));
    ASSERT_TRUE(until([&] {
        step_acceptor();
        return a != nullptr;
    }));
    EXPECT_EQ(0, ra);
    EXPECT_NE(PVN_CONN_UP, a->state) << "given out at HELLO";
    // The acceptor's user posts a receive and tests it; the sender's user computes.
    uint64_t end = pvn_now_ns() + 200 * PVN_NS_PER_MS;
    while (pvn_now_ns() < end)
        ASSERT_EQ(-EAGAIN, pvn_listener_step(l, a)) << a->err.reason[0];
    int up = -EAGAIN;
    EXPECT_TRUE(until([&] {
        step_sender();
        if (up == -EAGAIN)
            up = pvn_listener_step(l, a);
        return rs != -EAGAIN && up != -EAGAIN;
    }));
    EXPECT_EQ(0, rs) << s->err.reason[0];
    EXPECT_EQ(0, up) << a->err.reason[0];
    pvn_listener_leave(l, a);
}

TEST_F(Handshake, GoodbyeAndErrorReachTheOtherEnd)
{
    begin();
    ASSERT_TRUE(both());
    pvn_err err = {}, reason = {};
    EXPECT_EQ(0, pvn_conn_listen(s, &err)) << "silence";
    pvn_err_set(&reason, -EIO, "the cable is cut");
    EXPECT_EQ(-EIO, pvn_conn_fail(a, &reason));
    EXPECT_TRUE(until([&] { return pvn_conn_listen(s, &err) != 0; }));
    EXPECT_EQ(-EREMOTEIO, err.code);
    EXPECT_NE(nullptr, strstr(err.reason[0], "the cable is cut"));
    EXPECT_EQ(-EIO, pvn_conn_fail(a, &err)) << "the first reason stays";
}

// An error returns the memory to the caller, so each lane must have stopped accessing it.
TEST_F(Handshake, AnErrorWaitsForTheFenceOfEachLane)
{
    begin();
    ASSERT_TRUE(both());
    ASSERT_EQ(2, s->nlanes);
    pvn_memlane_plan[1][0].fence_again = 3;
    pvn_err err = {};
    pvn_err_set(&err, -EIO, "by request of the test");
    EXPECT_EQ(-EIO, pvn_conn_fail(s, &err));
    EXPECT_EQ(4, pvn_memlane_plan[1][0].fences);
    EXPECT_EQ("", captured);

    pvn_memlane_plan[0][0].fence_again = 1000000;
    pvn_conn_fail(a, &err);
    EXPECT_LT(1, pvn_memlane_plan[0][0].fences);
    EXPECT_NE(std::string::npos, captured.find("lane 0 (mem) cannot be fenced")) << captured;
}

TEST_F(Handshake, APeerThatIsQueriedSaysThatItIsAlive)
{
    begin();
    ASSERT_TRUE(both());
    pvn_err err = {};
    pvn_conn_ask(s);
    pvn_conn_ask(s); // only one query may be open
    EXPECT_TRUE(until([&] { return pvn_conn_listen(a, &err) != 0 || a->peer_asks; }));
    ASSERT_TRUE(a->peer_asks);
    pvn_conn_answer(a, 3);
    EXPECT_FALSE(a->peer_asks);
    EXPECT_TRUE(until([&] { return pvn_conn_listen(s, &err) != 0 || s->answered; }));
    EXPECT_TRUE(s->answered && !s->queried);
    EXPECT_EQ(3u, s->peer_open);
    EXPECT_EQ(0, pvn_conn_listen(a, &err)) << "the second question was not sent";
    EXPECT_FALSE(a->peer_asks);
    // A peer that does not know the query's frames gets none.
    s->theirs.features = 0;
    pvn_conn_ask(s);
    EXPECT_FALSE(s->queried);
    // An answer without a query breaks the protocol.
    pvn_conn_answer(a, 0);
    EXPECT_TRUE(until([&] { return pvn_conn_listen(s, &err) != 0; }));
    EXPECT_EQ(-EPROTO, err.code) << err.reason[0];
}

TEST_F(Handshake, WatchCostsNothingUntilThePollerSaysSo)
{
    begin();
    ASSERT_TRUE(both());
    pvn_err err = {};
    pvn_poller_poll_now();
    EXPECT_EQ(0, pvn_conn_watch(s, &err));
    pvn_conn_close(a, nullptr);
    a = nullptr;
    EXPECT_TRUE(until([&] {
        pvn_poller_poll(0);
        return pvn_conn_watch(s, &err) == 1;
    })) << "goodbye";
    EXPECT_TRUE(s->goodbye);
    EXPECT_EQ(0, pvn_conn_watch(s, &err)) << "said once";
}

// A look for a connection takes a tenth of the time of accept4, which makes a socket before it
// finds that there is no connection.
TEST_F(Handshake, AListenerAcceptsOnlyWhereThereIsAConnection)
{
    begin();
    accept_calls = 0;
    for (int i = 0; i < 100; i++)
        step_acceptor();
    EXPECT_EQ(0u, accept_calls);
    EXPECT_TRUE(both());
    EXPECT_EQ(0, rs);
    EXPECT_EQ(0, ra);
    EXPECT_GE(accept_calls, 1u);
    EXPECT_LE(accept_calls, 2u) << "one connection, and the look behind it";
}

// A thread that answers connections for other comms makes no call of an adapter.
TEST_F(Handshake, LanesOfANewCommAreMadeByAcceptAlone)
{
    lanes(1);
    begin();
    pvn_listener_keep(l);
    ASSERT_TRUE(until([&] {
        step_sender();
        return pvn_conn_hello_sent(s);
    }));
    EXPECT_EQ(1, pvn_memlane_open) << "the connector's, which it has offered";
    pvn_listener_stats stats = {};
    ASSERT_TRUE(until([&] {
        pvn_listener_beside(l, 77, &a);
        pvn_listener_get_stats(l, &stats);
        return stats.accepted == 1;
    }));
    for (int i = 0; i < 20; i++)
        pvn_listener_beside(l, 77, &a);
    EXPECT_EQ(nullptr, a);
    EXPECT_EQ(1, pvn_memlane_open);
    step_acceptor();
    EXPECT_EQ(2, pvn_memlane_open) << "one call of accept, because the offer came with the HELLO";
    EXPECT_TRUE(both());
    EXPECT_EQ(0, rs) << s->err.reason[0];
    EXPECT_EQ(0, ra) << accept_err.reason[0];
    pvn_listener_let_go(l);
}

TEST_F(Handshake, AConnectorThatIsClosedBeforeTheHelloOffersAgain)
{
    lanes(1);
    begin();
    pvn_err err = {};
    s->cfg.instead = s->cfg.peer;
    s->cfg.has_instead = true;
    int busy = pvn_sock_listen(&s->cfg.peer, s->cfg.peer_len, &err);
    ASSERT_GE(busy, 0) << err.reason[0];
    ASSERT_TRUE(until([&] {
        step_sender();
        return pvn_conn_hello_sent(s);
    }));
    const uint64_t nonce = s->cfg.nonce;
    EXPECT_EQ(1, pvn_memlane_open);
    close(accept(busy, nullptr, nullptr));
    EXPECT_TRUE(both());
    EXPECT_EQ(0, rs) << s->err.reason[0];
    EXPECT_EQ(0, ra) << accept_err.reason[0];
    EXPECT_EQ(1u, s->redials);
    EXPECT_NE(nonce, s->lane_args[0].nonce) << "the lane of the first attempt";
    EXPECT_EQ(2, pvn_memlane_open);
    close(busy);
}

TEST_F(Handshake, ListenerCountsUnauthenticatedConnections)
{
    begin();
    pvn_handle h;
    ASSERT_EQ(0, pvn_handle_decode(handle, sizeof(handle), &h, nullptr));
    sockaddr_storage ss;
    socklen_t len = pvn_wire_addr_to_sockaddr(&h.addr, 0, &ss);
    int fd[4];
    for (int &f : fd) {
        f = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ASSERT_EQ(0, connect(f, reinterpret_cast<sockaddr *>(&ss), len));
    }
    ASSERT_EQ(4, send(fd[0], "GET ", 4, 0));
    close(fd[1]);
    pvn_listener_stats st = {};
    EXPECT_TRUE(until([&] {
        step_acceptor();
        pvn_listener_get_stats(l, &st);
        return st.rejected == 2;
    }));
    EXPECT_EQ(4u, st.accepted);
    EXPECT_EQ(0u, st.late);
    params.hello_timeout = PVN_NS_PER_MS; // their time is over
    EXPECT_TRUE(until([&] {
        step_acceptor();
        pvn_listener_get_stats(l, &st);
        return st.late == 2;
    }));
    EXPECT_EQ("", captured);
    for (int f : {fd[0], fd[2], fd[3]})
        close(f);
    EXPECT_TRUE(both());
    EXPECT_EQ(0, rs);
}

// A listener has been closed, and its last comm ends while the peer connects again. The new
// connection ends, and the peer gets the reason.
TEST_F(Handshake, AConnectionAgainEndsWithTheCommThatItIsFor)
{
    begin();
    s->cfg.resumes = s->mine.resumes = 77;
    pvn_memlane_plan[0][0].verify = pvn_memlane_plan[0][1].verify = -EAGAIN;
    pvn_listener_keep(l);
    pvn_listener_close(l);
    ASSERT_TRUE(until([&] {
        step_sender();
        a = pvn_listener_resumed(l, 77, false, &why);
        return s->state == PVN_CONN_READY;
    }));
    ASSERT_EQ(nullptr, a);
    ASSERT_EQ(4, pvn_memlane_open) << "both ends have made their lanes";
    pvn_listener_let_go(l);
    l = nullptr;
    EXPECT_EQ(2, pvn_memlane_open);
    ASSERT_TRUE(until([&] {
        step_sender();
        return rs != -EAGAIN;
    }));
    EXPECT_EQ(-EREMOTEIO, rs);
    EXPECT_NE(nullptr, strstr(s->err.reason[0], "was closed")) << s->err.reason[0];
}

// Nobody calls the comm, so the thread that answers HELLOs looks at its listener. The peer makes
// several connections, one after the other.
TEST_F(Handshake, AConnectionAgainThatThePeerHasGivenUpIsNotKept)
{
    begin();
    pvn_conn_cfg cfg = s->cfg;
    cfg.resumes = 77;
    pvn_listener_keep(l);
    pvn_listener_close(l);
    auto answered = [&] {
        step_sender();
        bool replaced = pvn_listener_beside(l, 77, &a);
        EXPECT_EQ(nullptr, a);
        return replaced && s->state == PVN_CONN_OFFER;
    };
    auto descriptors = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    };
    pvn_conn_close(s, nullptr);
    s = nullptr;
    auto before = descriptors();
    for (int i = 0; i < 3; i++) {
        s = pvn_conn_new(&cfg);
        ASSERT_TRUE(until(answered));
        pvn_conn_close(s, nullptr);
        s = nullptr;
        EXPECT_TRUE(until([&] { return !pvn_listener_beside(l, 77, &a); }));
        EXPECT_EQ(before, descriptors()) << i;
    }
    pvn_listener_let_go(l);
    l = nullptr;
}

// A new control connection for lanes that are up, as far as the connector knows: those of
// connection 77.
struct ControlAlone : Handshake {
    void answered()
    {
        begin();
        s->cfg.resumes = s->mine.resumes = 77;
        s->cfg.control = true;
        s->mine.features |= PVN_FEATURE_CONTROL;
        pvn_listener_keep(l);
        ASSERT_TRUE(until([&] {
            step_sender();
            return s->state == PVN_CONN_OFFER || pvn_listener_control(l, 77);
        }));
        ASSERT_EQ(PVN_CONN_OFFER, s->state);
    }
    void is_taken()
    {
        pvn_conn_confirm(s);
        pvn_conn *taken = nullptr;
        uint64_t end = pvn_now_ns() + 2 * PVN_NS_PER_S;
        while (!taken && pvn_now_ns() < end)
            taken = pvn_listener_control(l, 77);
        EXPECT_NE(nullptr, taken) << "it was closed with a reason, which ends the connector's comm";
        pvn_conn_close(taken, nullptr);
    }
};

// Nobody looks at the listener for longer than HELLO_TIMEOUT, as when an adapter's call for other
// lanes takes long.
TEST_F(ControlAlone, IsKeptWhileNobodyCanLook)
{
    params.hello_timeout = PVN_NS_PER_S;
    answered();
    std::this_thread::sleep_for(std::chrono::milliseconds(1600));
    EXPECT_EQ(nullptr, pvn_listener_resumed(l, 5, false, &why));
    is_taken();
    pvn_listener_let_go(l);
}

TEST_F(ControlAlone, IsKeptWhenTheListenerIsClosed)
{
    answered();
    pvn_listener_close(l);
    is_taken();
    pvn_listener_let_go(l);
    l = nullptr;
}

} // namespace
