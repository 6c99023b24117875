// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin chooses whether large messages are copied: by the kernel's report on the path, and by
// the processor time of both methods. Loopback always copies. So this file supplies the kernel's
// other report and the thread's processor clock, by functions that come before those of the C
// library.
#include "tcp/lane_pair.h"

#include <cerrno>
#include <ctime>
#include <linux/errqueue.h>
#include <string>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace
{

struct {
    bool not_copied;                      // the kernel reports zero-copy
    int refusal;                          // errno of sending with MSG_ZEROCOPY; 0: the kernel's own
    uint32_t min_rtt_us;                  // of any connection
    uint64_t copy_ns, splice_ns;          // processor time per KiB
    uint64_t clock_ns, readings;          // the thread's processor clock, and how often it was read
    size_t probes, answers, probed_bytes; // sends with MSG_ZEROCOPY, the kernel's reports of them
} kernel;

} // namespace

extern "C" {

ssize_t sendmsg(int fd, const msghdr *m, int flags)
{
    if (flags & MSG_ZEROCOPY) {
        kernel.probes++;
        if (kernel.refusal) {
            errno = kernel.refusal;
            return -1;
        }
    }
    ssize_t n = syscall(SYS_sendmsg, fd, m, flags);
    if (n > 0)
        kernel.clock_ns += static_cast<uint64_t>(n) * kernel.copy_ns / 1024;
    if (n > 0 && flags & MSG_ZEROCOPY)
        kernel.probed_bytes += static_cast<size_t>(n);
    return n;
}

ssize_t vmsplice(int fd, const iovec *iov, size_t count, unsigned flags)
{
    ssize_t n = syscall(SYS_vmsplice, fd, iov, count, flags);
    if (n > 0)
        kernel.clock_ns += static_cast<uint64_t>(n) * kernel.splice_ns / 1024;
    return n;
}

ssize_t recvmsg(int fd, msghdr *m, int flags)
{
    ssize_t n = syscall(SYS_recvmsg, fd, m, flags);
    if (n < 0 || !(flags & MSG_ERRQUEUE))
        return n;
    kernel.answers++;
    cmsghdr *c = CMSG_FIRSTHDR(m);
    sock_extended_err e;
    memcpy(&e, CMSG_DATA(c), sizeof(e));
    if (kernel.not_copied)
        e.ee_code = static_cast<uint8_t>(e.ee_code & ~SO_EE_CODE_ZEROCOPY_COPIED);
    memcpy(CMSG_DATA(c), &e, sizeof(e));
    return n;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len) noexcept
{
    int rc = static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, len));
    if (rc == 0 && level == IPPROTO_TCP && name == TCP_INFO && *len >= 152)
        memcpy(static_cast<char *>(value) + 148, &kernel.min_rtt_us, sizeof(kernel.min_rtt_us));
    return rc;
}

int clock_gettime(clockid_t clock, timespec *ts) noexcept
{
    if (clock != CLOCK_THREAD_CPUTIME_ID)
        return static_cast<int>(syscall(SYS_clock_gettime, clock, ts));
    kernel.readings++;
    ts->tv_sec = static_cast<time_t>(kernel.clock_ns / 1000000000);
    ts->tv_nsec = static_cast<long>(kernel.clock_ns % 1000000000);
    return 0;
}
}

namespace
{

constexpr size_t ZEROCOPY = 64 << 10; // the size that may be sent without a copy
constexpr size_t MSG = 1 << 20;
constexpr size_t HEAD = PVN_FRAME_LEN;
constexpr int ENOUGH = 40; // messages after which a trial has ended

class TcpTrial : public testing::Test
{
  protected:
    LanePair p;
    std::vector<uint8_t> data = bytes::of(MSG, 3);

    void SetUp() override
    {
        p.trial = true;
        kernel = {};
        kernel.min_rtt_us = 1000;
        kernel.copy_ns = 100;
        kernel.splice_ns = 50;
    }
    void TearDown() override
    {
        tcp_trial_again_after(0);
    }
    void open()
    {
        p.open(1, MSG, false, ZEROCOPY);
    }
    void exchange(size_t n)
    {
        std::vector<uint8_t> in(n);
        void *to = in.data();
        pvn_req *s = nullptr, *r = nullptr;
        int tag = 0;
        ASSERT_EQ(0, pvn_engine_irecv(p.erx, 1, &to, &n, &tag, nullptr, &r));
        ASSERT_EQ(0, pvn_engine_isend(p.etx, data.data(), n, 0, nullptr, &s));
        ASSERT_TRUE(s && r);
        finish(s, r, nullptr, nullptr);
        ASSERT_EQ(0, memcmp(in.data(), data.data(), n));
    }
    void exchange_many()
    {
        for (int i = 0; i < ENOUGH && !HasFatalFailure(); i++)
            exchange(MSG);
    }
    uint64_t uncopied()
    {
        return pvn_tcp_lane_get_stats(p.tx)->zerocopy_bytes;
    }
    std::string decision()
    {
        char text[256];
        p.tx->ops->describe(p.tx, text, sizeof(text));
        const std::string s = text;
        const size_t at = s.rfind('(');
        return at == std::string::npos ? s : s.substr(at);
    }
};

// The kernel itself reports a copy on loopback.
TEST_F(TcpTrial, WhereTheKernelCopiesSoDoesThePlugin)
{
    open();
    EXPECT_EQ("(on trial)", decision());
    exchange_many();
    EXPECT_EQ("(it does not pay here)", decision());
    EXPECT_EQ(1u, kernel.probes);
    EXPECT_GE(kernel.probed_bytes, HEAD + 1);
    EXPECT_LE(kernel.probed_bytes, HEAD + (64 << 10));
    EXPECT_EQ(1u, kernel.answers);
    EXPECT_EQ(0u, uncopied());
    EXPECT_EQ(0u, kernel.readings) << "there was nothing to measure";
}

TEST_F(TcpTrial, WhereSplicingIsCheaperNothingIsCopied)
{
    kernel.not_copied = true;
    open();
    exchange_many();
    EXPECT_EQ("(it pays)", decision());
    EXPECT_GT(kernel.readings, 0u);
    const uint64_t before = uncopied(), readings = kernel.readings;
    EXPECT_GE(before, 16u << 20) << "both were tried";
    exchange(MSG);
    EXPECT_EQ(MSG + HEAD, uncopied() - before);
    EXPECT_EQ(readings, kernel.readings) << "measured on";
}

TEST_F(TcpTrial, WhereItIsNotMuchCheaperAllIsCopied)
{
    kernel.not_copied = true;
    kernel.splice_ns = 95;
    open();
    exchange_many();
    EXPECT_EQ("(it does not pay here)", decision());
    const uint64_t before = uncopied();
    EXPECT_GE(before, 16u << 20) << "both were tried";
    exchange(MSG);
    EXPECT_EQ(before, uncopied());
}

// Zero-copy would keep the sender's memory in use for a round trip.
TEST_F(TcpTrial, OnALongPathAllIsCopied)
{
    kernel.not_copied = true;
    kernel.min_rtt_us = 1001;
    open();
    exchange_many();
    EXPECT_EQ("(it does not pay here)", decision());
    EXPECT_EQ(1u, kernel.answers);
    EXPECT_EQ(0u, uncopied());
}

// A trial is repeated, because a stream's route may have changed.
TEST_F(TcpTrial, ItIsRepeated)
{
    kernel.not_copied = true;
    tcp_trial_again_after(100 << 20);
    open();
    exchange_many();
    ASSERT_EQ("(it pays)", decision());
    kernel.not_copied = false;
    for (int i = 0; i < 4; i++)
        exchange_many();
    EXPECT_EQ("(it does not pay here)", decision());
    EXPECT_GE(kernel.probes, 2u);
    const uint64_t before = uncopied();
    exchange(MSG);
    EXPECT_EQ(before, uncopied());
}

class TcpTrialRefused : public TcpTrial, public testing::WithParamInterface<int>
{
};

TEST_P(TcpTrialRefused, ARefusalIsNoError)
{
    kernel.refusal = GetParam();
    open();
    exchange_many();
    EXPECT_EQ(1u, kernel.probes);
    EXPECT_EQ("(it does not pay here)", decision());
    EXPECT_EQ(0u, uncopied());
}

INSTANTIATE_TEST_SUITE_P(Errors, TcpTrialRefused, testing::Values(ENOBUFS, EOPNOTSUPP, EFAULT));

// Small messages cost nothing extra.
TEST_F(TcpTrial, SmallMessagesHaveNoPartInIt)
{
    open();
    for (int i = 0; i < 100; i++) {
        exchange(8);
        exchange(ZEROCOPY - 1);
    }
    EXPECT_EQ(0u, kernel.probes);
    EXPECT_EQ(0u, kernel.answers);
    EXPECT_EQ(0u, kernel.readings);
}

// Without acknowledgements the sender would never know when the memory is free again.
TEST_F(TcpTrial, APeerThatAcknowledgesNothingIsCopiedFor)
{
    p.acks = false;
    open();
    exchange_many();
    EXPECT_EQ(0u, kernel.probes);
    EXPECT_EQ(0u, uncopied());
}

// The kernel may still use the pages, as with any zero-copy send.
TEST_F(TcpTrial, ClosingResetsAStreamWithAProbe)
{
    open();
    pvn_req *s = nullptr;
    ASSERT_EQ(0, pvn_engine_isend(p.etx, data.data(), ZEROCOPY, 0, nullptr, &s));
    ASSERT_EQ(1u, kernel.probes);
    pvn_engine_free(p.etx);
    p.etx = nullptr;
    p.tx->ops->close(p.tx);
    p.tx = nullptr;
    ASSERT_TRUE(sees_the_end(p.adopted[0]));
    int error = 0;
    socklen_t len = sizeof(error);
    ASSERT_EQ(0, getsockopt(p.adopted[0], SOL_SOCKET, SO_ERROR, &error, &len));
    EXPECT_EQ(ECONNRESET, error);
}

} // namespace
