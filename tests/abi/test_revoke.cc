// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// deregMr in the middle of a message, as when NCCL aborts. Afterwards no thread of the plugin may
// touch the memory, because its owner frees it before it closes the comm.
#include "config.h"

#include "abi/nccl_side.h"
#include "support/key_file.h"

#include <csignal>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nccl;

namespace
{

// One chunk. The sockets hold only a small part of it.
constexpr size_t SIZE = 16 << 20;
constexpr const char *CHUNK = "16M", *SOCKET_BUFFER = "128K";
constexpr uint8_t OURS = 0x11, OTHERS = 0x5a;

// Memory whose address another owner may get later. Tests read it through its file, so that
// ThreadSanitizer does not see these reads as accesses to the memory.
class Memory
{
  public:
    explicit Memory(uint8_t value) : fd(memfd_create("revoke", MFD_CLOEXEC))
    {
        EXPECT_EQ(0, ftruncate(fd, SIZE));
        at = map(nullptr, MAP_SHARED, fd);
        memset(at, value, SIZE);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory()
    {
        munmap(at, SIZE);
        close(fd);
    }
    uint8_t *data() const
    {
        return at;
    }
    uint8_t byte(size_t offset) const
    {
        uint8_t b = 0;
        EXPECT_EQ(1, pread(fd, &b, 1, static_cast<off_t>(offset)));
        return b;
    }
    // Gives the address to another owner, who fills it with OTHERS.
    void give_away()
    {
        EXPECT_EQ(0, munmap(at, SIZE));
        ASSERT_EQ(at, map(at, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1));
        memset(at, OTHERS, SIZE);
    }

  private:
    int fd;
    uint8_t *at;
    static uint8_t *map(void *where, int flags, int of)
    {
        return static_cast<uint8_t *>(mmap(where, SIZE, PROT_READ | PROT_WRITE, flags, of, 0));
    }
};

// The other end of a comm: a process without worker threads, which goes on when the test says so.
class Peer
{
  public:
    // role: runs in that process, whose exit status it returns.
    explicit Peer(const std::function<int(int)> &role)
    {
        int pair[2];
        EXPECT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
        pid = fork();
        fd = pair[pid == 0];
        ::close(pair[pid != 0]);
        if (pid == 0)
            _exit(role(fd));
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;
    ~Peer()
    {
        ::close(fd);
        if (pid > 0)
            kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    void tell(const void *what, size_t n) const
    {
        EXPECT_EQ(static_cast<ssize_t>(n), write(fd, what, n));
    }
    void hear(void *what, size_t n) const
    {
        EXPECT_EQ(static_cast<ssize_t>(n), recv(fd, what, n, MSG_WAITALL));
    }
    void tell() const
    {
        tell("", 1);
    }
    void hear() const
    {
        char c;
        hear(&c, 1);
    }
    int end()
    {
        int status = -1;
        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        pid = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

  private:
    int fd;
    pid_t pid;
};

bool heard(int fd)
{
    pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

void wait_for_word(int fd)
{
    char c;
    if (recv(fd, &c, 1, MSG_WAITALL) != 1)
        _exit(100);
}

void say(int fd)
{
    if (write(fd, "", 1) != 1)
        _exit(101);
}

// Calls as NCCL does until the other process has sent a byte. Sends a byte itself after 200 calls.
void call(int fd, const std::function<void()> &step)
{
    for (int i = 0; !heard(fd); i++) {
        step();
        usleep(500);
        if (i == 200)
            say(fd);
    }
}

// Sends until its socket is full, then goes on when the test says so.
int send_in_two_parts(int fd)
{
    setenv("NCCL_PVRDMA_TCP_THREADS", "0", 1);
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    if (recv(fd, handle, sizeof(handle), MSG_WAITALL) != sizeof(handle))
        return 102;
    void *sc = nullptr, *mh = nullptr, *req = nullptr;
    if (!eventually([&] { return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc) || sc; }) || !sc)
        return 103;
    Memory out(OURS);
    if (pvn_netdrv_reg_mr(n.d, sc, out.data(), SIZE, NCCL_PTR_HOST, &mh) != ncclSuccess)
        return 104;
    int done = 0;
    auto step = [&] {
        if (!req)
            pvn_netdrv_isend(n.d, sc, out.data(), SIZE, 0, mh, nullptr, &req);
        else if (!done && pvn_netdrv_test(n.d, req, &done, nullptr) != ncclSuccess)
            done = 2;
    };
    call(fd, step);
    wait_for_word(fd); // the test says to stop
    wait_for_word(fd); // the test says to go on
    call(fd, step);
    pvn_netdrv_close_send(n.d, sc);
    return done;
}

// Receives when the test says so. Returns 1 if the message arrived whole, 2 after an error, 3 if
// bytes of another owner arrived.
int receive_later(int fd)
{
    setenv("NCCL_PVRDMA_TCP_THREADS", "0", 1);
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *lc = nullptr, *rc = nullptr, *mh = nullptr, *req = nullptr;
    if (pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc) != ncclSuccess ||
        write(fd, handle, sizeof(handle)) != sizeof(handle))
        return 102;
    if (!eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) || rc; }) || !rc)
        return 103;
    Memory in(0);
    void *data = in.data();
    size_t size = SIZE;
    int tag = 0, done = 0;
    if (pvn_netdrv_reg_mr(n.d, rc, data, SIZE, NCCL_PTR_HOST, &mh) != ncclSuccess)
        return 104;
    wait_for_word(fd);
    call(fd, [&] {
        if (!req)
            pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &req);
        else if (!done && pvn_netdrv_test(n.d, req, &done, nullptr) != ncclSuccess)
            done = 2;
    });
    pvn_netdrv_close_recv(n.d, rc);
    pvn_netdrv_close_listen(n.d, lc);
    return memchr(in.data(), OTHERS, SIZE) ? 3 : done;
}

struct Shape {
    bool sealed, failover;
};

class Revoke : public testing::TestWithParam<Shape>
{
  protected:
    Folder folder;
    void SetUp() override
    {
        setenv("NCCL_PVRDMA_TCP_THREADS", "2", 1);
        setenv("NCCL_PVRDMA_TCP_STREAMS", "1", 1);
        setenv("NCCL_PVRDMA_TCP_CHUNK", CHUNK, 1);
        setenv("NCCL_PVRDMA_TCP_SNDBUF", SOCKET_BUFFER, 1);
        setenv("NCCL_PVRDMA_TCP_RCVBUF", SOCKET_BUFFER, 1);
        setenv("NCCL_PVRDMA_FAILOVER", GetParam().failover ? "1" : "0", 1);
        if (GetParam().sealed)
            setenv("NCCL_PVRDMA_KEY_FILE",
                   write_file(folder / "key", "0123456789abcdef0123456789abcdef").c_str(), 1);
        Log::get().clear();
    }
    void TearDown() override
    {
        for (const char *name :
             {"NCCL_PVRDMA_TCP_THREADS", "NCCL_PVRDMA_TCP_STREAMS", "NCCL_PVRDMA_TCP_CHUNK",
              "NCCL_PVRDMA_TCP_SNDBUF", "NCCL_PVRDMA_TCP_RCVBUF", "NCCL_PVRDMA_FAILOVER",
              "NCCL_PVRDMA_KEY_FILE"})
            unsetenv(name);
    }
};

// A receive in progress: a worker has written a part of it and waits for the rest.
struct Receive {
    Peer peer{send_in_two_parts};
    Net n{12};
    Memory in{0};
    void *lc = nullptr, *rc = nullptr, *mh = nullptr, *req = nullptr;
    int done = 0;
    void begin()
    {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        peer.tell(handle, sizeof(handle));
        ASSERT_TRUE(eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) || rc; }) && rc);
        ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(n.d, rc, in.data(), SIZE, NCCL_PTR_HOST, &mh));
        // The peer calls until its socket is full, and then no more.
        peer.hear();
        peer.tell();
        void *data = in.data();
        size_t size = SIZE;
        int tag = 0;
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(n.d, rc, 1, &data, &size, &tag, &mh, nullptr, &req));
        // Everything behind the first read is left to a worker.
        ASSERT_TRUE(eventually([&] { return test() != ncclSuccess || in.byte(100000) == OURS; }));
        ASSERT_EQ(OURS, in.byte(100000));
        ASSERT_EQ(0, in.byte(SIZE - 1));
    }
    ncclResult_t test()
    {
        return pvn_netdrv_test(n.d, req, &done, nullptr);
    }
    ~Receive()
    {
        pvn_netdrv_close_recv(n.d, rc);
        pvn_netdrv_close_listen(n.d, lc);
    }
};

TEST_P(Revoke, WhatIsReceivedGoesNowhere)
{
    Receive r;
    ASSERT_NO_FATAL_FAILURE(r.begin());
    // A second registration, which covers only a part, does not keep the receive going.
    void *part = nullptr;
    EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(r.n.d, r.rc, r.in.data() + SIZE / 2, SIZE / 4,
                                             NCCL_PTR_HOST, &part));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(r.n.d, r.rc, r.mh));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(r.n.d, r.rc, part));
    r.in.give_away();
    r.peer.tell();
    r.peer.hear();
    EXPECT_TRUE(bytes::all(r.in.data(), SIZE, OTHERS)) << "a worker wrote after deregMr";
    // If the caller tests the request nevertheless, it gets the reason.
    EXPECT_NE(ncclSuccess, r.test());
    EXPECT_TRUE(Log::get().warned({"deregMr has taken back the memory"})) << Log::get().text();
    EXPECT_TRUE(bytes::all(r.in.data(), SIZE, OTHERS));
}

TEST_P(Revoke, NothingIsReadToBeSent)
{
    Peer peer(receive_later);
    Net n(12);
    Memory out(OURS);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *sc = nullptr, *mh = nullptr, *req = nullptr;
    int done = 0;
    peer.hear(handle, sizeof(handle));
    ASSERT_TRUE(eventually([&] { return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc) || sc; }));
    ASSERT_EQ(ncclSuccess, pvn_netdrv_reg_mr(n.d, sc, out.data(), SIZE, NCCL_PTR_HOST, &mh));
    ASSERT_TRUE(eventually(
        [&] { return pvn_netdrv_isend(n.d, sc, out.data(), SIZE, 0, mh, nullptr, &req) || req; }));
    for (int i = 0; i < 200; i++) {
        ASSERT_EQ(ncclSuccess, pvn_netdrv_test(n.d, req, &done, nullptr));
        ASSERT_FALSE(done);
        usleep(100);
    }
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(n.d, sc, mh));
    out.give_away();
    peer.tell();
    peer.hear();
    EXPECT_NE(ncclSuccess, pvn_netdrv_test(n.d, req, &done, nullptr));
    EXPECT_TRUE(Log::get().warned({"deregMr has taken back the memory"})) << Log::get().text();
    peer.tell();
    EXPECT_NE(3, peer.end()) << "a worker read after deregMr";
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, sc));
}

// Messages go on if the comm still has the memory in another registration, or if no message uses
// the memory.
TEST_P(Revoke, OtherMessagesGoOn)
{
    Receive r;
    ASSERT_NO_FATAL_FAILURE(r.begin());
    Memory idle(0);
    void *same = nullptr, *part = nullptr, *other = nullptr;
    auto reg = [&](void *data, size_t size, void **mh) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_reg_mr(r.n.d, r.rc, data, size, NCCL_PTR_HOST, mh));
    };
    reg(r.in.data(), SIZE, &same);
    reg(r.in.data() + SIZE - 4096, 4096, &part);
    reg(idle.data(), SIZE, &other);
    for (void *mh : {same, part, other})
        EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(r.n.d, r.rc, mh));
    r.peer.tell();
    EXPECT_TRUE(eventually([&] { return r.test() != ncclSuccess || r.done; }));
    EXPECT_TRUE(r.done) << Log::get().text();
    EXPECT_TRUE(bytes::all(r.in.data(), SIZE, OURS));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_dereg_mr(r.n.d, r.rc, r.mh));
}

#ifdef HAVE_OPENSSL
INSTANTIATE_TEST_SUITE_P(Shapes, Revoke,
                         testing::Values(Shape{false, false}, Shape{false, true},
                                         Shape{true, false}, Shape{true, true}));
#else
INSTANTIATE_TEST_SUITE_P(Shapes, Revoke, testing::Values(Shape{false, false}, Shape{false, true}));
#endif

} // namespace
