// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Contracts on which NCCL's proxy relies although nccl_net.h does not state them. They were read in
// transport/net.cc, proxy.cc and plugin/net.cc of NCCL 2.28.9 and 2.30.7.
#include "abi/nccl_side.h"
#include "softverbs/fixture.h"

#include <atomic>

using namespace nccl;

namespace
{

std::string version_name(const testing::TestParamInfo<int> &i)
{
    return "v" + std::to_string(i.param);
}

class Contract : public testing::TestWithParam<int>
{
};
INSTANTIATE_TEST_SUITE_P(Versions, Contract, testing::Range(5, 13), version_name);

// One receive, posted and tested call by call.
struct Receive {
    Buffer b;
    void *req = nullptr;
    int done = 0, got = -1;

    explicit Receive(size_t size) : b(size)
    {
    }
    ncclResult_t post(Pair &p, void *optional = nullptr)
    {
        void *data = b.data(), *mh = nullptr;
        size_t size = b.n;
        int tag = 0;
        req = optional;
        return pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &mh, nullptr, &req);
    }
};

struct Sending {
    Buffer b;
    void *req = nullptr;
    int done = 0;

    Sending(size_t size, unsigned seed) : b(size, seed)
    {
    }
    // Posts the send, then tests it. True when it is complete.
    bool step(Pair &p, int tag = 0)
    {
        if (!req) {
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_isend(p.d, p.sc, b.data(), b.n, tag, nullptr, nullptr, &req));
        }
        if (req && !done) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &done, nullptr));
        }
        return done != 0 || testing::Test::HasFailure();
    }
};

// NCCL tests the requests of several operations in its own order, so it may test a later one first.
TEST_P(Contract, RequestsTestedNewestFirst)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    const size_t count = pvn_netdrv_max_requests(n.d) < 8 ? pvn_netdrv_max_requests(n.d) : 8;
    std::vector<Receive> in;
    std::vector<Sending> out;
    for (size_t i = 0; i < count; i++) {
        in.emplace_back(200000);
        out.emplace_back(i % 2 ? 200000 - i : 100 + i, 7 + i);
    }
    for (auto &r : in) {
        ASSERT_EQ(ncclSuccess, r.post(p));
        ASSERT_NE(nullptr, r.req);
    }
    EXPECT_TRUE(eventually([&] {
        size_t left = 0;
        for (auto &s : out) { // isend keeps the order, test does not
            if (!s.req)
                s.step(p);
            if (!s.req)
                break;
        }
        for (size_t i = count; i-- > 0;) {
            if (out[i].req)
                out[i].step(p);
            if (!in[i].done) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, in[i].req, &in[i].done, &in[i].got));
            }
            left += !out[i].done || !in[i].done;
        }
        return left == 0 || HasFailure();
    }));
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(static_cast<int>(out[i].b.n), in[i].got) << i;
        EXPECT_TRUE(in[i].b.holds(out[i].b.n, 7 + i)) << i;
    }
}

// The proxy requests the sizes of receives, but passes NULL for them when it waits for a flush.
// test accepts NULL for any request.
TEST_P(Contract, AGroupedReceiveTestedWithoutSizes)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Buffer a(1000), b(70000);
    void *data[] = {a.data(), b.data()}, *mh[] = {nullptr, nullptr}, *req = nullptr;
    size_t sizes[] = {a.n, b.n};
    int tags[] = {5, 6}, done = 0;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_irecv(p.d, p.rc, 2, data, sizes, tags, mh, nullptr, &req));
    ASSERT_NE(nullptr, req);
    Sending second(69999, 3), first(10, 2);
    EXPECT_TRUE(eventually([&] {
        second.step(p, 6);
        if (second.req)
            first.step(p, 5);
        if (!done) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, req, &done, nullptr));
        }
        return (done && first.done && second.done) || HasFailure();
    }));
    EXPECT_TRUE(a.holds(10, 2));
    EXPECT_TRUE(b.holds(69999, 3));
}

// A flush of a grouped receive gets the sizes that test reported, 0 for an empty message.
TEST_P(Contract, AFlushWithSizesOfNothing)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Flow f = plain(p, {0, 10});
    ASSERT_TRUE(f.run());
    Buffer b(1000);
    void *mh = nullptr, *req = &mh;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, b.data(), b.n, NCCL_PTR_HOST, &mh));
    void *data[] = {b.data(), b.data() + 500}, *handles[] = {mh, mh};
    int sizes[] = {0, 0};
    EXPECT_EQ(ncclSuccess, pvn_netdrv_iflush(p.d, p.rc, 2, data, sizes, handles, &req));
    EXPECT_EQ(nullptr, req) << "host memory has nothing to flush";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, mh));
}

// NCCL calls irecv with a number in *request if the protocol is LL or LL128. If no request is
// free, it must be NULL on return, because NCCL would take the number for a request.
class Hint : public Contract
{
};
INSTANTIATE_TEST_SUITE_P(Versions, Hint, testing::Range(9, 13), version_name);

TEST_P(Hint, NoRequestLeftIsNullWhateverItWas)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    std::vector<Receive> in;
    in.reserve(1000);
    void *const hint = reinterpret_cast<void *>(NCCL_NET_OPTIONAL_RECV_COMPLETION);
    do {
        in.emplace_back(64);
        ASSERT_EQ(ncclSuccess, in.back().post(p, hint));
    } while (in.back().req && in.size() < 1000);
    ASSERT_GT(in.size(), 8u);
    EXPECT_EQ(nullptr, in.back().req);
    in.pop_back();
    for (size_t i = 0; i < in.size(); i++) {
        Sending s(64, 1 + i);
        EXPECT_TRUE(eventually([&] {
            if (!in[i].done) {
                EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, in[i].req, &in[i].done, nullptr));
            }
            return (s.step(p) && in[i].done) || HasFailure();
        }));
        EXPECT_TRUE(in[i].b.holds(64, 1 + i)) << i;
    }
}

// Each comm of a communicator registers the same buffers. A user's buffer may be registered again.
TEST_P(Contract, OneBufferRegisteredTwice)
{
    Net n(GetParam());
    Pair p(n);
    ASSERT_TRUE(p.up());
    Buffer src(50000, 9), dst(50000);
    void *s[2], *r[2], *mh = nullptr;
    for (int i = 0; i < 2; i++) {
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.n, NCCL_PTR_HOST, &s[i]));
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.n, NCCL_PTR_HOST, &r[i]));
    }
    // A third handle, for a part of it, like a user's buffer inside a larger one
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(p.d, p.rc, dst.data() + 33, 100, NCCL_PTR_HOST, &mh));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.sc, s[0]));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, r[0]));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p.d, p.rc, mh));
    void *sreq = nullptr, *rreq = nullptr, *data = dst.data();
    size_t size = dst.n;
    int tag = 0, sd = 0, rd = 0;
    EXPECT_TRUE(eventually([&] {
        if (!rreq) {
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_irecv(p.d, p.rc, 1, &data, &size, &tag, &r[1], nullptr, &rreq));
        }
        if (!sreq) {
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_isend(p.d, p.sc, src.data(), src.n, 0, s[1], nullptr, &sreq));
        }
        if (sreq && !sd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, sreq, &sd, nullptr));
        }
        if (rreq && !rd) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_test(p.d, rreq, &rd, nullptr));
        }
        return (sd && rd) || HasFailure();
    }));
    EXPECT_TRUE(dst.holds(src.n, 9)) << "by the handles that are left";
}

// ncclNetHandle_t is an array of char, so it may have any alignment.
TEST_P(Contract, AHandleAtAnOddAddress)
{
    Net n(GetParam());
    char room[NCCL_NET_HANDLE_MAXSIZE + 1] = {}, *handle = room + 1;
    void *lc = nullptr, *sc = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
    EXPECT_TRUE(eventually([&] {
        return (!sc && pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc)) ||
               (!rc && pvn_netdrv_accept(n.d, lc, &rc)) || (sc && rc);
    }));
    EXPECT_TRUE(sc && rc);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, sc));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
}

// If PXN is in use, each local rank gets a listener, but only one of them gets a connection.
TEST_P(Contract, AListenerThatNobodyConnectsTo)
{
    Net n(GetParam());
    auto before = descriptors();
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    void *unused = nullptr, *nobody = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &unused));
    {
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(n.d, unused, &nobody));
        EXPECT_EQ(nullptr, nobody);
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, unused));
        Flow f = plain(p, {100});
        EXPECT_TRUE(f.run());
    }
    EXPECT_EQ(before, descriptors());
}

// One thread connects and closes the comm, as the proxy's service thread does. A second one moves
// data, and a third registers memory. ThreadSanitizer judges what they share.
TEST_P(Contract, ThreadsHandACommOn)
{
    Net n(GetParam());
    std::unique_ptr<Pair> p;
    Buffer user(4096);
    std::thread([&] { p = std::make_unique<Pair>(n); }).join();
    ASSERT_TRUE(p->up());
    std::atomic<bool> moved{false};
    std::thread registers([&] {
        while (!moved) {
            void *mh = nullptr;
            EXPECT_EQ(ncclSuccess,
                      pvn_netdrv_reg_mr(p->d, p->sc, user.data(), user.n, NCCL_PTR_HOST, &mh));
            EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(p->d, p->sc, mh));
        }
    });
    std::thread([&] {
        Flow f = plain(*p, {1, 300000, 0, 5000});
        EXPECT_TRUE(f.run());
        f.check();
        moved = true;
    }).join();
    registers.join();
    std::thread([&] { p.reset(); }).join();
}

// Several proxy threads read properties and set network attributes at the same time.
TEST(Threads, PropertiesAndAttributesFromSeveral)
{
    Net n(12);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int k = 0; k < 200; k++) {
                ncclNetProperties_v12_t props;
                ncclNetAttr_v12_t attr;
                int ndev = 0;
                memset(&attr, 0xff, sizeof(attr));
                EXPECT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
                EXPECT_EQ(1, ndev);
                EXPECT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &props));
                EXPECT_STREQ("lo", props.name);
                EXPECT_EQ(ncclSuccess, pvn_netdrv_set_attr(n.d, n.ctx, &attr));
            }
        });
    for (auto &t : threads)
        t.join();
}

// After an init that failed, NCCL calls finalize with the context that it got: NULL.
TEST(Finalize, AfterAnInitThatFailedSaysNothingMore)
{
    for (int abi : {11, 12}) {
        setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "soon", 1);
        Net n(abi);
        unsetenv("NCCL_PVRDMA_HELLO_TIMEOUT");
        EXPECT_EQ(ncclInvalidUsage, n.rc);
        EXPECT_EQ(nullptr, n.ctx);
        Log::get().clear();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
        EXPECT_EQ("", Log::get().warnings());
    }
}

// If maxRecvs is above 1, NCCL shares a comm between ranks (PXN). A rank that sends with one tag of
// a group may be ahead of the others by a whole operation, with up to 8 messages in flight and as
// many groups posted. With clear-to-send, this rank waits and the others pass it. TCP devices have
// no clear-to-send, because it costs an entry for each receive, so they offer no groups.
TEST(Groups, OverTcpNoneAreOffered)
{
    for (int abi : {5, 8, 10, 11, 12}) {
        Net n(abi);
        ncclNetProperties_v12_t props;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &props));
        EXPECT_EQ(1, props.maxRecvs) << "v" << abi;
    }
    Log::get().clear();
    Net n(12);
    Pair p(n);
    EXPECT_TRUE(p.up() && said("lane: tcp on"));
    EXPECT_FALSE(said("clear-to-send"));
}

TEST(Groups, InTheTwoSidedModeNoneAreOffered)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("roce", "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_TRANSPORT", "rdma", 1);
    for (const char *mode : {"send", "imm"}) {
        setenv("NCCL_PVRDMA_RDMA_MODE", mode, 1);
        Net n(12);
        ncclNetProperties_v12_t props;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &props));
        EXPECT_EQ(std::string(mode) == "send" ? 1 : 8, props.maxRecvs) << mode;
    }
    unsetenv("NCCL_PVRDMA_RDMA_MODE");
    unsetenv("NCCL_PVRDMA_TRANSPORT");
}

// The adapter of a case, and how its comm comes to its lanes.
struct Path {
    const char *name, *adapter, *mode;
    std::vector<std::string> first; // softverbs commands before the comm is made
    std::vector<std::string> later; // commands when a third of the messages has arrived
    std::vector<std::string> last;  // commands when two thirds have arrived
    bool over_tcp;
};

class Ahead : public testing::TestWithParam<Path>
{
  public:
    static void play(const std::vector<std::string> &commands)
    {
        for (const auto &c : commands)
            EXPECT_EQ(0, sv::command(c));
    }
};
// If queue pairs cannot be set up, TCP is the only path.
static const char *no_path =
    "rule none fail call=modify_qp errno=EINVAL nth=1 every=1 count=1000000";
static const char *loss = "rule loss status status=RETRY_EXC_ERR nth=1";
INSTANTIATE_TEST_SUITE_P(
    Paths, Ahead,
    testing::Values(Path{"pvrdma", "pvrdma", "auto", {}, {}, {}, false},
                    Path{"roce", "roce", "auto", {}, {}, {}, false},
                    Path{"fallback", "roce", "auto", {no_path}, {}, {}, true},
                    Path{"record", "pvrdma", "record", {}, {no_path, loss}, {}, true},
                    Path{"imm", "roce", "imm", {}, {no_path, loss}, {}, true},
                    Path{"and_back", "roce", "auto", {}, {no_path, loss}, {"rules clear"}, true}),
    [](const auto &i) { return i.param.name; });

// Two ranks that share a comm. Each has a tag of its own, and a buffer in each group of receives.
class Sharing
{
  public:
    static constexpr size_t GROUPS = 300, DEPTH = 8, TAGS = 2, BYTES = 3000;
    size_t received = 0, sent[TAGS] = {};

    explicit Sharing(Pair &pair)
        : p(pair), src(TAGS * GROUPS * BYTES, 3), dst(TAGS * GROUPS * BYTES), in(GROUPS)
    {
        for (auto &o : out)
            o.resize(GROUPS);
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.sc, src.data(), src.n, NCCL_PTR_HOST, &smh));
        EXPECT_EQ(ncclSuccess,
                  pvn_netdrv_reg_mr(p.d, p.rc, dst.data(), dst.n, NCCL_PTR_HOST, &rmh));
    }
    // Posts as many receives as there is room for and tests the oldest, as NCCL's proxy does.
    void receive()
    {
        for (size_t k = received; k < GROUPS && k < received + DEPTH; k++) {
            unsigned char *at = dst.data() + k * TAGS * BYTES;
            void *data[] = {at, at + BYTES}, *mh[] = {rmh, rmh};
            size_t sizes[] = {BYTES, BYTES};
            int tags[] = {0, 1};
            if (!in[k]) {
                ASSERT_EQ(ncclSuccess,
                          pvn_netdrv_irecv(p.d, p.rc, TAGS, data, sizes, tags, mh, nullptr, &in[k]))
                    << Log::get().warnings();
            }
            if (!in[k])
                break;
        }
        int done = 0, got[TAGS] = {};
        if (received < GROUPS && in[received]) {
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(p.d, in[received], &done, got))
                << Log::get().warnings();
        }
        for (size_t t = 0; done && t < TAGS; t++) {
            ASSERT_EQ(BYTES, static_cast<size_t>(got[t])) << received;
        }
        received += done != 0;
    }
    void send(int t)
    {
        for (size_t k = sent[t]; k < GROUPS && k < sent[t] + DEPTH; k++) {
            unsigned char *at = src.data() + (k * TAGS + t) * BYTES;
            if (!out[t][k]) {
                ASSERT_EQ(ncclSuccess,
                          pvn_netdrv_isend(p.d, p.sc, at, BYTES, t, smh, nullptr, &out[t][k]))
                    << Log::get().warnings();
            }
            if (!out[t][k])
                break;
        }
        int done = 0;
        if (sent[t] < GROUPS && out[t][sent[t]]) {
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(p.d, out[t][sent[t]], &done, nullptr))
                << Log::get().warnings();
        }
        sent[t] += done != 0;
    }
    // Lets one rank send alone until the receiver holds it back: no group completes without the
    // other rank's message.
    void go_ahead(int t)
    {
        for (int idle = 0; idle < 2000 && sent[t] < GROUPS && !testing::Test::HasFatalFailure();
             idle++) {
            size_t before = sent[t];
            send(t);
            receive();
            if (sent[t] != before)
                idle = 0;
        }
        EXPECT_LT(sent[t], GROUPS) << "it is held back, or nothing was tested";
    }
    // Lets both ranks send until so many groups have arrived.
    void go_on(size_t until)
    {
        EXPECT_TRUE(eventually([&] {
            send(0);
            send(1);
            receive();
            return received >= until || testing::Test::HasFatalFailure();
        })) << Log::get().text();
    }
    bool all_is_there()
    {
        return dst.holds(dst.n, 3);
    }

  private:
    Pair &p;
    Buffer src, dst;
    void *smh = nullptr, *rmh = nullptr;
    std::vector<void *> in, out[TAGS];
};

// If NCCL is configured not to share comms, a comm of an RDMA device over TCP has no clear-to-send.
TEST(Groups, NoClearToSendWhereCommsAreNotShared)
{
    sv::ForPlugin softverbs;
    sv::ForPlugin::play("roce", "set gid_tbl_len 8");
    EXPECT_EQ(0, sv::command(no_path));
    for (const char *name : {"NCCL_NET_SHARED_COMMS", "NCCL_PVRDMA_SHARED_COMMS"})
        for (const char *value : {"0", "1"}) {
            setenv(name, value, 1);
            Log::get().clear();
            Net n(12);
            Pair p(n);
            EXPECT_TRUE(p.up() && said("lane: tcp on"));
            EXPECT_EQ(value[0] == '1', said("clear-to-send")) << name;
            unsetenv(name);
        }
    EXPECT_EQ(0, sv::command("rules clear"));
}

TEST_P(Ahead, ASenderOfAGroupDoesNotWaitForTheOthers)
{
    const Path &path = GetParam();
    sv::ForPlugin softverbs;
    sv::ForPlugin::play(path.adapter, "set gid_tbl_len 8");
    setenv("NCCL_PVRDMA_RDMA_MODE", path.mode, 1);
    setenv("NCCL_PVRDMA_FAILOVER", path.later.empty() ? "0" : "1", 1);
    Log::get().clear();
    Net n(12);
    ncclNetProperties_v12_t props;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &props));
    EXPECT_EQ(8, props.maxRecvs);
    play(path.first);
    Pair p(n);
    ASSERT_TRUE(p.up());
    Sharing two(p);
    two.go_ahead(1);
    if (!path.later.empty()) {
        two.go_on(two.GROUPS / 3);
        play(path.later);
        // The other rank is ahead when the lanes are lost, and also afterwards.
        two.go_ahead(0);
        EXPECT_TRUE(eventually([&] {
            two.go_ahead(0);
            return said("s: tcp") || HasFatalFailure();
        })) << Log::get().text();
        two.go_ahead(1);
    }
    if (!path.last.empty()) {
        two.go_on(two.GROUPS * 2 / 3);
        play(path.last);
        EXPECT_TRUE(eventually([&] {
            two.go_ahead(1);
            return said("failback: ") || HasFatalFailure();
        })) << Log::get().text();
    }
    two.go_on(two.GROUPS);
    EXPECT_TRUE(two.all_is_there());
    EXPECT_EQ(path.over_tcp, said("lane: tcp on")) << Log::get().text();
    EXPECT_EQ(path.over_tcp, said("clear-to-send"));
    p.close();
    EXPECT_EQ(0, sv::command("rules clear"));
    unsetenv("NCCL_PVRDMA_FAILOVER");
    unsetenv("NCCL_PVRDMA_RDMA_MODE");
}

} // namespace
