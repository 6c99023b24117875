/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A comm of the plugin whose other end is a peer made by hand (raw_peer.h), over one TCP stream.
#ifndef TESTS_FAIL_RAW_COMM_H
#define TESTS_FAIL_RAW_COMM_H

#include "abi/nccl_side.h"
#include "fail/raw_peer.h"

#include <memory>
#include <thread>

extern "C" {
#include "net-tcp/frame.h"
}

namespace nccl
{

inline raw::Bytes reason(const char *text)
{
    return raw::text_frame(PVN_FRAME_ERROR, text);
}

inline raw::Bytes message(uint64_t seq, const raw::Bytes &payload, size_t total)
{
    pvn_frame f = {};
    f.seq = seq;
    f.total = total;
    f.len = static_cast<uint32_t>(payload.size());
    raw::Bytes b(PVN_FRAME_LEN);
    pvn_frame_encode(&f, 0, b.data());
    b.insert(b.end(), payload.begin(), payload.end());
    return b;
}

// A listening peer made by hand, and the handle that leads to it.
struct RawPeer {
    raw::Listener l;
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
    explicit RawPeer(uint64_t session = 77)
    {
        raw::make_handle(handle, l.port, session);
    }
};

// The peer's sockets of one connection.
struct RawEnd {
    raw::Sock ctrl, stream;
};

// Plays the acceptor in a set-up up to the plugin's HELLO, which it returns in *theirs.
inline RawEnd greet_plugin(raw::Listener &l, const pvn_hello &mine, pvn_hello *theirs = nullptr,
                           uint64_t *nonce = nullptr)
{
    RawEnd e;
    int type;
    e.ctrl = l.accept();
    raw::Bytes first = e.ctrl.recv(PVN_PREAMBLE_BYTES), body = e.ctrl.recv_frame(&type);
    pvn_preamble p = {};
    if (nonce && pvn_preamble_decode(first.data(), first.size(), mine.session, &p, nullptr) == 1)
        *nonce = p.nonce;
    if (theirs)
        pvn_hello_decode(body.data(), body.size(), theirs, nullptr);
    e.ctrl.send(raw::hello(mine));
    return e;
}

// Plays the rest of the acceptor's part.
inline void give_lanes(RawEnd &e, raw::Listener &l, uint8_t features = 0)
{
    int type;
    e.ctrl.recv_frame(&type);
    e.ctrl.send(raw::offer(raw::tcp_blob(l.port, features)));
    e.stream = l.accept_stream();
    e.ctrl.recv_frame(&type);
    e.ctrl.send(raw::ready(1));
}

inline RawEnd accept_plugin(raw::Listener &l, const pvn_hello &mine, uint8_t features = 0,
                            pvn_hello *theirs = nullptr, uint64_t *nonce = nullptr)
{
    RawEnd e = greet_plugin(l, mine, theirs, nonce);
    give_lanes(e, l, features);
    return e;
}

// Plays the connector in a set-up up to the plugin's READY.
inline RawEnd dial_lanes(uint16_t port, uint64_t nonce, const pvn_hello &mine)
{
    RawEnd e;
    int type;
    e.ctrl = raw::dial(port);
    e.ctrl.send(raw::preamble(PVN_PREAMBLE_CTRL, mine.session, nonce));
    e.ctrl.send(raw::hello(mine));
    e.ctrl.recv_frame(&type);
    e.ctrl.send(raw::offer(raw::tcp_blob(0)));
    e.ctrl.recv_frame(&type);
    e.stream = raw::dial(port);
    e.stream.send(raw::preamble(PVN_PREAMBLE_STREAM, mine.session, nonce));
    e.stream.recv(1);
    e.ctrl.recv_frame(&type);
    return e;
}

inline RawEnd dial_plugin(uint16_t port, uint64_t nonce, const pvn_hello &mine)
{
    RawEnd e = dial_lanes(port, nonce, mine);
    e.ctrl.send(raw::ready(1));
    return e;
}

// The plugin's sending comm, connected to a peer made by hand.
struct Sender {
    Net n{12};
    raw::Listener l;
    raw::Sock ctrl, stream;
    pvn_hello theirs = {};
    uint64_t nonce = 0;
    void *sc = nullptr;
    void *req = nullptr;
    Buffer b{1 << 20, 3};
    std::string log; // of the set-up
    explicit Sender(uint8_t features = 0, const pvn_hello &mine = raw::plain_hello(77))
    {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        raw::make_handle(handle, l.port, 77, mine.features);
        std::thread t([&] {
            RawEnd e = accept_plugin(l, mine, features, &theirs, &nonce);
            std::swap(ctrl, e.ctrl);
            std::swap(stream, e.stream);
        });
        EXPECT_TRUE(eventually(
            [&] { return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc) != ncclSuccess || sc; }));
        t.join();
        EXPECT_NE(nullptr, sc) << Log::get().text();
        log = Log::get().text();
        Log::get().clear();
    }
    ~Sender()
    {
        close();
    }
    void close()
    {
        if (sc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, sc));
        }
        sc = nullptr;
    }
    // Sends repeatedly until a call fails, and returns its error.
    ncclResult_t until_error()
    {
        ncclResult_t r = ncclSuccess;
        EXPECT_TRUE(eventually([&] {
            int d = 0;
            if (!req)
                r = pvn_netdrv_isend(n.d, sc, b.data(), b.n, 0, nullptr, nullptr, &req);
            if (req && r == ncclSuccess)
                r = pvn_netdrv_test(n.d, req, &d, nullptr);
            if (d)
                req = nullptr;
            return r != ncclSuccess;
        }));
        return r;
    }
};

// The plugin's receiving comm, connected to a peer made by hand.
struct Receiver {
    Net n{12};
    raw::Sock ctrl, stream;
    void *lc = nullptr, *rc = nullptr, *req = nullptr;
    pvn_handle h = {};
    Buffer b{1000};
    int size = -1;
    std::string log; // of the set-up
    // seen_at: the listener that the peer names as proof that its process exists.
    explicit Receiver(uint64_t peer_features = 0, const raw::Listener *seen_at = nullptr)
    {
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        EXPECT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &lc));
        pvn_handle_decode(reinterpret_cast<uint8_t *>(handle), PVN_HANDLE_BYTES, &h, nullptr);
        std::thread t([&] {
            pvn_hello mine = raw::plain_hello(h.session);
            mine.features = peer_features;
            if (seen_at) {
                mine.nothers = 1;
                mine.other[0] = h.addr;
                mine.other[0].port = seen_at->port;
            }
            RawEnd e = dial_plugin(h.addr.port, 9, mine);
            std::swap(ctrl, e.ctrl);
            std::swap(stream, e.stream);
        });
        EXPECT_TRUE(
            eventually([&] { return pvn_netdrv_accept(n.d, lc, &rc) != ncclSuccess || rc; }));
        t.join();
        EXPECT_NE(nullptr, rc) << Log::get().text();
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, lc));
        log = Log::get().text();
        Log::get().clear();
    }
    ~Receiver()
    {
        close();
    }
    void close()
    {
        if (rc) {
            EXPECT_EQ(ncclSuccess, pvn_netdrv_close_recv(n.d, rc));
        }
        rc = nullptr;
    }
    // Posts a receive if there is none and tests it until it is done or fails.
    ncclResult_t receive(int *done)
    {
        ncclResult_t r = ncclSuccess;
        *done = 0;
        EXPECT_TRUE(eventually([&] {
            void *data = b.data(), *mh = nullptr;
            size_t room = b.n;
            int tag = 0;
            if (!req)
                r = pvn_netdrv_irecv(n.d, rc, 1, &data, &room, &tag, &mh, nullptr, &req);
            if (req && r == ncclSuccess)
                r = pvn_netdrv_test(n.d, req, done, &size);
            return r != ncclSuccess || *done;
        }));
        if (*done)
            req = nullptr;
        return r;
    }
};

} // namespace nccl

#endif
