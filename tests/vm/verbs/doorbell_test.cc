// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests the RDMA lane's doorbell counts against those of a PVRDMA device that counts them. run-pvrdma.sh runs it in a
// guest with PVN_TEST_REAL_VERBS=1 and PVN_TEST_DOORBELLS, a command that prints the device's counts (the totals of
// tests/vm/pvrdma-device/control.c).
#include "rdma/lane_pair.h"

#include <cstdio>

namespace
{

struct Count {
    unsigned long send = 0, recv = 0, srq = 0, poll = 0, arm = 0, requests = 0;
    unsigned long calls = 0; // calls of poll_cq, counted by the lanes only
};

Count of_device()
{
    const char *command = getenv("PVN_TEST_DOORBELLS");
    FILE *f = command ? popen(command, "r") : nullptr;
    Count c;
    int n = f ? fscanf(f, "total send %lu recv %lu srq %lu poll %lu arm %lu requests %lu", &c.send,
                       &c.recv, &c.srq, &c.poll, &c.arm, &c.requests)
              : 0;

    EXPECT_EQ(6, n) << "PVN_TEST_DOORBELLS=" << (command ? command : "(unset)");
    if (f) {
        char rest[256];
        while (fgets(rest, sizeof(rest), f))
            ;
        pclose(f);
    }
    return c;
}

// The sum of the counts of both ends' lanes.
Count of_lanes(const RdmaPair &p)
{
    Count c;
    for (const RdmaEnd *e : {&p.tx, &p.rx}) {
        const pvn_rdma_lane_stats s = lane_stats(e->lane);
        c.send += s.post_send;
        c.recv += s.post_recv;
        c.poll += s.empty_polls;
        c.calls += s.polls;
    }
    return c;
}

// Transfers n messages of `size` bytes with up to `depth` in flight, and checks every byte.
void transfer(RdmaPair &p, int n, int depth, size_t size)
{
    std::vector<uint8_t> out(size * static_cast<size_t>(depth)), in(out.size());
    for (size_t i = 0; i < out.size(); i++)
        out[i] = static_cast<uint8_t>(i * 7 + i / 255);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    std::vector<pvn_req *> s(static_cast<size_t>(n)), r(static_cast<size_t>(n));
    int posted = 0, received = 0, begun = 0, sent = 0;
    while (sent < n || received < n) {
        int done = 0;
        size_t at = size * static_cast<size_t>(posted % depth), cap = size;
        if (posted < n && posted - received < depth) {
            void *buf = &in[at];
            int tag = 0;
            const pvn_mr *mr = rmr;
            ASSERT_EQ(0, pvn_engine_irecv(p.rx.e, 1, &buf, &cap, &tag, &mr,
                                          &r[static_cast<size_t>(posted)]));
            posted += r[static_cast<size_t>(posted)] != nullptr;
        }
        at = size * static_cast<size_t>(begun % depth);
        if (begun < n && begun - sent < depth) {
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, &out[at], size, 0, smr,
                                          &s[static_cast<size_t>(begun)]));
            begun += s[static_cast<size_t>(begun)] != nullptr;
        }
        if (sent < begun) {
            ASSERT_EQ(0, pvn_engine_test(s[static_cast<size_t>(sent)], &done, nullptr));
            sent += done;
        }
        if (received < posted) {
            ASSERT_EQ(0, pvn_engine_test(r[static_cast<size_t>(received)], &done, nullptr));
            at = size * static_cast<size_t>(received % depth);
            if (done) {
                ASSERT_EQ(0, memcmp(&out[at], &in[at], size)) << received;
                received++;
            }
        }
    }
}

struct Shape {
    const char *name;
    pvn_rdma_mode mode;
    int qps, depth;
    size_t size;
};

class Doorbells : public testing::TestWithParam<Shape>
{
};

TEST_P(Doorbells, TheDeviceCountsWhatTheLaneCounts)
{
    RdmaPair p;
    RdmaOptions o;
    o.mode = GetParam().mode;
    o.qps = GetParam().qps;
    p.open(o);
    ASSERT_FALSE(HasFatalFailure());
    transfer(p, 100, GetParam().depth, GetParam().size);
    ASSERT_FALSE(HasFatalFailure());
    const int n = 1000;
    Count device0 = of_device(), lanes0 = of_lanes(p);
    transfer(p, n, GetParam().depth, GetParam().size);
    ASSERT_FALSE(HasFatalFailure());
    Count lanes1 = of_lanes(p), device1 = of_device();
    printf("%s, depth %d, %zu bytes, per message: send %.3f, receive %.3f, empty poll %.3f, in "
           "requests %.3f\n",
           GetParam().name, GetParam().depth, GetParam().size,
           static_cast<double>(device1.send - device0.send) / n,
           static_cast<double>(device1.recv - device0.recv) / n,
           static_cast<double>(device1.poll - device0.poll) / n,
           static_cast<double>(device1.requests - device0.requests) / n);
    EXPECT_LT(0u, device1.send - device0.send);
    EXPECT_EQ(device1.send - device0.send, lanes1.send - lanes0.send);
    EXPECT_EQ(device1.recv - device0.recv, lanes1.recv - lanes0.recv);
    // The provider writes the doorbell whenever it finds the ring empty, and then polls again, because QEMU's device
    // adds entries at the doorbell. So there is one doorbell per requested entry, with a result or without.
    EXPECT_GE(device1.poll - device0.poll, lanes1.poll - lanes0.poll);
    EXPECT_LE(device1.poll - device0.poll,
              lanes1.calls - lanes0.calls + device1.requests - device0.requests);
    EXPECT_EQ(0u, device1.arm - device0.arm);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Doorbells,
                         testing::Values(Shape{"record", PVN_RDMA_RECORD, 1, 8, 64},
                                         Shape{"record", PVN_RDMA_RECORD, 1, 1, 64},
                                         Shape{"record, 4 queue pairs", PVN_RDMA_RECORD, 4, 8,
                                               65536},
                                         Shape{"imm", PVN_RDMA_IMM, 1, 8, 64},
                                         Shape{"imm long", PVN_RDMA_IMM, 1, 9, 4096}),
                         [](const testing::TestParamInfo<Shape> &i) {
                             return std::string(i.param.mode == PVN_RDMA_IMM ? "Imm" : "Record") +
                                    std::to_string(i.param.qps) + "Depth" +
                                    std::to_string(i.param.depth);
                         });

} // namespace
