// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Sealed streams that the kernel takes over after the handshake. The other end is of the same kind,
// or sealed by OpenSSL. The test skips if the kernel cannot do it. tests/vm/run-tls.sh runs it in a
// guest whose kernel can (PVN_KERNEL_TLS=yes: must), and in one whose kernel cannot renew keys
// (PVN_KERNEL_TLS=no-renewal).
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <linux/tls.h>

#include "support/deadline.h"
#include "unit/seal_ends.h"

extern "C" {
#include "connect/sock.h"
#include "seal/kernel_tls.h"
}

namespace
{

std::string required()
{
    const char *how = getenv("PVN_KERNEL_TLS");
    return how ? how : "";
}

// Ends over TCP, with a relay as in the other tests. The arguments say which ends the kernel takes
// over.
struct KernelEnds : Ends {
    const pvn_sockio *io[2] = {};
    Bytes waiting[2]; // bytes for which that end's socket has no room yet

    KernelEnds(bool connector, bool acceptor) : Ends(secret(1), secret(1), true)
    {
        pvn_seal_expect_bulk(s[0], connector);
        pvn_seal_expect_bulk(s[1], acceptor);
    }
    // Completes the handshake of both ends. It waits, because TCP may deliver bytes later.
    bool shake()
    {
        for (Deadline wait; wait.left() && (rc[0] == -EAGAIN || rc[1] == -EAGAIN); pass())
            step();
        for (int end = 0; end < 2; end++)
            io[end] = rc[end] == 0 ? pvn_sockio_of(s[end]) : nullptr;
        return rc[0] == 0 && rc[1] == 0;
    }
    void pass()
    {
        for (int to = 0; to < 2; to++) {
            if (waiting[to].empty())
                waiting[to] = take(!to);
            ssize_t n = waiting[to].empty()
                            ? 0
                            : ::send(far[to], waiting[to].data(), waiting[to].size(), MSG_NOSIGNAL);
            if (n > 0)
                waiting[to].erase(waiting[to].begin(), waiting[to].begin() + n);
        }
    }
    ssize_t send(int from, const Bytes &b, size_t at = 0)
    {
        return pvn_sockio_send(io[from], near[from], s[from], b.data() + at, b.size() - at);
    }
    // Receives up to n bytes. Returns the code of the first receive that does not return -EAGAIN.
    ssize_t receive(int to, Bytes &got, size_t n)
    {
        ssize_t code = -EAGAIN;
        got.resize(n);
        for (Deadline wait; wait.left() && code == -EAGAIN;) {
            code = pvn_sockio_recv(io[to], near[to], s[to], got.data(), n);
            if (code == -EAGAIN)
                pass();
        }
        got.resize(code > 0 ? static_cast<size_t>(code) : 0);
        return code;
    }
    // Sends `what` and returns the bytes that arrive at the other end.
    Bytes carry(int from, const Bytes &what)
    {
        Bytes got, piece(100000);
        size_t done = 0;
        for (Deadline wait; wait.left() && got.size() < what.size();) {
            ssize_t n = done < what.size() ? send(from, what, done) : 0;
            if (n > 0)
                done += static_cast<size_t>(n);
            pass();
            n = pvn_sockio_recv(io[!from], near[!from], s[!from], piece.data(), piece.size());
            if (n > 0)
                got.insert(got.end(), piece.begin(), piece.begin() + n);
            else if (n != -EAGAIN)
                break;
        }
        return got;
    }
    // Takes the bytes that an end has sent, at least n of them.
    Bytes take_all(int from, size_t n)
    {
        Bytes all;
        for (Deadline wait; wait.left() && all.size() < n;) {
            Bytes b = take(from);
            all.insert(all.end(), b.begin(), b.end());
        }
        return all;
    }
};

class SealKernel : public testing::Test
{
  protected:
    void SetUp() override
    {
        pvn_err err = PVN_ERR_INIT;
        ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
        ASSERT_EQ(0, pvn_seal_check(&err)) << err.reason[0];
        int rc = pvn_kernel_tls_check(&err);
        ASSERT_FALSE(rc && required() == "yes") << err.reason[0];
        if (rc)
            GTEST_SKIP() << err.reason[0] << "; guests of tests/vm/run-tls.sh do it";
    }
    void TearDown() override
    {
        pvn_seal_rekey_after(0);
    }
};

// Runs f with each combination of ends that has at least one in the kernel.
template <typename F> void each_kind(F f)
{
    for (int kind = 1; kind < 4; kind++) {
        SCOPED_TRACE(std::string("in the kernel: ") + (kind & 1 ? "connector " : "") +
                     (kind & 2 ? "acceptor" : ""));
        KernelEnds e(kind & 1, kind & 2);
        ASSERT_TRUE(e.shake()) << e.err[0].reason[0] << e.err[1].reason[0];
        ASSERT_EQ((kind & 1) != 0, pvn_seal_is_by_kernel(e.s[0]));
        ASSERT_EQ((kind & 2) != 0, pvn_seal_is_by_kernel(e.s[1]));
        f(e);
    }
}

TEST_F(SealKernel, CarriesBytesInBothDirections)
{
    each_kind([](KernelEnds &e) {
        for (size_t n : {1, 9, 16384, 16385, 300000})
            for (int from = 0; from < 2; from++)
                EXPECT_EQ(many(n), e.carry(from, many(n))) << n << " bytes from " << from;
        EXPECT_STREQ("TLS_AES_128_GCM_SHA256", pvn_seal_suite(e.s[0]));
        const Bytes part = many(64);
        for (const Bytes &sent : e.sent)
            EXPECT_EQ(sent.end(), std::search(sent.begin(), sent.end(), part.begin(), part.end()))
                << "nothing of it is on the wire";
    });
}

// If no padding is used, the kernel opens records in the receiver's memory.
TEST_F(SealKernel, NoPaddingIsExpected)
{
    KernelEnds e(true, true);
    ASSERT_TRUE(e.shake());
    for (int end = 0; end < 2; end++) {
        int on = 0;
        socklen_t len = sizeof(on);
        ASSERT_EQ(0, getsockopt(e.near[end], SOL_TLS, TLS_RX_EXPECT_NO_PAD, &on, &len));
        EXPECT_EQ(1, on) << end;
    }
}

// The bytes are sent right after the handshake, before the other end has given its keys to the
// kernel.
TEST_F(SealKernel, BytesThatFollowTheHandshakeAtOnceAreReceived)
{
    for (int kind = 1; kind < 4; kind++) {
        KernelEnds e(kind & 1, kind & 2);
        for (Deadline wait; wait.left() && e.rc[0] == -EAGAIN; e.pass())
            e.step();
        ASSERT_EQ(0, e.rc[0]);
        ASSERT_EQ(-EAGAIN, e.rc[1]) << "it waits for the connector's last message";
        e.io[0] = pvn_sockio_of(e.s[0]);
        size_t before = e.sent[0].size();
        ASSERT_EQ(10000, e.send(0, many(10000)));
        for (Deadline wait; wait.left() && e.sent[0].size() < before + 10000;)
            e.pass();
        ASSERT_TRUE(e.shake());
        Bytes all, got;
        while (all.size() < 10000 && e.receive(1, got, 30000) > 0)
            all.insert(all.end(), got.begin(), got.end());
        EXPECT_EQ(many(10000), all);
    }
}

TEST_F(SealKernel, PiecesShareARecord)
{
    each_kind([](KernelEnds &e) {
        Bytes a = many(40), b = many(8), got(4096);
        size_t before = e.sent[0].size();
        iovec out[] = {{a.data(), a.size()}, {b.data(), b.size()}};
        ASSERT_EQ(48, e.io[0]->sendv(e.near[0], e.s[0], out, 2));
        e.give(1, e.take_all(0, 48 + 22));
        EXPECT_EQ(48u + 22, e.sent[0].size() - before) << "a header, a type and a tag";
        iovec in[] = {{got.data(), 10}, {got.data() + 10, 38}};
        ssize_t n = -EAGAIN;
        for (Deadline wait; wait.left() && n == -EAGAIN;)
            n = e.io[1]->recvv(e.near[1], e.s[1], in, 2, 0);
        ASSERT_EQ(48, n);
        a.insert(a.end(), b.begin(), b.end());
        EXPECT_EQ(a, Bytes(got.begin(), got.begin() + 48));
    });
}

// The pieces have room for more bytes than arrive, and the records end within pieces. The caller
// finds by itself where the next bytes go, so the pieces must not change.
TEST_F(SealKernel, PiecesAreFilledAndStayAsTheyWere)
{
    each_kind([](KernelEnds &e) {
        Bytes all = many(60), got(100);
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(20, e.send(0, Bytes(all.begin() + 20 * i, all.begin() + 20 * (i + 1))));
        e.give(1, e.take_all(0, 3 * (20 + 22)));
        usleep(1000);
        iovec in[] = {{got.data(), 7}, {got.data() + 7, 30}, {got.data() + 37, 63}};
        ssize_t n = -EAGAIN;
        for (Deadline wait; wait.left() && n == -EAGAIN;)
            n = e.io[1]->recvv(e.near[1], e.s[1], in, 3, 0);
        ASSERT_EQ(60, n);
        EXPECT_EQ(all, Bytes(got.begin(), got.begin() + 60));
        const iovec as_before[] = {{got.data(), 7}, {got.data() + 7, 30}, {got.data() + 37, 63}};
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(as_before[i].iov_base, in[i].iov_base) << i;
            EXPECT_EQ(as_before[i].iov_len, in[i].iov_len) << i;
        }
    });
}

TEST_F(SealKernel, ASendWithoutRoomIsRepeated)
{
    each_kind([](KernelEnds &e) {
        Bytes all = many(10000000), got, piece;
        size_t done = 0, refused = 0;
        for (Deadline wait; wait.left() && got.size() < all.size();) {
            ssize_t n = done < all.size() ? e.send(0, all, done) : 0;
            if (n > 0) {
                done += static_cast<size_t>(n);
                continue;
            }
            refused += n == -EAGAIN;
            n = e.receive(1, piece, 70000);
            ASSERT_LT(0, n);
            got.insert(got.end(), piece.begin(), piece.end());
        }
        EXPECT_LT(0u, refused) << "or nothing is tested";
        EXPECT_EQ(all, got);
    });
}

// The message about a new key is a record of its own: 5 bytes, a type and a tag.
TEST_F(SealKernel, AStreamGoesOnWithNewKeys)
{
    pvn_seal_rekey_after(3);
    each_kind([](KernelEnds &e) {
        for (int from = 0; from < 2; from++) {
            for (int i = 0; i < 20; i++)
                ASSERT_EQ(many(1000), e.carry(from, many(1000))) << "message " << i;
            EXPECT_EQ(many(200000), e.carry(from, many(200000)));
        }
    });
}

// A receive takes the bytes before such a message and then looks behind it, because a poller would
// not report the bytes there.
TEST_F(SealKernel, BytesBehindANewKeyDoNotWaitForMore)
{
    pvn_seal_rekey_after(1);
    each_kind([](KernelEnds &e) {
        if (!pvn_seal_is_by_kernel(e.s[1]))
            return; // OpenSSL holds its bytes, which another test covers
        for (int i = 0; i < 3; i++)
            ASSERT_EQ(9, e.send(0, many(9)));
        e.give(1, e.take_all(0, 3 * (9 + 22) + 2 * (5 + 22)));
        int poller = epoll_create1(EPOLL_CLOEXEC);
        epoll_event ev = {};
        ev.events = EPOLLIN | EPOLLONESHOT;
        ASSERT_EQ(0, epoll_ctl(poller, EPOLL_CTL_ADD, e.near[1], &ev));
        Bytes got, all;
        while (all.size() < 27 && epoll_wait(poller, &ev, 1, 60000) == 1 &&
               e.receive(1, got, 100) > 0) {
            all.insert(all.end(), got.begin(), got.end());
            ev.events = EPOLLIN | EPOLLONESHOT;
            ASSERT_EQ(0, epoll_ctl(poller, EPOLL_CTL_MOD, e.near[1], &ev));
        }
        close(poller);
        EXPECT_EQ(27u, all.size());
    });
}

// A worker sends while the comm's thread receives from the same stream.
TEST_F(SealKernel, OneThreadSendsWhileAnotherReceives)
{
    pvn_seal_rekey_after(20);
    each_kind([](KernelEnds &e) {
        const Bytes large = many(2000000);
        Bytes got[2];
        std::atomic<bool> over{false};
        std::atomic<int> left{2};
        std::vector<std::thread> threads;
        for (int end = 0; end < 2; end++) {
            threads.emplace_back([&, end] {
                for (size_t done = 0; done < large.size() && !over;) {
                    ssize_t n = e.send(end, large, done);
                    if (n > 0)
                        done += static_cast<size_t>(n);
                    else if (n != -EAGAIN)
                        break;
                    std::this_thread::yield();
                }
            });
            threads.emplace_back([&, end] {
                Bytes b(100000);
                while (got[end].size() < large.size() && !over) {
                    ssize_t n =
                        pvn_sockio_recv(e.io[end], e.near[end], e.s[end], b.data(), b.size());
                    if (n > 0)
                        got[end].insert(got[end].end(), b.begin(), b.begin() + n);
                    else if (n != -EAGAIN)
                        break;
                    std::this_thread::yield();
                }
                left--;
            });
        }
        for (Deadline wait(240); wait.left() && left > 0; std::this_thread::yield())
            e.pass();
        over = true;
        for (auto &t : threads)
            t.join();
        EXPECT_EQ(large, got[0]);
        EXPECT_EQ(large, got[1]);
    });
}

// ---- what comes from a relay that does more than pass it on ----

TEST_F(SealKernel, DamageIsNoticedAndEndsTheStream)
{
    for (size_t at : {0, 1, 2, 3, 4, 5, 12, 30})
        each_kind([at](KernelEnds &e) {
            SCOPED_TRACE(at);
            Bytes got;
            ASSERT_EQ(9, e.send(0, many(9)));
            Bytes record = e.take_all(0, 9 + 22);
            ASSERT_EQ(9u + 22, record.size());
            record[at] ^= 0x40;
            e.give(1, record);
            if (at == 3 || at == 4) // a longer record: it needs more bytes
                e.give(1, Bytes(20000, 7));
            ssize_t n = e.receive(1, got, 100);
            // The kernel does not check a record's outer type, which is always the same. The true
            // type is sealed.
            if (at == 0 && n == 9) {
                EXPECT_EQ(many(9), got);
                return;
            }
            EXPECT_EQ(-EBADMSG, n);
            EXPECT_EQ(-EBADMSG, e.receive(1, got, 100)) << "and stays so";
        });
}

// The kernel checks a record's length and version when it arrives, so the next call returns the
// error.
TEST_F(SealKernel, ASendThatLearnsOfDamageSaysSo)
{
    for (size_t at : {1, 3}) {
        SCOPED_TRACE(at);
        KernelEnds e(true, true);
        Bytes got;
        ASSERT_TRUE(e.shake());
        ASSERT_EQ(9, e.send(0, many(9)));
        Bytes record = e.take_all(0, 9 + 22);
        record[at] ^= 0x40;
        e.give(1, record);
        pollfd p = {e.near[1], POLLIN, 0};
        ASSERT_EQ(1, poll(&p, 1, 60000));
        EXPECT_EQ(-EBADMSG, e.send(1, many(1)));
        EXPECT_EQ(-EBADMSG, e.send(1, many(1))) << "and stays so";
    }
}

// Another descriptor, such as a forked child's, keeps the socket open. Unread bytes turn a close
// into a reset.
TEST_F(SealKernel, ACloseEndsTheConnectionWhoeverElseHasIt)
{
    KernelEnds e(true, true);
    ASSERT_TRUE(e.shake());
    ASSERT_EQ(9, e.send(0, many(9)));
    e.give(1, e.take_all(0, 9 + 22));
    pollfd come = {e.near[1], POLLIN, 0};
    ASSERT_EQ(1, poll(&come, 1, 60000));
    int other = dup(e.near[1]);
    pvn_sock_close(dup(e.near[1]));
    pollfd ended = {e.far[1], POLLRDHUP, 0};
    EXPECT_EQ(1, poll(&ended, 1, 60000)) << "the other end sees it";
    close(other);
}

TEST_F(SealKernel, RecordsThatAreRepeatedDroppedOrExchangedAreNoticed)
{
    for (int how = 0; how < 4; how++)
        each_kind([how](KernelEnds &e) {
            SCOPED_TRACE(how);
            Bytes got;
            ASSERT_EQ(9, e.send(0, many(9)));
            Bytes one = e.take_all(0, 9 + 22);
            ASSERT_EQ(9, e.send(0, many(9)));
            Bytes two = e.take_all(0, 9 + 22);
            int to = how != 3;
            if (how == 0) { // repeated
                e.give(1, one);
                ASSERT_EQ(9, e.receive(1, got, 100));
                e.give(1, one);
            } else if (how == 3) { // sent back
                e.give(0, one);
            } else { // dropped, exchanged
                e.give(1, two);
                if (how == 2)
                    e.give(1, one);
            }
            EXPECT_EQ(-EBADMSG, e.receive(to, got, 100));
        });
}

// OpenSSL's end answers a damaged record by an alert. An end in the kernel sends none.
TEST_F(SealKernel, AnAlertEndsTheStream)
{
    KernelEnds e(true, false);
    Bytes got;
    ASSERT_TRUE(e.shake());
    ASSERT_EQ(9, e.send(0, many(9)));
    Bytes record = e.take_all(0, 9 + 22);
    record[10] ^= 1;
    e.give(1, record);
    ASSERT_EQ(-EBADMSG, e.receive(1, got, 100));
    EXPECT_EQ(-ECONNRESET, e.receive(0, got, 100));
    EXPECT_EQ(-ECONNRESET, e.receive(0, got, 100)) << "and stays so";
}

// Handshake messages other than a new key. They come from a peer that has the key but does not run
// this plugin.
TEST_F(SealKernel, OtherRecordsEndTheStream)
{
    const std::vector<std::pair<uint8_t, Bytes>> records = {
        {PVN_RECORD_HANDSHAKE, {24, 0, 0, 1, 1}},     // requests a new key of this end
        {PVN_RECORD_HANDSHAKE, {4, 0, 0, 1, 0}},      // a ticket
        {PVN_RECORD_HANDSHAKE, Bytes(5000, 24)},      // no message
        {PVN_RECORD_HANDSHAKE, {24, 0, 0, 1, 0, 24}}, // a new key and more
        {99, {1}},
    };
    for (const auto &[type, bytes] : records) {
        KernelEnds e(true, true);
        Bytes got;
        ASSERT_TRUE(e.shake());
        ASSERT_EQ(static_cast<ssize_t>(bytes.size()),
                  pvn_kernel_tls_send_record(e.near[0], type, bytes.data(), bytes.size()));
        EXPECT_EQ(-EBADMSG, e.receive(1, got, 100)) << unsigned{type} << " " << unsigned{bytes[0]};
    }
}

// Sends 9 bytes to end 1 and closes. `then` runs before end 1 reads them.
static void expect_an_end(KernelEnds &e, const std::function<void()> &then)
{
    Bytes got;
    ASSERT_EQ(9, e.send(0, many(9)));
    e.give(1, e.take_all(0, 9 + 22));
    e.hang_up(1);
    then();
    EXPECT_EQ(9, e.receive(1, got, 100));
    EXPECT_EQ(0, e.receive(1, got, 100));
    EXPECT_EQ(0, e.receive(1, got, 100)) << "and stays one";
}

TEST_F(SealKernel, AnEndIsAnEndAndNotMore)
{
    each_kind([](KernelEnds &e) { expect_an_end(e, [] {}); });
}

// The peer has closed, and answers what this end still sends with a reset.
TEST_F(SealKernel, AResetBehindTheEndIsAnEnd)
{
    each_kind([](KernelEnds &e) {
        expect_an_end(e, [&] {
            ASSERT_EQ(5, e.send(1, many(5)));
            pollfd p = {e.near[1], 0, 0};
            for (Deadline wait; wait.left() && !(p.revents & POLLERR);)
                poll(&p, 1, 10);
            EXPECT_TRUE(p.revents & POLLERR) << "the reset has come";
        });
    });
}

TEST_F(SealKernel, AnEndInTheMiddleOfARecordIsSeen)
{
    for (size_t n : {1, 5, 6, 30, 31}) {
        KernelEnds e(true, true);
        Bytes got;
        ASSERT_TRUE(e.shake());
        ASSERT_EQ(9, e.send(0, many(9)));
        Bytes record = e.take_all(0, 9 + 22);
        ASSERT_EQ(31u, record.size());
        e.give(1, Bytes(record.begin(), record.begin() + static_cast<long>(n)));
        EXPECT_FALSE(e.io[1]->has_pending(e.s[1])) << "it has not ended";
        e.hang_up(1);
        EXPECT_EQ(n == record.size() ? 9 : 0, e.receive(1, got, 100));
        EXPECT_EQ(0, e.receive(1, got, 100));
        EXPECT_EQ(n < record.size(), e.io[1]->has_pending(e.s[1])) << n;
    }
}

// ---- kernels that cannot ----

class SealWithoutKernel : public testing::Test
{
  protected:
    void SetUp() override
    {
        pvn_err err = PVN_ERR_INIT;
        ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
    }
};

TEST_F(SealWithoutKernel, TheReasonIsSaid)
{
    pvn_err err = PVN_ERR_INIT;
    int rc = pvn_kernel_tls_check(&err);
    std::string why = rc ? err.reason[0] : "";
    if (required() == "no-renewal") {
        EXPECT_EQ(-EBUSY, rc) << why;
        EXPECT_NE(std::string::npos, why.find("cannot renew the keys of a socket (Linux 6.14 can)"))
            << why;
    } else if (rc == -ENOENT) {
        EXPECT_NE(std::string::npos, why.find("modprobe tls")) << why;
    }
    pvn_err again = PVN_ERR_INIT;
    EXPECT_EQ(rc, pvn_kernel_tls_check(&again));
    EXPECT_EQ(why, rc ? again.reason[0] : "") << "tried once, with the same result later";
}

// The kernel refuses this socket, although it accepted another one: here because it is no TCP
// connection.
TEST_F(SealWithoutKernel, OpenSslKeepsAStreamThatTheKernelRefuses)
{
    Ends e;
    pvn_seal_expect_bulk(e.s[0], true);
    pvn_seal_expect_bulk(e.s[1], true);
    ASSERT_TRUE(e.shake()) << e.err[0].reason[0] << e.err[1].reason[0];
    for (int from = 0; from < 2; from++) {
        EXPECT_FALSE(pvn_seal_is_by_kernel(e.s[from]));
        EXPECT_EQ(&pvn_sockio_sealed, pvn_sockio_of(e.s[from]));
        EXPECT_EQ(many(1000000), e.carry(from, many(1000000)));
    }
}

} // namespace
