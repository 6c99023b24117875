// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin inside a process that is not its own: what it leaves alone, its life cycle, its
// devices.
#include "abi/nccl_side.h"
#include "nccl/net_v4.h"
#include "support/netns.h"

#include <algorithm>
#include <climits>
#include <atomic>
#include <csignal>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nccl;

namespace
{

int threads()
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    while (dirent *e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

std::vector<std::string> environment_now()
{
    std::vector<std::string> v;
    for (char **e = environ; *e; e++)
        v.emplace_back(*e);
    return v;
}

std::vector<void (*)(int)> handlers()
{
    std::vector<void (*)(int)> v;
    for (int s = 1; s < 65; s++) {
        struct sigaction sa = {};
        sigaction(s, nullptr, &sa);
        v.push_back(sa.sa_handler);
    }
    return v;
}

std::string output_of(const std::string &cmd)
{
    std::string out;
    FILE *f = popen((cmd + " 2>/dev/null").c_str(), "r");
    char buf[4096];
    size_t n;
    while (f && (n = fread(buf, 1, sizeof(buf), f)) > 0)
        out.append(buf, n);
    return f && pclose(f) == 0 ? out : "";
}

TEST(Guest, ExportsNothingButThePluginTables)
{
    std::string out = output_of(std::string("nm -D --defined-only ") + plugin_path());
    if (out.empty())
        GTEST_SKIP() << "nm is not installed";
    std::set<std::string> got, want;
    for (size_t at = 0; at < out.size();) {
        size_t end = out.find('\n', at);
        std::string line = out.substr(at, end - at);
        got.insert(line.substr(line.rfind(' ') + 1));
        at = end + 1;
    }
    for (int v = 4; v <= 12; v++)
        want.insert("ncclNetPlugin_v" + std::to_string(v));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    for (auto &w : want)
        EXPECT_TRUE(got.count(w)) << w;
#else
    EXPECT_EQ(want, got);
#endif
}

TEST(Guest, NeedsNoLibraryThatMayBeMissing)
{
    std::string out = output_of(std::string("readelf -d ") + plugin_path());
    if (out.empty())
        GTEST_SKIP() << "readelf is not installed";
    for (const char *lib : {"libibverbs", "libnl", "libcuda", "librdmacm", "libpci"})
        EXPECT_EQ(std::string::npos, out.find(lib)) << lib;
    setenv("NCCL_PVRDMA_NL_LIB", "/nonexistent/libnl-route.so", 1);
    setenv("NCCL_PVRDMA_VERBS_LIB", "/nonexistent/libibverbs.so", 1);
    setenv("NCCL_PVRDMA_CUDA_LIB", "/nonexistent/libcuda.so", 1);
    Log::get().clear();
    {
        Net n(12);
        EXPECT_EQ(ncclSuccess, n.rc);
        EXPECT_NE(std::string::npos, Log::get().text().find("/nonexistent/libnl-route.so"))
            << "said, not fatal: " << Log::get().text();
        EXPECT_EQ(1u,
                  Log::get().warnings().find(
                      "ET/PVRDMA : NCCL_PVRDMA_VERBS_LIB=/nonexistent/libibverbs.so: cannot open "
                      "shared object file: No such file or directory; correct it or unset it\n"))
            << Log::get().warnings();
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {1000});
        EXPECT_TRUE(f.run());
        f.check();
    }
    unsetenv("NCCL_PVRDMA_NL_LIB");
    unsetenv("NCCL_PVRDMA_VERBS_LIB");
    unsetenv("NCCL_PVRDMA_CUDA_LIB");
}

// If the library that NCCL's variable names is missing, NCCL uses the default library. The plugin
// has to do so, too, or a job would lose RDMA.
TEST(Guest, NcclsVerbsLibraryThatIsMissingIsNoError)
{
    setenv("NCCL_IBVERBS_LIB", "/nonexistent/libibverbs.so", 1);
    Log::get().clear();
    {
        Net n(12);
        EXPECT_EQ(ncclSuccess, n.rc);
    }
    unsetenv("NCCL_IBVERBS_LIB");
    std::string text = Log::get().text();
    EXPECT_NE(std::string::npos,
              text.find("NCCL_IBVERBS_LIB=/nonexistent/libibverbs.so cannot be used"))
        << text;
    EXPECT_EQ("", Log::get().warnings());
}

TEST(Guest, LeavesTheProcessAsItWas)
{
    {
        Net warm(12); // opens what libc opens once per process
        Pair p(warm);
    }
    auto fds = descriptors();
    auto env = environment_now();
    auto sig = handlers();
    int tasks = threads();
    for (int abi : {12, 11, 9, 5}) {
        Net n(abi);
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {1, 100000});
        EXPECT_TRUE(f.run());
        EXPECT_EQ(tasks + 1, threads()) << "the one that keeps the statistics up to date";
        EXPECT_EQ(env, environment_now());
        EXPECT_TRUE(sig == handlers());
        for (int fd : descriptors())
            if (!fds.count(fd)) {
                EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC) << "descriptor " << fd;
            }
        p.close();
        for (Deadline wait; wait.left() && threads() != tasks;)
            usleep(1000); // a joined thread stays in /proc for a moment
        EXPECT_EQ(tasks, threads());
        EXPECT_EQ(fds, descriptors()) << "nothing is open while nothing is connected";
    }
    EXPECT_EQ(fds, descriptors());
    EXPECT_TRUE(sig == handlers());
}

TEST(Guest, BannerSaysVersionDevicesAndWhy)
{
    Log::get().clear();
    Net n(11);
    std::string t = Log::get().text();
    EXPECT_NE(std::string::npos, t.find("nccl-net-pvrdma 0.")) << t;
    EXPECT_NE(std::string::npos, t.find("interface v11")) << t;
    EXPECT_NE(std::string::npos, t.find("1 device")) << t;
    EXPECT_NE(std::string::npos, t.find("device 0: lo 127.0.0.1, tcp")) << t;
    EXPECT_NE(std::string::npos, t.find("NCCL_SOCKET_IFNAME")) << "why: " << t;
}

TEST(Guest, NoUsableInterface)
{
    setenv("NCCL_SOCKET_IFNAME", "=nosuchif0", 1);
    Log::get().clear();
    {
        Net n(12);
        int ndev = -1;
        EXPECT_EQ(ncclSuccess, n.rc);
        EXPECT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
        EXPECT_EQ(0, ndev);
        EXPECT_NE(std::string::npos, Log::get().warnings().find("nosuchif0"));
        EXPECT_NE(std::string::npos, Log::get().warnings().find("lo")) << "what there is";
    }
    setenv("NCCL_PVRDMA_STRICT", "1", 1);
    {
        Net n(12);
        EXPECT_NE(ncclSuccess, n.rc);
    }
    unsetenv("NCCL_PVRDMA_STRICT");
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

TEST(Guest, BadParameterRefusesInit)
{
    setenv("NCCL_PVRDMA_HELLO_TIMEOUT", "soon", 1);
    Log::get().clear();
    {
        Net n(12);
        EXPECT_EQ(ncclInvalidUsage, n.rc);
        EXPECT_NE(std::string::npos, Log::get().warnings().find("NCCL_PVRDMA_HELLO_TIMEOUT"));
    }
    unsetenv("NCCL_PVRDMA_HELLO_TIMEOUT");
    Net n(12);
    EXPECT_EQ(ncclSuccess, n.rc);
}

// A host without RDMA, or without libibverbs. The user named an adapter, so the plugin reports that
// it is missing.
TEST(Guest, AnAdapterThatIsNamedIsMissed)
{
    setenv("NCCL_PVRDMA_IB_HCA", "nosuchhca_0", 1);
    Log::get().clear();
    {
        Net n(12);
        EXPECT_EQ(ncclSuccess, n.rc);
        EXPECT_TRUE(Log::get().warned({"NCCL_PVRDMA_IB_HCA=nosuchhca_0"})) << Log::get().warnings();
    }
    setenv("NCCL_PVRDMA_STRICT", "1", 1);
    {
        Net n(12);
        EXPECT_NE(ncclSuccess, n.rc);
    }
    unsetenv("NCCL_PVRDMA_IB_HCA");
    setenv("NCCL_IB_HCA", "nosuchhca", 1);
    {
        Net n(12);
        EXPECT_NE(ncclSuccess, n.rc) << "NCCL's own variable";
    }
    unsetenv("NCCL_PVRDMA_STRICT");
    {
        Net n(12);
        EXPECT_EQ(ncclSuccess, n.rc);
    }
    unsetenv("NCCL_IB_HCA");
}

// If init failed, NCCL would use a transport of its own, which does not encrypt although the user
// requested a key.
TEST(Guest, AKeyThatCannotBeUsedIsNoReasonToGoOnWithoutOne)
{
    setenv("NCCL_PVRDMA_KEY_FILE", "/nonexistent/key", 1);
    Log::get().clear();
    {
        Net n(12);
        ASSERT_EQ(ncclSuccess, n.rc) << "NCCL uses another transport";
        int ndev = 0;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
        EXPECT_GT(ndev, 0) << "NCCL uses another transport";
        EXPECT_TRUE(Log::get().warned(
            {"this rank refuses every connection, since without the key its data "
             "would go unencrypted: NCCL_PVRDMA_KEY_FILE: /nonexistent/key cannot "
             "be opened: No such file or directory; every rank needs it: "
             "copy the job's key file to this host"}))
            << Log::get().warnings();
        const std::string said = Log::get().warnings();
        char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *l = nullptr, *s = nullptr;
        EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &l));
        EXPECT_EQ(nullptr, l);
        EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &s));
        EXPECT_EQ(nullptr, s);
        EXPECT_EQ(said, Log::get().warnings()) << "once within a start";
    }
    unsetenv("NCCL_PVRDMA_KEY_FILE");
    Net n(12);
    Pair p(n);
    EXPECT_TRUE(p.up()) << "the refusal has stayed";
}

// ---- life ----

TEST(Life, FinalizeAndInitAgain)
{
    Net n(12);
    for (int i = 0; i < 3; i++) {
        ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
        EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
        int ndev;
        EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_devices(n.d, &ndev)) << "finalized";
        n.ctx = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_init(n.d, &n.ctx, 1, &config, logger, nullptr));
        Pair p(n);
        ASSERT_TRUE(p.up());
        Flow f = plain(p, {5});
        EXPECT_TRUE(f.run());
    }
}

TEST(Life, CommsOutliveTheLastFinalize)
{
    Net n(12);
    Pair p(n);
    ASSERT_TRUE(p.up());
    EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
    Flow f = plain(p, {5, 100000});
    EXPECT_TRUE(f.run()) << "what is open works";
    f.check();
    p.close();
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    ASSERT_EQ(ncclSuccess, pvn_netdrv_init(n.d, &n.ctx, 1, &config, logger, nullptr));
}

// One communicator is aborted while it connects; another one goes on.
TEST(Life, FinalizeGivesUpTheConnectionsOfItsOwn)
{
    Net n(12);
    alignas(8) char handle[2][NCCL_NET_HANDLE_MAXSIZE] = {};
    void *lc[2] = {}, *sc = nullptr, *rc = nullptr;
    for (int i = 0; i < 2; i++)
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle[i], &lc[i]));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle[0], &sc));
    ASSERT_EQ(nullptr, sc);
    std::set<int> before = descriptors();
    {
        Net aborted(12);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_connect(aborted.d, aborted.ctx, 0, handle[1], &sc));
        ASSERT_EQ(nullptr, sc);
        ASSERT_LT(before.size(), descriptors().size());
    }
    EXPECT_EQ(before, descriptors());
    EXPECT_TRUE(eventually([&] {
        return (!sc && pvn_netdrv_connect(n.d, n.ctx, 0, handle[0], &sc)) ||
               (!rc && pvn_netdrv_accept(n.d, lc[0], &rc)) || (sc && rc);
    }));
    EXPECT_TRUE(sc && rc) << "that of the other communicator";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, sc));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
    for (void *l : lc)
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, l));
}

// How many statistics files /proc shows among this process's mappings and open files.
int statistics_mapped()
{
    const std::string pid = std::to_string(getpid());
    return std::stoi(output_of("grep -c '/" + pid + "-.*[.]stat' /proc/" + pid + "/maps || true"));
}

int statistics_files()
{
    const char *dir = getenv("NCCL_PVRDMA_STATS_DIR");
    std::string where = dir ? dir : "/dev/shm/nccl-net-pvrdma-" + std::to_string(geteuid());
    return std::stoi(
        output_of("ls " + where + " | grep -c ^" + std::to_string(getpid()) + "- || true"));
}

// When NCCL aborts while it connects, it calls finalize but never closeListen.
TEST(Life, FinalizeClosesTheListenersOfItsOwn)
{
    Net other(12);
    alignas(8) char handle[2][NCCL_NET_HANDLE_MAXSIZE] = {};
    void *kept = nullptr, *left = nullptr, *rc = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(other.d, other.ctx, 0, handle[0], &kept));
    std::set<int> before = descriptors();
    {
        Net aborted(12);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(aborted.d, aborted.ctx, 0, handle[1], &left));
        ASSERT_LT(before.size(), descriptors().size()) << "there is something to leave";
    }
    EXPECT_EQ(before, descriptors());
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_close_listen(other.d, left)) << "closed already";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_accept(other.d, kept, &rc)) << "another context's";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(other.d, kept));
}

// Versions before v11 have no finalize. Listeners and unfinished connections stay until the library
// is unmapped. So do the statistics, because each of them has a row.
TEST(Life, DlcloseClosesListenersAndUnfinishedConnections)
{
    for (int abi : {4, 5, 8, 10, 12}) {
        const std::set<int> before = descriptors();
        const int maps = statistics_mapped(), files = statistics_files();
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *left = nullptr, *sc = nullptr;
        {
            Net n(abi);
            ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &left));
            if (abi > 4) { // v4's connect waits for the peer
                ASSERT_EQ(ncclSuccess, pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc));
            }
            ASSERT_EQ(nullptr, sc);
            ASSERT_LT(before.size() + 1, descriptors().size()) << "there is something to leave";
        }
        EXPECT_EQ(before, descriptors()) << "v" << abi;
        EXPECT_EQ(maps, statistics_mapped()) << "v" << abi;
        EXPECT_EQ(files, statistics_files()) << "v" << abi;
    }
}

TEST(Life, DlcloseLeavesNoStatistics)
{
    for (int abi : {4, 8, 10, 12}) {
        const int maps = statistics_mapped(), files = statistics_files();
        {
            Net n(abi);
            EXPECT_EQ(maps + 1, statistics_mapped());
            EXPECT_EQ(files + 1, statistics_files());
        }
        EXPECT_EQ(maps, statistics_mapped()) << "v" << abi;
        EXPECT_EQ(files, statistics_files()) << "v" << abi;
    }
}

TEST(Life, SeveralCommunicatorsAndVersionsAtOnce)
{
    Net a(12), b(12), c(9), d(4);
    ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
    void *ctx2 = nullptr;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_init(a.d, &ctx2, 2, &config, logger, nullptr));
    EXPECT_NE(a.ctx, ctx2);
    Pair pa(a), pb(b), pc(c), pd(d);
    ASSERT_TRUE(pa.up() && pb.up() && pc.up() && pd.up());
    EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(a.d, ctx2));
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_finalize(a.d, ctx2)) << "twice";
    for (Pair *p : {&pa, &pb, &pc, &pd}) {
        Flow f = plain(*p, {1, 2000, 300000});
        EXPECT_TRUE(f.run());
        f.check();
    }
}

TEST(Life, SetNetAttrIsAccepted)
{
    Net n(12);
    ncclNetAttr_v12_t attr;
    memset(&attr, 0xff, sizeof(attr));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_set_attr(n.d, n.ctx, &attr));
}

// v4's connect and accept block. A ring in which every rank connects first must not deadlock, in
// whatever order one thread calls the ranks.
TEST(Life, ARingOfBlockingCallsInOneThread)
{
    void *lib = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nullptr, lib) << dlerror();
    auto *net = static_cast<const ncclNet_v4_t *>(dlsym(lib, "ncclNetPlugin_v4"));
    ASSERT_NE(nullptr, net);
    ASSERT_EQ(ncclSuccess, net->init(logger));
    const int n = 5;
    alignas(8) char handle[n][NCCL_NET_HANDLE_MAXSIZE_V4];
    void *l[n], *s[n], *r[n];
    for (int i = 0; i < n; i++)
        ASSERT_EQ(ncclSuccess, net->listen(0, handle[i], &l[i]));
    for (int i = 0; i < n; i++)
        ASSERT_EQ(ncclSuccess, net->connect(0, handle[(i + 1) % n], &s[i]));
    for (int i = 0; i < n; i++) {
        ASSERT_EQ(ncclSuccess, net->accept(l[i], &r[i]));
        ASSERT_EQ(ncclSuccess, net->closeListen(l[i])) << "as NCCL does, before the first transfer";
    }
    // Every rank sends its number around the ring.
    std::vector<int> out(n), in(n, -1);
    std::vector<void *> sr(n), rr(n);
    std::vector<int> sd(n), rd(n);
    EXPECT_TRUE(eventually([&] {
        bool all = true;
        for (int i = 0; i < n; i++) {
            out[i] = i;
            if (!rr[i]) {
                EXPECT_EQ(ncclSuccess, net->irecv(r[i], &in[i], sizeof(int), nullptr, &rr[i]));
            }
            if (!sr[i]) {
                EXPECT_EQ(ncclSuccess, net->isend(s[i], &out[i], sizeof(int), nullptr, &sr[i]));
            }
            if (sr[i] && !sd[i]) {
                EXPECT_EQ(ncclSuccess, net->test(sr[i], &sd[i], nullptr));
            }
            if (rr[i] && !rd[i]) {
                EXPECT_EQ(ncclSuccess, net->test(rr[i], &rd[i], nullptr));
            }
            all = all && sd[i] && rd[i];
        }
        return all || HasFailure();
    }));
    for (int i = 0; i < n; i++) {
        EXPECT_EQ(i, in[(i + 1) % n]);
        EXPECT_EQ(ncclSuccess, net->closeSend(s[i]));
        EXPECT_EQ(ncclSuccess, net->closeRecv(r[i]));
    }
    dlclose(lib);
}

TEST(Life, AJobRunsOverIpv6)
{
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 in6 = {};
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    bool there = probe >= 0 && bind(probe, reinterpret_cast<sockaddr *>(&in6), sizeof(in6)) == 0;
    close(probe);
    if (!there)
        GTEST_SKIP() << "no IPv6 on loopback";
    setenv("NCCL_SOCKET_FAMILY", "AF_INET6", 1);
    setenv("NCCL_PVRDMA_TC", "0x60", 1);
    setenv("NCCL_PVRDMA_TCP_STREAMS", "1", 1);
    {
        Log::get().clear();
        Net n(12);
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_NE(std::string::npos, Log::get().text().find("[::1]:")) << Log::get().text();
        Flow f = plain(p, {1, 100000, 0});
        EXPECT_TRUE(f.run());
        f.check();
        int classed = 0;
        for (int fd : descriptors()) {
            int v = -1;
            socklen_t len = sizeof(v);
            if (getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &v, &len) == 0 && v == 0x60)
                classed++;
        }
        EXPECT_EQ(4, classed);
    }
    unsetenv("NCCL_PVRDMA_TCP_STREAMS");
    unsetenv("NCCL_PVRDMA_TC");
    unsetenv("NCCL_SOCKET_FAMILY");
}

// ---- devices, traffic class ----

TEST(Devices, AVirtualDeviceIsMadeOfDistinctKnownOnes)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    Net n(12);
    ncclNetVDeviceProps_v12_t v = {};
    int d = -1;
    v.ndevs = 1;
    v.devs[0] = 0;
    EXPECT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &d, &v));
    EXPECT_EQ(0, d) << "of one device: that device";
    v.ndevs = 2;
    v.devs[1] = 0;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_make_vdevice(n.d, &d, &v)) << "the same twice";
    v.devs[1] = 7;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_make_vdevice(n.d, &d, &v));
    v.ndevs = 0;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_make_vdevice(n.d, &d, &v));
    v.ndevs = 9;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_make_vdevice(n.d, &d, &v));
}

// If NCCL cannot place a device in its tree, it finds no path from a GPU to it and ends the job.
TEST(Devices, WithoutPciStayApart)
{
    std::string why = pvn_test::in_netns([] {
        ASSERT_TRUE(pvn_test::sh(
            "ip link set lo up && ip link add va type veth peer name vb && "
            "ip addr add 198.51.100.1/25 dev va && ip addr add 198.51.100.129/25 dev vb "
            "&& ip link set va up && ip link set vb up"));
        ASSERT_TRUE(pvn_test::links_run("va vb"));
        setenv("NCCL_SOCKET_IFNAME", "=va,vb", 1);
        for (int abi : {9, 10, 11, 12}) {
            Log::get().clear();
            Net n(abi);
            int ndev = 0, d = -1;
            ncclNetVDeviceProps_v12_t v = {};
            v.ndevs = 2;
            v.devs[1] = 1;
            EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_make_vdevice(n.d, &d, &v));
            EXPECT_TRUE(said("va and vb are not joined") || said("vb and va are not joined"));
            EXPECT_TRUE(said("va has no PCI device") && said("vb has no PCI device"))
                << Log::get().text();
            EXPECT_EQ("", Log::get().warnings()) << "NCCL goes on";
            ASSERT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
            EXPECT_EQ(2, ndev);
            Pair p(n, 1);
            ASSERT_TRUE(p.up());
            Flow f = plain(p, {1, 100000});
            EXPECT_TRUE(f.run());
            f.check();
        }
        setenv("NCCL_PVRDMA_VDEVICE", "0", 1);
        Log::get().clear();
        Net n(12);
        int d = -1;
        ncclNetVDeviceProps_v12_t v = {};
        v.ndevs = 2;
        v.devs[1] = 1;
        EXPECT_EQ(ncclInvalidUsage, pvn_netdrv_make_vdevice(n.d, &d, &v));
        EXPECT_TRUE(said("NCCL_PVRDMA_VDEVICE=0")) << Log::get().text();
    });
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    unsetenv("NCCL_PVRDMA_VDEVICE");
    if (!why.empty())
        GTEST_SKIP() << why;
}

// Runs `body` where two interfaces, va and vb, exist that NCCL may join.
std::string with_two_to_join(const std::function<void()> &body)
{
    std::string why = pvn_test::in_netns([&] {
        ASSERT_TRUE(pvn_test::sh(
            "ip link set lo up && ip link add va type veth peer name vb && "
            "ip addr add 198.51.100.1/25 dev va && ip addr add 198.51.100.129/25 dev vb "
            "&& ip link set va up && ip link set vb up"));
        ASSERT_TRUE(pvn_test::links_run("va vb"));
        setenv("NCCL_SOCKET_IFNAME", "=va,vb", 1);
        setenv("NCCL_PVRDMA_VDEVICE", "1", 1); // joins devices even without PCI paths
        body();
    });
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    unsetenv("NCCL_PVRDMA_VDEVICE");
    return why;
}

// Joins both interfaces. The comm gets a lane on each, and both carry data.
void join_two(int abi)
{
    Log::get().clear();
    Net n(abi);
    int ndev = 0, d = -1, again = -1;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
    ASSERT_EQ(2, ndev) << Log::get().text();
    ncclNetVDeviceProps_v12_t v = {};
    v.ndevs = 2;
    v.devs[1] = 1;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &d, &v)) << Log::get().text();
    EXPECT_EQ(2, d);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_make_vdevice(n.d, &again, &v));
    EXPECT_EQ(d, again) << "another communicator's wish for the same";
    ncclNetProperties_v12_t one, both;
    ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, 0, &one));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_properties(n.d, d, &both));
    EXPECT_EQ(std::string(one.name) == "va" ? "va+vb" : "vb+va", std::string(both.name));
    EXPECT_EQ(2, both.vProps.ndevs);
    EXPECT_EQ(1, both.vProps.devs[1]);
    EXPECT_EQ(2 * one.speed, both.speed);
    // After the last finalize, NCCL either makes the virtual device again, as if it had just loaded
    // the plugin, or goes on with the one it has.
    for (bool counts : {true, false}) {
        if (abi < 11)
            break;
        ncclNetCommConfig_v12_t config = {NCCL_NET_TRAFFIC_CLASS_UNDEF};
        ASSERT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_init(n.d, &n.ctx, 1, &config, logger, nullptr));
        ASSERT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
        EXPECT_EQ(2, ndev);
        EXPECT_EQ(ncclSuccess, counts ? pvn_netdrv_make_vdevice(n.d, &again, &v)
                                      : pvn_netdrv_properties(n.d, d, &both));
        EXPECT_EQ(d, again);
        EXPECT_EQ(2, both.vProps.ndevs);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_devices(n.d, &ndev));
        EXPECT_EQ(3, ndev);
    }
    v.devs[1] = d;
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_make_vdevice(n.d, &again, &v)) << "of a virtual one";

    Pair p(n, d);
    ASSERT_TRUE(p.up()) << Log::get().text();
    EXPECT_NE(std::string::npos, Log::get().text().find("2 lanes")) << Log::get().text();
    Flow f = plain(p, {1, 3000000, 0, 700000, 64, 5000000});
    EXPECT_TRUE(f.run());
    f.check();
}

TEST(Devices, TwoJoinedInterfacesBothCarryData)
{
    std::string why = with_two_to_join([] { join_two(12); });
    if (!why.empty())
        GTEST_SKIP() << why;
}

// NCCL 2.24 and 2.25 unload the plugin with the last communicator and load it again with the next.
// Then they use the device that they had joined before. The test runs in a process of its own,
// because the library stays mapped.
TEST(Devices, AreJoinedStillWhenAnOlderNcclLoadsThePluginAgain)
{
    const int no_namespace = 77;
    for (int abi : {9, 10}) {
        pid_t pid = fork();
        if (pid == 0) {
            std::string why = with_two_to_join([&] {
                join_two(abi);
                Net again(abi);
                ncclNetProperties_v12_t both;
                EXPECT_EQ(ncclSuccess, pvn_netdrv_properties(again.d, 2, &both));
            });
            _exit(why.empty() ? testing::Test::HasFailure() : no_namespace);
        }
        int status = -1;
        ASSERT_EQ(pid, waitpid(pid, &status, 0));
        if (WIFEXITED(status) && WEXITSTATUS(status) == no_namespace)
            GTEST_SKIP() << "no network namespace of its own";
        EXPECT_EQ(0, status) << "interface v" << abi;
    }
}

// How many sockets of this process have this TOS.
int sockets_with_tos(int tos)
{
    int n = 0;
    for (int fd : descriptors()) {
        int v = -1, type = 0, listening = 0;
        socklen_t len = sizeof(v), tl = sizeof(type), ll = sizeof(listening);
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &tl) != 0 || type != SOCK_STREAM)
            continue;
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &ll);
        if (!listening && getsockopt(fd, IPPROTO_IP, IP_TOS, &v, &len) == 0 && v == tos)
            n++;
    }
    return n;
}

TEST(TrafficClass, ParameterThenCommunicatorThenNone)
{
    // If a lane has one stream, a pair has two control sockets and two data sockets in this process.
    setenv("NCCL_PVRDMA_TCP_STREAMS", "1", 1);
    {
        Net n(12, 0xb8);
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(4, sockets_with_tos(0xb8));
    }
    {
        Net n(10, 0x48); // v10 passes it to connect only; the acceptor gets it from HELLO
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(4, sockets_with_tos(0x48));
    }
    setenv("NCCL_PVRDMA_TC", "0x20", 1);
    {
        Net n(12);
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(4, sockets_with_tos(0x20));
        EXPECT_EQ(0, sockets_with_tos(0xb8));
    }
    for (const char *name : {"NCCL_PVRDMA_TC", "NCCL_IB_TC"}) {
        unsetenv("NCCL_PVRDMA_TC");
        setenv(name, "0x20", 1);
        for (int abi : {10, 12}) {
            Net n(abi, 0xb8);
            Pair p(n);
            ASSERT_TRUE(p.up());
            EXPECT_EQ(4, sockets_with_tos(0x20)) << name << ", interface v" << abi;
            EXPECT_EQ(0, sockets_with_tos(0xb8));
        }
    }
    setenv("NCCL_PVRDMA_TC_FORCE", "0", 1);
    {
        Net n(12, 0xb8);
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(4, sockets_with_tos(0xb8));
    }
    unsetenv("NCCL_IB_TC");
    unsetenv("NCCL_PVRDMA_TC_FORCE");
    Log::get().clear();
    {
        Net n(12, 300);
        EXPECT_NE(std::string::npos, Log::get().warnings().find("300"));
        Pair p(n);
        ASSERT_TRUE(p.up());
        EXPECT_EQ(4, sockets_with_tos(0));
    }
    unsetenv("NCCL_PVRDMA_TCP_STREAMS");
}

} // namespace
