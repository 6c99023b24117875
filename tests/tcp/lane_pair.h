/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The two ends of one comm over a TCP lane on loopback, without the handshake. The test itself is
// the listener.
#ifndef PVN_TESTS_TCP_LANE_PAIR_H
#define PVN_TESTS_TCP_LANE_PAIR_H

#include "config.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "support/bytes.h"
#include "support/deadline.h"

extern "C" {
#include "base/clock.h"
#include "engine/engine.h"
#include "support/engine_calls.h"
#include "base/poller.h"
#include "net-tcp/frame.h"
#include "net-tcp/tcp_lane.h"
#include "net-tcp/tcp_pace.h"
#ifdef HAVE_OPENSSL
#include "seal/ssl_dl.h"
#endif
}

// False if this build has no OpenSSL. Tests of sealed streams are then left out.
inline bool load_tls(pvn_err *err)
{
#ifdef HAVE_OPENSSL
    return pvn_ssl_load("libssl.so.3", err) != nullptr;
#else
    return pvn_err_set(err, -EOPNOTSUPP, "this build has no OpenSSL") == 0;
#endif
}

// Adds the parameters of tests of sealed streams after others.
#ifdef HAVE_OPENSSL
#define AND_SEALED(...) , __VA_ARGS__
#else
#define AND_SEALED(...)
#endif

// Names a shape among those of a suite. A guest picks the sealed ones by this name.
template <class Info> std::string shape_name(const Info &i)
{
    return std::to_string(i.index) + (i.param.sealed ? "_sealed" : "");
}

// True in a guest whose kernel seals TCP connections (tests/vm/jobs/tls-streams).
inline bool is_sealed_by_kernel()
{
    const char *how = getenv("PVN_KERNEL_TLS");
    return how && strcmp(how, "yes") == 0;
}

// Number of messages that a test of n messages sends. In a guest it is an eighth, because the
// guest's processor is interpreted, and a byte costs a hundred times as much there.
inline int messages(int n)
{
    return is_sealed_by_kernel() ? n / 8 : n;
}

inline uint64_t lane_pair_now(void *)
{
    return pvn_now_ns();
}

// Tests both requests until both are done.
inline void finish(pvn_req *s, pvn_req *r, size_t *ssize, size_t *rsizes)
{
    int sd = 0, rd = 0;
    for (Deadline wait; wait.left() && (!sd || !rd);) {
        if (!sd) {
            ASSERT_EQ(0, pvn_engine_test(s, &sd, ssize));
        }
        if (!rd) {
            ASSERT_EQ(0, pvn_engine_test(r, &rd, rsizes));
        }
    }
    ASSERT_TRUE(sd && rd);
}

// Waits until the other end of a connection has ended it, by a FIN or a reset.
inline bool sees_the_end(int fd)
{
    pollfd p = {fd, POLLRDHUP, 0};
    return poll(&p, 1, 60000) == 1;
}

struct LanePair {
    pvn_lane *tx = nullptr, *rx = nullptr;
    pvn_engine *etx = nullptr, *erx = nullptr;
    int lfd = -1;
    sockaddr_in addr = {};
    int rcvbuf = 0, sndbuf = 0;
    // Set whatever the machine's default is, because under bbr nothing is sent without a copy, and
    // no read waits for more bytes.
    const char *sender_cc = "reno", *receiver_cc = "reno";
    std::vector<int> pending;
    std::vector<int> dialed;  // sockets of the sending ends, which the lane owns
    std::vector<int> adopted; // sockets of the receiving ends, which the lane owns
    // Buffers of requests that may still be open. A worker uses them until the lanes are closed.
    std::vector<std::vector<uint8_t>> kept;
    bool clear_to_send = false, acknowledged = false;
    bool keeps = false; // the sender outlives its lanes and keeps small messages
    bool acks = true;   // the receiver offers zero-copy acknowledgements
    bool trial = false; // the sender finds out if zero-copy pays; otherwise it assumes that it does
    size_t lone_chunk = 0;
    int workers = 0;
    size_t worker_min = 128 << 10;
    bool sealed = false;
    uint8_t secret_byte[2] = {1, 1}; // of the sender and of the receiver

    static int dial(void *ctx, const uint8_t *to, size_t len, int, int, unsigned *, pvn_err *err)
    {
        auto *p = static_cast<LanePair *>(ctx);
        sockaddr_in sa;
        if (len != sizeof(sa))
            return -EINVAL;
        memcpy(&sa, to, len);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, p->sender_cc, strlen(p->sender_cc));
        if (p->sndbuf)
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &p->sndbuf, sizeof(p->sndbuf));
        if (connect(fd, reinterpret_cast<sockaddr *>(&sa), sizeof(sa)) < 0 &&
            errno != EINPROGRESS) {
            int e = errno;
            close(fd);
            return pvn_err_set(err, -e, "connect");
        }
        p->dialed.push_back(fd);
        return fd;
    }

    static int preamble(void *, int lane, int stream, uint8_t *out)
    {
        out[0] = 'P';
        out[1] = static_cast<uint8_t>(lane);
        out[2] = static_cast<uint8_t>(stream);
        return 3;
    }

    static int secret_of(uint8_t byte, int lane, int stream, uint8_t out[PVN_SEAL_SECRET])
    {
        memset(out, byte, PVN_SEAL_SECRET);
        out[0] = static_cast<uint8_t>(lane);
        out[1] = static_cast<uint8_t>(stream);
        return 0;
    }
    static int sender_secret(void *ctx, int lane, int stream, uint8_t out[PVN_SEAL_SECRET],
                             pvn_err *)
    {
        return secret_of(static_cast<LanePair *>(ctx)->secret_byte[0], lane, stream, out);
    }
    static int receiver_secret(void *ctx, int lane, int stream, uint8_t out[PVN_SEAL_SECRET],
                               pvn_err *)
    {
        return secret_of(static_cast<LanePair *>(ctx)->secret_byte[1], lane, stream, out);
    }

    // Accepts pending connections, and gives those whose preamble has arrived to the receiving
    // lane.
    void accept_some()
    {
        int fd = accept4(lfd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            pending.push_back(fd);
        for (size_t i = 0; i < pending.size();) {
            uint8_t pre[3];
            if (recv(pending[i], pre, 3, MSG_PEEK) < 3) {
                i++;
                continue;
            }
            ASSERT_EQ(3, recv(pending[i], pre, 3, 0));
            ASSERT_EQ('P', pre[0]);
            ASSERT_EQ(0, rx->ops->adopt(rx, pre[2], pending[i]));
            adopted.push_back(pending[i]);
            pending.erase(pending.begin() + static_cast<long>(i));
        }
    }

    void listen_on_loopback()
    {
        lfd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        setsockopt(lfd, IPPROTO_TCP, TCP_CONGESTION, receiver_cc, strlen(receiver_cc));
        addr.sin_family = AF_INET;
        addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (rcvbuf)
            setsockopt(lfd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
        ASSERT_EQ(0, bind(lfd, reinterpret_cast<sockaddr *>(&addr), sizeof(addr)));
        ASSERT_EQ(0, listen(lfd, 64));
        socklen_t len = sizeof(addr);
        ASSERT_EQ(0, getsockname(lfd, reinterpret_cast<sockaddr *>(&addr), &len));
    }

    void exchange_offers()
    {
        uint8_t a[256], b[256];
        int na = tx->ops->offer(tx, a, sizeof(a));
        int nb = rx->ops->offer(rx, b, sizeof(b));
        ASSERT_GT(na, 0);
        ASSERT_GT(nb, 0);
        if (!acks)
            b[3] = 0;
        ASSERT_EQ(0, rx->ops->bind(rx, a, static_cast<size_t>(na)));
        ASSERT_EQ(0, tx->ops->bind(tx, b, static_cast<size_t>(nb))) << tx->err.reason[0];
    }

    void make_lanes(int streams, size_t chunk, bool batch, size_t zc)
    {
        pvn_tcp_lane_cfg c = {};
        c.streams = streams;
        c.chunk = chunk;
        c.lone_chunk = lone_chunk;
        c.batch = batch;
        c.zerocopy_min = zc;
        c.workers = workers;
        c.worker_min = worker_min;
        c.clear_to_send = clear_to_send;
        c.acknowledged = acknowledged;
        strcpy(c.name, "lo");
        c.dial = dial;
        c.preamble = preamble;
        c.ctx = this;
        if (sealed) {
            pvn_err err = PVN_ERR_INIT;
            ASSERT_TRUE(load_tls(&err)) << err.reason[0];
            pvn_seal_rekey_after(5); // keys change in the middle of each test
        }
        c.secret = sealed ? sender_secret : nullptr;
        c.sealed_by_kernel = is_sealed_by_kernel();
        c.sender = true;
        tx = pvn_tcp_lane_new(&c);
        if (tx && !trial)
            tcp_trial_zerocopy_pays(tx);
        c.secret = sealed ? receiver_secret : nullptr;
        c.sender = false;
        memcpy(c.dial_to, &addr, sizeof(addr));
        c.dial_to_len = sizeof(addr);
        rx = pvn_tcp_lane_new(&c);
        ASSERT_TRUE(tx && rx);
    }

    // Takes an end's lane out of use, as a failover or the end of a comm does.
    void fence(pvn_engine *e, pvn_lane *l)
    {
        pvn_err why = {};
        pvn_err_set(&why, -ENETDOWN, "by request of the test");
        pvn_engine_pause(e, &why);
        EXPECT_EQ(0, l->ops->fence(l));
        EXPECT_EQ(0, pvn_engine_drain(e));
    }
    void open(int streams = 1, size_t chunk = 1 << 20, bool batch = false, size_t zc = 0)
    {
        ASSERT_EQ(0, pvn_poller_get());
        listen_on_loopback();
        make_lanes(streams, chunk, batch, zc);
        exchange_offers();
        int vt = -EAGAIN, vr = -EAGAIN;
        for (Deadline wait; wait.left() && (vt || vr);) {
            accept_some();
            if (vt)
                vt = tx->ops->verify(tx);
            if (vr)
                vr = rx->ops->verify(rx);
            ASSERT_TRUE(vt == 0 || vt == -EAGAIN) << tx->err.reason[0];
            ASSERT_TRUE(vr == 0 || vr == -EAGAIN) << rx->err.reason[0];
        }
        ASSERT_EQ(0, vt);
        ASSERT_EQ(0, vr);
        engines(chunk);
    }

    static bool says_by_kernel(const pvn_lane *l)
    {
        char text[512];
        l->ops->describe(l, text, sizeof(text));
        return strstr(text, "by the kernel") != nullptr;
    }

    void engines(size_t chunk)
    {
        bool by_kernel = sealed && is_sealed_by_kernel();
        ASSERT_EQ(by_kernel && acknowledged, says_by_kernel(tx));
        ASSERT_EQ(by_kernel, says_by_kernel(rx));
        pvn_engine_cfg ec = {};
        ec.nlanes = 1;
        ec.chunk = chunk;
        ec.unexpected_max = 64 << 20;
        ec.now = lane_pair_now;
        ec.sender = true;
        ec.keeps = ec.outlives_lanes = keeps;
        ec.lanes[0] = tx;
        etx = pvn_engine_new(&ec);
        ec.sender = false;
        ec.keeps = ec.outlives_lanes = false;
        ec.lanes[0] = rx;
        erx = pvn_engine_new(&ec);
        ASSERT_TRUE(etx && erx);
    }

    ~LanePair()
    {
        pvn_engine_free(etx);
        pvn_engine_free(erx);
        if (tx)
            tx->ops->close(tx);
        if (rx)
            rx->ops->close(rx);
        if (lfd >= 0)
            ::close(lfd);
        pvn_poller_put();
    }
};

#endif
