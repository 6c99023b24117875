/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The two ends of one comm over RDMA lanes, in one process and without the handshake. They run on
// softverbs, or on the machine's first device if PVN_TEST_REAL_VERBS is set. tests/vm sets it in
// its guests, where tests that send commands to softverbs must not run.
#ifndef PVN_TESTS_RDMA_LANE_PAIR_H
#define PVN_TESTS_RDMA_LANE_PAIR_H

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <algorithm>
#include <memory>
#include <vector>

#include "softverbs/fixture.h"

extern "C" {
#include "base/clock.h"
#include "engine/engine.h"
#include "support/engine_calls.h"
#include "net-pvrdma/rdma_lane.h"
}

inline bool real_verbs()
{
    return getenv("PVN_TEST_REAL_VERBS") != nullptr;
}

struct RdmaOptions {
    const char *profile = "pvrdma"; // profile of softverbs, and further configuration lines
    pvn_rdma_mode mode = PVN_RDMA_RECORD;
    int qps = 1;
    size_t chunk = 1 << 20;
    bool costly = true;
    bool software = false;
    int short_max = PVN_RDMA_SHORT_MAX;
    int rx_short_max = -1; // limit of the receiver, -1: the same
    uint8_t retry = 7;
    uint32_t max_wr = 0; // size of a queue, 0: the device's maximum
    int rx_mode = -1;    // mode of the receiver, -1: the same
    int rx_costly = -1;  // `costly` of the receiver, -1: the same
    pvn_flush_kind flush = PVN_FLUSH_NONE;
    pvn_rdma_registrar registrar = {};
    uint64_t idle_ns = 10000000;
    uint64_t (*now)() = nullptr;              // see pvn_rdma_lane_cfg
    bool acknowledged = false;                // as with failover
    bool may_block = false;                   // as during a comm's set-up
    ibv_mtu rx_mtu = static_cast<ibv_mtu>(0); // MTU of the receiver, 0: the same
    void (*edit_offer)(uint8_t *) = nullptr;  // applied to both ends' offers
    bool relaxed_rings = false;               // a fault: the lanes' own memory has relaxed ordering
};

inline const pvn_verbs *verbs_below = nullptr; // the verbs that reg_relaxed() calls
inline ibv_mr *reg_relaxed(ibv_pd *pd, void *addr, size_t len, int access)
{
    return verbs_below->reg_mr_iova2(pd, addr, len, reinterpret_cast<uintptr_t>(addr),
                                     static_cast<unsigned>(access | IBV_ACCESS_RELAXED_ORDERING));
}

// One device, opened as the plugin opens it, with a lane and an engine on it
struct RdmaEnd {
    const pvn_verbs *v = nullptr;
    pvn_verbs relaxed = {}; // copy of *v that registers the lane's memory with relaxed ordering
    ibv_context *ctx = nullptr;
    ibv_pd *pd = nullptr;
    pvn_lane *lane = nullptr;
    pvn_engine *e = nullptr;
    struct Reg {
        pvn_mr mr = {};
        pvn_rdma_mem *mem = nullptr;
    };
    std::vector<std::unique_ptr<Reg>> mrs;

    void open(const RdmaOptions &o, bool sender)
    {
        pvn_err err = PVN_ERR_INIT;
        v = pvn_verbs_get(real_verbs() ? "libibverbs.so.1" : sv::library().c_str(), &err);
        ASSERT_NE(nullptr, v) << err.reason[0];
        int n = 0;
        ibv_device **list = v->get_device_list(&n);
        ASSERT_GE(n, 1);
        ctx = v->open_device(list[0]);
        v->free_device_list(list);
        ASSERT_NE(nullptr, ctx);
        pd = v->alloc_pd(ctx);
        ASSERT_NE(nullptr, pd);
        pvn_rdma_lane_cfg c = {};
        config(o, sender, &c);
        lane = pvn_rdma_lane_new(&c, &err);
        ASSERT_NE(nullptr, lane) << err.reason[0];
    }

    void config(const RdmaOptions &o, bool sender, pvn_rdma_lane_cfg *c)
    {
        ibv_device_attr da = {};
        ibv_port_attr pa = {};
        ASSERT_EQ(0, v->query_device(ctx, &da));
        ASSERT_EQ(0, pvn_verbs_query_port(v, ctx, 1, &pa));
        c->v = v;
        if (o.relaxed_rings) {
            verbs_below = v;
            relaxed = *v;
            relaxed.reg_mr = reg_relaxed;
            c->v = &relaxed;
        }
        c->ctx = ctx;
        c->pd = pd;
        strcpy(c->name, "soft0:1");
        c->sender = sender;
        c->mode = sender || o.rx_mode < 0 ? o.mode : static_cast<pvn_rdma_mode>(o.rx_mode);
        c->flush = o.flush;
        c->registrar = o.registrar;
        c->qps = o.qps;
        c->short_max =
            static_cast<uint32_t>(sender || o.rx_short_max < 0 ? o.short_max : o.rx_short_max);
        c->max_chunk = o.chunk;
        c->software = o.software;
        c->costly_poll = sender || o.rx_costly < 0 ? o.costly : o.rx_costly;
        c->idle_poll_ns = o.idle_ns;
        c->now = o.now;
        c->acknowledged = o.acknowledged;
        c->port = 1;
        c->ethernet = true;
        c->mtu = !sender && o.rx_mtu ? o.rx_mtu : pa.active_mtu;
        for (int i = 0; i < pa.gid_tbl_len && c->ngids < PVN_RDMA_MAX_GIDS; i++) {
            ibv_gid gid = {};
            if (v->query_gid(ctx, 1, i, &gid) == 0) {
                memcpy(c->gids[c->ngids].raw, gid.raw, 16);
                c->gids[c->ngids].index = static_cast<uint8_t>(i);
                c->gids[c->ngids].type = PVN_GID_ROCE_V1;
                c->ngids++;
            }
        }
        pvn_gid_policy any = {-1, 0, 0, ""};
        c->ngids = pvn_gid_filter(c->gids, c->ngids, &any, nullptr, 0);
        c->max_wr = o.max_wr ? o.max_wr : static_cast<uint32_t>(da.max_qp_wr);
        // A PVRDMA device announces a larger ring than it has (see hca.h). Guests have one, too,
        // whatever the profile's name.
        bool pvrdma = real_verbs() || strncmp(o.profile, "pvrdma", 6) == 0;
        c->max_cqe = static_cast<uint32_t>(std::min(da.max_cqe, pvrdma ? 4096 : da.max_cqe));
        c->timeout = 14;
        c->retry_cnt = o.retry;
        c->may_block = o.may_block;
        c->rnr_retry = 7;
        c->max_rd_atomic = 1;
    }

    void engine(bool sender, size_t chunk)
    {
        pvn_engine_cfg ec = {};
        ec.sender = sender;
        ec.nlanes = 1;
        ec.lanes[0] = lane;
        ec.chunk = chunk;
        ec.unexpected_max = 1 << 20;
        ec.now = [](void *) { return pvn_now_ns(); };
        e = pvn_engine_new(&ec);
        ASSERT_NE(nullptr, e);
    }

    // Registers memory for this end's lane. The registration lives as long as the end.
    pvn_mr *reg(void *p, size_t len, int also = 0)
    {
        auto r = std::make_unique<Reg>();
        r->mr.addr = p;
        r->mr.len = len;
        r->mem = static_cast<pvn_rdma_mem *>(calloc(1, sizeof(pvn_rdma_mem) + 2 * sizeof(void *)));
        r->mem->addr = reinterpret_cast<uintptr_t>(p);
        r->mem->count = 1;
        int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        ibv_mr *mr =
            also ? v->reg_mr_iova2(pd, p, len, r->mem->addr, static_cast<unsigned>(access | also))
                 : v->reg_mr(pd, p, len, access);
        // The lane refuses to send from memory without a key.
        EXPECT_NE(nullptr, mr) << len << " bytes: " << strerror(errno);
        r->mem->part[0].mr = mr;
        r->mr.lane_mr[0] = mr ? r->mem : nullptr;
        r->mr.rkey[0] = mr ? mr->rkey : 0;
        mrs.push_back(std::move(r));
        return &mrs.back()->mr;
    }

    void unreg_last()
    {
        if (mrs.back()->mr.lane_mr[0])
            v->dereg_mr(mrs.back()->mem->part[0].mr);
        free(mrs.back()->mem);
        mrs.pop_back();
    }

    ~RdmaEnd()
    {
        pvn_engine_free(e);
        if (lane)
            lane->ops->close(lane);
        while (!mrs.empty())
            unreg_last();
        if (pd)
            v->dealloc_pd(pd);
        if (ctx)
            v->close_device(ctx);
        if (v)
            pvn_verbs_put();
    }
};

inline pvn_rdma_lane_stats lane_stats(const pvn_lane *l)
{
    pvn_rdma_lane_stats s;
    pvn_rdma_lane_get_stats(l, &s);
    return s;
}

struct RdmaPair {
    RdmaEnd tx, rx;

    void open(const RdmaOptions &o)
    {
        std::string text = std::string("profile ") + o.profile + "\n";
        if (!real_verbs()) {
            ASSERT_EQ(0, sv::lib().sv_configure(text.c_str()));
        }
        tx.open(o, true);
        rx.open(o, false);
        ASSERT_TRUE(tx.lane && rx.lane);
        uint8_t a[2048], b[2048];
        int na = tx.lane->ops->offer(tx.lane, a, sizeof(a));
        int nb = rx.lane->ops->offer(rx.lane, b, sizeof(b));
        ASSERT_GT(na, 0);
        ASSERT_GT(nb, 0);
        if (o.edit_offer) {
            o.edit_offer(a);
            o.edit_offer(b);
        }
        ASSERT_EQ(0, rx.lane->ops->bind(rx.lane, a, static_cast<size_t>(na)))
            << rx.lane->err.reason[0];
        ASSERT_EQ(0, tx.lane->ops->bind(tx.lane, b, static_cast<size_t>(nb)))
            << tx.lane->err.reason[0];
        int vt = -EAGAIN, vr = -EAGAIN;
        for (double until = pvn_now_s() + 30; pvn_now_s() < until && (vt || vr);) {
            vt = vt ? tx.lane->ops->verify(tx.lane) : 0;
            vr = vr ? rx.lane->ops->verify(rx.lane) : 0;
            ASSERT_TRUE(vt == 0 || vt == -EAGAIN) << tx.lane->err.reason[0];
            ASSERT_TRUE(vr == 0 || vr == -EAGAIN) << rx.lane->err.reason[0];
        }
        ASSERT_EQ(0, vt);
        ASSERT_EQ(0, vr);
        tx.engine(true, o.chunk);
        rx.engine(false, o.chunk);
    }
};

#endif
