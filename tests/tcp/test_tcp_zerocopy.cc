// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Large chunks are sent without a copy: what arrives, when a send is done, and all that can go
// wrong with pipes, acknowledgements and the peer.
#include "tcp/lane_pair.h"

#include <csignal>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <vector>

#include "nccl/types.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace
{

constexpr size_t ZEROCOPY = 64 << 10; // chunks from this size on are not copied
constexpr size_t MSG = 300000;
constexpr size_t HEAD = PVN_FRAME_LEN;

class TcpZerocopy : public testing::Test
{
  protected:
    LanePair p;

    void open(int streams = 1, size_t chunk = 128 << 10)
    {
        p.open(streams, chunk, 0, ZEROCOPY);
    }
    pvn_req *send(const void *data, size_t n, const pvn_mr *mr = nullptr)
    {
        pvn_req *s = nullptr;
        EXPECT_EQ(0, pvn_engine_isend(p.etx, data, n, 0, mr, &s));
        EXPECT_NE(nullptr, s);
        return s;
    }
    pvn_req *receive(void *data, size_t n)
    {
        pvn_req *r = nullptr;
        int tag = 0;
        EXPECT_EQ(0, pvn_engine_irecv(p.erx, 1, &data, &n, &tag, nullptr, &r));
        EXPECT_NE(nullptr, r);
        return r;
    }
    // One message there; both ends work on it.
    void exchange(const uint8_t *from, size_t n, const pvn_mr *mr = nullptr)
    {
        std::vector<uint8_t> in(n + 1, 0xAA);
        pvn_req *r = receive(in.data(), n);
        finish(send(from, n, mr), r, nullptr, nullptr);
        EXPECT_EQ(0, memcmp(in.data(), from, n));
        EXPECT_EQ(0xAA, in[n]);
    }
    void close_sender()
    {
        pvn_engine_free(p.etx);
        p.etx = nullptr;
        p.tx->ops->close(p.tx);
        p.tx = nullptr;
    }
    // The stream's error as the receiver's socket has it.
    int receivers_error()
    {
        usleep(1000);
        int error = 0;
        socklen_t len = sizeof(error);
        EXPECT_EQ(0, getsockopt(p.adopted[0], SOL_SOCKET, SO_ERROR, &error, &len));
        return error;
    }
    // Tests a send until it fails; what it failed with.
    int until_error(pvn_req *s)
    {
        int rc = 0, done = 0;
        for (int i = 0; i < 1000000 && rc == 0 && !done; i++)
            rc = pvn_engine_test(s, &done, nullptr);
        EXPECT_FALSE(done);
        return rc;
    }
    const pvn_tcp_lane_stats *tx()
    {
        return pvn_tcp_lane_get_stats(p.tx);
    }
    const pvn_tcp_lane_stats *rx()
    {
        return pvn_tcp_lane_get_stats(p.rx);
    }
};

TEST_F(TcpZerocopy, LargeChunksAreNotCopied)
{
    open();
    auto data = bytes::of(MSG, 1);
    exchange(data.data(), MSG);
    // 131072 + 131072 + 37856: the last chunk is below the size that is sent without a copy.
    EXPECT_EQ(262144u + 2 * HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(2u, tx()->zerocopy_acks);
    EXPECT_EQ(2u, rx()->zerocopy_acks);
    EXPECT_EQ(tx()->tx_bytes, rx()->rx_bytes);
    exchange(data.data(), ZEROCOPY - 1);
    EXPECT_EQ(262144u + 2 * HEAD, tx()->zerocopy_bytes) << "too small";
    exchange(data.data(), ZEROCOPY);
    EXPECT_EQ(262144u + ZEROCOPY + 3 * HEAD, tx()->zerocopy_bytes);
}

TEST_F(TcpZerocopy, AnyAddressAndLength)
{
    open(3);
    auto data = bytes::of(3 << 20, 2);
    std::mt19937 rnd(3);
    for (int i = 0; i < 100; i++) {
        size_t at = rnd() % 9000, n = rnd() % 3 ? rnd() % (2 << 20) : rnd() % 500;
        exchange(data.data() + at, n);
    }
    EXPECT_GT(tx()->zerocopy_bytes, 20u << 20);
    EXPECT_EQ(tx()->zerocopy_acks, rx()->zerocopy_acks);
}

// The kernel has taken all of it, and yet the buffer is not the caller's again.
TEST_F(TcpZerocopy, DoneWhenTheReceiverHasIt)
{
    open();
    auto data = bytes::of(100000, 4);
    std::vector<uint8_t> in(100000);
    pvn_req *s = send(data.data(), data.size());
    int done = 0;
    for (int i = 0; i < 1000; i++) {
        ASSERT_EQ(0, pvn_engine_test(s, &done, nullptr));
        ASSERT_FALSE(done);
    }
    EXPECT_EQ(100000u + HEAD, tx()->zerocopy_bytes)
        << "it waits for the acknowledgement, for nothing else";
    finish(s, receive(in.data(), in.size()), nullptr, nullptr);
    EXPECT_EQ(data, in);
}

TEST_F(TcpZerocopy, APeerWithoutAcksGetsCopies)
{
    p.acks = false;
    open();
    auto data = bytes::of(MSG, 5);
    exchange(data.data(), MSG);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
    EXPECT_EQ(0u, rx()->zerocopy_acks);
}

TEST_F(TcpZerocopy, DescriptorsAreLeftToTheProcess)
{
    open();
    rlimit before, few;
    ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
    int next = dup(0);
    ASSERT_EQ(0, close(next));
    few = before;
    few.rlim_cur = 2 * static_cast<rlim_t>(next) + 1; // a pipe is to be had, and half are in use
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &few));
    auto data = bytes::of(MSG, 6);
    exchange(data.data(), MSG);
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
    EXPECT_EQ(2u, tx()->zerocopy_acks) << "the headers had requested them";
    exchange(data.data(), MSG);
    EXPECT_EQ(0u, tx()->zerocopy_bytes) << "once it did not work it is not tried again";
    EXPECT_EQ(2u, tx()->zerocopy_acks);
}

// Memory that belongs to a device, or to the kernel as here, has no pages to take a reference of.
TEST_F(TcpZerocopy, MemoryWithoutPagesIsCopied)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    ASSERT_NE(nullptr, maps);
    char line[512];
    unsigned long vvar = 0;
    while (!vvar && fgets(line, sizeof(line), maps)) {
        if (strstr(line, "[vvar]"))
            vvar = strtoul(line, nullptr, 16);
    }
    fclose(maps);
    if (!vvar)
        GTEST_SKIP() << "this system has no vvar pages";
    p.open(1, 128 << 10, 0, 2000);
    std::vector<uint8_t> in(2000);
    pvn_req *r = receive(in.data(), in.size());
    finish(send(reinterpret_cast<const void *>(vvar), in.size()), r, nullptr, nullptr);
    EXPECT_GE(HEAD, tx()->zerocopy_bytes) << "nothing of the payload";
    EXPECT_EQ(1u, tx()->zerocopy_acks);
    EXPECT_EQ(in.size() + HEAD, rx()->rx_bytes);
}

TEST_F(TcpZerocopy, ThereIsALimit)
{
    open(1, 4 << 20);
    const int n = 18; // of 4 MiB: 64 MiB may be unacknowledged
    std::vector<uint8_t> data = bytes::of(4 << 20, 7);
    pvn_req *s[n];
    for (int i = 0; i < n; i++)
        s[i] = send(data.data(), data.size());
    for (int i = 0; i < n; i++) {
        std::vector<uint8_t> in(data.size());
        finish(s[i], receive(in.data(), in.size()), nullptr, nullptr);
        EXPECT_EQ(data, in);
    }
    EXPECT_EQ(16u, tx()->zerocopy_acks);
    EXPECT_EQ((64u << 20) + 16 * HEAD, tx()->zerocopy_bytes);
    exchange(data.data(), data.size());
    EXPECT_EQ(17u, tx()->zerocopy_acks) << "there is room again";
}

// splice raises SIGPIPE, whose default action would end the process, and so this test.
TEST_F(TcpZerocopy, NoSignalFromAClosedStream)
{
    open();
    auto data = bytes::of(100000, 8);
    exchange(data.data(), data.size());
    sigset_t before, after, pending;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    ASSERT_FALSE(sigismember(&before, SIGPIPE));
    ASSERT_EQ(SIG_DFL, signal(SIGPIPE, SIG_DFL));

    pvn_req *s = nullptr;
    int size = 4096;
    ASSERT_EQ(0, setsockopt(p.dialed[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
    s = send(data.data(), data.size());
    ASSERT_LT(tx()->zerocopy_bytes, 200000u) << "all of it fitted: nothing is tested";
    ASSERT_EQ(0, shutdown(p.dialed[0], SHUT_WR));
    EXPECT_EQ(-EPIPE, until_error(s));

    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    EXPECT_FALSE(sigismember(&after, SIGPIPE));
    sigpending(&pending);
    EXPECT_FALSE(sigismember(&pending, SIGPIPE));
}

// One that was pending before is somebody else's.
TEST_F(TcpZerocopy, AnotherSignalStays)
{
    open();
    auto data = bytes::of(100000, 9);
    exchange(data.data(), data.size());
    int size = 4096;
    ASSERT_EQ(0, setsockopt(p.dialed[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
    pvn_req *s = send(data.data(), data.size());
    ASSERT_EQ(0, shutdown(p.dialed[0], SHUT_WR));
    sigset_t sigpipe, pending;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe, nullptr);
    pthread_kill(pthread_self(), SIGPIPE);
    EXPECT_EQ(-EPIPE, until_error(s));
    sigpending(&pending);
    EXPECT_TRUE(sigismember(&pending, SIGPIPE));
    timespec now = {};
    EXPECT_EQ(SIGPIPE, sigtimedwait(&sigpipe, nullptr, &now));
    pthread_sigmask(SIG_UNBLOCK, &sigpipe, nullptr);
}

TEST_F(TcpZerocopy, ReceiverGone)
{
    open();
    auto data = bytes::of(100000, 10);
    pvn_req *s = send(data.data(), data.size());
    p.rx->ops->close(p.rx);
    p.rx = nullptr;
    int rc = until_error(s);
    EXPECT_TRUE(rc == -ECONNRESET || rc == -EPIPE) << rc;
    EXPECT_NE(nullptr, strstr(p.tx->err.reason[0], "acknowledgement")) << p.tx->err.reason[0];
}

TEST_F(TcpZerocopy, AcksForMoreThanWasSent)
{
    open();
    auto data = bytes::of(100000, 11);
    pvn_req *s = send(data.data(), data.size());
    ASSERT_EQ(1, ::send(p.adopted[0], "\2", 1, 0));
    EXPECT_EQ(-EPROTO, until_error(s));
    EXPECT_NE(nullptr, strstr(p.tx->err.reason[0], "more than was sent")) << p.tx->err.reason[0];
}

TEST_F(TcpZerocopy, AnAckForNothing)
{
    open();
    auto data = bytes::of(100000, 12);
    pvn_req *s = send(data.data(), data.size());
    ASSERT_EQ(1, ::send(p.adopted[0], "\0", 1, 0));
    EXPECT_EQ(-EPROTO, until_error(s));
}

// The pages are the caller's again: what is in flight must not look whole.
TEST_F(TcpZerocopy, ClosingBeforeTheAckIsAReset)
{
    open();
    auto data = bytes::of(100000, 13);
    send(data.data(), data.size());
    close_sender();
    EXPECT_EQ(ECONNRESET, receivers_error());
}

// A child that was forked meanwhile has the descriptors, too, and would keep the stream open.
TEST_F(TcpZerocopy, AResetDespiteAForkedChild)
{
    open();
    auto data = bytes::of(100000, 17);
    send(data.data(), data.size());
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    close_sender();
    EXPECT_EQ(ECONNRESET, receivers_error());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

// The receiver's kernel holds the pages themselves of a chunk by then.
TEST_F(TcpZerocopy, WhatIsOverwrittenAfterAResetDoesNotArrive)
{
    open();
    auto data = bytes::of(100000, 16);
    const auto was = data;
    std::vector<uint8_t> in(data.size());
    send(data.data(), data.size());
    ASSERT_EQ(data.size() + HEAD, tx()->zerocopy_bytes)
        << "not all of it is in flight: nothing is tested";
    close_sender();
    memset(data.data(), 0x5a, data.size());
    pvn_req *r = receive(in.data(), in.size());
    int done = 0, rc = 0;
    for (int i = 0; i < 1000000 && rc == 0 && !done; i++)
        rc = pvn_engine_test(r, &done, nullptr);
    EXPECT_FALSE(done && in != was) << "a receive is done with bytes that were never sent";
    EXPECT_EQ(-ECONNRESET, rc);
}

// As when the comm has failed: its owner has the memory back before the lane is closed.
TEST_F(TcpZerocopy, AFencedLaneIsReset)
{
    open();
    auto data = bytes::of(100000, 18);
    pvn_req *s = send(data.data(), data.size());
    ASSERT_EQ(data.size() + HEAD, tx()->zerocopy_bytes) << "nothing of it is in flight";
    EXPECT_EQ(0, p.tx->ops->fence(p.tx));
    EXPECT_EQ(ECONNRESET, receivers_error());
    int done = 0;
    for (int i = 0; i < 100; i++)
        pvn_engine_test(s, &done, nullptr);
    EXPECT_FALSE(done) << "nobody has acknowledged it";
}

// The socket has the chunk in part only.
TEST_F(TcpZerocopy, AFencedLaneIsResetWithinAChunk)
{
    open(1, 8 << 20);
    auto data = bytes::of(8 << 20, 20);
    send(data.data(), data.size());
    ASSERT_LT(0u, tx()->zerocopy_bytes);
    ASSERT_LT(tx()->zerocopy_bytes, data.size()) << "all of it fitted: nothing is tested";
    EXPECT_EQ(0, p.tx->ops->fence(p.tx));
    EXPECT_EQ(ECONNRESET, receivers_error());
}

TEST_F(TcpZerocopy, AFencedReceiverWritesNothing)
{
    open();
    auto data = bytes::of(100000, 19);
    std::vector<uint8_t> in(data.size());
    pvn_req *r = receive(in.data(), in.size());
    pvn_req *s = send(data.data(), data.size());
    EXPECT_EQ(0, p.rx->ops->fence(p.rx));
    int done = 0;
    for (int i = 0; i < 1000; i++) {
        pvn_engine_test(s, &done, nullptr);
        pvn_engine_test(r, &done, nullptr);
    }
    EXPECT_FALSE(done);
    EXPECT_EQ(std::vector<uint8_t>(in.size()), in);
}

TEST_F(TcpZerocopy, ClosingAfterItIsNone)
{
    open();
    auto data = bytes::of(MSG, 14);
    exchange(data.data(), MSG);
    ASSERT_GT(tx()->zerocopy_acks, 0u);
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    usleep(1000);
    char byte;
    EXPECT_EQ(0, recv(p.adopted[0], &byte, 1, MSG_DONTWAIT)) << "not an orderly end";
}

// An acknowledgement makes the socket pass for interactive; small messages must not suffer.
TEST_F(TcpZerocopy, SmallMessagesAfterwards)
{
    open();
    auto data = bytes::of(MSG, 15);
    exchange(data.data(), ZEROCOPY);
    ASSERT_EQ(1u, rx()->zerocopy_acks);
    exchange(data.data(), 8);
    int quick = 0;
    socklen_t len = sizeof(quick);
    ASSERT_EQ(0, getsockopt(p.adopted[0], IPPROTO_TCP, TCP_QUICKACK, &quick, &len));
    EXPECT_EQ(1, quick);
}

// A buffer of 2 huge pages and half of one before and behind them, registered with the sender.
class TcpZerocopyRegistered : public TcpZerocopy
{
  protected:
    static constexpr size_t HUGE = 2 << 20;
    uint8_t *mem = nullptr; // 4 * HUGE
    uint8_t *first = nullptr;
    pvn_mr mr = {};

    // Huge pages are to be had: the kernel is new enough and has memory in one piece.
    bool available()
    {
        return madvise(first, HUGE, MADV_COLLAPSE) == 0;
    }
    // PAGEMAP_SCAN. Older kernels do not know the request.
    static bool sees_huge_pages()
    {
        utsname u = {};
        int major = 0, minor = 0;
        uname(&u);
        sscanf(u.release, "%d.%d", &major, &minor);
        return major > 6 || (major == 6 && minor >= 7);
    }
    void make()
    {
        open(1, 512 << 10);
        mem = static_cast<uint8_t *>(
            mmap(nullptr, 5 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        ASSERT_NE(MAP_FAILED, mem);
        first = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(mem) + 2 * HUGE - 1) &
                                            ~(HUGE - 1));
        auto data = bytes::of(3 * HUGE, 16);
        memcpy(first - HUGE / 2, data.data(), data.size());
        mr.addr = first - HUGE / 2;
        mr.len = 3 * HUGE;
        mr.ptr_type = NCCL_PTR_HOST;
    }
    // Kilobytes of the buffer that are in huge pages.
    long in_huge_pages()
    {
        FILE *f = fopen("/proc/self/smaps", "re");
        char line[256];
        long kb = -1;
        bool ours = false;
        while (f && fgets(line, sizeof(line), f)) {
            unsigned long from, to;
            if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
                ours = from <= reinterpret_cast<uintptr_t>(first) &&
                       reinterpret_cast<uintptr_t>(first) < to;
            if (ours)
                sscanf(line, "AnonHugePages: %ld kB", &kb);
        }
        if (f)
            fclose(f);
        return kb;
    }
    void TearDown() override
    {
        if (mem)
            munmap(mem, 5 * HUGE);
    }
};

TEST_F(TcpZerocopyRegistered, BuffersAreMovedIntoHugePages)
{
    make();
    if (!available())
        GTEST_SKIP() << "no huge pages here";
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    EXPECT_NE(nullptr, mr.lane_mr[p.tx->idx]);
    EXPECT_EQ(static_cast<long>(2 * HUGE / 1024), in_huge_pages());
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ((512u << 10) + HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
    EXPECT_EQ(nullptr, mr.lane_mr[p.tx->idx]);
}

TEST_F(TcpZerocopyRegistered, MemoryBesideHugePagesIsCopied)
{
    make();
    if (!available())
        GTEST_SKIP() << "no huge pages here";
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    exchange(first - (512 << 10), 512 << 10, &mr);
    exchange(first + 2 * HUGE, 512 << 10, &mr);
    exchange(first - (257 << 10), 512 << 10, &mr); // the smaller half is in them
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
    exchange(first - (256 << 10), 512 << 10, &mr);
    EXPECT_EQ((512u << 10) + HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
}

TEST_F(TcpZerocopyRegistered, SmallPagesAreCopied)
{
    make();
    mr.len = HUGE; // no huge page fits in
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    EXPECT_EQ(nullptr, mr.lane_mr[p.tx->idx]);
    exchange(first - HUGE / 2, HUGE, &mr);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
}

TEST_F(TcpZerocopyRegistered, ReceivingBuffersStayWhereTheyAre)
{
    make();
    ASSERT_EQ(0, p.rx->ops->mem_reg(p.rx, &mr, -1, 0, nullptr));
    EXPECT_EQ(nullptr, mr.lane_mr[p.rx->idx]);
    EXPECT_EQ(0, in_huge_pages());
}

// Buffers stay in small pages if the administrator has switched huge pages off, although the kernel would move them.
TEST_F(TcpZerocopyRegistered, SwitchedOffTheyStayOff)
{
    make();
    char path[] = "thp-enabled-XXXXXX";
    int fd = mkstemp(path);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(23, write(fd, "always madvise [never]\n", 23));
    close(fd);
    tcp_mem_thp_from(path);
    int rc = p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr);
    tcp_mem_thp_from("/sys/kernel/mm/transparent_hugepage/enabled");
    unlink(path);
    ASSERT_EQ(0, rc);
    EXPECT_EQ(nullptr, mr.lane_mr[p.tx->idx]);
    EXPECT_EQ(0, in_huge_pages());
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
}

// Its owner writes to it after the registration only.
TEST_F(TcpZerocopyRegistered, WhatIsTouchedLaterIsLookedAtAgain)
{
    make();
    if (!available() || !sees_huge_pages())
        GTEST_SKIP()
            << "no huge pages here, or a kernel that does not say where they are (Linux 6.7)";
    ASSERT_EQ(0, madvise(first - HUGE / 2, 3 * HUGE, MADV_DONTNEED));
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    ASSERT_EQ(0, in_huge_pages());
    auto data = bytes::of(3 * HUGE, 17);
    memcpy(first - HUGE / 2, data.data(), data.size());
    if (in_huge_pages() != static_cast<long>(2 * HUGE / 1024))
        GTEST_SKIP() << "the kernel had no huge pages at that moment";
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ((512u << 10) + HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
}

// Looking takes a system call: messages from small pages must not go on with it.
TEST_F(TcpZerocopyRegistered, WhatIsTouchedInSmallPagesIsLookedAtFourTimes)
{
    make();
    if (!available() || !sees_huge_pages())
        GTEST_SKIP()
            << "no huge pages here, or a kernel that does not say where they are (Linux 6.7)";
    ASSERT_EQ(0, madvise(first - HUGE / 2, 3 * HUGE, MADV_DONTNEED));
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    ASSERT_EQ(0, madvise(first, 2 * HUGE, MADV_NOHUGEPAGE));
    memset(first, 1, 2 * HUGE);
    for (int i = 0; i < 4; i++)
        exchange(first, 512 << 10, &mr);
    ASSERT_EQ(0u, tx()->zerocopy_bytes);
    ASSERT_EQ(0, madvise(first, 2 * HUGE, MADV_HUGEPAGE));
    ASSERT_EQ(0, madvise(first, 2 * HUGE, MADV_COLLAPSE));
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ(0u, tx()->zerocopy_bytes) << "a fifth look";
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
}

// The kernel refuses the range for its first half; the second is in a huge page already.
TEST_F(TcpZerocopyRegistered, APartInHugePagesIsEnough)
{
    make();
    if (!available() || !sees_huge_pages())
        GTEST_SKIP()
            << "no huge pages here, or a kernel that does not say where they are (Linux 6.7)";
    ASSERT_EQ(0, madvise(first + HUGE, HUGE, MADV_COLLAPSE));
    ASSERT_EQ(0, madvise(first, HUGE, MADV_DONTNEED));
    ASSERT_EQ(0, madvise(first, HUGE, MADV_NOHUGEPAGE));
    memset(first, 1, HUGE);
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
    exchange(first + HUGE, 512 << 10, &mr);
    EXPECT_EQ((512u << 10) + HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
}

// Pages of the machine's pool, which the test fills where it may.
class Hugetlb
{
  public:
    static constexpr size_t SIZE = 2 << 20;
    uint8_t *mem = nullptr;

    Hugetlb()
    {
        before = pool();
        if (before < 0)
            return;
        mem = map();
        if (!mem && set_pool(before + PAGES)) {
            filled = true;
            mem = map();
        }
    }
    ~Hugetlb()
    {
        if (mem)
            munmap(mem, PAGES * SIZE);
        if (filled)
            set_pool(before);
    }
    Hugetlb(const Hugetlb &) = delete;
    Hugetlb &operator=(const Hugetlb &) = delete;

  private:
    static constexpr int PAGES = 2;
    static constexpr const char *PATH = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    long before = -1;
    bool filled = false;

    static uint8_t *map()
    {
        void *m = mmap(nullptr, PAGES * SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        return m == MAP_FAILED ? nullptr : static_cast<uint8_t *>(m);
    }
    static long pool()
    {
        long n = -1;
        FILE *f = fopen(PATH, "re");
        if (f && fscanf(f, "%ld", &n) != 1)
            n = -1;
        if (f)
            fclose(f);
        return n;
    }
    static bool set_pool(long n)
    {
        FILE *f = fopen(PATH, "we");
        if (!f)
            return false;
        bool ok = fprintf(f, "%ld", n) > 0;
        return fclose(f) == 0 && ok;
    }
};

TEST_F(TcpZerocopyRegistered, HugetlbPagesAreSentWithoutACopy)
{
    Hugetlb pages;
    if (!pages.mem)
        GTEST_SKIP()
            << "no hugetlb pages of 2 MiB: none are reserved (vm.nr_hugepages), and this user or "
               "this machine cannot";
    open(1, 512 << 10);
    if (!sees_huge_pages())
        GTEST_SKIP() << "this kernel does not say where huge pages are (Linux 6.7)";
    auto data = bytes::of(2 * HUGE, 18);
    memcpy(pages.mem, data.data(), data.size());
    mr.addr = pages.mem;
    mr.len = 2 * HUGE;
    mr.ptr_type = NCCL_PTR_HOST;
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    ASSERT_NE(nullptr, mr.lane_mr[p.tx->idx]);
    exchange(pages.mem + HUGE, 512 << 10, &mr);
    EXPECT_EQ((512u << 10) + HEAD, tx()->zerocopy_bytes);
    EXPECT_EQ(0, p.tx->ops->mem_dereg(p.tx, &mr));
}

// Registration works without huge pages where the kernel refuses them.
TEST_F(TcpZerocopyRegistered, ARefusalIsNoError)
{
    make();
    ASSERT_EQ(0, madvise(first, 2 * HUGE, MADV_NOHUGEPAGE));
    ASSERT_EQ(0, p.tx->ops->mem_reg(p.tx, &mr, -1, 0, nullptr));
    EXPECT_EQ(nullptr, mr.lane_mr[p.tx->idx]);
    exchange(first, 512 << 10, &mr);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
}

} // namespace
