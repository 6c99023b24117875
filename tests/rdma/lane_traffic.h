// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Helpers of the RDMA lane's tests: they post, wait, move streams of messages, and read the peer's
// offer.
#ifndef PVN_TESTS_RDMA_LANE_TRAFFIC_H
#define PVN_TESTS_RDMA_LANE_TRAFFIC_H

#include "rdma/lane_pair.h"
#include "support/bytes.h"
#include "support/deadline.h"

#include <algorithm>
#include <fcntl.h>
#include <random>
#include <thread>

extern "C" {
#include "net-pvrdma/rdma_wire.h"
#include "rdma/wrap.h"
#include "support/engine_calls.h"
}

// Describes the state of both ends, for the failure message of a test that did not finish.
inline std::string stuck(RdmaPair &p)
{
    char a[256], b[256], c[400], d[400];
    pvn_engine_oldest(p.tx.e, a, sizeof(a));
    pvn_engine_oldest(p.rx.e, b, sizeof(b));
    p.tx.lane->ops->describe(p.tx.lane, c, sizeof(c));
    p.rx.lane->ops->describe(p.rx.lane, d, sizeof(d));
    return std::string("sender: ") + a + "; " + c + "\nreceiver: " + b + "; " + d;
}

// Posts a receive of one buffer.
inline int irecv(RdmaPair &p, void *buf, size_t cap, int tag, const pvn_mr *mr, pvn_req **req)
{
    return pvn_engine_irecv(p.rx.e, 1, &buf, &cap, &tag, &mr, req);
}

// Sends and tests as NCCL's proxy does: up to `depth` messages are in flight, the oldest is tested,
// and the thread yields if nothing completes. The time limit applies to each message.
inline void pipeline(RdmaPair &p, int total, int depth, size_t max_size)
{
    std::mt19937 rnd(11);
    std::vector<uint8_t> out(static_cast<size_t>(depth) * max_size), in(out.size());
    bytes::fill(out.data(), out.size(), 11);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    std::vector<pvn_req *> s(static_cast<size_t>(total)), r(static_cast<size_t>(total));
    std::vector<size_t> size(static_cast<size_t>(total));
    for (auto &n : size)
        n = rnd() % (max_size + 1);
    int sp = 0, st = 0, rp = 0, rt = 0;
    int done = 0;
    for (Deadline wait; wait.left() && (st < total || rt < total);) {
        size_t at;
        if (st + rt > done)
            wait = Deadline();
        else
            std::this_thread::yield();
        done = st + rt;
        // Receives are posted ahead, as NCCL's proxy does if the network takes longer than one of
        // its passes.
        while (rp < total && rp - rt < depth) {
            at = static_cast<size_t>(rp % depth) * max_size;
            ASSERT_EQ(0, irecv(p, &in[at], max_size, 1, rmr, &r[static_cast<size_t>(rp)]));
            ASSERT_NE(nullptr, r[static_cast<size_t>(rp)]);
            rp++;
        }
        if (sp < total && sp - st < depth) {
            at = static_cast<size_t>(sp % depth) * max_size;
            ASSERT_EQ(0, pvn_engine_isend(p.tx.e, &out[at], size[static_cast<size_t>(sp)], 1, smr,
                                          &s[static_cast<size_t>(sp)]));
            sp += s[static_cast<size_t>(sp)] != nullptr;
        }
        int d = 0;
        size_t n = 0;
        if (st < sp) {
            ASSERT_EQ(0, pvn_engine_test(s[static_cast<size_t>(st)], &d, &n))
                << p.tx.lane->err.reason[0];
            st += d;
        }
        if (rt < rp) {
            ASSERT_EQ(0, pvn_engine_test(r[static_cast<size_t>(rt)], &d, &n))
                << p.rx.lane->err.reason[0];
            if (d) {
                at = static_cast<size_t>(rt % depth) * max_size;
                ASSERT_EQ(size[static_cast<size_t>(rt)], n);
                ASSERT_EQ(0, memcmp(&out[at], &in[at], n)) << rt;
                rt++;
            }
        }
    }
    ASSERT_EQ(total, st) << stuck(p);
    ASSERT_EQ(total, rt) << stuck(p);
    p.tx.unreg_last();
    p.rx.unreg_last();
}

// Groups of two sizes, one after the other.
inline void grouped(RdmaPair &p, int rounds)
{
    const int most = 8;
    std::vector<uint8_t> out = bytes::of(most * 1000, 5), in(most * 1000);
    pvn_mr *smr = p.tx.reg(out.data(), out.size()), *rmr = p.rx.reg(in.data(), in.size());
    for (int round = 0; round < rounds; round++) {
        const int n = round % 2 ? most : 3;
        void *buf[most];
        size_t cap[most], got[most] = {};
        int tags[most];
        const pvn_mr *mrs[most];
        for (int i = 0; i < n; i++) {
            buf[i] = &in[static_cast<size_t>(i) * 1000];
            cap[i] = 1000;
            tags[i] = 100 + i;
            mrs[i] = rmr;
        }
        pvn_req *r = nullptr, *s[most] = {};
        ASSERT_EQ(0, pvn_engine_irecv(p.rx.e, n, buf, cap, tags, mrs, &r));
        for (int i = n - 1; i >= 0; i--) {
            for (Deadline deadline; !s[i] && deadline.left();) {
                ASSERT_EQ(0, pvn_engine_isend(p.tx.e, &out[static_cast<size_t>(i) * 1000],
                                              static_cast<size_t>(100 * i), 100 + i, smr, &s[i]));
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
            }
            ASSERT_NE(nullptr, s[i]);
        }
        int done = 0;
        for (int i = 0; i < n; i++)
            for (done = 0; !done;) {
                ASSERT_EQ(0, pvn_engine_progress(p.rx.e));
                ASSERT_EQ(0, pvn_engine_test(s[i], &done, nullptr));
            }
        for (done = 0; !done;)
            ASSERT_EQ(0, pvn_engine_test(r, &done, got));
        for (int i = 0; i < n; i++) {
            ASSERT_EQ(static_cast<size_t>(100 * i), got[i]);
            ASSERT_EQ(0, memcmp(&out[static_cast<size_t>(i) * 1000],
                                &in[static_cast<size_t>(i) * 1000], got[i]));
        }
    }
    p.tx.unreg_last();
    p.rx.unreg_last();
}

// Decodes a lane's offer, as the peer gets it.
inline rdma_offer offer_of(pvn_lane *l)
{
    uint8_t text[2048];
    rdma_offer o = {};
    pvn_err err = PVN_ERR_INIT;
    int n = l->ops->offer(l, text, sizeof(text));
    EXPECT_GT(n, 0);
    EXPECT_EQ(0, pvn_rdma_offer_decode(text, static_cast<size_t>(std::max(n, 0)), &o, &err));
    return o;
}

inline RdmaOptions shape(const char *profile, pvn_rdma_mode mode, int qps, size_t chunk,
                         bool costly)
{
    RdmaOptions o;
    o.profile = profile;
    o.mode = mode;
    o.qps = qps;
    o.chunk = chunk;
    o.costly = costly;
    return o;
}

#endif
