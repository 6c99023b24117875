// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Relaxed ordering: the memory for which a lane requests it, the errors if more memory had it, and
// devices and libraries that do not support it. The adapter reorders as much as it may
// (sv_relaxed.c).
#include "rdma/lane_traffic.h"

extern "C" {
#include "base/log.h"
#include "net-pvrdma/ordering.h"
#include "nccl/types.h"
}

namespace
{

// Moves one message. True if the bytes are right when both ends report it done.
bool moved(RdmaPair &p, size_t n, int also)
{
    std::vector<uint8_t> out = bytes::of(n, static_cast<unsigned>(n)), in(n);
    pvn_mr *smr = p.tx.reg(out.data(), n), *rmr = p.rx.reg(in.data(), n, also);
    pvn_req *s = nullptr, *r = nullptr;
    int sd = 0, rd = 0;
    size_t got = 0;
    EXPECT_EQ(0, irecv(p, in.data(), n, 1, rmr, &r));
    for (Deadline wait; wait.left() && !(sd && rd);) {
        if (!s) {
            EXPECT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), n, 1, smr, &s));
        } else if (!sd) {
            EXPECT_EQ(0, pvn_engine_test(s, &sd, nullptr)) << p.tx.lane->err.reason[0];
        }
        if (!rd) {
            EXPECT_EQ(0, pvn_engine_test(r, &rd, &got)) << p.rx.lane->err.reason[0];
        }
    }
    EXPECT_TRUE(sd && rd) << stuck(p);
    bool there = in == out;
    p.tx.unreg_last();
    p.rx.unreg_last();
    return there;
}

struct Case {
    pvn_rdma_mode mode;
    bool counted; // imm mode with counts in the receiver's memory
};

class RdmaOrdering : public testing::TestWithParam<Case>
{
  protected:
    static RdmaOptions options(const char *profile, int qps = 1)
    {
        RdmaOptions o = shape(profile, GetParam().mode, qps, 65536,
                              GetParam().mode == PVN_RDMA_RECORD || GetParam().counted);
        o.short_max = 0; // the processor copies the bytes out of a ring
        return o;
    }
    static bool record()
    {
        return GetParam().mode == PVN_RDMA_RECORD;
    }
};

// A record may be seen before data that were written earlier, if their memory has relaxed ordering.
// A completion may not. So data that records announce must not be in such memory.
TEST_P(RdmaOrdering, ARecordOvertakesRelaxedDataACompletionDoesNot)
{
    for (int qps : {1, 3})
        for (size_t n : {size_t(8), size_t(5000), size_t(300000)}) {
            SCOPED_TRACE(std::to_string(n) + " bytes, queue pairs: " + std::to_string(qps));
            RdmaPair p;
            ASSERT_NO_FATAL_FAILURE(p.open(options("roce\nset relaxed_ordering 2", qps)));
            uint64_t before = sv::relaxed_held();
            EXPECT_TRUE(moved(p, n, 0));
            EXPECT_EQ(before, sv::relaxed_held()) << "strict memory";
            EXPECT_EQ(!record(), moved(p, n, IBV_ACCESS_RELAXED_ORDERING));
            EXPECT_GE(sv::relaxed_held(), before + (n + 65535) / 65536);
        }
}

TEST(RdmaOrderingOf, ManyMessagesInImmMode)
{
    for (bool counted : {false, true}) {
        RdmaPair p;
        ASSERT_NO_FATAL_FAILURE(p.open(
            shape("roce\nset relaxed_ordering 2\nset async 1", PVN_RDMA_IMM, 2, 65536, counted)));
        for (int i = 1; i < 40; i++)
            ASSERT_TRUE(moved(p, static_cast<size_t>(i) * 7001, IBV_ACCESS_RELAXED_ORDERING)) << i;
        EXPECT_GT(sv::relaxed_held(), 40u);
    }
}

// The sender polls for entries. In memory with relaxed ordering they need not become visible.
TEST_P(RdmaOrdering, RelaxedRingsShowNothing)
{
    RdmaOptions o = options("roce\nset relaxed_ordering 1");
    o.relaxed_rings = true;
    RdmaPair p;
    ASSERT_NO_FATAL_FAILURE(p.open(o));
    ASSERT_EQ(0, sv::command("set relaxed_ordering 2"));
    std::vector<uint8_t> out(5000), in(5000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    pvn_req *s = nullptr, *r = nullptr;
    ASSERT_EQ(0, irecv(p, in.data(), in.size(), 1, rmr, &r));
    for (int i = 0; i < 1000 && !s; i++) {
        ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
        ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 1, smr, &s));
    }
    EXPECT_EQ(nullptr, s);
    EXPECT_GT(sv::relaxed_held(), 0u);
    ASSERT_EQ(0, sv::command("release"));
    ASSERT_EQ(0, pvn_engine_isend(p.tx.e, out.data(), out.size(), 1, smr, &s));
    EXPECT_NE(nullptr, s) << "it was the ring alone";
}

bool wanted;
int registrations;
int note_reg(void *, const pvn_mr *, bool relaxed, int, uint64_t, pvn_rdma_mem **, pvn_err *)
{
    wanted = relaxed;
    registrations++;
    return -ENOMEM; // the lane needs no memory in this test
}

TEST_P(RdmaOrdering, ALaneRequestsItInImmModeAlone)
{
    RdmaOptions o = options("roce");
    o.registrar = {note_reg, nullptr, nullptr, nullptr};
    RdmaPair p;
    ASSERT_NO_FATAL_FAILURE(p.open(o));
    char buf[64];
    pvn_mr mr = {};
    mr.addr = buf;
    mr.len = sizeof(buf);
    mr.ptr_type = NCCL_PTR_HOST;
    for (const RdmaEnd *e : {&p.tx, &p.rx}) {
        registrations = 0;
        wanted = record();
        EXPECT_EQ(-ENOMEM, e->lane->ops->mem_reg(e->lane, &mr, -1, 0, nullptr));
        EXPECT_EQ(1, registrations);
        EXPECT_EQ(!record(), wanted);
    }
    pvn_rdma_lane_cfg c = {};
    p.rx.config(o, false, &c);
    pvn_err err = PVN_ERR_INIT;
    pvn_lane *unbound = pvn_rdma_lane_new(&c, &err);
    ASSERT_NE(nullptr, unbound) << err.reason[0];
    wanted = true;
    EXPECT_EQ(-ENOMEM, unbound->ops->mem_reg(unbound, &mr, -1, 0, nullptr));
    EXPECT_FALSE(wanted) << "without a mode";
    unbound->ops->close(unbound);
}

INSTANTIATE_TEST_SUITE_P(Modes, RdmaOrdering,
                         testing::Values(Case{PVN_RDMA_RECORD, false}, Case{PVN_RDMA_IMM, false},
                                         Case{PVN_RDMA_IMM, true}),
                         [](const testing::TestParamInfo<Case> &i) {
                             return std::string(i.param.mode == PVN_RDMA_RECORD ? "record"
                                                : i.param.counted               ? "counted"
                                                                                : "imm");
                         });

// ---- devices and libraries ----

int relaxed_calls;
ibv_mr *count_iova2(ibv_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access)
{
    relaxed_calls++;
    return verbs_below->reg_mr_iova2(pd, addr, len, iova, access);
}

class Ordering : public testing::Test
{
  protected:
    std::unique_ptr<RdmaPair> pair;
    pvn_verbs table = {};
    pvn_rdma_ordering o = {};
    char page[4096];
    std::vector<std::string> warnings;

    void SetUp() override
    {
        pvn_log_set_capture(
            [](void *arg, pvn_log_level level, unsigned long, const char *, int, const char *text) {
                if (level == PVN_LOG_WARN)
                    static_cast<Ordering *>(arg)->warnings.push_back(text);
            },
            this);
    }
    void TearDown() override
    {
        pvn_log_set_capture(nullptr, nullptr);
    }

    void open(const char *profile)
    {
        pair = nullptr; // softverbs refuses another profile while a device is open
        pair = std::make_unique<RdmaPair>();
        ASSERT_NO_FATAL_FAILURE(pair->open(shape(profile, PVN_RDMA_IMM, 1, 65536, false)));
        verbs_below = pair->rx.v;
        table = *pair->rx.v;
        table.reg_mr_iova2 = count_iova2;
        relaxed_calls = 0;
    }
    std::string start(pvn_ordering_mode mode, const char *not_here = nullptr)
    {
        pvn_rdma_ordering_cfg cfg = {mode, "VARIABLE", not_here};
        pvn_rdma_ordering_init(&o, &table, "soft0", &cfg, pair->rx.pd);
        return text();
    }
    std::string text() const
    {
        char buf[200];
        return pvn_rdma_ordering_text(&o, buf, sizeof(buf));
    }
    // Registers memory as a lane in imm mode does.
    void reg()
    {
        int access = pvn_rdma_ordering_access(&o, true);
        ibv_mr *mr = pvn_rdma_reg_mr(&o, &table, pair->rx.pd, page, sizeof(page), access);
        ASSERT_NE(nullptr, mr) << strerror(errno);
        table.dereg_mr(mr);
    }
};

TEST_F(Ordering, WhereItIsThereItIsOn)
{
    ASSERT_NO_FATAL_FAILURE(open("roce"));
    for (pvn_ordering_mode mode : {PVN_ORDERING_AUTO, PVN_ORDERING_RELAXED}) {
        EXPECT_EQ("on in imm mode", start(mode));
        EXPECT_EQ(PVN_RDMA_ACCESS | IBV_ACCESS_RELAXED_ORDERING,
                  pvn_rdma_ordering_access(&o, true));
        EXPECT_EQ(PVN_RDMA_ACCESS, pvn_rdma_ordering_access(&o, false));
        relaxed_calls = 0;
        reg();
        EXPECT_EQ(1, relaxed_calls);
    }
    EXPECT_EQ(PVN_RDMA_ACCESS, pvn_rdma_ordering_access(nullptr, true));
}

TEST_F(Ordering, WhereItIsNotRegistrationsAreStrict)
{
    ASSERT_NO_FATAL_FAILURE(open("roce"));
    EXPECT_EQ("off (VARIABLE=0)", start(PVN_ORDERING_STRICT));
    reg();
    EXPECT_EQ("off (because)", start(PVN_ORDERING_AUTO, "because"));
    reg();
    EXPECT_EQ(0, relaxed_calls);
    table.reg_mr_iova2 = nullptr;
    EXPECT_EQ("off (this libibverbs has no ibv_reg_mr_iova2)", start(PVN_ORDERING_AUTO));
    reg();
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EXPECT_EQ("off (this libibverbs has no ibv_reg_mr_iova2)", start(PVN_ORDERING_RELAXED));
    reg();
    ASSERT_EQ(1u, warnings.size());
    EXPECT_EQ("soft0: VARIABLE=1, but there is no relaxed ordering: this libibverbs has no "
              "ibv_reg_mr_iova2; install rdma-core 28 or newer",
              warnings[0]);
}

TEST_F(Ordering, OfADeviceThatRefusesItIsRequestedOnce)
{
    ASSERT_NO_FATAL_FAILURE(open("roce\nset relaxed_ordering 3"));
    EXPECT_EQ("off (the device refuses it)", start(PVN_ORDERING_AUTO));
    EXPECT_EQ(1, relaxed_calls);
    reg();
    reg();
    EXPECT_EQ(1, relaxed_calls);
}

// Failures with another reason do not mean that the attribute is refused.
TEST_F(Ordering, OtherFailuresAreNotTakenForARefusal)
{
    for (const char *error : {"ENOMEM", "EINVAL"}) {
        SCOPED_TRACE(error);
        ASSERT_NO_FATAL_FAILURE(open("roce"));
        EXPECT_EQ("on in imm mode", start(PVN_ORDERING_AUTO));
        std::string rule = std::string("rule full fail call=reg_mr count=0 errno=") + error;
        ASSERT_EQ(0, sv::command(rule));
        int access = pvn_rdma_ordering_access(&o, true);
        EXPECT_EQ(nullptr, pvn_rdma_reg_mr(&o, &table, pair->rx.pd, page, sizeof(page), access));
        EXPECT_EQ(strcmp(error, "EINVAL") == 0 ? EINVAL : ENOMEM, errno);
        EXPECT_GT(sv::lib().sv_rule_fired("full"), 0);
        ASSERT_EQ(0, sv::command("rules clear"));
        EXPECT_EQ("on in imm mode", text());
        reg();
        EXPECT_EQ(3, relaxed_calls) << "at the start, under the rule, and now";
    }
}

} // namespace
