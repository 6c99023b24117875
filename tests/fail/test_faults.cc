// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A peer that worked and then fails: the sockets of the connection end one by one, in every order.
#include "fail/raw_comm.h"

#include <algorithm>

using namespace nccl;

namespace
{

// True if one message says who failed, where, and whether the comm had ever worked.
bool reported(const char *what, const char *worked)
{
    return Log::get().warned({what, worked, "local " + host_name() + " lo 127.0.0.1:",
                              "peer rawhost pid 4711 at 127.0.0.1:"});
}

TEST(Sending, DataSocketResetAndThePeersOwnAccountOfIt)
{
    Sender s;
    s.stream.reset();
    s.ctrl.send(reason("its GPU fell off the bus"));
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_TRUE(reported("its GPU fell off the bus", "the comm had")) << Log::get().text();
    EXPECT_EQ(ncclRemoteError, s.until_error()) << "latched";
}

// The kernel sends zero-copy chunks from the caller's own pages. Once a call has reported that the
// comm is dead, the caller may overwrite these pages, so the stream must not deliver them any more.
TEST(Sending, ZeroCopyEndsBeforeTheFailureIsReported)
{
    setenv("NCCL_PVRDMA_TCP_CC", "reno", 1); // with bbr there is no zero-copy
    Sender s(1);
    unsetenv("NCCL_PVRDMA_TCP_CC");
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_isend(s.n.d, s.sc, s.b.data(), s.b.n, 0, nullptr, nullptr, &s.req));
    int done = 0;
    raw::Bytes head;
    ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_test(s.n.d, s.req, &done, nullptr));
        head.resize(PVN_FRAME_LEN);
        return ::recv(s.stream.fd, head.data(), head.size(), MSG_PEEK | MSG_DONTWAIT) ==
               PVN_FRAME_LEN;
    }));
    pvn_frame f;
    unsigned flags = 0;
    ASSERT_EQ(0, pvn_frame_decode(head.data(), &f, &flags));
    ASSERT_TRUE(flags & PVN_FRAME_NEEDS_ACK) << "sent with a copy: nothing is tested";
    ASSERT_FALSE(done);
    s.ctrl.send(reason("its GPU fell off the bus"));
    EXPECT_EQ(ncclRemoteError, s.until_error());
    int error = 0;
    socklen_t len = sizeof(error);
    EXPECT_TRUE(eventually([&] {
        return getsockopt(s.stream.fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error;
    })) << "the stream is still open";
    EXPECT_EQ(ECONNRESET, error);
}

// A wrong call on a failed comm is reported as such, and the comm's own error can still be read.
TEST(Sending, TheCommsErrorOutlivesAWrongCall)
{
    Sender s;
    s.ctrl.send(reason("out of time"));
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_EQ(ncclInvalidArgument, pvn_netdrv_dereg_mr(s.n.d, s.sc, &s));
    EXPECT_EQ(ncclRemoteError, s.until_error());
}

TEST(Sending, DataSocketResetInSilence)
{
    Sender s;
    s.stream.reset();
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_TRUE(reported("reset", "the comm had")) << Log::get().text();
    bool closed;
    EXPECT_NE("", s.ctrl.last_words(&closed)) << "the peer gets a reason for the end of its socket";
    EXPECT_TRUE(closed);
}

TEST(Sending, ALostControlConnectionEndsTheComm)
{
    Sender s;
    s.ctrl.close();
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_TRUE(reported("control connection", "the comm had")) << Log::get().text();
}

TEST(Sending, PeerSaysGoodbyeAndCloses)
{
    Sender s;
    s.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
    s.stream.reset();
    s.ctrl.close();
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_TRUE(Log::get().warned({"closed its end"})) << Log::get().text();
}

TEST(Sending, NonsenseOnTheControlConnection)
{
    Sender s;
    s.ctrl.send({99, 0, 0, 0, 1, 0, 0, 0, 0});
    EXPECT_EQ(ncclRemoteError, s.until_error());
    EXPECT_TRUE(Log::get().warned({"unknown type 99"})) << Log::get().text();
    Sender t;
    t.ctrl.send(raw::ready(1));
    EXPECT_EQ(ncclRemoteError, t.until_error());
    EXPECT_TRUE(Log::get().warned({"READY frame on a connection that is up"})) << Log::get().text();
}

TEST(Receiving, WhatWasSentBeforeThePeerVanishedStillArrives)
{
    Receiver r;
    int done;
    r.stream.send(message(0, {1, 2, 3}, 3));
    r.ctrl.close(); // no GOODBYE: the process is gone, but its data are still in the socket
    ASSERT_EQ(ncclSuccess, r.receive(&done)) << Log::get().text();
    EXPECT_EQ(3, r.size);
    EXPECT_EQ(2, r.b.data()[1]);
    EXPECT_EQ(ncclRemoteError, r.receive(&done)) << "and then the loss is reported";
    EXPECT_TRUE(reported("control connection", "(1 message, 3 bytes)")) << Log::get().text();
}

// The receiver notices the loss, then the last message arrives, and nobody calls for longer than a
// receiver waits for more. One call in 64 looks at the connection, so the test makes as many calls.
TEST(Receiving, WhatCameWhileNobodyCalledIsStillTaken)
{
    std::vector<std::unique_ptr<Receiver>> all(64);
    for (size_t i = 0; i < all.size(); i++) {
        Receiver &r = *(all[i] = std::make_unique<Receiver>());
        void *data = r.b.data(), *mh = nullptr;
        size_t room = r.b.n;
        int tag = 0, done = 0;
        ASSERT_EQ(ncclSuccess,
                  pvn_netdrv_irecv(r.n.d, r.rc, 1, &data, &room, &tag, &mh, nullptr, &r.req));
        r.ctrl.close();
        auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
        for (size_t k = 0; k % all.size() != i || std::chrono::steady_clock::now() < end; k++)
            ASSERT_EQ(ncclSuccess, pvn_netdrv_test(r.n.d, r.req, &done, &r.size));
        r.stream.send(message(0, {1, 2, 3}, 3));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    for (auto &r : all) {
        int done;
        EXPECT_EQ(ncclSuccess, r->receive(&done)) << Log::get().text();
        EXPECT_EQ(3, r->size);
    }
}

TEST(Receiving, GoodbyeThenTheEndOfTheStream)
{
    Receiver r;
    int done;
    r.stream.send(message(0, {7}, 1));
    r.ctrl.send(raw::frame(PVN_FRAME_GOODBYE, {}));
    r.stream.close();
    ASSERT_EQ(ncclSuccess, r.receive(&done)) << Log::get().text();
    EXPECT_EQ(1, r.size);
    EXPECT_EQ(ncclRemoteError, r.receive(&done));
    EXPECT_TRUE(Log::get().warned({"rawhost pid 4711"})) << Log::get().text();
}

TEST(Receiving, StreamThatEndsWithinAMessage)
{
    Receiver r;
    int done;
    r.stream.send(message(0, raw::Bytes(100, 5), 100), 60);
    r.stream.close();
    EXPECT_EQ(ncclRemoteError, r.receive(&done));
    EXPECT_EQ(0, done);
    EXPECT_TRUE(reported("ended", "and never carried a message")) << Log::get().text();
}

TEST(Receiving, NonsenseOnADataSocket)
{
    Receiver r;
    int done;
    r.stream.send(raw::Bytes(200, 0xa5));
    EXPECT_NE(ncclSuccess, r.receive(&done));
    EXPECT_NE("", Log::get().warnings());
    bool closed;
    EXPECT_NE("", r.ctrl.last_words(&closed)) << "the peer gets a reason";
}

TEST(Receiving, PeerGivesUpWhileWeWait)
{
    Receiver r;
    int done;
    r.ctrl.send(reason("out of memory"));
    EXPECT_EQ(ncclRemoteError, r.receive(&done));
    EXPECT_TRUE(reported("the peer gave up: out of memory", "and never carried a message"))
        << Log::get().text();
}

// When NCCL aborts a communicator, it frees the buffers before it closes the comms.
TEST(Closing, AReceiveThatIsOpenIsNotWrittenAnyMore)
{
    Receiver r;
    void *data = r.b.data(), *mh = nullptr;
    size_t room = r.b.n;
    int tag = 0;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_irecv(r.n.d, r.rc, 1, &data, &room, &tag, &mh, nullptr, &r.req));
    r.stream.send(message(0, raw::Bytes(100, 5), 100));
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(r.n.d, r.rc));
    r.rc = nullptr;
    EXPECT_TRUE(r.b.holds(0, 0));
}

TEST(Closing, ASendThatIsOpenIsNotReadAnyMore)
{
    Sender s;
    Buffer b(32 << 20); // more than the sockets take
    raw::Bytes got(1 << 20);
    size_t total = 0;
    ASSERT_EQ(ncclSuccess,
              pvn_netdrv_isend(s.n.d, s.sc, b.data(), b.n, 0, nullptr, nullptr, &s.req));
    for (ssize_t n; (n = recv(s.stream.fd, got.data(), got.size(), MSG_DONTWAIT)) > 0;)
        total += static_cast<size_t>(n); // the socket buffers had room
    ASSERT_GT(total, 0u);
    memset(b.data(), 0x5a, b.n);
    EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(s.n.d, s.sc));
    s.sc = nullptr;
    long strange = 0;
    for (ssize_t n; (n = recv(s.stream.fd, got.data(), got.size(), 0)) > 0;)
        strange += std::count(got.begin(), got.begin() + n, 0x5a);
    EXPECT_EQ(0, strange) << "bytes left that were written after the last call before close";
}

} // namespace
