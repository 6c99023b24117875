// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Large chunks are sent without a copy. The tests cover the data that arrive, when a send is done,
// and failures of pipes, acknowledgements and the peer.
#include "tcp/lane_pair.h"

#include <csignal>
#include <random>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>

namespace
{

constexpr size_t ZEROCOPY = 64 << 10; // chunks of at least this size are not copied
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
    pvn_req *send(const void *data, size_t n)
    {
        pvn_req *s = nullptr;
        EXPECT_EQ(0, pvn_engine_isend(p.etx, data, n, 0, nullptr, &s));
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
    // Sends one message, and calls both ends until it is done.
    void exchange(const uint8_t *from, size_t n)
    {
        std::vector<uint8_t> in(n + 1, 0xAA);
        pvn_req *r = receive(in.data(), n);
        finish(send(from, n), r, nullptr, nullptr);
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
    // Returns the stream's error from the receiver's socket.
    int receivers_error()
    {
        EXPECT_TRUE(sees_the_end(p.adopted[0]));
        int error = 0;
        socklen_t len = sizeof(error);
        EXPECT_EQ(0, getsockopt(p.adopted[0], SOL_SOCKET, SO_ERROR, &error, &len));
        return error;
    }
    // Tests a send until it fails. Returns the error.
    int until_error(pvn_req *s)
    {
        int rc = 0, done = 0;
        for (Deadline wait; wait.left() && rc == 0 && !done;)
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
    // The chunks have 131072, 131072 and 37856 bytes. The last one is too small to be sent without
    // a copy.
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

// The send is not done when the kernel has taken all bytes, because the kernel still uses the
// buffer.
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
    few.rlim_cur = 2 * static_cast<rlim_t>(next) + 1; // a pipe can be opened, and half are in use
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

// Memory of a device, or of the kernel as here, has no pages that the kernel can reference.
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
    const int n = 18; // messages of 4 MiB; at most 64 MiB may be unacknowledged
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

// splice raises SIGPIPE. Its default action would end the process, and with it this test.
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

// A signal that was already pending belongs to other code.
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

TEST_F(TcpZerocopy, ASendToAClosedReceiverNamesTheMissingAcknowledgement)
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

// The caller may reuse the pages. So a message in flight must not seem complete.
TEST_F(TcpZerocopy, ClosingBeforeTheAckIsAReset)
{
    open();
    auto data = bytes::of(100000, 13);
    send(data.data(), data.size());
    close_sender();
    EXPECT_EQ(ECONNRESET, receivers_error());
}

// A child that was forked meanwhile shares the descriptors, and would keep the stream open.
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

// The receiver's kernel then holds the pages of a chunk, not copies.
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
    for (Deadline wait; wait.left() && rc == 0 && !done;)
        rc = pvn_engine_test(r, &done, nullptr);
    EXPECT_FALSE(done && in != was) << "a receive is done with bytes that were never sent";
    EXPECT_EQ(-ECONNRESET, rc);
}

// A comm that failed gives the memory back to its owner before the lane is closed.
TEST_F(TcpZerocopy, AFencedLaneIsReset)
{
    open();
    auto data = bytes::of(100000, 18);
    pvn_req *s = send(data.data(), data.size());
    ASSERT_EQ(data.size() + HEAD, tx()->zerocopy_bytes) << "nothing of it is in flight";
    p.fence(p.etx, p.tx);
    EXPECT_EQ(ECONNRESET, receivers_error());
    int done = 0;
    for (int i = 0; i < 100; i++)
        pvn_engine_test(s, &done, nullptr);
    EXPECT_FALSE(done) << "nobody has acknowledged it";
}

// The socket has only a part of the chunk.
TEST_F(TcpZerocopy, AFencedLaneIsResetWithinAChunk)
{
    open(1, 8 << 20);
    auto data = bytes::of(8 << 20, 20);
    send(data.data(), data.size());
    ASSERT_LT(0u, tx()->zerocopy_bytes);
    ASSERT_LT(tx()->zerocopy_bytes, data.size()) << "all of it fitted: nothing is tested";
    p.fence(p.etx, p.tx);
    EXPECT_EQ(ECONNRESET, receivers_error());
}

TEST_F(TcpZerocopy, AFencedReceiverWritesNothing)
{
    open();
    auto data = bytes::of(100000, 19);
    std::vector<uint8_t> in(data.size());
    pvn_req *r = receive(in.data(), in.size());
    pvn_req *s = send(data.data(), data.size());
    p.fence(p.erx, p.rx);
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
    ASSERT_TRUE(sees_the_end(p.adopted[0]));
    char byte;
    EXPECT_EQ(0, recv(p.adopted[0], &byte, 1, MSG_DONTWAIT)) << "not an orderly end";
}

// An acknowledgement makes the kernel treat the socket as interactive. Small messages must not
// suffer from that.
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

// Worker threads copy large messages. There is no trial, and the log mentions none.
TEST_F(TcpZerocopy, WorkerThreadsCopy)
{
    p.workers = 1;
    open();
    auto data = bytes::of(MSG, 21);
    exchange(data.data(), MSG);
    EXPECT_EQ(0u, tx()->zerocopy_bytes);
    EXPECT_EQ(0u, tx()->zerocopy_acks);
    EXPECT_LT(0u, tx()->jobs);
    char text[256];
    p.tx->ops->describe(p.tx, text, sizeof(text));
    EXPECT_EQ(nullptr, strstr(text, "zero-copy")) << text;
}

} // namespace
