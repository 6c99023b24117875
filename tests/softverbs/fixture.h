/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Shared by the softverbs tests: the library, loaded as the plugin loads it, and one end of a
// connection
#ifndef PVN_TESTS_SOFTVERBS_FIXTURE_H
#define PVN_TESTS_SOFTVERBS_FIXTURE_H

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <dirent.h>
#include <dlfcn.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "softverbs/softverbs.h"
#include "support/deadline.h"
#include "tests/support/paths.h"

namespace sv
{

constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;

inline std::string library()
{
    return PVN_BUILDDIR "/tests/softverbs/.libs/libsoftverbs.so";
}

// The library's functions, found by dlsym. The tests are not linked to any libibverbs.
struct Lib {
    void *handle;
#define SV_FN(name) decltype(&::name) name
    SV_FN(ibv_get_device_list);
    SV_FN(ibv_free_device_list);
    SV_FN(ibv_open_device);
    SV_FN(ibv_close_device);
    SV_FN(ibv_query_device);
    SV_FN(ibv_query_gid);
    SV_FN(_ibv_query_gid_ex);
    SV_FN(_ibv_query_gid_table);
    SV_FN(ibv_alloc_pd);
    SV_FN(ibv_dealloc_pd);
    SV_FN(ibv_reg_mr_iova2);
    SV_FN(ibv_reg_dmabuf_mr);
    SV_FN(ibv_dereg_mr);
    SV_FN(ibv_create_comp_channel);
    SV_FN(ibv_destroy_comp_channel);
    SV_FN(ibv_create_cq);
    SV_FN(ibv_destroy_cq);
    SV_FN(ibv_get_cq_event);
    SV_FN(ibv_ack_cq_events);
    SV_FN(ibv_create_qp);
    SV_FN(ibv_modify_qp);
    SV_FN(ibv_query_qp);
    SV_FN(ibv_destroy_qp);
    SV_FN(ibv_get_async_event);
    SV_FN(ibv_ack_async_event);
    SV_FN(ibv_wc_status_str);
    SV_FN(sv_configure);
    SV_FN(sv_command);
    SV_FN(sv_peer_command);
    SV_FN(sv_slot);
    SV_FN(sv_rule_seen);
    SV_FN(sv_rule_fired);
    SV_FN(sv_qp_stats);
    SV_FN(sv_cq_stats);
    SV_FN(sv_ctx_stats);
    SV_FN(sv_total_stats);
    SV_FN(sv_write_sysfs);
#undef SV_FN

    Lib()
    {
        handle = dlopen(library().c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
#define SV_FN(name)                                                                                \
    name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name));                              \
    if (!name) {                                                                                   \
        fprintf(stderr, "no symbol %s\n", #name);                                                  \
        abort();                                                                                   \
    }
        SV_FN(ibv_get_device_list)
        SV_FN(ibv_free_device_list)
        SV_FN(ibv_open_device)
        SV_FN(ibv_close_device)
        SV_FN(ibv_query_device)
        SV_FN(ibv_query_gid)
        SV_FN(_ibv_query_gid_ex)
        SV_FN(_ibv_query_gid_table)
        SV_FN(ibv_alloc_pd)
        SV_FN(ibv_dealloc_pd)
        SV_FN(ibv_reg_mr_iova2)
        SV_FN(ibv_reg_dmabuf_mr)
        SV_FN(ibv_dereg_mr)
        SV_FN(ibv_create_comp_channel)
        SV_FN(ibv_destroy_comp_channel)
        SV_FN(ibv_create_cq)
        SV_FN(ibv_destroy_cq)
        SV_FN(ibv_get_cq_event)
        SV_FN(ibv_ack_cq_events)
        SV_FN(ibv_create_qp)
        SV_FN(ibv_modify_qp)
        SV_FN(ibv_query_qp)
        SV_FN(ibv_destroy_qp)
        SV_FN(ibv_get_async_event)
        SV_FN(ibv_ack_async_event)
        SV_FN(ibv_wc_status_str)
        SV_FN(sv_configure)
        SV_FN(sv_command)
        SV_FN(sv_peer_command)
        SV_FN(sv_slot)
        SV_FN(sv_rule_seen)
        SV_FN(sv_rule_fired)
        SV_FN(sv_qp_stats)
        SV_FN(sv_cq_stats)
        SV_FN(sv_ctx_stats)
        SV_FN(sv_total_stats)
        SV_FN(sv_write_sysfs)
#undef SV_FN
    }
};

inline Lib &lib()
{
    static Lib l;
    return l;
}

inline int command(const std::string &line)
{
    char why[256];
    int rc = lib().sv_command(line.c_str(), why, sizeof why);
    if (rc)
        fprintf(stderr, "command \"%s\": %s\n", line.c_str(), why);
    return rc;
}

// Counts the pieces that relaxed ordering has held back (sv_relaxed.c).
inline uint64_t relaxed_held()
{
    char text[512] = "";
    EXPECT_EQ(0, lib().sv_command("stat", text, sizeof text));
    const char *at = strstr(text, " relaxed=");
    return at ? strtoull(at + strlen(" relaxed="), nullptr, 10) : 0;
}

// Lets a plugin find softverbs and the sysfs tree of its adapters, for as long as this object
// lives.
class ForPlugin
{
  public:
    ForPlugin()
    {
        char dir[] = "/tmp/pvn-softverbs.XXXXXX";
        if (mkdtemp(dir) == nullptr)
            ADD_FAILURE() << dir << ": " << strerror(errno);
        sysfs_ = dir;
        setenv("PVN_SOFTVERBS_SYSFS", dir, 1);
        setenv("NCCL_PVRDMA_SYSFS_ROOT", dir, 1);
        setenv("NCCL_PVRDMA_VERBS_LIB", library().c_str(), 1);
    }
    ForPlugin(const ForPlugin &) = delete;
    ForPlugin &operator=(const ForPlugin &) = delete;
    ~ForPlugin()
    {
        unsetenv("PVN_SOFTVERBS_SET");
        remove();
    }
    // Sets the adapter that softverbs plays. Call it before the plugin is loaded.
    static void play(const char *profile, const std::string &set)
    {
        setenv("PVN_SOFTVERBS_PROFILE", profile, 1);
        setenv("PVN_SOFTVERBS_SET", set.c_str(), 1);
        ASSERT_EQ(0, lib().sv_configure(nullptr));
    }
    // Removes the files early, in a process that ends by _exit.
    void remove() const
    {
        EXPECT_EQ(0, system(("rm -rf " + sysfs_).c_str()));
    }

  private:
    std::string sysfs_;
};

// Waits until every other thread sleeps. Call it before a fork: a new thread takes the lock of
// AddressSanitizer's allocator, and a child would inherit that lock without its holder.
inline bool threads_asleep()
{
    bool busy = true;
    for (int i = 0; busy && i < 10000; i++) {
        usleep(1000);
        busy = false;
        DIR *d = opendir("/proc/self/task");
        while (dirent *e = readdir(d)) {
            if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
                continue;
            std::ifstream stat(std::string("/proc/self/task/") + e->d_name + "/stat");
            std::string text((std::istreambuf_iterator<char>(stat)), {});
            size_t name_end = text.rfind(") ");
            busy |= name_end == std::string::npos || text[name_end + 2] != 'S';
        }
        closedir(d);
    }
    return !busy;
}

struct Params {
    int timeout = 14, retry = 7, rnr_retry = 7, rnr_timer = 1, rd_atomic = 4;
    uint32_t psn = 77;
    int gid_index = 1;
    ibv_mtu mtu = IBV_MTU_1024;
    int access = kAll;
};

// An end's address, which the other end must know.
struct Address {
    uint32_t qpn;
    ibv_gid gid;
};

// A device with a PD, a CQ, one QP and a registered buffer
class End
{
  public:
    static constexpr size_t kSize = 1 << 20;
    ibv_context *ctx = nullptr;
    ibv_pd *pd = nullptr;
    ibv_comp_channel *channel = nullptr;
    ibv_cq *cq = nullptr;
    ibv_qp *qp = nullptr;
    ibv_mr *mr = nullptr;
    char *buf = nullptr;
    ibv_qp_cap cap{64, 64, 4, 4, 0};

    explicit End(int device = 0, int cqe = 256)
    {
        int n = 0;
        ibv_device **l = lib().ibv_get_device_list(&n);
        if (!l || device >= n)
            abort();
        ctx = lib().ibv_open_device(l[device]);
        lib().ibv_free_device_list(l);
        if (!ctx)
            abort();
        pd = lib().ibv_alloc_pd(ctx);
        channel = lib().ibv_create_comp_channel(ctx);
        cq = lib().ibv_create_cq(ctx, cqe, this, channel, 0);
        buf = static_cast<char *>(aligned_alloc(4096, kSize));
        memset(buf, 0, kSize);
        mr = reg(buf, kSize, kAll);
    }
    End(const End &) = delete;
    End &operator=(const End &) = delete;
    ~End()
    {
        drop();
        EXPECT_EQ(lib().ibv_dereg_mr(mr), 0);
        EXPECT_EQ(lib().ibv_destroy_cq(cq), 0);
        EXPECT_EQ(lib().ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(lib().ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(lib().ibv_close_device(ctx), 0);
        free(buf);
    }
    ibv_mr *reg(void *p, size_t n, int access)
    {
        return lib().ibv_reg_mr_iova2(pd, p, n, reinterpret_cast<uintptr_t>(p), unsigned(access));
    }
    void create(bool sig_all = false)
    {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = cq;
        a.cap = cap;
        a.qp_type = IBV_QPT_RC;
        a.sq_sig_all = sig_all;
        qp = lib().ibv_create_qp(pd, &a);
        if (qp)
            cap = a.cap;
    }
    void drop()
    {
        if (qp) {
            EXPECT_EQ(lib().ibv_destroy_qp(qp), 0);
        }
        qp = nullptr;
    }
    Address address(int gid_index = 1)
    {
        Address a{qp->qp_num, {}};
        EXPECT_EQ(lib().ibv_query_gid(ctx, 1, gid_index, &a.gid), 0);
        return a;
    }
    int to_init(const Params &p = {})
    {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        a.qp_access_flags = unsigned(p.access);
        return lib().ibv_modify_qp(
            qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    int to_rtr(const Address &peer, const Params &p = {})
    {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTR;
        a.path_mtu = p.mtu;
        a.dest_qp_num = peer.qpn;
        a.rq_psn = p.psn;
        a.max_dest_rd_atomic = uint8_t(p.rd_atomic);
        a.min_rnr_timer = uint8_t(p.rnr_timer);
        a.ah_attr.is_global = 1;
        a.ah_attr.port_num = 1;
        a.ah_attr.grh.dgid = peer.gid;
        a.ah_attr.grh.sgid_index = uint8_t(p.gid_index);
        a.ah_attr.grh.hop_limit = 64;
        return lib().ibv_modify_qp(qp, &a,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER);
    }
    int to_rts(const Params &p = {})
    {
        ibv_qp_attr a{};
        a.qp_state = IBV_QPS_RTS;
        a.timeout = uint8_t(p.timeout);
        a.retry_cnt = uint8_t(p.retry);
        a.rnr_retry = uint8_t(p.rnr_retry);
        a.sq_psn = p.psn;
        a.max_rd_atomic = uint8_t(p.rd_atomic);
        return lib().ibv_modify_qp(qp, &a,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    int to(ibv_qp_state s)
    {
        ibv_qp_attr a{};
        a.qp_state = s;
        return lib().ibv_modify_qp(qp, &a, IBV_QP_STATE);
    }
    int connect(const Address &peer, const Params &p = {})
    {
        int rc = to_init(p);
        if (!rc)
            rc = to_rtr(peer, p);
        return rc ? rc : to_rts(p);
    }
    ibv_sge sge(size_t off, size_t len) const
    {
        return {reinterpret_cast<uintptr_t>(buf) + off, uint32_t(len), mr->lkey};
    }
    // Posts one request on [off, off + len) of this end's buffer.
    int post(ibv_wr_opcode op, size_t off, size_t len, uint64_t id, uint64_t raddr = 0,
             uint32_t rkey = 0, unsigned flags = IBV_SEND_SIGNALED, uint32_t imm = 0)
    {
        ibv_sge s = sge(off, len);
        ibv_send_wr w{}, *bad = nullptr;
        w.wr_id = id;
        w.sg_list = &s;
        w.num_sge = len ? 1 : 0;
        w.opcode = op;
        w.send_flags = flags;
        w.imm_data = imm;
        w.wr.rdma.remote_addr = raddr;
        w.wr.rdma.rkey = rkey;
        return ibv_post_send(qp, &w, &bad);
    }
    int recv(size_t off, size_t len, uint64_t id)
    {
        ibv_sge s = sge(off, len);
        ibv_recv_wr w{}, *bad = nullptr;
        w.wr_id = id;
        w.sg_list = &s;
        w.num_sge = len ? 1 : 0;
        return ibv_post_recv(qp, &w, &bad);
    }
    // Returns the next completion. Its status is -1 if none came in that time.
    ibv_wc wait(double seconds = 20)
    {
        ibv_wc wc{};
        double end = pvn_now_s() + seconds;
        for (;;) {
            int n = ibv_poll_cq(cq, 1, &wc);
            if (n == 1)
                return wc;
            if (n < 0 || pvn_now_s() > end)
                break;
            usleep(100);
        }
        wc.status = static_cast<ibv_wc_status>(31); // not one of the enum
        return wc;
    }
    int poll_all()
    {
        ibv_wc wc[16];
        int n, all = 0;
        while ((n = ibv_poll_cq(cq, 16, wc)) > 0)
            all += n;
        return all;
    }
    uint64_t addr(size_t off = 0) const
    {
        return reinterpret_cast<uintptr_t>(buf) + off;
    }
    void fill(unsigned seed, size_t len)
    {
        for (size_t i = 0; i < len; i++)
            buf[i] = char(i * 7 + seed);
    }
    // Returns the type of the next asynchronous event, which is acknowledged, or -1 if none came.
    int event(int ms = 2000)
    {
        pollfd f{ctx->async_fd, POLLIN, 0};
        ibv_async_event e;
        if (::poll(&f, 1, ms) != 1 || lib().ibv_get_async_event(ctx, &e))
            return -1;
        lib().ibv_ack_async_event(&e);
        return e.event_type;
    }
};

// Two connected ends in one process, on one device or two.
class PairTest : public testing::Test
{
  protected:
    End *a = nullptr, *b = nullptr;
    void start(const std::string &config = "", const Params &p = {}, bool two_devices = false)
    {
        ASSERT_EQ(lib().sv_configure(config.c_str()), 0);
        a = new End(0);
        b = new End(two_devices ? 1 : 0);
        join(p);
    }
    void join(const Params &p = {}, bool sig_all = false)
    {
        a->drop();
        b->drop();
        a->create(sig_all);
        b->create(sig_all);
        ASSERT_TRUE(a->qp && b->qp);
        ASSERT_EQ(a->connect(b->address(p.gid_index), p), 0);
        ASSERT_EQ(b->connect(a->address(p.gid_index), p), 0);
    }
    void TearDown() override
    {
        delete a;
        delete b;
    }
};

} // namespace sv

#endif
