// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Reliable connections within one process: which data arrive, in which order, and how requests are
// refused
#include "softverbs/fixture.h"

#include <arpa/inet.h>

#include <sched.h>

#include <thread>

namespace
{

using namespace sv;

constexpr int kNone = 31; // no completion

class Rc : public PairTest
{
};

// The tests of RC, once with requests executed by the service thread, and once with the reverse
// order of placement
class RcModes : public PairTest, public testing::WithParamInterface<const char *>
{
};

TEST_P(RcModes, WriteLandsAndCompletes)
{
    start(GetParam());
    for (size_t len :
         {size_t(1), size_t(7), size_t(64), size_t(4097), size_t(300000), End::kSize}) {
        a->fill(unsigned(len), len);
        memset(b->buf, 0, End::kSize);
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, len, 5, b->addr(), b->mr->rkey), 0);
        ibv_wc wc = a->wait();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
        EXPECT_EQ(wc.wr_id, 5u);
        EXPECT_EQ(wc.qp_num, a->qp->qp_num);
        EXPECT_EQ(memcmp(a->buf, b->buf, len), 0) << len;
        for (size_t i = len; i < len + 64 && i < End::kSize; i++)
            ASSERT_EQ(b->buf[i], 0) << "byte " << i << " behind a write of " << len;
    }
    EXPECT_EQ(b->poll_all(), 0) << "a WRITE completes nothing at the receiver";
}

TEST_P(RcModes, SendFillsReceivesInOrder)
{
    start(GetParam());
    for (uint64_t i = 0; i < 32; i++)
        ASSERT_EQ(b->recv(i * 4096, 4096, 100 + i), 0);
    for (uint64_t i = 0; i < 32; i++) {
        a->buf[i] = char(i + 1);
        ASSERT_EQ(a->post(IBV_WR_SEND, i, 1, i), 0);
    }
    for (uint64_t i = 0; i < 32; i++) {
        ibv_wc s = a->wait(), r = b->wait();
        EXPECT_EQ(s.status, IBV_WC_SUCCESS);
        EXPECT_EQ(s.wr_id, i);
        EXPECT_EQ(r.status, IBV_WC_SUCCESS);
        EXPECT_EQ(r.opcode, IBV_WC_RECV);
        EXPECT_EQ(r.wr_id, 100 + i);
        EXPECT_EQ(r.byte_len, 1u);
        EXPECT_EQ(r.src_qp, a->qp->qp_num);
        EXPECT_EQ(b->buf[i * 4096], char(i + 1));
    }
}

TEST_P(RcModes, SendOfSeveralPiecesScatters)
{
    start(GetParam());
    const size_t len = 700001;
    a->fill(3, len);
    ibv_sge s[3] = {b->sge(0, 1), b->sge(1, 400000), b->sge(400001, 300000)};
    ibv_recv_wr w{}, *bad;
    w.sg_list = s;
    w.num_sge = 3;
    ASSERT_EQ(ibv_post_recv(b->qp, &w, &bad), 0);
    ibv_sge g[2] = {a->sge(0, 300000), a->sge(300000, 400001)};
    ibv_send_wr x{}, *xbad;
    x.sg_list = g;
    x.num_sge = 2;
    x.opcode = IBV_WR_SEND_WITH_IMM;
    x.imm_data = htonl(0xabcd);
    x.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(ibv_post_send(a->qp, &x, &xbad), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ibv_wc r = b->wait();
    ASSERT_EQ(r.status, IBV_WC_SUCCESS);
    EXPECT_EQ(r.byte_len, len);
    EXPECT_EQ(r.wc_flags & IBV_WC_WITH_IMM, unsigned(IBV_WC_WITH_IMM));
    EXPECT_EQ(r.imm_data, htonl(0xabcd));
    EXPECT_EQ(memcmp(a->buf, b->buf, len), 0);
}

TEST_P(RcModes, WriteWithImmConsumesAReceive)
{
    start(GetParam());
    a->fill(9, 5000);
    ASSERT_EQ(b->recv(0, 0, 41), 0);
    ASSERT_EQ(b->recv(0, 0, 42), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 5000, 1, b->addr(64), b->mr->rkey,
                      IBV_SEND_SIGNALED, htonl(7)),
              0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 2, 0, 0, IBV_SEND_SIGNALED, htonl(8)), 0);
    for (unsigned i = 0; i < 2; i++) {
        EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
        ibv_wc r = b->wait();
        EXPECT_EQ(r.status, IBV_WC_SUCCESS);
        EXPECT_EQ(r.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(r.wr_id, 41 + i);
        EXPECT_EQ(r.imm_data, htonl(7 + i));
        EXPECT_EQ(r.byte_len, i ? 0u : 5000u);
    }
    EXPECT_EQ(memcmp(a->buf, b->buf + 64, 5000), 0);
}

TEST_P(RcModes, ReadBringsDataBack)
{
    start(GetParam());
    b->fill(4, End::kSize);
    for (size_t len : {size_t(0), size_t(8), size_t(600000)}) {
        memset(a->buf, 0, End::kSize);
        ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 0, len, 3, b->addr(16), b->mr->rkey), 0);
        ibv_wc wc = a->wait();
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
        EXPECT_EQ(wc.byte_len, len);
        EXPECT_EQ(memcmp(a->buf, b->buf + 16, len), 0);
    }
}

TEST_P(RcModes, ManyReadsAreLimitedToTheAgreedNumberAndAllComplete)
{
    Params p;
    p.rd_atomic = 1;
    start(GetParam(), p);
    for (unsigned i = 0; i < 20; i++) {
        b->buf[i] = char(i + 1);
        ASSERT_EQ(a->post(IBV_WR_RDMA_READ, i, 1, i, b->addr(i), b->mr->rkey), 0);
    }
    for (unsigned i = 0; i < 20; i++) {
        ibv_wc wc = a->wait();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, i);
    }
    EXPECT_EQ(memcmp(a->buf, b->buf, 20), 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, RcModes,
                         testing::Values("profile pvrdma", "profile pvrdma\nset async 1",
                                         "profile roce\nset descend 1", "profile rxe"));

TEST_F(Rc, AtomicsReturnTheOldValue)
{
    start();
    auto *word = reinterpret_cast<uint64_t *>(b->buf);
    auto *old = reinterpret_cast<uint64_t *>(a->buf);
    *word = 40;
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr w{}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    w.send_flags = IBV_SEND_SIGNALED;
    w.wr.atomic.remote_addr = b->addr();
    w.wr.atomic.rkey = b->mr->rkey;
    w.wr.atomic.compare_add = 2;
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(*old, 40u);
    EXPECT_EQ(*word, 42u);
    w.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    w.wr.atomic.compare_add = 41;
    w.wr.atomic.swap = 1;
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(*old, 42u);
    EXPECT_EQ(*word, 42u) << "the compare failed, nothing is swapped";
    w.wr.atomic.remote_addr = b->addr(4);
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_REM_INV_REQ_ERR) << "misaligned";
}

// A CPU that polls memory must never see the record before the data in front of it.
TEST_F(Rc, RecordIsNeverSeenBeforeItsData)
{
    start("profile pvrdma\nset async 1\nset descend 1");
    const uint64_t rounds = 2000;
    const size_t words = 2000, at = 512 * 1024;
    std::thread reader([&] {
        auto *record = reinterpret_cast<uint64_t *>(b->buf + at);
        auto *data = reinterpret_cast<uint64_t *>(b->buf);
        for (uint64_t r = 1; r <= rounds; r++) {
            double end = pvn_now_s() + 60;
            while (__atomic_load_n(record, __ATOMIC_ACQUIRE) != r) {
                if (pvn_now_s() > end) {
                    ADD_FAILURE() << "record " << r << " did not come";
                    return;
                }
                sched_yield();
            }
            for (size_t i = 0; i < words; i += 97)
                if (data[i] != r) {
                    ADD_FAILURE() << "record " << r << " came before word " << i;
                    return;
                }
            __atomic_store_n(record + 8, r, __ATOMIC_RELEASE); // the writer may go on
        }
    });
    auto *from = reinterpret_cast<uint64_t *>(a->buf);
    for (uint64_t r = 1; r <= rounds; r++) {
        for (size_t i = 0; i <= words; i++)
            from[i] = r;
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, words * 8, 1, b->addr(), b->mr->rkey, 0), 0);
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, words * 8, 8, 2, b->addr(at), b->mr->rkey), 0);
        ASSERT_EQ(a->wait().status, IBV_WC_SUCCESS);
        double end = pvn_now_s() + 60;
        while (__atomic_load_n(reinterpret_cast<uint64_t *>(b->buf + at) + 8, __ATOMIC_ACQUIRE) !=
                   r &&
               pvn_now_s() < end && !HasFailure())
            sched_yield();
    }
    reader.join();
}

TEST_F(Rc, UnsignalledRequestsAreSilent)
{
    start();
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, i, b->addr(), b->mr->rkey, 0), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 9, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().wr_id, 9u);
    EXPECT_EQ(a->poll_all(), 0);
    join({}, true); // sq_sig_all
    for (uint64_t i = 0; i < 3; i++)
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, i, b->addr(), b->mr->rkey, 0), 0);
    EXPECT_EQ(a->poll_all(), 3);
}

TEST_F(Rc, FailedUnsignalledRequestCompletes)
{
    start();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey ^ 0x100, 0), 0);
    ibv_wc wc = a->wait();
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc.wr_id, 1u);
}

TEST_F(Rc, SendQueueSlotsComeBackOnlyWithPolledCompletions)
{
    start();
    a->drop();
    b->drop();
    a->cap.max_send_wr = 5;
    a->create();
    b->create();
    ASSERT_EQ(a->cap.max_send_wr, 8u) << "vmw_pvrdma rounds up to powers of two";
    ASSERT_EQ(a->connect(b->address()), 0);
    ASSERT_EQ(b->connect(a->address()), 0);
    for (int i = 0; i < 8; i++)
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey,
                          i == 3 ? IBV_SEND_SIGNALED : 0),
                  0);
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey), ENOMEM);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS); // the fourth: four slots are free again
    for (int i = 0; i < 4; i++)
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey, 0), 0);
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey), ENOMEM);
}

TEST_F(Rc, ChainStopsAtTheBadRequest)
{
    start();
    ibv_sge s = a->sge(0, 8);
    ibv_send_wr w[3] = {}, *bad = nullptr;
    for (int i = 0; i < 3; i++) {
        w[i].next = i < 2 ? &w[i + 1] : nullptr;
        w[i].wr_id = uint64_t(i);
        w[i].sg_list = &s;
        w[i].num_sge = i == 1 ? 5 : 1; // 4 are allowed
        w[i].opcode = IBV_WR_RDMA_WRITE;
        w[i].send_flags = IBV_SEND_SIGNALED;
        w[i].wr.rdma.remote_addr = b->addr();
        w[i].wr.rdma.rkey = b->mr->rkey;
    }
    EXPECT_EQ(ibv_post_send(a->qp, w, &bad), EINVAL);
    EXPECT_EQ(bad, &w[1]);
    EXPECT_EQ(a->poll_all(), 1) << "what stands before the bad one is executed";
}

TEST_F(Rc, InlineDependsOnTheProfile)
{
    start("profile roce");
    a->drop();
    b->drop();
    a->cap.max_inline_data = 64;
    a->create();
    b->create();
    ASSERT_EQ(a->cap.max_inline_data, 64u);
    ASSERT_EQ(a->connect(b->address()), 0);
    ASSERT_EQ(b->connect(a->address()), 0);
    char local[65] = "not registered at all";
    ibv_sge s = {reinterpret_cast<uintptr_t>(local), 64, 0};
    ibv_send_wr w{}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    w.opcode = IBV_WR_RDMA_WRITE;
    w.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    w.wr.rdma.remote_addr = b->addr();
    w.wr.rdma.rkey = b->mr->rkey;
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    EXPECT_STREQ(b->buf, local);
    s.length = 65;
    EXPECT_EQ(ibv_post_send(a->qp, &w, &bad), ENOMEM);
    delete a;
    delete b;
    a = b = nullptr;
    start("profile pvrdma");
    EXPECT_EQ(a->cap.max_inline_data, 0u);
    s.length = 8; // the flag is ignored, so the key is checked
    w.wr.rdma.remote_addr = b->addr();
    w.wr.rdma.rkey = b->mr->rkey;
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_LOC_PROT_ERR);
}

// ---- what is refused ----

struct Bad {
    const char *name;
    void (*spoil)(End *a, End *b, ibv_send_wr *w, ibv_sge *s);
    ibv_wc_status status;
    int event; // at the responder, -1 none
};

class Refused : public PairTest, public testing::WithParamInterface<Bad>
{
};

TEST_P(Refused, WithItsStatusAndBothEndsFail)
{
    start();
    ibv_sge s = a->sge(0, 4096);
    ibv_send_wr w{}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    w.wr_id = 1;
    w.opcode = IBV_WR_RDMA_WRITE;
    w.send_flags = IBV_SEND_SIGNALED;
    w.wr.rdma.remote_addr = b->addr();
    w.wr.rdma.rkey = b->mr->rkey;
    GetParam().spoil(a, b, &w, &s);
    ASSERT_EQ(b->recv(0, 64, 50), 0);
    ASSERT_EQ(ibv_post_send(a->qp, &w, &bad), 0);
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 2, b->addr(), b->mr->rkey, 0), 0);
    ibv_wc wc = a->wait();
    EXPECT_EQ(wc.status, GetParam().status) << lib().ibv_wc_status_str(wc.status);
    EXPECT_EQ(wc.wr_id, 1u);
    EXPECT_NE(wc.opcode, IBV_WC_RDMA_WRITE) << "the opcode of a failed completion means nothing";
    wc = a->wait();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, 2u);
    EXPECT_EQ(a->qp->state, IBV_QPS_ERR);
    for (size_t i = 0; i < 64; i++)
        ASSERT_EQ(b->buf[End::kSize - 64 + i], 0) << "nothing may have landed";
    if (GetParam().event >= 0) {
        EXPECT_EQ(b->event(), GetParam().event);
        EXPECT_EQ(b->wait().status, IBV_WC_WR_FLUSH_ERR) << "the responder has failed, too";
    } else {
        EXPECT_EQ(b->qp->state, IBV_QPS_RTS) << "a local error is not the peer's";
    }
}

// Registers the end's buffer again, with fewer rights.
ibv_mr *limited(End *e, int access)
{
    EXPECT_EQ(lib().ibv_dereg_mr(e->mr), 0);
    return e->mr = e->reg(e->buf, End::kSize, access);
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        Bad{"wrong rkey", [](End *, End *, ibv_send_wr *w, ibv_sge *) { w->wr.rdma.rkey ^= 0x100; },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"an lkey as rkey",
            [](End *, End *b, ibv_send_wr *w, ibv_sge *) { w->wr.rdma.rkey = b->mr->lkey; },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"past the end",
            [](End *, End *, ibv_send_wr *w, ibv_sge *) {
                w->wr.rdma.remote_addr += End::kSize - 4095;
            },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"before the start",
            [](End *, End *, ibv_send_wr *w, ibv_sge *) { w->wr.rdma.remote_addr -= 1; },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"around the end of the address space",
            [](End *, End *, ibv_send_wr *w, ibv_sge *) {
                w->wr.rdma.remote_addr = UINT64_MAX - 100;
            },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"no right to write",
            [](End *, End *b, ibv_send_wr *w, ibv_sge *) {
                w->wr.rdma.rkey = limited(b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)->rkey;
            },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"no right to read",
            [](End *, End *b, ibv_send_wr *w, ibv_sge *) {
                w->opcode = IBV_WR_RDMA_READ;
                w->wr.rdma.rkey =
                    limited(b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)->rkey;
            },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"deregistered",
            [](End *, End *b, ibv_send_wr *, ibv_sge *) {
                lib().ibv_dereg_mr(b->mr);
                b->mr = b->reg(b->buf, End::kSize, kAll);
            },
            IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        Bad{"wrong lkey", [](End *, End *, ibv_send_wr *, ibv_sge *s) { s->lkey ^= 0x100; },
            IBV_WC_LOC_PROT_ERR, -1},
        Bad{"an rkey as lkey",
            [](End *a, End *, ibv_send_wr *, ibv_sge *s) { s->lkey = a->mr->rkey; },
            IBV_WC_LOC_PROT_ERR, -1},
        Bad{"local range",
            [](End *, End *, ibv_send_wr *, ibv_sge *s) { s->addr += End::kSize - 100; },
            IBV_WC_LOC_PROT_ERR, -1},
        Bad{"another PD's region",
            [](End *, End *b, ibv_send_wr *, ibv_sge *s) {
                s->addr = b->addr();
                s->lkey = b->mr->lkey;
            },
            IBV_WC_LOC_PROT_ERR, -1}),
    [](const testing::TestParamInfo<Bad> &i) {
        std::string n = i.param.name;
        for (char &c : n)
            if (!isalnum(static_cast<unsigned char>(c)))
                c = '_';
        return n;
    });

TEST_F(Rc, QpAccessFlagsCountAsMuchAsTheRegions)
{
    Params p;
    p.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    start("", p);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 8, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Rc, ZeroBytesNeedNoKey)
{
    start();
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 0, 1, 0, 0), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
    ASSERT_EQ(a->post(IBV_WR_RDMA_READ, 0, 0, 2, 0, 0), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS);
}

TEST_F(Rc, TooLongForTheReceive)
{
    for (const char *config : {"profile pvrdma", "profile rxe"}) {
        bool soft = strstr(config, "rxe");
        start(config);
        ASSERT_EQ(b->recv(0, 16, 1), 0);
        ASSERT_EQ(b->recv(0, 16, 2), 0);
        ASSERT_EQ(a->post(IBV_WR_SEND, 0, 64, 1), 0);
        EXPECT_EQ(a->wait().status, soft ? IBV_WC_REM_OP_ERR : IBV_WC_REM_INV_REQ_ERR);
        ibv_wc r = b->wait();
        EXPECT_EQ(r.wr_id, 1u);
        EXPECT_EQ(r.status, soft ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_LEN_ERR);
        EXPECT_EQ(b->wait().status, IBV_WC_WR_FLUSH_ERR);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

TEST_F(Rc, ReceiveIntoMemoryThatMayNotBeWritten)
{
    start();
    ibv_mr *ro = b->reg(b->buf, 4096, 0);
    ibv_sge s = {b->addr(), 64, ro->lkey};
    ibv_recv_wr w{}, *bad;
    w.sg_list = &s;
    w.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(b->qp, &w, &bad), 0);
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 64, 1), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(b->wait().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(lib().ibv_dereg_mr(ro), 0);
}

TEST_F(Rc, LateReceiveIsWaitedFor)
{
    start(); // rnr_retry 7: without end
    ASSERT_EQ(a->post(IBV_WR_SEND, 0, 32, 1), 0);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 32, 2, b->addr(4096), b->mr->rkey), 0);
    EXPECT_EQ(a->wait(0.02).status, kNone) << "nothing overtakes the waiting SEND";
    a->buf[0] = 55;
    ASSERT_EQ(b->recv(0, 64, 3), 0);
    EXPECT_EQ(a->wait().wr_id, 1u);
    EXPECT_EQ(a->wait().wr_id, 2u);
    EXPECT_EQ(b->wait().wr_id, 3u);
    EXPECT_EQ(b->buf[0], 55);
}

// Unreliable connections have no retries and no acknowledgements, in their attributes and in their
// behaviour.
TEST_F(Rc, UnreliableSendsAreDoneWhenSent)
{
    ASSERT_EQ(lib().sv_configure("profile roce"), 0);
    a = new End;
    b = new End;
    for (End *e : {a, b}) {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = e->cq;
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = IBV_QPT_UC;
        e->qp = lib().ibv_create_qp(e->pd, &init);
        ASSERT_NE(e->qp, nullptr);
        ASSERT_EQ(e->to_init(), 0);
    }
    for (End *e : {a, b}) {
        Address peer = (e == a ? b : a)->address();
        EXPECT_EQ(e->to_rtr(peer), EINVAL) << "attributes of a reliable one";
        ibv_qp_attr r{};
        r.qp_state = IBV_QPS_RTR;
        r.path_mtu = IBV_MTU_1024;
        r.dest_qp_num = peer.qpn;
        r.ah_attr.is_global = 1;
        r.ah_attr.port_num = 1;
        r.ah_attr.grh.dgid = peer.gid;
        r.ah_attr.grh.sgid_index = 1;
        ASSERT_EQ(lib().ibv_modify_qp(e->qp, &r,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN),
                  0);
        EXPECT_EQ(e->to_rts(), EINVAL);
        r.qp_state = IBV_QPS_RTS;
        ASSERT_EQ(lib().ibv_modify_qp(e->qp, &r, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    auto send = [&](uint64_t id) {
        a->buf[0] = char(id);
        ASSERT_EQ(a->post(IBV_WR_SEND_WITH_IMM, 0, 1, id, 0, 0, IBV_SEND_SIGNALED, uint32_t(id)),
                  0);
        ibv_wc wc = a->wait();
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, id);
    };
    EXPECT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 1, 9, b->addr(), b->mr->rkey), EINVAL);
    send(1); // finds no receive
    ASSERT_EQ(b->recv(8, 8, 100), 0);
    EXPECT_EQ(b->wait(0.02).status, kNone);
    ASSERT_EQ(command("port mlx5_0 1 down"), 0);
    send(2);
    ASSERT_EQ(command("port mlx5_0 1 up"), 0);
    EXPECT_EQ(b->wait(0.02).status, kNone);
    send(3);
    ibv_wc wc = b->wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, 100u);
    EXPECT_EQ(wc.imm_data, 3u);
    EXPECT_EQ(b->buf[8], 3);
    EXPECT_EQ(b->poll_all(), 0);
}

TEST_F(Rc, ReceiverNotReadyEndsWithItsOwnStatus)
{
    Params p;
    p.rnr_retry = 2;
    start("", p);
    ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 300000, 1, b->addr(), b->mr->rkey), 0);
    EXPECT_EQ(a->wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(Rc, PathMtusMustAgreeWhereTheDeviceLooks)
{
    for (bool looks : {true, false}) {
        ASSERT_EQ(lib().sv_configure(looks ? "profile roce" : "profile pvrdma"), 0);
        a = new End;
        b = new End;
        a->create();
        b->create();
        Params small;
        small.mtu = IBV_MTU_256;
        ASSERT_EQ(a->connect(b->address(), small), 0);
        ASSERT_EQ(b->connect(a->address()), 0);
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 256, 1, b->addr(), b->mr->rkey), 0);
        EXPECT_EQ(a->wait().status, IBV_WC_SUCCESS) << "fits in one packet in both cases";
        ASSERT_EQ(a->post(IBV_WR_RDMA_WRITE, 0, 2000, 1, b->addr(), b->mr->rkey), 0);
        EXPECT_EQ(a->wait().status, looks ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
        delete a;
        delete b;
        a = b = nullptr;
    }
}

} // namespace
