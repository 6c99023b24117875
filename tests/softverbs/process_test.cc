// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Softverbs between two processes: the semantics are those within one process, and a peer can die.
#include "softverbs/fixture.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <functional>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace
{

using namespace sv;

// One process sends this to the other before they are connected, and again afterwards.
struct Hello {
    Address address;
    uint64_t addr;
    uint32_t rkey;
    uint32_t slot;
};

class Wire
{
    int fd;

  public:
    explicit Wire(int f) : fd(f)
    {
    }
    template <typename T> void put(const T &v)
    {
        if (send(fd, &v, sizeof v, MSG_NOSIGNAL) != ssize_t(sizeof v))
            fprintf(stderr, "the other process is gone\n");
    }
    template <typename T> T get()
    {
        T v{};
        if (recv(fd, &v, sizeof v, MSG_WAITALL) != ssize_t(sizeof v))
            ADD_FAILURE() << "the other process is gone";
        return v;
    }
};

// One side of a test that runs in two processes, each a host of its own
struct Side {
    Wire wire;
    End *end = nullptr;
    Hello peer{};
    explicit Side(int fd) : wire(fd)
    {
    }
    void open(int host, const std::string &config)
    {
        ASSERT_EQ(lib().sv_configure((config + "\nset host " + std::to_string(host)).c_str()), 0);
        end = new End;
    }
    void connect(const Params &p = {})
    {
        end->drop();
        end->create();
        wire.put(Hello{end->address(p.gid_index), end->addr(), end->mr->rkey, lib().sv_slot()});
        peer = wire.get<Hello>();
        ASSERT_EQ(end->connect(peer.address, p), 0);
        sync();
    }
    void sync()
    {
        wire.put(char(1));
        wire.get<char>();
    }
    int write(size_t off, size_t len, uint64_t id = 1, unsigned flags = IBV_SEND_SIGNALED)
    {
        return end->post(IBV_WR_RDMA_WRITE, off, len, id, peer.addr + off, peer.rkey, flags);
    }
    ~Side()
    {
        delete end;
    }
};

class Processes : public testing::Test
{
  protected:
    char dir[64] = "/tmp/softverbs-XXXXXX";
    pid_t child = -1;
    int fds[2] = {-1, -1};

    void SetUp() override
    {
        ASSERT_NE(mkdtemp(dir), nullptr);
        setenv("PVN_SOFTVERBS_DIR", dir, 1);
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    }
    void TearDown() override
    {
        unsetenv("PVN_SOFTVERBS_DIR");
        ASSERT_EQ(lib().sv_configure(""), 0);
        DIR *d = opendir(dir);
        while (dirent *e = readdir(d)) {
            std::string path = std::string(dir) + "/" + e->d_name;
            EXPECT_EQ(path.find(".sock"), std::string::npos) << "left behind: " << path;
            unlink(path.c_str());
        }
        closedir(d);
        EXPECT_EQ(rmdir(dir), 0);
        close(fds[0]);
        if (fds[1] >= 0)
            close(fds[1]);
    }
    // Runs one function in a child, and the other here.
    template <typename Child, typename Parent> void both(Child in_child, Parent here)
    {
        child = fork();
        ASSERT_GE(child, 0);
        if (!child) {
            alarm(120);
            close(fds[0]);
            {
                Side s(fds[1]);
                in_child(s);
            }
            _exit(testing::Test::HasFailure() ? 1 : 0);
        }
        close(fds[1]);
        fds[1] = -1;
        {
            Side s(fds[0]);
            here(s);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (!killed) {
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
        }
    }
    bool killed = false;
};

// A measured program calls nothing of softverbs. Its totals are in the file after it has exited.
TEST_F(Processes, TotalsAreWrittenAtTheExit)
{
    std::string file = std::string(dir) + "/totals";
    setenv("PVN_SOFTVERBS_TOTALS", file.c_str(), 1);
    EXPECT_EXIT(
        {
            lib().sv_configure("profile pvrdma");
            {
                End e;
                ibv_wc wc;
                ibv_poll_cq(e.cq, 1, &wc);
                ibv_poll_cq(e.cq, 1, &wc);
            }
            exit(0);
        },
        testing::ExitedWithCode(0), "");
    unsetenv("PVN_SOFTVERBS_TOTALS");
    FILE *f = fopen(file.c_str(), "r");
    ASSERT_NE(f, nullptr);
    char line[200] = "";
    EXPECT_NE(fgets(line, sizeof line, f), nullptr);
    fclose(f);
    EXPECT_STREQ(line, "doorbells=2 poll_empty=2 send_wr=0 recv_wr=0 cqe=0 relaxed=0\n");
}

TEST_F(Processes, AllOperationsCrossProcesses)
{
    both(
        [](Side &s) {
            s.open(2, "");
            s.connect();
            ASSERT_EQ(s.end->recv(0, 500000, 11), 0);
            ASSERT_EQ(s.end->recv(0, 0, 12), 0);
            s.sync();
            ibv_wc r = s.end->wait();
            EXPECT_EQ(r.wr_id, 11u);
            EXPECT_EQ(r.byte_len, 500000u);
            r = s.end->wait();
            EXPECT_EQ(r.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
            EXPECT_EQ(r.imm_data, htonl(99));
            for (size_t i = 0; i < 500000; i++)
                ASSERT_EQ(s.end->buf[i], char(i * 7 + 3));
            for (size_t i = 600000; i < 900000; i++)
                ASSERT_EQ(s.end->buf[i], char(i * 7 + 3)) << i;
            s.end->buf[0] = 123;
            s.sync();
            s.sync();
            EXPECT_EQ(*reinterpret_cast<uint64_t *>(s.end->buf + 1000), 8u);
        },
        [](Side &s) {
            s.open(1, "");
            s.connect();
            s.end->fill(3, End::kSize);
            s.sync();
            ASSERT_EQ(s.end->post(IBV_WR_SEND, 0, 500000, 1), 0);
            ASSERT_EQ(s.end->post(IBV_WR_RDMA_WRITE_WITH_IMM, 600000, 300000, 2,
                                  s.peer.addr + 600000, s.peer.rkey, IBV_SEND_SIGNALED, htonl(99)),
                      0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            s.sync();
            ASSERT_EQ(s.end->post(IBV_WR_RDMA_READ, 0, 700000, 3, s.peer.addr, s.peer.rkey), 0);
            ibv_wc wc = s.end->wait();
            EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
            EXPECT_EQ(wc.byte_len, 700000u);
            EXPECT_EQ(s.end->buf[0], 123);
            EXPECT_EQ(s.end->buf[650000], char(650000 * 7 + 3));
            *reinterpret_cast<uint64_t *>(s.end->buf) = 8;
            ASSERT_EQ(s.end->post(IBV_WR_RDMA_WRITE, 0, 8, 4, s.peer.addr + 1000, s.peer.rkey), 0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            s.sync();
        });
}

// Both directions send at once, much more than the sockets hold. Neither side may wait for the
// other to read.
TEST_F(Processes, FloodsInBothDirectionsDoNotBlock)
{
    Params p;
    p.timeout = 18; // a busy machine delays a side for longer than the default's half second
    auto flood = [](Side &s) {
        s.end->fill(1, 1000);
        for (int round = 0; round < 8; round++) {
            for (uint64_t i = 0; i < 32; i++)
                ASSERT_EQ(s.write(0, End::kSize / 2, i, i == 31 ? IBV_SEND_SIGNALED : 0), 0);
            ASSERT_EQ(s.end->wait(60).status, IBV_WC_SUCCESS);
        }
        s.sync();
    };
    both(
        [&](Side &s) {
            s.open(2, "");
            s.connect(p);
            flood(s);
        },
        [&](Side &s) {
            s.open(1, "");
            s.connect(p);
            flood(s);
        });
}

TEST_F(Processes, RecordsFollowTheirData)
{
    constexpr uint64_t kRounds = 500;
    constexpr size_t kAt = 512 * 1024, kWords = 3000;
    both(
        [=](Side &s) {
            s.open(2, "set descend 1");
            s.connect();
            auto *record = reinterpret_cast<uint64_t *>(s.end->buf + kAt);
            auto *data = reinterpret_cast<uint64_t *>(s.end->buf);
            for (uint64_t r = 1; r <= kRounds; r++) {
                double end = pvn_now_s() + 60;
                while (__atomic_load_n(record, __ATOMIC_ACQUIRE) != r) {
                    ASSERT_LT(pvn_now_s(), end);
                    sched_yield();
                }
                for (size_t i = 0; i < kWords; i++)
                    ASSERT_EQ(data[i], r) << "record " << r << " came before word " << i;
                s.wire.put(r);
            }
        },
        [=](Side &s) {
            s.open(1, "");
            s.connect();
            auto *from = reinterpret_cast<uint64_t *>(s.end->buf);
            for (uint64_t r = 1; r <= kRounds; r++) {
                for (size_t i = 0; i < kWords; i++)
                    from[i] = r;
                from[kAt / 8] = r;
                ASSERT_EQ(s.write(0, kWords * 8, 1, 0), 0);
                ASSERT_EQ(s.write(kAt, 8, 2), 0);
                ASSERT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
                ASSERT_EQ(s.wire.get<uint64_t>(), r);
            }
        });
}

TEST_F(Processes, ErrorsAndWaitsCrossOver)
{
    both(
        [](Side &s) {
            s.open(2, "");
            s.connect();
            EXPECT_EQ(s.end->event(20000), IBV_EVENT_QP_ACCESS_ERR);
            s.connect();
            usleep(5000);
            ASSERT_EQ(s.end->recv(0, 64, 1), 0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            s.sync();
        },
        [](Side &s) {
            s.open(1, "");
            s.connect();
            ASSERT_EQ(
                s.end->post(IBV_WR_RDMA_WRITE, 0, 64, 1, s.peer.addr + End::kSize - 1, s.peer.rkey),
                0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_REM_ACCESS_ERR);
            s.connect();
            ASSERT_EQ(s.end->post(IBV_WR_SEND, 0, 64, 2), 0); // no receive is posted yet
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            s.sync();
        });
}

TEST_F(Processes, KilledPeerIsRetryExceeded)
{
    killed = true;
    Params p;
    p.timeout = 8;
    p.retry = 3;
    both(
        [=](Side &s) {
            s.open(2, "");
            s.connect(p);
            s.sync();
            kill(getpid(), SIGKILL);
        },
        [=](Side &s) {
            s.open(1, "");
            s.connect(p);
            s.sync();
            siginfo_t info;
            ASSERT_EQ(waitid(P_PID, id_t(child), &info, WEXITED | WNOWAIT), 0);
            EXPECT_EQ(info.si_status, SIGKILL);
            ASSERT_EQ(s.write(0, 300000), 0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_RETRY_EXC_ERR);
            unlink((std::string(dir) + "/" + std::to_string(s.peer.slot) + ".sock").c_str());
        });
}

TEST_F(Processes, StoppedPeerIsRiddenOut)
{
    Params p;
    p.timeout = 14;
    p.retry = 7;
    both(
        [=](Side &s) {
            s.open(2, "");
            s.connect(p);
            s.sync();
            s.sync();
        },
        [=](Side &s) {
            s.open(1, "");
            s.connect(p);
            s.sync();
            kill(child, SIGSTOP);
            ASSERT_EQ(s.write(0, 64), 0);
            usleep(150000); // two timeouts of 67 ms
            kill(child, SIGCONT);
            EXPECT_EQ(s.end->wait().status, IBV_WC_SUCCESS);
            s.sync();
        });
}

TEST_F(Processes, CommandsReachTheOtherProcess)
{
    both(
        [](Side &s) {
            s.open(2, "rule mine fail call=post_send");
            s.connect();
            EXPECT_EQ(s.end->event(20000), IBV_EVENT_PORT_ERR);
            s.sync();
        },
        [](Side &s) {
            s.open(1, "");
            s.connect();
            char text[512];
            EXPECT_EQ(lib().sv_peer_command(s.peer.slot, "rules", text, sizeof text), 0);
            EXPECT_STREQ(text, "mine seen=0 fired=0\n");
            EXPECT_EQ(lib().sv_peer_command(s.peer.slot, "stat", text, sizeof text), 0);
            EXPECT_NE(strstr(text, "qps=1 mrs=1"), nullptr) << text;
            EXPECT_EQ(lib().sv_peer_command(s.peer.slot, "fly", text, sizeof text), EINVAL);
            EXPECT_EQ(lib().sv_peer_command(s.peer.slot, "port * 1 down", nullptr, 0), 0);
            EXPECT_EQ(lib().sv_peer_command(400, "stat", text, sizeof text), ESRCH);
            s.sync();
        });
}

TEST_F(Processes, WrongAddressIsSilence)
{
    Params p;
    p.timeout = 1;
    p.retry = 2;
    both(
        [=](Side &s) {
            s.open(2, "");
            s.connect(p);
            s.sync();
        },
        [=](Side &s) {
            s.open(1, "");
            s.connect(p);
            Address wrong = s.peer.address;
            wrong.gid.raw[15] ^= 1;
            ASSERT_EQ(s.end->to(IBV_QPS_RESET), 0);
            ASSERT_EQ(s.end->connect(wrong, p), 0);
            ASSERT_EQ(s.write(0, 64), 0);
            EXPECT_EQ(s.end->wait().status, IBV_WC_RETRY_EXC_ERR);
            s.sync();
        });
}

TEST_F(Processes, WhatAParentOpenedIsUselessInItsChild)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
#endif
    ASSERT_EQ(lib().sv_configure(""), 0);
    End e;
    e.create();
    ASSERT_TRUE(threads_asleep());
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        ibv_wc wc;
        bool ok =
            e.to_init() == EINVAL && ibv_poll_cq(e.cq, 1, &wc) == -1 && !lib().ibv_alloc_pd(e.ctx);
        int n = 0;
        ibv_device **l = lib().ibv_get_device_list(&n);
        ibv_context *own = l ? lib().ibv_open_device(l[0]) : nullptr;
        ok = ok && own && lib().sv_slot() == 2 && lib().ibv_close_device(own) == 0;
        lib().ibv_free_device_list(l);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(e.to_init(), 0) << "the parent goes on";
    EXPECT_EQ(lib().sv_slot(), 1u);
}

// Connects two ends, then makes this call in a child with the first end's objects. Returns 0 if the
// parent's next message ends as expected and the call was counted.
int parent_of(const std::function<int(End &)> &call, bool harmless)
{
    End *a = new End, *b = new End; // not freed: taken objects cannot be destroyed
    Params p;
    p.timeout = p.retry = 1;
    a->create();
    b->create();
    if (a->connect(b->address(), p) || b->connect(a->address(), p))
        return 1;
    if (!threads_asleep())
        return 6;
    pid_t pid = fork();
    if (!pid) {
        alarm(60);
        _exit(call(*a));
    }
    int status = -1;
    if (waitpid(pid, &status, 0) != pid || status)
        return 2;
    char text[1024];
    if (lib().sv_command("stat", text, sizeof text) ||
        !strstr(text, harmless ? "inherited=0" : "inherited=1"))
        return 3;
    bool done = !a->post(IBV_WR_RDMA_WRITE, 0, 64, 1, b->addr(), b->mr->rkey) &&
                a->wait().status == IBV_WC_SUCCESS;
    // The socket closes with the last device.
    if (lib().ibv_close_device(a->ctx) || lib().ibv_close_device(b->ctx))
        return 4;
    return done == harmless ? 0 : 5;
}

// A child's calls change its parent's objects, as with a real adapter, whose objects are behind a
// shared descriptor.
TEST_F(Processes, WhatAChildDestroysItsParentLoses)
{
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
#endif
    const std::vector<std::pair<std::string, std::function<int(End &)>>> calls = {
        {"nothing", [](End &) { return 0; }},
        {"ibv_dereg_mr", [](End &e) { return lib().ibv_dereg_mr(e.mr); }},
        {"ibv_destroy_qp", [](End &e) { return lib().ibv_destroy_qp(e.qp); }},
        {"ibv_modify_qp", [](End &e) { return e.to(IBV_QPS_ERR); }},
        {"ibv_close_device", [](End &e) { return lib().ibv_close_device(e.ctx); }},
    };
    ASSERT_EQ(lib().sv_configure(""), 0);
    for (const auto &call : calls) {
        pid_t pid = fork();
        if (!pid) {
            alarm(120);
            _exit(parent_of(call.second, call.first == "nothing"));
        }
        int status = -1;
        ASSERT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, 0) << call.first;
    }
}

} // namespace
