// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// Sends on sealed streams that find no room, or meet errors of the socket, from one thread and from
// two. Renewal of keys while sends find no room.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <openssl/err.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "support/deadline.h"
#include "unit/seal_ends.h"

namespace
{

// The socket whose sends fail with `code`. noted: the error also enters OpenSSL's error queue, as
// with version 3.2.
struct FailingSends {
    int fd = -1, code = 0;
    bool noted = false;
    int fired = 0;
};
FailingSends failing;

// If the socket has no room, the caller repeats the send, perhaps with other pieces and with more
// bytes.
TEST(Seal, ASendWithoutRoomIsRepeated)
{
    Ends e;
    Bytes all = many(3000000), got;
    ASSERT_TRUE(e.shake());
    size_t done = 0, refused = 0;
    while (got.size() < all.size()) {
        size_t left = all.size() - done, first = left > 5 ? 5 + done % 20000 : left;
        first = first < left ? first : left;
        iovec out[] = {{all.data() + done, first}, {all.data() + done + first, left - first}};
        ssize_t n = left ? pvn_seal_sendv(e.s[0], out, left > first ? 2 : 1) : -EAGAIN;
        if (n > 0)
            done += static_cast<size_t>(n);
        refused += n == -EAGAIN && left;
        ASSERT_TRUE(n > 0 || n == -EAGAIN) << n;
        if (n > 0)
            continue;
        e.pass();
        Bytes piece(70000);
        iovec in[] = {{piece.data(), 3}, {piece.data() + 3, piece.size() - 3}};
        while ((n = pvn_seal_recvv(e.s[1], in, 2)) > 0)
            got.insert(got.end(), piece.begin(), piece.begin() + n);
        ASSERT_EQ(-EAGAIN, n);
    }
    EXPECT_LT(3u, refused) << "or nothing is tested";
    EXPECT_EQ(all, got);
}

// A worker seals while the comm's thread receives from the same stream. Keys are renewed meanwhile.
TEST(Seal, OneThreadSendsWhileAnotherReceives)
{
    Ends e;
    Bytes large = many(20000000);
    pvn_seal_rekey_after(20);
    ASSERT_TRUE(e.shake());
    std::atomic<bool> over{false};
    // Both ends send and receive at once, each with two threads.
    auto sender = [&](int end) {
        for (size_t done = 0; done < large.size();) {
            iovec v = {large.data() + done, large.size() - done};
            ssize_t n = pvn_seal_sendv(e.s[end], &v, 1);
            if (n > 0)
                done += static_cast<size_t>(n);
            else if (n != -EAGAIN)
                break;
        }
    };
    Bytes got[2];
    std::atomic<size_t> come[2] = {};
    auto receiver = [&](int end) {
        Bytes b(100000);
        while (come[end] < large.size() && !over) {
            iovec v = {b.data(), b.size()};
            ssize_t n = pvn_seal_recvv(e.s[end], &v, 1);
            if (n > 0) {
                got[end].insert(got[end].end(), b.begin(), b.begin() + n);
                come[end] += static_cast<size_t>(n);
            } else if (n != -EAGAIN) {
                break;
            }
        }
    };
    std::vector<std::thread> threads;
    for (int end = 0; end < 2; end++) {
        threads.emplace_back(sender, end);
        threads.emplace_back(receiver, end);
    }
    // bytes for which a far end has no room yet
    Bytes waiting[2];
    for (Deadline wait; wait.left() && !(come[0] == large.size() && come[1] == large.size());)
        for (int to = 0; to < 2; to++) {
            if (waiting[to].empty())
                waiting[to] = e.take(!to);
            ssize_t n = waiting[to].empty() ? 0
                                            : send(e.far[to], waiting[to].data(),
                                                   waiting[to].size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n > 0)
                waiting[to].erase(waiting[to].begin(), waiting[to].begin() + n);
        }
    over = true;
    e.hang_up(0);
    e.hang_up(1);
    for (auto &t : threads)
        t.join();
    pvn_seal_rekey_after(0);
    EXPECT_EQ(large, got[0]);
    EXPECT_EQ(large, got[1]);
}

// A key may seal only a limited number of records.
TEST(Seal, AStreamGoesOnWithANewKey)
{
    enum { RECORDS = 10 };
    Bytes wire[2];
    for (int changes = 0; changes < 2; changes++) {
        Ends e;
        pvn_seal_rekey_after(changes ? RECORDS : 0);
        ASSERT_TRUE(e.shake());
        for (int from = 0; from < 2; from++) {
            size_t handshake = e.sent[from].size();
            EXPECT_EQ(many(1000000), e.carry(from, many(1000000)));
            if (from == 0)
                wire[changes] =
                    Bytes(e.sent[0].begin() + static_cast<long>(handshake), e.sent[0].end());
        }
    }
    pvn_seal_rekey_after(0);
    // Each change of the key is a message of its own, 5 bytes, in a record with a type and a tag.
    size_t records = (1000000 + 16383) / 16384;
    EXPECT_EQ((records - 1) / RECORDS * (5 + 5 + 1 + 16), wire[1].size() - wire[0].size());
}

// Neither the message about a new key nor a record behind it may find room. Bytes that arrive are
// received nevertheless. Otherwise two ends that both wait for room would wait without end.
TEST(Seal, ANewKeyThatFindsNoRoomKeepsNothingFromBeingReceived)
{
    enum { OF_A_RECORD = 5 + 1 + 16, KEY_UPDATE = 5 + OF_A_RECORD };
    size_t refused = 0; // keys whose message, or the record behind it, found no room at all
    for (size_t len : {100, 2000, 16384}) {
        SCOPED_TRACE(len);
        Ends e;
        pvn_seal_rekey_after(1);
        ASSERT_TRUE(e.shake());
        size_t done[2] = {};
        Bytes record = many(len), got(2 * len);
        ssize_t n = 0;
        for (int end = 0; end < 2; end++)
            while ((n = pvn_seal_send(e.s[end], record.data(), len)) != -EAGAIN) {
                ASSERT_EQ(static_cast<ssize_t>(len), n);
                done[end]++;
            }
        Bytes sent[2];
        for (int end = 0; end < 2; end++)
            for (Bytes b; !(b = e.take(end)).empty();)
                sent[end].insert(sent[end].end(), b.begin(), b.end());
        for (int end = 0; end < 2; end++)
            refused += (sent[end].size() + KEY_UPDATE) % (len + OF_A_RECORD + KEY_UPDATE) == 0;
        for (int end = 0; end < 2; end++) {
            e.give(!end, Bytes(sent[end].begin(),
                               sent[end].begin() + static_cast<long>(len) + OF_A_RECORD));
            EXPECT_EQ(static_cast<ssize_t>(len), pvn_seal_recv(e.s[!end], got.data(), got.size()))
                << "end " << !end << " has no room to send, and gets nothing";
        }
        for (int end = 0; end < 2; end++) {
            e.give(!end, Bytes(sent[end].begin() + static_cast<long>(len) + OF_A_RECORD,
                               sent[end].end()));
            size_t come = 1;
            for (int i = 0; i < 100 && come <= done[end]; i++) {
                while ((n = pvn_seal_recv(e.s[!end], got.data(), len)) ==
                       static_cast<ssize_t>(len)) {
                    EXPECT_TRUE(std::equal(record.begin(), record.end(), got.begin()));
                    come++;
                }
                ASSERT_EQ(-EAGAIN, n);
                if (come == done[end]) {
                    ASSERT_EQ(static_cast<ssize_t>(len),
                              pvn_seal_send(e.s[end], record.data(), len));
                    e.pass();
                }
            }
            EXPECT_EQ(done[end] + 1, come) << "the refused one is sent by its repetition";
        }
    }
    pvn_seal_rekey_after(0);
    EXPECT_LT(0u, refused) << "or nothing is tested";
}

TEST(Seal, ASendThatFailsSaysWhatTheSocketSays)
{
    Ends e;
    ASSERT_TRUE(e.shake());
    failing = {e.near[0], ECONNABORTED, true};
    EXPECT_EQ(-ECONNABORTED, pvn_seal_send(e.s[0], "acks", 4));
    EXPECT_EQ(1, failing.fired);
    failing = {};
    EXPECT_EQ(-ECONNABORTED, pvn_seal_send(e.s[0], "acks", 4)) << "and stays so";
    EXPECT_EQ(0u, ERR_peek_error());
}

// The kernel has no memory for a moment. The caller repeats the send, as without a seal.
TEST(Seal, ASendForWhichTheKernelHasNoMemoryIsRepeated)
{
    for (int code : {ENOBUFS, ENOMEM}) {
        Ends e;
        ASSERT_TRUE(e.shake());
        failing = {e.near[0], code};
        EXPECT_EQ(-EAGAIN, pvn_seal_send(e.s[0], "acks", 4)) << code;
        EXPECT_EQ(1, failing.fired);
        failing = {};
        EXPECT_EQ(text("acks"), e.carry(0, text("acks")));
    }
}

} // namespace

// Replaces libc's send. The chosen socket's sends fail.
extern "C" ssize_t send(int fd, const void *p, size_t n, int flags)
{
    if (failing.code == 0 || fd != failing.fd)
        return sendto(fd, p, n, flags, nullptr, 0);
    failing.fired++;
    if (failing.noted)
        ERR_raise(ERR_LIB_SYS, failing.code);
    errno = failing.code;
    return -1;
}
