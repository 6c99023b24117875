// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The RDMA lane on softverbs under faults: errors, silence, fences, and failed set-up
#include "rdma/lane_traffic.h"

namespace
{

// Runs a sender until it fails and returns its error.
const pvn_err *until_failed(RdmaPair &p)
{
    static uint8_t out[4096], in[4096];
    pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
    pvn_req *r = nullptr, *s = nullptr;
    int done = 0;
    double limit = 0; // if the receiver has failed, the sender may never get an error
    for (Deadline wait; wait.left() && !pvn_engine_err(p.tx.e);) {
        if (pvn_engine_err(p.rx.e) && limit == 0)
            limit = pvn_now_s() + 1;
        if (limit != 0 && pvn_now_s() > limit)
            break;
        if (!r)
            irecv(p, in, sizeof(in), 0, rmr, &r);
        if (!s)
            pvn_engine_isend(p.tx.e, out, sizeof(out), 0, smr, &s);
        if (s && pvn_engine_test(s, &done, nullptr) == 0 && done)
            s = nullptr;
        if (r && pvn_engine_test(r, &done, nullptr) == 0 && done)
            r = nullptr;
    }
    return pvn_engine_err(p.tx.e);
}

TEST(RdmaFaults, CompletionErrorSaysEverything)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    ASSERT_EQ(0,
              sv::command("rule broken status status=RETRY_EXC_ERR op=WRITE min_len=4096 nth=6"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    char text[PVN_ERR_TEXT_LEN];
    pvn_err_format(err, text, sizeof(text));
    for (const char *want :
         {"soft0:1", "status 12", "QPN 0x", "GID ", "vendor error", "path that has worked"})
        EXPECT_NE(nullptr, strstr(text, want)) << want << " is missing in: " << text;
    EXPECT_EQ(nullptr, strstr(text, "never carried data")) << text;
}

// Returns the number of a lane's first queue pair.
uint32_t qpn_of(pvn_lane *l)
{
    uint8_t offer[2048];
    rdma_offer o;
    pvn_err err = PVN_ERR_INIT;
    int n = l->ops->offer(l, offer, sizeof(offer));
    return n > 0 && pvn_rdma_offer_decode(offer, static_cast<size_t>(n), &o, &err) == 0 ? o.qpn[0]
                                                                                        : 0;
}

// A message's request fails. It is unsignaled, so its only completion is the error.
void a_message_fails(size_t bytes)
{
    for (bool costly : {true, false})
        for (int nth : {1, 2, 15, 16, 17}) {
            RdmaPair p;
            RdmaOptions o = shape(costly ? "pvrdma" : "roce", PVN_RDMA_RECORD, 1, 1 << 20, costly);
            o.idle_ns = 2000000;
            p.open(o);
            uint8_t out[1000] = {1, 2, 3}, in[32][1000] = {};
            pvn_mr *smr = p.tx.reg(out, sizeof(out)), *rmr = p.rx.reg(in, sizeof(in));
            pvn_req *s[32] = {}, *r[32] = {};
            for (int i = 0; i < 32; i++)
                ASSERT_EQ(0, irecv(p, in[i], sizeof(in[i]), 0, rmr, &r[i]));
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            ASSERT_EQ(0, sv::command("rule broken status status=REM_OP_ERR qpn=" +
                                     std::to_string(qpn_of(p.tx.lane)) +
                                     " op=WRITE nth=" + std::to_string(nth)));
            for (int i = 0; i < 20; i++) {
                ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out, bytes, 0, smr, &s[i])) << i;
                ASSERT_NE(nullptr, s[i]) << i;
            }
            int done = 0, rc = 0;
            for (Deadline wait; wait.left() && rc == 0;)
                rc = pvn_engine_test(s[19], &done, nullptr);
            EXPECT_NE(0, rc) << nth;
            EXPECT_EQ(0, done);
            ASSERT_NE(nullptr, pvn_engine_err(p.tx.e));
            EXPECT_NE(nullptr, strstr(pvn_engine_err(p.tx.e)->reason[0], "status 11"))
                << pvn_engine_err(p.tx.e)->reason[0];
            EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
        }
}

TEST(RdmaFaults, AShortMessageFails)
{
    a_message_fails(8);
}

TEST(RdmaFaults, ALongMessageFails)
{
    a_message_fails(1000);
}

// The send queue has no slot left for the signaled request that would report these messages' fate.
TEST(RdmaFaults, MessagesThatFillTheSendQueueFail)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.idle_ns = 2000000;
    o.max_wr = 64;
    o.retry = 2;
    p.open(o);
    const int half = 32, all = 63;
    std::vector<uint8_t> out = bytes::of(1000, 4), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s[all] = {}, *r[all] = {};
    int sent = 0, done = 0;
    auto post = [&](int end) {
        for (int i = end == half ? 0 : half; i < end; i++)
            ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[i]));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    };
    // The first message is long and takes two slots. The others take one each.
    auto send = [&](int end) {
        for (Deadline wait; sent < end && wait.left(); sent += s[sent] != nullptr)
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), sent ? 8 : 1000, 0, smr, &s[sent]));
        ASSERT_EQ(end, sent);
    };
    post(half);
    send(half);
    // The receiver acknowledges these. The sender knows of too few completions to poll for them.
    for (int i = 0; i < half; i++)
        for (done = 0; !done;)
            ASSERT_EQ(0, pvn_engine_test(r[i], &done, nullptr));
    for (done = 0; !done;)
        ASSERT_EQ(0, pvn_engine_test(s[0], &done, nullptr));
    post(all);
    ASSERT_EQ(0, sv::command("rule gone die mode=1"));
    send(all);
    EXPECT_EQ(0u, lane_stats(p.tx.lane).polls);
    int rc = 0;
    done = 0;
    for (double until = pvn_now_s() + 5; pvn_now_s() < until && rc == 0;)
        rc = pvn_engine_test(s[all - 1], &done, nullptr);
    EXPECT_NE(0, rc) << stuck(p);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
}

// If queue pairs fail, every outstanding request completes, unsignaled ones too. The completion
// queue must hold them all, because an overrun is an error of the device.
static void every_request_fails(const RdmaOptions &o)
{
    RdmaPair p;
    p.open(o);
    const int messages = 4;
    const size_t size = 1 << 20;
    std::vector<uint8_t> out(size, 1), in(size * messages);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s[messages] = {}, *r[messages] = {};
    for (int i = 0; i < messages; i++)
        ASSERT_EQ(0, irecv(p, in.data() + size * static_cast<size_t>(i), size, 0, rmr, &r[i]));
    ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    for (int i = 0; i < 10000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
    sv_stats before, after;
    sv::lib().sv_total_stats(&before);
    ASSERT_EQ(0, sv::command("rule gone die mode=2 count=0"));
    for (pvn_req *&one : s)
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), size, 0, smr, &one));
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
    sv::lib().sv_total_stats(&after);
    EXPECT_GT(after.send_wr - before.send_wr, 128u) << "the fault of this test: too few requests";
    EXPECT_GT(sv::lib().sv_rule_fired("gone"), 0);
    uint32_t first = qpn_of(p.tx.lane);
    for (uint32_t q = first; q < first + static_cast<uint32_t>(o.qps); q++)
        ASSERT_EQ(0, sv::command("qp " + std::to_string(q) + " error"));
    int flags = fcntl(p.tx.ctx->async_fd, F_GETFL);
    ASSERT_EQ(0, fcntl(p.tx.ctx->async_fd, F_SETFL, flags | O_NONBLOCK));
    ibv_async_event ev;
    while (p.tx.v->get_async_event(p.tx.ctx, &ev) == 0) {
        EXPECT_NE(IBV_EVENT_CQ_ERR, ev.event_type);
        p.tx.v->ack_async_event(&ev);
    }
    int rc = 0;
    for (Deadline wait; wait.left() && rc == 0;)
        rc = pvn_engine_progress(p.tx.e);
    EXPECT_NE(0, rc);
}

TEST(RdmaFaults, EveryOutstandingRequestHasACompletion)
{
    for (int qps : {1, 3})
        for (pvn_rdma_mode mode : {PVN_RDMA_RECORD, PVN_RDMA_IMM}) {
            SCOPED_TRACE(qps);
            RdmaOptions o = shape("roce", mode, qps, 2048, true);
            o.idle_ns = 2000000;
            every_request_fails(o);
        }
}

// The lane keeps fewer requests in flight on a device with small completion queues.
TEST(RdmaFaults, ASmallCompletionQueueHoldsEveryRequest)
{
    RdmaOptions o = shape("roce\nset max_cqe 500", PVN_RDMA_RECORD, 3, 2048, true);
    o.idle_ns = 2000000;
    every_request_fails(o);
}

// Every status ends only the lane, or the comm, or may mean either.
TEST(RdmaFaults, EveryStatusIsALossOrAWrongRequestOrEither)
{
    struct Status {
        const char *name;
        int status;
        enum { LOSS, WRONG, UNCLEAR } meaning;
    };
    const Status rows[] = {
        {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR, Status::WRONG},
        {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR, Status::LOSS},
        {"LOC_EEC_OP_ERR", IBV_WC_LOC_EEC_OP_ERR, Status::WRONG},
        {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR, Status::UNCLEAR},
        {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR, Status::LOSS},
        {"MW_BIND_ERR", IBV_WC_MW_BIND_ERR, Status::WRONG},
        {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR, Status::WRONG},
        {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR, Status::UNCLEAR},
        {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR, Status::WRONG},
        {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR, Status::UNCLEAR},
        {"REM_OP_ERR", IBV_WC_REM_OP_ERR, Status::UNCLEAR},
        {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR, Status::LOSS},
        {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR, Status::LOSS},
        {"LOC_RDD_VIOL_ERR", IBV_WC_LOC_RDD_VIOL_ERR, Status::WRONG},
        {"REM_INV_RD_REQ_ERR", IBV_WC_REM_INV_RD_REQ_ERR, Status::WRONG},
        {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR, Status::LOSS},
        {"INV_EECN_ERR", IBV_WC_INV_EECN_ERR, Status::WRONG},
        {"INV_EEC_STATE_ERR", IBV_WC_INV_EEC_STATE_ERR, Status::WRONG},
        {"FATAL_ERR", IBV_WC_FATAL_ERR, Status::LOSS},
        {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR, Status::LOSS},
        {"GENERAL_ERR", IBV_WC_GENERAL_ERR, Status::LOSS},
    };
    for (const Status &row : rows) {
        SCOPED_TRACE(row.name);
        RdmaPair p;
        p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
        ASSERT_EQ(0, sv::command((std::string("rule broken status op=WRITE min_len=4096 status=") +
                                  row.name)
                                     .c_str()));
        ASSERT_NE(nullptr, until_failed(p));
        EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
        std::string number = "status " + std::to_string(row.status) + " ";
        EXPECT_NE(nullptr, strstr(p.tx.lane->err.reason[0], number.c_str()))
            << p.tx.lane->err.reason[0];
        EXPECT_EQ(row.meaning == Status::WRONG, p.tx.lane->wrong);
        EXPECT_EQ(row.meaning == Status::UNCLEAR, p.tx.lane->unclear);
    }
}

// The step to RTR times out. The lane repeats it if it may block and the queue pair's state is
// unchanged. A timeout of the driver gives the same errno.
TEST(RdmaFaults, AStepThatHasTimedOutIsRepeatedWhereNothingHasMoved)
{
    for (bool may_block : {true, false})
        for (bool moved : {false, true}) {
            SCOPED_TRACE(testing::Message() << may_block << moved);
            ASSERT_EQ(0, sv::lib().sv_configure("profile roce"));
            RdmaOptions o = shape("roce", PVN_RDMA_IMM, 1, 1 << 20, false);
            o.may_block = may_block;
            RdmaEnd tx, rx;
            tx.open(o, true);
            rx.open(o, false);
            uint8_t offer[2048];
            int n = rx.lane->ops->offer(rx.lane, offer, sizeof(offer));
            ASSERT_GT(n, 0);
            const size_t len = static_cast<size_t>(n);
            if (moved) {
                ASSERT_EQ(0, sv::command("rule moves do call=modify_qp : qp " +
                                         std::to_string(qpn_of(tx.lane)) + " error"));
            }
            ASSERT_EQ(0, sv::command("rule late fail call=modify_qp errno=ETIMEDOUT"));
            int rc = tx.lane->ops->bind(tx.lane, offer, len);
            EXPECT_EQ(1u, sv::lib().sv_rule_fired("late"));
            if (!may_block || moved) {
                EXPECT_EQ(-ETIMEDOUT, rc);
                EXPECT_NE(nullptr, strstr(tx.lane->err.reason[0], "moving a queue pair to RTR"))
                    << tx.lane->err.reason[0];
                continue;
            }
            EXPECT_EQ(-EAGAIN, rc);
            for (Deadline wait; wait.left() && rc == -EAGAIN;)
                rc = tx.lane->ops->bind(tx.lane, offer, len);
            EXPECT_EQ(0, rc);
        }
}

TEST(RdmaFaults, AFailedPostEndsTheLaneWithItsReason)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule full fail call=post_send errno=ENOMEM nth=9"));
    const pvn_err *err = until_failed(p);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("full"));
    // Either end may make the ninth post. The end that failed has the reason.
    if (!err)
        err = pvn_engine_err(p.rx.e);
    ASSERT_NE(nullptr, err);
    EXPECT_NE(nullptr, strstr(err->reason[0], "posting to the send queue")) << err->reason[0];
}

TEST(RdmaFaults, PeerDiesSilently)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_RECORD, 1, 1 << 20, true);
    o.retry = 2;
    p.open(o);
    ASSERT_EQ(0, sv::command("rule gone die mode=1 nth=12"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 12")) << err->reason[0];
}

// A message of 400 chunks whose receiver makes no call while the sender does
class RdmaLateReceiver : public testing::Test
{
  protected:
    RdmaPair p;
    int sd = 0, rd = 0;

    // Posts and announces the receive. The sender tries to send for a while.
    void start(const char *profile, pvn_rdma_mode mode, bool costly)
    {
        p.open(shape(profile, mode, 1, 4096, costly));
        pvn_mr *smr = p.tx.reg(out.data(), size), *rmr = p.rx.reg(in.data(), size);
        ASSERT_EQ(0, irecv(p, in.data(), size, 0, rmr, &r));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        for (Deadline wait; wait.left() && !s;)
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), size, 0, smr, &s));
        ASSERT_NE(nullptr, s);
        for (double until = pvn_now_s() + 0.2; pvn_now_s() < until && !sd;)
            ASSERT_EQ(0, pvn_engine_test(s, &sd, nullptr));
    }
    // Calls the receiver until it has everything.
    void finish()
    {
        for (Deadline wait; wait.left() && (!sd || !rd);) {
            if (!sd) {
                ASSERT_EQ(0, pvn_engine_test(s, &sd, nullptr)) << p.tx.lane->err.reason[0];
            }
            if (!rd) {
                ASSERT_EQ(0, pvn_engine_test(r, &rd, nullptr)) << p.rx.lane->err.reason[0];
            }
        }
        ASSERT_TRUE(sd && rd) << stuck(p);
        EXPECT_EQ(out, in);
    }

  private:
    static constexpr size_t size = 4096 * 400;
    std::vector<uint8_t> out = bytes::of(size, 9), in = std::vector<uint8_t>(size);
    pvn_req *s = nullptr, *r = nullptr;
};

// There are more chunks than receive requests, and the receiving end makes no call. Its device
// answers "not ready", and the sender's device retries. That is no error.
TEST_F(RdmaLateReceiver, IsWaitedFor)
{
    ASSERT_NO_FATAL_FAILURE(start("roce", PVN_RDMA_IMM, false));
    EXPECT_EQ(0, sd) << "there were receive requests for all chunks";
    finish();
}

// In record mode no device knows how far the receiver has read its ring. So the sender must not
// take completions as a proof of that.
class RdmaLateReader : public RdmaLateReceiver, public testing::WithParamInterface<bool>
{
};

TEST_P(RdmaLateReader, RecordsAreNotOverwritten)
{
    ASSERT_NO_FATAL_FAILURE(start(GetParam() ? "pvrdma" : "roce", PVN_RDMA_RECORD, GetParam()));
    EXPECT_LE(lane_stats(p.tx.lane).chunks, uint64_t(RECORD_RING));
    finish();
}

INSTANTIATE_TEST_SUITE_P(CostlyPolls, RdmaLateReader, testing::Bool());

TEST(RdmaFaults, TwoSidedPeerDies)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma\nset timeout_cap_ms 20", PVN_RDMA_SEND, 1, 1 << 20, true);
    o.retry = 2;
    p.open(o);
    ASSERT_EQ(0, sv::command("rule gone die mode=1 nth=12"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("gone"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 12")) << err->reason[0];
}

TEST(RdmaFaults, TwoSidedRequestFails)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule broken status status=REM_OP_ERR op=SEND min_len=4096 nth=6"));
    const pvn_err *err = until_failed(p);
    ASSERT_NE(nullptr, err);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("broken"));
    EXPECT_NE(nullptr, strstr(err->reason[0], "status 11")) << err->reason[0];
}

// The receiver must report the message before the error, because the sender may know of its arrival
// and does not send it again over the next lane.
TEST(RdmaFaults, TwoSidedArrivalsBeforeAnErrorAreReported)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, true);
    o.acknowledged = true;
    p.open(o);
    std::vector<uint8_t> out = bytes::of(1000, 1), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), 1000), *rmr = p.rx.reg(in.data(), 1000);
    pvn_req *s = nullptr, *r = nullptr;
    ASSERT_EQ(0, irecv(p, in.data(), 1000, 0, rmr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), 1000, 0, smr, &s));
    ASSERT_NE(nullptr, s);
    ASSERT_EQ(0, sv::command("rule credits fail call=post_send errno=ENOMEM nth=1"));
    pvn_event ev[32];
    int n = 0;
    for (Deadline wait; wait.left() && n == 0;)
        n = p.rx.lane->data->poll(p.rx.lane, ev, 32);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("credits"));
    ASSERT_EQ(1, n);
    EXPECT_EQ(PVN_EV_ARRIVED, ev[0].kind);
    EXPECT_EQ(-ENOMEM, p.rx.lane->data->poll(p.rx.lane, ev, 32));
    EXPECT_NE(nullptr, strstr(p.rx.lane->err.reason[0], "posting to the send queue"));
}

// A send with failover is done when a receive has the message, not when the message is in the
// receiver's buffers, which are lost with the lane. It does not depend on later messages.
class RdmaTwoSidedAcknowledged : public testing::TestWithParam<bool>
{
};

TEST_P(RdmaTwoSidedAcknowledged, IsWhatAReceiveHas)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, GetParam());
    o.acknowledged = true;
    o.idle_ns = 1000;
    p.open(o);
    std::vector<uint8_t> out = bytes::of(1000, 1), in[2] = {std::vector<uint8_t>(1000), {}};
    in[1].resize(1000);
    pvn_mr *smr = p.tx.reg(out.data(), 1000);
    pvn_req *s[2] = {}, *r[2] = {};
    for (auto &req : s)
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), 1000, 0, smr, &req));
    for (int i = 0; i < 2; i++) {
        int done = 0;
        for (int polls = 0; polls < 2000; polls++) {
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            ASSERT_EQ(0, pvn_engine_test(s[i], &done, nullptr));
            ASSERT_FALSE(done) << "no receive is posted for message " << i;
        }
        ASSERT_EQ(0, irecv(p, in[i].data(), 1000, 0, p.rx.reg(in[i].data(), 1000), &r[i]));
        for (Deadline wait; wait.left() && !done;) {
            ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            ASSERT_EQ(0, pvn_engine_test(s[i], &done, nullptr));
        }
        EXPECT_TRUE(done) << "message " << i;
        ASSERT_EQ(0, pvn_engine_test(r[i], &done, nullptr));
        EXPECT_TRUE(done);
        EXPECT_EQ(out, in[i]);
    }
}

// The caller makes no call for a receive that is complete. So the acknowledgement must have been
// posted by then, however slow the adapter is with earlier acknowledgements.
TEST_P(RdmaTwoSidedAcknowledged, NeedsNoCallAfterTheLastReceive)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, GetParam());
    o.acknowledged = true;
    p.open(o);
    const int count = 20; // more than the credits in flight, fewer than the sender has
    std::vector<uint8_t> out = bytes::of(1000, 1), in(1000 * count);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s[count] = {}, *r[count] = {};
    ASSERT_EQ(0, sv::command("rule credits delay ms=200 qp=1"));
    int received = 0, sent = 0, done = 0;
    for (int i = 0; i < count; i++)
        ASSERT_EQ(0, irecv(p, &in[static_cast<size_t>(i) * 1000], 1000, 0, rmr, &r[i]));
    for (auto &req : s) {
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), 1000, 0, smr, &req));
        ASSERT_NE(nullptr, req);
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
        ASSERT_EQ(0, pvn_engine_test(r[received], &done, nullptr));
        received += done;
    }
    EXPECT_EQ(1, sv::lib().sv_rule_fired("credits"));
    EXPECT_LT(received, count);
    for (Deadline wait; wait.left() && received < count;) {
        ASSERT_EQ(0, pvn_engine_test(r[received], &done, nullptr));
        received += done;
    }
    ASSERT_EQ(count, received);
    for (Deadline wait; wait.left() && sent < count;) {
        ASSERT_EQ(0, pvn_engine_test(s[sent], &done, nullptr));
        sent += done;
    }
    EXPECT_EQ(count, sent) << stuck(p);
}

// Moves a message whose receiver closes as soon as it has it. *in_time is false if the close waited
// for its full 0.1 s because the adapter, which is a thread here, did not run.
void move_and_close_the_receiver(bool polls, bool *in_time)
{
    RdmaPair p;
    RdmaOptions o = shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, polls);
    o.acknowledged = true;
    p.open(o);
    std::vector<uint8_t> out = bytes::of(1000, 1), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), 1000), *rmr = p.rx.reg(in.data(), 1000);
    pvn_req *s = nullptr, *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, sv::command("rule credits delay ms=20 qp=1"));
    ASSERT_EQ(0, irecv(p, in.data(), 1000, 0, rmr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), 1000, 0, smr, &s));
    ASSERT_NE(nullptr, s);
    for (Deadline wait; wait.left() && !done;) {
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    }
    ASSERT_TRUE(done);
    pvn_engine_free(p.rx.e);
    p.rx.e = nullptr;
    double closes = pvn_now_s();
    p.rx.lane->ops->close(p.rx.lane);
    p.rx.lane = nullptr;
    *in_time = pvn_now_s() - closes < 0.1;
    EXPECT_EQ(1, sv::lib().sv_rule_fired("credits"));
    done = 0;
    for (double until = pvn_now_s() + (*in_time ? 20 : 1); pvn_now_s() < until && !done;)
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr)) << p.tx.lane->err.reason[0];
    EXPECT_TRUE(done || !*in_time);
    *in_time = *in_time || done;
}

// A receiver that closes has acknowledged its last message.
TEST_P(RdmaTwoSidedAcknowledged, AReceiverThatClosesHasAcknowledged)
{
    bool in_time = false;
    for (int trial = 0; trial < 20 && !in_time; trial++)
        ASSERT_NO_FATAL_FAILURE(move_and_close_the_receiver(GetParam(), &in_time));
    EXPECT_TRUE(in_time) << "no close of 20 went before the 0.1 s were over";
}
INSTANTIATE_TEST_SUITE_P(Polls, RdmaTwoSidedAcknowledged, testing::Bool());

// The adapter's acknowledgement of the last message is lost. The receiver has the message and
// closes. Its final acknowledgement reports the arrival, even if completions are cheap to poll.
class RdmaFinalAck : public testing::TestWithParam<pvn_rdma_mode>
{
};

TEST_P(RdmaFinalAck, ComesFromAReceiverThatCloses)
{
    bool imm = GetParam() == PVN_RDMA_IMM;
    RdmaPair p;
    p.open(shape("roce\nset timeout_cap_ms 20", GetParam(), 1, 1 << 20, false));
    char rule[160];
    snprintf(rule, sizeof(rule), "rule lost drop_ack qpn=%u op=%s nth=%d every=1 count=0",
             qpn_of(p.tx.lane), imm ? "WRITE_IMM" : "WRITE", imm ? 1 : 2);
    ASSERT_EQ(0, sv::command(rule));
    const size_t size = 100000;
    std::vector<uint8_t> out = bytes::of(size, 1), in(size);
    pvn_mr *smr = p.tx.reg(out.data(), size), *rmr = p.rx.reg(in.data(), size);
    pvn_req *s = nullptr, *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(p, in.data(), size, 0, rmr, &r));
    ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    for (Deadline wait; wait.left() && !s;)
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), size, 0, smr, &s));
    ASSERT_NE(nullptr, s);
    for (Deadline wait; wait.left() && !done;)
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    ASSERT_TRUE(done);
    EXPECT_EQ(out, in);
    pvn_engine_free(p.rx.e);
    p.rx.e = nullptr;
    p.rx.lane->ops->close(p.rx.lane);
    p.rx.lane = nullptr;
    done = 0;
    for (Deadline wait; wait.left() && !done;)
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr)) << pvn_engine_err(p.tx.e)->reason[0];
    EXPECT_TRUE(done);
    EXPECT_LT(0, sv::lib().sv_rule_fired("lost"));
}
INSTANTIATE_TEST_SUITE_P(Modes, RdmaFinalAck, testing::Values(PVN_RDMA_RECORD, PVN_RDMA_IMM));

// Every message that was reported as sent arrives, although its copy was still in flight when the
// sender closed.
TEST(RdmaTwoSided, ClosingLosesNothing)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset async 1", PVN_RDMA_SEND, 2, 1 << 20, true));
    ASSERT_EQ(0, sv::command("rule slow delay ms=5 count=0"));
    const size_t size = 100000;
    std::vector<uint8_t> out = bytes::of(size, 1), in(size);
    pvn_mr *smr = p.tx.reg(out.data(), size), *rmr = p.rx.reg(in.data(), size);
    pvn_req *s = nullptr, *r = nullptr;
    int done = 0;
    ASSERT_EQ(0, irecv(p, in.data(), size, 0, rmr, &r));
    ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), size, 0, smr, &s));
    ASSERT_NE(nullptr, s);
    for (Deadline wait; wait.left() && !done;)
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
    ASSERT_TRUE(done);
    pvn_engine_free(p.tx.e);
    p.tx.e = nullptr;
    p.tx.lane->ops->close(p.tx.lane);
    p.tx.lane = nullptr;
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 0);
    done = 0;
    for (Deadline wait; wait.left() && !done;)
        ASSERT_EQ(0, pvn_engine_test(r, &done, nullptr));
    ASSERT_TRUE(done);
    EXPECT_EQ(out, in);
}

TEST(RdmaFaults, RegistrationOfItsRingsFails)
{
    ASSERT_EQ(0, sv::lib().sv_configure(
                     "profile pvrdma\nrule nomem fail call=reg_mr errno=ENOMEM nth=1\n"));
    RdmaEnd e;
    RdmaOptions o;
    pvn_err err = PVN_ERR_INIT;
    e.v = pvn_verbs_get(sv::library().c_str(), &err);
    int n = 0;
    ibv_device **list = e.v->get_device_list(&n);
    e.ctx = e.v->open_device(list[0]);
    e.v->free_device_list(list);
    e.pd = e.v->alloc_pd(e.ctx);
    pvn_rdma_lane_cfg c = {};
    e.config(o, true, &c);
    EXPECT_EQ(nullptr, pvn_rdma_lane_new(&c, &err));
    EXPECT_EQ(-ENOMEM, err.code);
    EXPECT_EQ(1, sv::lib().sv_rule_fired("nomem"));
}

// A message without a receive is kept, up to a limit that ends the comm. In a failover it is not
// acknowledged, so it is sent again, however large it is.
TEST(RdmaTwoSided, MessagesWithoutAReceiveDoNotEndAFailover)
{
    constexpr size_t SIZE = (1 << 20) + 1; // the limit is 1 MiB in these tests
    for (bool lost : {false, true}) {
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", PVN_RDMA_SEND, 1, 1 << 20, true);
        o.acknowledged = true;
        p.open(o);
        std::vector<uint8_t> out = bytes::of(SIZE, 1), in(1000);
        pvn_mr *smr = p.tx.reg(out.data(), SIZE), *rmr = p.rx.reg(in.data(), in.size());
        pvn_req *s = nullptr, *r = nullptr;
        ASSERT_EQ(0, irecv(p, in.data(), in.size(), 9, rmr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), SIZE, 5, smr, &s));
        ASSERT_NE(nullptr, s);
        ASSERT_EQ(0, pvn_engine_progress(p.tx.e));
        if (!lost) {
            int rc = 0;
            for (Deadline wait; wait.left() && rc == 0;)
                rc = pvn_engine_progress(p.rx.e);
            EXPECT_EQ(-ENOBUFS, rc) << "it has not arrived";
            continue;
        }
        pvn_err why = {};
        pvn_err_set(&why, -ENETDOWN, "by request of the test");
        pvn_engine_pause(p.rx.e, &why);
        int rc = -EAGAIN;
        for (Deadline wait; wait.left() && rc == -EAGAIN;)
            rc = p.rx.lane->ops->fence(p.rx.lane);
        ASSERT_EQ(0, rc);
        EXPECT_EQ(0, pvn_engine_drain(p.rx.e)) << pvn_engine_err(p.rx.e)->reason[0];
    }
}

TEST(RdmaFence, NothingLandsAfterIt)
{
    RdmaPair p;
    p.open(shape("pvrdma\nset async 1", PVN_RDMA_RECORD, 1, 1 << 20, true));
    std::vector<uint8_t> out(1 << 20, 1), in(1 << 20, 0);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *r = nullptr, *s = nullptr;
    ASSERT_EQ(0, sv::command("rule slow delay ms=50 min_len=100000 count=0"));
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r));
    for (Deadline wait; wait.left() && !s;) {
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 0, smr, &s));
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    }
    ASSERT_NE(nullptr, s);
    int rc = -EAGAIN;
    for (Deadline wait; wait.left() && rc == -EAGAIN;)
        rc = p.rx.lane->ops->fence(p.rx.lane);
    ASSERT_EQ(0, rc);
    std::vector<uint8_t> snapshot = in;
    usleep(200000);
    EXPECT_GT(sv::lib().sv_rule_fired("slow"), 0);
    EXPECT_EQ(snapshot, in);
}

// No range check can find these malformed offers. The first round trip does, before any data.
TEST(RdmaOffer, AWrongKeyOrAddressIsFoundAtVerify)
{
    for (size_t at : {12, 21}) { // a byte of the key, and one of the address
        RdmaPair p;
        RdmaOptions o = shape("pvrdma", PVN_RDMA_RECORD, 1, 1 << 20, true);
        ASSERT_EQ(0, sv::lib().sv_configure("profile pvrdma"));
        p.tx.open(o, true);
        p.rx.open(o, false);
        uint8_t a[2048], b[2048];
        auto na = static_cast<size_t>(p.tx.lane->ops->offer(p.tx.lane, a, sizeof(a)));
        auto nb = static_cast<size_t>(p.rx.lane->ops->offer(p.rx.lane, b, sizeof(b)));
        b[at] ^= 0x55;
        ASSERT_EQ(0, p.rx.lane->ops->bind(p.rx.lane, a, na));
        ASSERT_EQ(0, p.tx.lane->ops->bind(p.tx.lane, b, nb));
        int rc = -EAGAIN;
        for (Deadline wait; wait.left() && rc == -EAGAIN;)
            rc = p.tx.lane->ops->verify(p.tx.lane);
        EXPECT_EQ(-EIO, rc);
        EXPECT_NE(nullptr, strstr(p.tx.lane->err.reason[0], "status 10"))
            << p.tx.lane->err.reason[0];
        EXPECT_NE(nullptr, strstr(p.tx.lane->err.reason[0], "never carried data"));
        EXPECT_EQ(-EAGAIN, p.rx.lane->ops->verify(p.rx.lane));
    }
}

// One completion queue has arrivals and the receiver's own writes. A receiver that polls to free a
// slot for its entries leaves the arrivals to the poll that reports them.
TEST(RdmaImm, AFullSendQueueTakesNoArrival)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_IMM, 1, 1 << 20, true));
    std::vector<uint8_t> out = bytes::of(1000, 1), in(1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s = nullptr, *r[10] = {};
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[0]));
    ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
    for (Deadline wait; wait.left() && !s;)
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 0, smr, &s));
    ASSERT_NE(nullptr, s);
    const uint32_t places = wrap_slots(p.rx.e, 100);
    // One more chain follows, its completion behind the arrival, and then entries for another one.
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[1]));
    ASSERT_EQ(0, p.rx.lane->data->kick(p.rx.lane));
    wrap_slots(p.rx.e, 0);
    for (int i = 2; i < 10; i++)
        ASSERT_EQ(0, irecv(p, in.data(), in.size(), 0, rmr, &r[i]));
    EXPECT_EQ(-EAGAIN, p.rx.lane->data->kick(p.rx.lane)) << p.rx.lane->err.reason[0];
    wrap_slots(p.rx.e, places);
    int done = 0;
    for (Deadline wait; wait.left() && !done;)
        ASSERT_EQ(0, pvn_engine_test(r[0], &done, nullptr)) << p.rx.lane->err.reason[0];
    EXPECT_EQ(out, in);
}

TEST(RdmaOffer, TheSmallerMtuIsUsedByBoth)
{
    RdmaPair p;
    RdmaOptions o = shape("roce", PVN_RDMA_RECORD, 1, 1 << 20, false);
    o.rx_mtu = IBV_MTU_512;
    p.open(o);
    for (RdmaEnd *e : {&p.tx, &p.rx}) {
        char text[400];
        e->lane->ops->describe(e->lane, text, sizeof(text));
        EXPECT_NE(nullptr, strstr(text, "MTU 512")) << text;
    }
    pipeline(p, 100, 8, 5000);
}

TEST(RdmaOffer, MalformedOnesAreRefused)
{
    RdmaPair p;
    p.open(shape("pvrdma", PVN_RDMA_RECORD, 2, 1 << 20, true));
    uint8_t good[2048];
    rdma_offer o;
    pvn_err err = PVN_ERR_INIT;
    int n = p.tx.lane->ops->offer(p.tx.lane, good, sizeof(good));
    ASSERT_GT(n, 24);
    ASSERT_EQ(0, pvn_rdma_offer_decode(good, static_cast<size_t>(n), &o, &err));
    for (int len = 0; len < n; len++)
        EXPECT_EQ(-EPROTO, pvn_rdma_offer_decode(good, static_cast<size_t>(len), &o, &err)) << len;
    // version, mode, queue pairs, flags, MTU, window, GIDs, modes, pieces
    for (int at : {0, 1, 2, 3, 4, 6, 7, 8, 9}) {
        uint8_t bad[2048];
        memcpy(bad, good, sizeof(bad));
        bad[at] = 0xee;
        EXPECT_EQ(-EPROTO, pvn_rdma_offer_decode(bad, static_cast<size_t>(n), &o, &err)) << at;
        EXPECT_NE('\0', err.reason[0][0]);
    }
}

} // namespace
