// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Devices, ports, GID tables, events, profiles, configuration, the sysfs tree, and the library
// itself.
#include "softverbs/fixture.h"
#include "tests/support/paths.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace
{

using namespace sv;

std::string slurp(const std::string &path)
{
    std::ifstream f(path);
    if (!f)
        return "(no file)";
    std::stringstream s;
    s << f.rdbuf();
    std::string t = s.str();
    if (!t.empty() && t.back() == '\n')
        t.pop_back();
    return t;
}

// Opens the n-th device of a configuration.
struct Device {
    ibv_context *ctx = nullptr;
    std::string name;
    explicit Device(const std::string &config, int n = 0)
    {
        EXPECT_EQ(lib().sv_configure(config.c_str()), 0);
        int count = 0;
        ibv_device **l = lib().ibv_get_device_list(&count);
        EXPECT_GT(count, n);
        if (count > n) {
            name = l[n]->name;
            ctx = lib().ibv_open_device(l[n]);
        }
        lib().ibv_free_device_list(l);
    }
    ~Device()
    {
        EXPECT_EQ(lib().ibv_close_device(ctx), 0);
    }
    ibv_port_attr port(uint8_t n)
    {
        ibv_port_attr a{};
        verbs_context *v = verbs_get_ctx_op(ctx, query_port);
        EXPECT_EQ(v->query_port(ctx, n, &a, sizeof a), 0);
        return a;
    }
    ibv_device_attr attr()
    {
        ibv_device_attr a;
        EXPECT_EQ(lib().ibv_query_device(ctx, &a), 0);
        return a;
    }
    std::vector<ibv_gid_entry> gids()
    {
        std::vector<ibv_gid_entry> t(64);
        ssize_t n = lib()._ibv_query_gid_table(ctx, t.data(), t.size(), 0, sizeof t[0]);
        EXPECT_GE(n, 0);
        t.resize(size_t(n < 0 ? 0 : n));
        return t;
    }
};

TEST(Device, PvrdmaIsWhatTheDriverReports)
{
    Device d("profile pvrdma");
    ibv_device_attr a = d.attr();
    EXPECT_EQ(d.name, "vmw_pvrdma0");
    EXPECT_EQ(a.vendor_id, 0x15adu);
    EXPECT_EQ(a.vendor_part_id, 0x0820u);
    EXPECT_EQ(a.max_sge, 4);
    EXPECT_EQ(a.max_cqe, 28672);
    EXPECT_EQ(a.max_mr_size, 1u << 30);
    ibv_port_attr p = d.port(1);
    EXPECT_EQ(p.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(p.max_msg_sz, 1024u) << "absurd, and not enforced: rc_test sends a MiB";
    EXPECT_EQ(p.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(p.lid, 0);
    EXPECT_EQ(d.ctx->num_comp_vectors, 1);
    auto t = d.gids();
    ASSERT_EQ(t.size(), 2u) << "link-local and IPv4, one RoCE version";
    EXPECT_EQ(t[0].gid.raw[0], 0xfe);
    EXPECT_EQ(t[1].gid.raw[11], 0xff);
    EXPECT_EQ(t[0].gid_type, IBV_GID_TYPE_ROCE_V2);
}

TEST(Device, PvrdmaQueuesHaveItsLimits)
{
    Device d("profile pvrdma");
    for (auto &c : std::vector<std::pair<int, int>>{
             {1, 0}, {3000, 0}, {4096, 0}, {4097, EFAULT}, {28673, EINVAL}, {0, EINVAL}}) {
        errno = 0;
        ibv_cq *q = lib().ibv_create_cq(d.ctx, c.first, nullptr, nullptr, 0);
        EXPECT_EQ(q == nullptr, c.second != 0) << c.first;
        EXPECT_EQ(errno, c.second) << c.first;
        if (q) {
            EXPECT_EQ(q->cqe & (q->cqe - 1), 0) << "a power of two";
            EXPECT_GE(q->cqe, c.first);
            EXPECT_EQ(lib().ibv_destroy_cq(q), 0);
        }
    }
    EXPECT_EQ(lib().ibv_create_cq(d.ctx, 16, nullptr, nullptr, 1), nullptr)
        << "there is one completion vector";
    ibv_pd *pd = lib().ibv_alloc_pd(d.ctx);
    ibv_cq *cq = lib().ibv_create_cq(d.ctx, 16, nullptr, nullptr, 0);
    struct {
        uint32_t wr, sge;
        int err;
    } const qps[] = {{4096, 1, 0},      {4097, 1, EFAULT}, {2048, 4, 0},
                     {4096, 4, EFAULT}, {16, 5, EINVAL},   {20000, 1, EINVAL}};
    for (auto &c : qps) {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = cq;
        a.qp_type = IBV_QPT_RC;
        a.cap = {c.wr, 16, c.sge, 1, 64};
        errno = 0;
        ibv_qp *q = lib().ibv_create_qp(pd, &a);
        EXPECT_EQ(errno, c.err) << c.wr << " x " << c.sge;
        EXPECT_EQ(q == nullptr, c.err != 0);
        if (q) {
            EXPECT_EQ(a.cap.max_inline_data, 0u);
            EXPECT_EQ(lib().ibv_destroy_qp(q), 0);
        }
    }
    ibv_qp_init_attr uc{};
    uc.send_cq = uc.recv_cq = cq;
    uc.qp_type = IBV_QPT_UC;
    EXPECT_EQ(lib().ibv_create_qp(pd, &uc), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(lib().ibv_destroy_cq(cq), 0);
    EXPECT_EQ(lib().ibv_dealloc_pd(pd), 0);
}

TEST(Device, EachProfileHasItsNamesPortsAndGids)
{
    {
        Device d("profile roce\nset devices 3\nset ports 2", 2);
        EXPECT_EQ(d.name, "mlx5_2");
        EXPECT_EQ(d.attr().phys_port_cnt, 2);
        auto t = d.gids();
        ASSERT_EQ(t.size(), 8u) << "two ports, two addresses, two versions";
        EXPECT_EQ(t[0].gid_type, IBV_GID_TYPE_ROCE_V1);
        EXPECT_EQ(t[1].gid_type, IBV_GID_TYPE_ROCE_V2);
        EXPECT_EQ(t[4].port_num, 2u);
        EXPECT_EQ(d.port(2).active_speed, 64);
    }
    {
        Device d("profile ib");
        EXPECT_EQ(d.port(1).link_layer, IBV_LINK_LAYER_INFINIBAND);
        EXPECT_NE(d.port(1).lid, 0);
        EXPECT_EQ(d.gids().at(0).gid_type, IBV_GID_TYPE_IB);
    }
    {
        Device d("profile rxe\nset dev_name soft");
        EXPECT_EQ(d.name, "soft0");
    }
}

TEST(Device, AListWithoutDevicesIsEmpty)
{
    ASSERT_EQ(lib().sv_configure("set devices 0"), 0);
    int n = 5;
    ibv_device **l = lib().ibv_get_device_list(&n);
    ASSERT_NE(l, nullptr);
    EXPECT_EQ(n, 0);
    EXPECT_EQ(l[0], nullptr);
    lib().ibv_free_device_list(l);
}

TEST(Device, FreeGidRowsReadAsZerosAndOthersFail)
{
    Device d("profile pvrdma\ngid * 1 7 2001:db8::7 v1 eth7");
    ibv_gid g;
    ibv_gid_entry e;
    EXPECT_EQ(lib().ibv_query_gid(d.ctx, 1, 7, &g), 0);
    EXPECT_EQ(g.raw[0], 0x20);
    EXPECT_EQ(lib().ibv_query_gid(d.ctx, 1, 5, &g), 0) << "a free row reads as zeros";
    EXPECT_EQ(g.global.interface_id, 0u);
    EXPECT_EQ(lib().ibv_query_gid(d.ctx, 1, 255, &g), -1);
    EXPECT_EQ(lib().ibv_query_gid(d.ctx, 2, 0, &g), -1);
    EXPECT_EQ(lib()._ibv_query_gid_ex(d.ctx, 1, 7, &e, 0, sizeof e), 0);
    EXPECT_EQ(e.gid_type, IBV_GID_TYPE_ROCE_V1);
    EXPECT_EQ(e.gid_index, 7u);
    EXPECT_EQ(lib()._ibv_query_gid_ex(d.ctx, 1, 5, &e, 0, sizeof e), ENODATA);
    EXPECT_EQ(lib()._ibv_query_gid_ex(d.ctx, 1, 255, &e, 0, sizeof e), EINVAL);
    EXPECT_EQ(lib()._ibv_query_gid_ex(d.ctx, 1, 0, &e, 1, sizeof e), EINVAL)
        << "no flags are known";
    ibv_gid_entry two[2];
    EXPECT_LT(lib()._ibv_query_gid_table(d.ctx, two, 2, 0, sizeof two[0]), 0)
        << "three rows do not fit";
    auto type = reinterpret_cast<int (*)(ibv_context *, uint8_t, unsigned, int *)>(
        dlvsym(lib().handle, "ibv_query_gid_type", "IBVERBS_PRIVATE_34"));
    ASSERT_NE(type, nullptr);
    int t = -1;
    EXPECT_EQ(type(d.ctx, 1, 7, &t), 0);
    EXPECT_EQ(t, 0);
    EXPECT_EQ(type(d.ctx, 1, 1, &t), 0);
    EXPECT_EQ(t, 1);
}

TEST(Device, EventsReachEveryContextOfTheDevice)
{
    Device d("profile roce\nset devices 2");
    int n;
    ibv_device **l = lib().ibv_get_device_list(&n);
    ibv_context *same = lib().ibv_open_device(l[0]), *other = lib().ibv_open_device(l[1]);
    lib().ibv_free_device_list(l);
    auto next = [](ibv_context *c) {
        pollfd f{c->async_fd, POLLIN, 0};
        ibv_async_event e;
        if (poll(&f, 1, 0) != 1 || lib().ibv_get_async_event(c, &e))
            return std::make_pair(-1, -1);
        lib().ibv_ack_async_event(&e);
        return std::make_pair(int(e.event_type), e.element.port_num);
    };
    ASSERT_EQ(command("port mlx5_0 1 down"), 0);
    ASSERT_EQ(command("port mlx5_0 1 down"), 0);
    EXPECT_EQ(d.port(1).state, IBV_PORT_DOWN);
    ASSERT_EQ(command("gid mlx5_0 1 3 none"), 0);
    ASSERT_EQ(command("event mlx5_0 1 LID_CHANGE"), 0);
    ASSERT_EQ(command("fatal mlx5_0"), 0);
    for (ibv_context *c : {d.ctx, same}) {
        EXPECT_EQ(next(c), std::make_pair(int(IBV_EVENT_PORT_ERR), 1));
        EXPECT_EQ(next(c).first, IBV_EVENT_GID_CHANGE);
        EXPECT_EQ(next(c).first, IBV_EVENT_LID_CHANGE);
        EXPECT_EQ(next(c).first, IBV_EVENT_DEVICE_FATAL);
        EXPECT_EQ(next(c).first, -1) << "a port that is down does not go down again";
    }
    EXPECT_EQ(next(other).first, -1);
    EXPECT_EQ(lib().ibv_close_device(same), 0);
    EXPECT_EQ(lib().ibv_close_device(other), 0);
}

TEST(Device, LeaksAreCounted)
{
    char text[512];
    ASSERT_EQ(lib().sv_configure(""), 0);
    {
        End e;
        ASSERT_EQ(lib().sv_command("stat", text, sizeof text), 0);
        EXPECT_NE(strstr(text, "leaked=0"), nullptr) << text;
    }
    ASSERT_EQ(lib().sv_configure(""), 0);
    int n;
    ibv_device **l = lib().ibv_get_device_list(&n);
    ibv_context *c = lib().ibv_open_device(l[0]);
    lib().ibv_free_device_list(l);
    static ibv_pd *forgotten; // reachable, so that LeakSanitizer leaves it to softverbs
    forgotten = lib().ibv_alloc_pd(c);
    ASSERT_NE(forgotten, nullptr);
    EXPECT_EQ(lib().ibv_close_device(c), 0);
    ASSERT_EQ(lib().sv_command("stat", text, sizeof text), 0);
    EXPECT_NE(strstr(text, "leaked=1"), nullptr) << text;
}

// ---- the sysfs tree ----

TEST(Sysfs, FollowsTheDevices)
{
    char root[] = "/tmp/softverbs-sys-XXXXXX";
    ASSERT_NE(mkdtemp(root), nullptr);
    {
        Device d("profile pvrdma");
        ASSERT_EQ(lib().sv_write_sysfs(root), 0);
        std::string ib = std::string(root) + "/class/infiniband/vmw_pvrdma0",
                    port = ib + "/ports/1";
        EXPECT_EQ(slurp(ib + "/node_type"), "1: CA");
        EXPECT_EQ(slurp(ib + "/device/vendor"), "0x15ad");
        EXPECT_EQ(slurp(ib + "/device/device"), "0x0820");
        EXPECT_EQ(slurp(port + "/state"), "4: ACTIVE");
        EXPECT_EQ(slurp(port + "/link_layer"), "Ethernet");
        EXPECT_EQ(slurp(port + "/rate"), "2.5 Gb/sec (1X)");
        EXPECT_EQ(slurp(port + "/gids/1"), "0000:0000:0000:0000:0000:ffff:0a64:0001");
        EXPECT_EQ(slurp(port + "/gids/5"), "0000:0000:0000:0000:0000:0000:0000:0000");
        EXPECT_EQ(slurp(port + "/gid_attrs/types/1"), "RoCE v2");
        EXPECT_EQ(slurp(port + "/gid_attrs/types/5"), "(no file)");
        EXPECT_EQ(slurp(port + "/gid_attrs/ndevs/1"), "sveth0");
        std::string net = std::string(root) + "/class/net/sveth0";
        EXPECT_EQ(slurp(net + "/device/device"), "0x07b0") << "function 0 is the vmxnet3";
        EXPECT_EQ(slurp(net + "/operstate"), "up");
        EXPECT_EQ(slurp(std::string(root) + "/class/infiniband_verbs/uverbs0/ibdev"),
                  "vmw_pvrdma0");
        ASSERT_EQ(command("port * 1 down"), 0);
        ASSERT_EQ(command("gid * 1 1 none"), 0);
        ASSERT_EQ(command("gid * 1 2 192.0.2.9 v1 sveth0"), 0);
        EXPECT_EQ(slurp(port + "/state"), "1: DOWN");
        EXPECT_EQ(slurp(net + "/operstate"), "down");
        EXPECT_EQ(slurp(port + "/gid_attrs/types/1"), "(no file)");
        EXPECT_EQ(slurp(port + "/gid_attrs/types/2"), "IB/RoCE v1");
        EXPECT_EQ(slurp(port + "/gids/2"), "0000:0000:0000:0000:0000:ffff:c000:0209");
    }
    EXPECT_EQ(lib().sv_configure(""), 0);
    EXPECT_EQ(system(("rm -r " + std::string(root)).c_str()), 0);
}

// ---- configuration ----

TEST(Config, MistakesAreRefused)
{
    for (const char *text :
         {"profile nothing", "set max_sge many", "set colour 3", "set devices 17", "set host 0",
          "set max_inline 100000", "gid * 1 1 nonsense", "rule x explode", "hello"})
        EXPECT_NE(lib().sv_configure(text), 0) << text;
    EXPECT_EQ(lib().sv_configure(
                  "# a comment\n\n  profile roce  # another\nset devices 2; set ports 2\r\n"),
              0);
    EXPECT_EQ(lib().sv_configure(""), 0);
}

TEST(Config, ComesFromTheEnvironment)
{
    char file[] = "/tmp/softverbs-conf-XXXXXX";
    int fd = mkstemp(file);
    ASSERT_GE(fd, 0);
    const char text[] = "rule mine drop nth=3\ngid * 1 4 10.9.8.7";
    ASSERT_EQ(write(fd, text, sizeof text - 1), ssize_t(sizeof text - 1));
    close(fd);
    setenv("PVN_SOFTVERBS_PROFILE", "roce", 1);
    setenv("PVN_SOFTVERBS_DEVICES", "4", 1);
    setenv("PVN_SOFTVERBS_HOST", "9", 1);
    setenv("PVN_SOFTVERBS_SET", "set max_sge 7;set ports 2", 1);
    setenv("PVN_SOFTVERBS_FAULTS", file, 1);
    {
        ASSERT_EQ(lib().sv_configure(nullptr), 0);
        int n = 0;
        ibv_device **l = lib().ibv_get_device_list(&n);
        EXPECT_EQ(n, 4);
        ibv_context *c = lib().ibv_open_device(l[3]);
        lib().ibv_free_device_list(l);
        ibv_device_attr a;
        ibv_gid g;
        EXPECT_EQ(lib().ibv_query_device(c, &a), 0);
        EXPECT_EQ(a.max_sge, 7);
        EXPECT_EQ(a.phys_port_cnt, 2);
        EXPECT_EQ(lib().ibv_query_gid(c, 1, 3, &g), 0);
        EXPECT_EQ(g.raw[15], 9) << "the host's number";
        EXPECT_EQ(lib().sv_rule_seen("mine"), 0);
        EXPECT_EQ(lib().ibv_close_device(c), 0);
    }
    setenv("PVN_SOFTVERBS_FAULTS", "/nonexistent/file", 1);
    EXPECT_NE(lib().sv_configure(nullptr), 0);
    for (const char *v : {"PROFILE", "DEVICES", "HOST", "SET", "FAULTS"})
        unsetenv(("PVN_SOFTVERBS_" + std::string(v)).c_str());
    unlink(file);
    EXPECT_EQ(lib().sv_configure(""), 0);
}

// ---- the library as such ----

TEST(Library, SymbolsHaveTheVersionsOfRdmaCore)
{
    void *real = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    struct {
        const char *name, *version;
    } const symbols[] = {
        {"ibv_get_device_list", "IBVERBS_1.1"},
        {"ibv_create_comp_channel", "IBVERBS_1.0"},
        {"ibv_reg_mr", "IBVERBS_1.1"},
        {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
        {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"_ibv_query_gid_ex", "IBVERBS_1.11"},
        {"_ibv_query_gid_table", "IBVERBS_1.11"},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_34"},
        {"ibv_fork_init", "IBVERBS_1.1"},
        {"ibv_query_ece", "IBVERBS_1.10"},
        {"ibv_wc_status_str", "IBVERBS_1.1"},
        {"ibv_get_async_event", "IBVERBS_1.1"},
    };
    for (auto &s : symbols) {
        EXPECT_NE(dlvsym(lib().handle, s.name, s.version), nullptr) << s.name << "@" << s.version;
        EXPECT_EQ(dlvsym(lib().handle, s.name, "IBVERBS_9.9"), nullptr);
        if (real && strcmp(s.version, "IBVERBS_PRIVATE_34")) {
            EXPECT_NE(dlvsym(real, s.name, s.version), nullptr)
                << "not in the real library: " << s.name;
        }
    }
    if (real)
        dlclose(real);
}

TEST(Library, CanBeUnloadedWhenItsDevicesAreClosed)
{
    char copy[] =
        "/tmp/softverbs-lib-XXXXXX"; // a copy, since this process keeps the library itself loaded
    int fd = mkstemp(copy);
    ASSERT_GE(fd, 0);
    std::string image = slurp(library());
    ASSERT_EQ(write(fd, image.data(), image.size()), ssize_t(image.size()));
    close(fd);
    for (int i = 0; i < 3; i++) {
        void *h = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(h, nullptr) << dlerror();
#define LOCAL(name) auto name = reinterpret_cast<decltype(&::name)>(dlsym(h, #name))
        LOCAL(ibv_get_device_list);
        LOCAL(ibv_free_device_list);
        LOCAL(ibv_open_device);
        LOCAL(ibv_close_device);
#undef LOCAL
        ibv_device **l = ibv_get_device_list(nullptr);
        ibv_context *c = ibv_open_device(l[0]);
        EXPECT_NE(c, nullptr);
        ibv_free_device_list(l);
        EXPECT_EQ(ibv_close_device(c), 0);
        EXPECT_EQ(dlclose(h), 0);
        EXPECT_EQ(dlopen(copy, RTLD_NOW | RTLD_NOLOAD), nullptr) << "no thread or handler holds it";
    }
    unlink(copy);
}

TEST(Library, BrokenOnesAreBrokenAsMeant)
{
    void *partial =
        dlopen(PVN_BUILDDIR "/tests/softverbs/.libs/libsvpartial.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(partial, nullptr) << dlerror();
    EXPECT_NE(dlvsym(partial, "ibv_get_device_list", "IBVERBS_1.1"), nullptr);
    EXPECT_EQ(dlsym(partial, "ibv_open_device"), nullptr);
    dlclose(partial);
    void *ancient =
        dlopen(PVN_BUILDDIR "/tests/softverbs/.libs/libsvancient.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(ancient, nullptr) << dlerror();
    EXPECT_EQ(dlvsym(ancient, "ibv_get_device_list", "IBVERBS_1.1"), nullptr);
    dlclose(ancient);
}

} // namespace
