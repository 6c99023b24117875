// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Tests pvn-perf serve and its client: which requests the server accepts and refuses, that other connections do not
// disturb it, and that the end of either ends the other's run.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <functional>

#include "support/deadline.h"
#include "perf/jobs/serve_proto.h"
#include "tests/perf/perf_run.h"

namespace
{

// ---- what is sent ----

struct Request {
    std::string text;
    static Request Of(const pvn_perf_opts &o)
    {
        size_t len = 0;
        char *p = pvn_serve_write_request(&o, &len);
        pvn_serve_head h;
        uint32_t n = 0;
        char why[384];

        memcpy(&h, p, sizeof(h));
        EXPECT_EQ(0, pvn_serve_check_head(&h, &n, why, sizeof(why))) << why;
        EXPECT_EQ(len, sizeof(h) + n);
        Request r{std::string(p + sizeof(h), n)};
        free(p);
        return r;
    }
};

pvn_perf_opts Options(std::vector<std::string> args)
{
    std::vector<char *> argv{const_cast<char *>("pvn-perf")};
    pvn_perf_opts o;

    for (auto &a : args)
        argv.push_back(const_cast<char *>(a.c_str()));
    argv.push_back(nullptr);
    EXPECT_EQ(PVN_PERF_OK, pvn_perf_opts_parse(&o, static_cast<int>(argv.size()) - 1, argv.data()));
    return o;
}

struct Read {
    int rc;
    pvn_perf_opts o;
    std::string who, why;
};

Read Take(const std::string &text, std::vector<std::string> server = {"serve"})
{
    Read r{0, Options(server), "", ""};
    char who[200] = "", why[384] = "";

    r.rc =
        pvn_serve_read_request(text.data(), text.size(), &r.o, who, sizeof(who), why, sizeof(why));
    r.who = who;
    r.why = why;
    return r;
}

TEST(ServeRequest, CarriesWhatTheClientDecides)
{
    Read r = Take(Request::Of(Options({"p2p",
                                       "h",
                                       "--sizes",
                                       "8,1M",
                                       "--depth",
                                       "3",
                                       "--group",
                                       "2",
                                       "--channels",
                                       "4",
                                       "--check",
                                       "--iters",
                                       "7",
                                       "--memory",
                                       "movable",
                                       "--timeout",
                                       "12",
                                       "--repeat",
                                       "2",
                                       "--bidirectional",
                                       "--traffic-class",
                                       "9"}))
                      .text,
                  {"serve", "--plugin", "mine=a.so", "--dev", "x"});

    ASSERT_EQ(0, r.rc) << r.why;
    EXPECT_EQ(2, r.o.nsizes);
    EXPECT_EQ(1u << 20, r.o.size[1]);
    EXPECT_EQ(3, r.o.depth);
    EXPECT_EQ(2, r.o.group);
    EXPECT_EQ(4, r.o.channels);
    EXPECT_EQ(7, r.o.iters);
    EXPECT_EQ(2, r.o.repeat);
    EXPECT_EQ(9, r.o.traffic_class);
    EXPECT_EQ(PVN_PERF_MOVABLE, r.o.memory);
    EXPECT_EQ(12, r.o.timeout);
    EXPECT_TRUE(r.o.check && r.o.bidirectional && r.o.latency && r.o.bandwidth);
    EXPECT_STREQ("mine", r.o.plugin[0].name) << "the server's own";
    EXPECT_STREQ("x", r.o.dev[0]);
    EXPECT_NE(std::string::npos, r.who.find("pvn-perf ")) << r.who;
}

TEST(ServeRequest, EveryKindOfMemoryHasAName)
{
    for (const char *kind : {"gpu", "pinned", "host"}) {
        pvn_perf_opts o = Options({"p2p", "h", "--memory", kind});
        // Each end chooses its own GPU.
        Read r = Take(Request::Of(o).text, {"serve", "--gpu", "3"});

        ASSERT_EQ(0, r.rc) << r.why;
        EXPECT_EQ(o.memory, r.o.memory) << kind;
        EXPECT_EQ(3, r.o.gpu);
    }
    Read r = Take(Request::Of(Options({"p2p", "h"})).text);
    EXPECT_EQ(PVN_PERF_PINNED_IF_POSSIBLE, r.o.memory);
}

TEST(ServeRequest, WhatIsOutOfBoundsIsRefusedByName)
{
    const struct {
        const char *options, *why;
    } cases[] = {
        {"\"sizes\":[8],\"depth\":33", "option depth must be a number from 1 to 32"},
        {"\"sizes\":[8],\"depth\":0", "option depth"},
        {"\"sizes\":[8],\"depth\":\"8\"", "option depth"},
        {"\"sizes\":[8],\"depth\":1.5", "option depth"},
        {"\"sizes\":[8],\"channels\":100000", "option channels"},
        {"\"sizes\":[8],\"plugins\":9", "option plugins"},
        {"\"sizes\":[8],\"timeout\":0", "option timeout"},
        {"\"sizes\":[8],\"time\":1e300", "option time"},
        {"\"sizes\":[8],\"memory\":\"tape\"", "memory 'tape' is not known here (pvn-perf"},
        {"\"sizes\":[8],\"memory\":\"tape\"", "gpu, pinned and movable"},
        {"\"sizes\":[8],\"memory\":3", "memory '(not a string)' is not known"},
        {"\"sizes\":[8],\"tomorrow\":1", "does not know the option tomorrow"},
        {"\"sizes\":[-1]", "a size must be"},
        {"\"sizes\":[9223372036854775807]", "a size must be"},
        {"\"sizes\":[]", "sizes must be"},
        {"\"sizes\":7", "sizes must be"},
        {"\"depth\":8", "has no sizes"},
        {"\"sizes\":[1073741824],\"depth\":32,\"group\":8,\"channels\":2048", "--max-memory"},
    };

    for (auto &c : cases) {
        Read r = Take(std::string("{\"host\":\"h\",\"options\":{") + c.options + "}}");
        EXPECT_EQ(-EINVAL, r.rc) << c.options;
        EXPECT_NE(std::string::npos, r.why.find(c.why)) << c.options << ": " << r.why;
    }
    for (const char *text : {"", "{", "[]", "null", "{\"options\":[]}", "\xff\xfe"})
        EXPECT_EQ(-EINVAL, Take(text).rc) << text;
    // Printed text cannot steer a terminal.
    Read r = Take("{\"host\":\"a\\u001b[2Jb\",\"options\":{\"sizes\":[8]}}");
    EXPECT_EQ(0, r.rc) << r.why;
    EXPECT_EQ(std::string::npos, r.who.find('\x1b')) << r.who;
    EXPECT_EQ(-EINVAL,
              Take("{\"options\":{\"sizes\":[1048576]}}", {"serve", "--max-memory", "1M"}).rc);
}

TEST(ServeRequest, HeadsOfOthersAreNamed)
{
    pvn_serve_answer a{}, b{};
    size_t len = 0;
    char *p, why[384] = "";
    pvn_serve_head h;
    uint32_t n;

    snprintf(a.reason, sizeof(a.reason), "no");
    p = pvn_serve_write_answer(&a, &len);
    memcpy(&h, p, sizeof(h));
    EXPECT_EQ(0, pvn_serve_check_head(&h, &n, why, sizeof(why)));
    EXPECT_EQ(0, pvn_serve_read_answer(p + sizeof(h), n, &b));
    EXPECT_EQ(0, b.ok);
    EXPECT_STREQ("no", b.reason);
    free(p);
    auto but = [&](const std::function<void(pvn_serve_head &)> &change) {
        pvn_serve_head x = h;
        change(x);
        return pvn_serve_check_head(&x, &n, why, sizeof(why));
    };
    EXPECT_EQ(-EPROTO, but([](auto &x) { x.magic = 1; }));
    EXPECT_EQ(-EPROTONOSUPPORT, but([](auto &x) { x.wire = htonl(PVN_SERVE_WIRE + 1); }));
    EXPECT_NE(nullptr, strstr(why, "install the same release")) << why;
    EXPECT_EQ(-EMSGSIZE, but([](auto &x) { x.len = htonl(PVN_SERVE_TEXT_MAX + 1); }));
    EXPECT_EQ(-EMSGSIZE, but([](auto &x) { x.len = 0; }));
}

// ---- the program ----

class Serve : public testing::Test
{
  protected:
    void SetUp() override
    {
        NewPort();
        port = std::to_string(g_port);
    }
    void TearDown() override
    {
        Stop(SIGKILL);
    }
    pid_t Spawn(std::vector<std::string> args, const std::string &out)
    {
        std::vector<char *> argv{const_cast<char *>(kPerf.c_str())};
        posix_spawn_file_actions_t files;
        pid_t got = -1;

        for (auto &a : args)
            argv.push_back(const_cast<char *>(a.c_str()));
        argv.push_back(nullptr);
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                         0600);
        posix_spawn_file_actions_adddup2(&files, 1, 2);
        EXPECT_EQ(0, posix_spawn(&got, argv[0], &files, nullptr, argv.data(), environ));
        posix_spawn_file_actions_destroy(&files);
        return got;
    }
    void Start(std::vector<std::string> more = {})
    {
        std::vector<std::string> args{"serve", ":" + port, "--plugin", "t=" + kTestnet};

        args.insert(args.end(), more.begin(), more.end());
        pid = Spawn(args, dir / "serve");
        ASSERT_TRUE(Says("waiting for pvn-perf p2p HOST"));
    }
    // Waits until the server's output contains the text.
    bool Says(const std::string &text)
    {
        for (Deadline wait; wait.left();) {
            if (Slurp(dir / "serve").find(text) != std::string::npos)
                return true;
            usleep(10000);
        }
        ADD_FAILURE() << "the server did not say: " << text << "\n" << Slurp(dir / "serve");
        return false;
    }
    int Stop(int sig)
    {
        int st = -1;

        if (pid <= 0)
            return -1;
        if (sig)
            kill(pid, sig);
        waitpid(pid, &st, 0);
        pid = -1;
        return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
    }
    Outcome Client(const std::string &more, const std::string &host = "127.0.0.1")
    {
        return Perf("p2p " + host + ":" + port + " --plugin c=" + kTestnet + " " + more);
    }
    int Connect()
    {
        sockaddr_in sa{};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        sa.sin_family = AF_INET;
        sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        sa.sin_port = htons(static_cast<uint16_t>(g_port));
        EXPECT_EQ(0, connect(fd, reinterpret_cast<sockaddr *>(&sa), sizeof(sa)));
        return fd;
    }
    Dir dir;
    std::string port;
    pid_t pid = -1;
};

TEST_F(Serve, ClientsRunOneAfterTheOther)
{
    Start();
    Outcome r = Client("--sizes 8,64K --iters 20 --check --group 2 --channels 2 --json " +
                       (dir / "f.json"));
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("all data verified")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find("the same file as here")) << r.out;
    EXPECT_NE(std::string::npos, Slurp(dir / "f.json").find("\"server\": {"));
    EXPECT_TRUE(Says("the same file as here"));
    EXPECT_TRUE(Says("ended, all is well"));
    // Repeats, and a comparison of two of the client's plugins with the server's one.
    r = Client("--plugin d=" + kTestnet + " --repeat 2 --sizes 8 --iters 20 --bidirectional");
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("ratio to c")) << r.out;
    EXPECT_NE(std::string::npos, r.out.find(" 1 to 0 ")) << r.out;
    r = Client("--sizes 8 --iters 20", "[::1]");
    if (r.err.find("cannot reach") == std::string::npos) { // otherwise there is no IPv6
        EXPECT_EQ(0, r.status) << r.err;
    }
    EXPECT_EQ(130, Stop(SIGINT));
}

TEST_F(Serve, RefusesWithTheReasonAtBothEnds)
{
    Start({"--max-memory", "1M"});
    Outcome r = Client("--sizes 1M --iters 2");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("refuses: these sizes, depth")) << r.err;
    EXPECT_TRUE(Says("refused: these sizes"));
    // Only the plugin knows device names, so it is the plugin that refuses this one.
    r = Client("--sizes 8 --iters 2 --dev nosuch");
    EXPECT_EQ(3, r.status);
    EXPECT_TRUE(Says("--dev nosuch"));
    // The server accepts the next client once it has seen the end of that run.
    EXPECT_TRUE(Says("failed, see above or the client"));
    EXPECT_EQ(0, Client("--sizes 8 --iters 20").status);
}

TEST_F(Serve, GpuMemoryIsEachEndsOwn)
{
    const std::string cuda = PVN_BUILDDIR "/tests/support/.libs/libcuda.so.1";
    const std::string run = "p2p 127.0.0.1:", args = " --memory gpu --sizes 64K --iters 20 --check "
                                                     "--plugin c=" +
                                                     kTestnet;
    const std::string env = "FAKECUDA_APP=1 TESTNET_PTR=3 NCCL_PVRDMA_CUDA_LIB=" + cuda;

    setenv("FAKECUDA_APP", "1", 1);
    setenv("TESTNET_PTR", "3", 1);
    setenv("NCCL_PVRDMA_CUDA_LIB", cuda.c_str(), 1);
    Start({"--gpu", "0"});
    Outcome r = Perf(run + port + args, env);
    EXPECT_EQ(0, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.out.find("messages lie in GPU memory (GPU 0")) << r.out;
    EXPECT_TRUE(Says("messages lie in GPU memory (GPU 0"));
    EXPECT_EQ(130, Stop(SIGINT));

    setenv("NCCL_PVRDMA_CUDA_LIB", "/nowhere/libcuda.so.1", 1);
    Start();
    unsetenv("FAKECUDA_APP");
    unsetenv("TESTNET_PTR");
    unsetenv("NCCL_PVRDMA_CUDA_LIB");
    r = Perf(run + port + args, env);
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("rank 1: --memory gpu: cannot load /nowhere")) << r.err;
    EXPECT_TRUE(Says("--memory gpu: cannot load /nowhere"));
}

TEST_F(Serve, OthersAndHalfOpenConnectionsDoNotStopIt)
{
    std::vector<int> silent;

    Start();
    for (int i = 0; i < 40; i++) // more than the server keeps
        silent.push_back(Connect());
    int noise = Connect(), half = Connect(), large = Connect();
    std::string junk(4096, 'x');
    pvn_serve_head h{htonl(0x70767366u), htonl(PVN_SERVE_WIRE), htonl(100)};
    EXPECT_EQ(static_cast<ssize_t>(junk.size()), write(noise, junk.data(), junk.size()));
    EXPECT_EQ(static_cast<ssize_t>(sizeof(h)), write(half, &h, sizeof(h)));
    h.len = htonl(0x7fffffff);
    EXPECT_EQ(static_cast<ssize_t>(sizeof(h)), write(large, &h, sizeof(h)));
    EXPECT_EQ(0, Client("--sizes 8 --iters 20").status);
    EXPECT_TRUE(Says("refused: not a request"));
    char c;
    timeval tv{10, 0};
    setsockopt(large, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    EXPECT_LE(read(large, &c, 1), 0) << "it was closed, and not answered";
    for (int fd : silent)
        close(fd);
    for (int fd : {noise, half, large})
        close(fd);
}

TEST_F(Serve, BusyIsSaidAndEitherEndEndsTheOther)
{
    int st;

    Start();
    std::vector<std::string> slow{
        "p2p", "127.0.0.1:" + port, "--plugin", "c=" + kTestnet, "--sizes", "8", "--time",
        "60",  "--latency"};
    pid_t client = Spawn(slow, dir / "client");
    ASSERT_TRUE(Says(": runs 1 size"));
    Outcome r = Client("--sizes 8 --iters 2");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("refuses: busy for ")) << r.err;
    EXPECT_TRUE(Says("refused: busy"));
    kill(client, SIGINT);
    EXPECT_EQ(client, waitpid(client, &st, 0));
    EXPECT_EQ(130, WEXITSTATUS(st)) << Slurp(dir / "client");
    EXPECT_TRUE(Says("was interrupted"));
    // The server outlives a client that is killed.
    client = Spawn(slow, dir / "client");
    for (Deadline wait; wait.left() && Slurp(dir / "client").find("rank 1") == std::string::npos;)
        usleep(10000);
    kill(client, SIGKILL);
    waitpid(client, &st, 0);
    EXPECT_TRUE(Says("failed, see above"));
    // The end of the server ends the client.
    client = Spawn(slow, dir / "client");
    for (Deadline wait; wait.left() && Slurp(dir / "client").find("rank 1") == std::string::npos;)
        usleep(10000);
    EXPECT_EQ(130, Stop(SIGINT));
    EXPECT_EQ(client, waitpid(client, &st, 0));
    EXPECT_EQ(143, WEXITSTATUS(st));
    EXPECT_NE(std::string::npos, Slurp(dir / "client").find("ended the run"))
        << Slurp(dir / "client");
}

TEST_F(Serve, EndsWhatTakesTooLong)
{
    Start({"--once", "--max-time", "0.5"});
    Outcome r = Client("--sizes 8 --time 60 --latency");
    EXPECT_EQ(143, r.status) << r.err;
    EXPECT_NE(std::string::npos, r.err.find("serve --max-time")) << r.err;
    EXPECT_TRUE(Says("(serve --max-time)"));
    EXPECT_EQ(143, Stop(0)) << "--once ends with the status of its client's run";
}

// The server had waited for as many connections as it may have at most, which the kernel refuses beyond the limit of
// open files, and used a whole processor for that.
TEST_F(Serve, FewDescriptorsAreEnoughOrItSaysWhatToRaise)
{
    rlimit before;

    // Descriptors of the test's caller would count in the server.
    for (int fd = 3; fd < 1024; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    for (rlim_t files : {26, 4}) {
        rlimit few{files, before.rlim_max};

        setrlimit(RLIMIT_NOFILE, &few);
        Start({"--once"});
        setrlimit(RLIMIT_NOFILE, &before);
        if (files > 4) {
            Outcome r = Client("--sizes 8 --iters 20");
            EXPECT_EQ(0, r.status) << r.err;
            EXPECT_EQ(0, Stop(r.status ? SIGTERM : 0)) << Slurp(dir / "serve");
            continue;
        }
        int fd = Connect(); // there is no descriptor for it
        EXPECT_TRUE(Says("serve cannot take connections: Too many open files: this process may "
                         "open 4: raise that (`ulimit -n`)"));
        EXPECT_EQ(3, Stop(0));
        close(fd);
    }
}

TEST_F(Serve, OptionsAreChecked)
{
    const struct {
        const char *args, *why;
    } cases[] = {
        {"serve --sizes 8", "--sizes has no effect in serve: the client decides it"},
        {"serve --json -", "--json has no effect in serve"},
        {"p2p --once", "--once has no effect in p2p: it is for serve"},
        {"p2p host --ranks 2", "--ranks has no effect with the host host"},
        {"p2p host:0", "expected a port from 1 to 65535"},
        {"p2p host:99999", "expected a port"},
        {"p2p :5000", "the host is empty"},
        {"p2p [::1", "expected [ADDRESS]:PORT"},
        {"p2p a b", "expected one mode and one host"},
        {"ring host", "expected one mode"},
        {"serve --plugin a=x --plugin b=y", "serve takes one --plugin"},
        {"serve --max-memory 1", "--max-memory 1: expected"},
    };

    for (auto &c : cases) {
        Outcome r = Perf(c.args);
        EXPECT_EQ(2, r.status) << c.args;
        EXPECT_NE(std::string::npos, r.err.find(c.why)) << c.args << ": " << r.err;
    }
    Outcome r = Client("--sizes 8");
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("does `pvn-perf serve` run there")) << r.err;
    Start();
    r = Perf("serve :" + port);
    EXPECT_EQ(3, r.status);
    EXPECT_NE(std::string::npos, r.err.find("Address already in use")) << r.err;
}

} // namespace
