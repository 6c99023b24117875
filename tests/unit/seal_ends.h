/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Two ends of a sealed stream over socket pairs, or over pairs of TCP sockets. The test is the
// relay between them.
#ifndef PVN_TESTS_UNIT_SEAL_ENDS_H
#define PVN_TESTS_UNIT_SEAL_ENDS_H

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <vector>

extern "C" {
#include "seal/seal.h"
#include "seal/sockio.h"
#include "seal/ssl_dl.h"
}

using Bytes = std::vector<uint8_t>;

// Gets the bytes that an end has sent (direction 0: the connector) and returns the bytes that the
// other end receives.
using Filter = std::function<Bytes(int direction, Bytes)>;

struct Ends {
    // of the connector and the acceptor; far: the relay's side
    int near[2] = {-1, -1}, far[2] = {-1, -1};
    pvn_seal *s[2] = {};
    int rc[2] = {-EAGAIN, -EAGAIN};
    pvn_err err[2] = {PVN_ERR_INIT, PVN_ERR_INIT};
    Bytes sent[2]; // bytes that each end sent, before the filter
    Filter filter = [](int, Bytes b) { return b; };

    static Bytes secret(uint8_t of)
    {
        return Bytes(PVN_SEAL_SECRET, of);
    }
    static bool tcp_pair(int sv[2])
    {
        sockaddr_in a = {};
        a.sin_family = AF_INET;
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        auto *at = reinterpret_cast<sockaddr *>(&a);
        socklen_t len = sizeof(a);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sv[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool done = bind(listener, at, len) == 0 && listen(listener, 1) == 0 &&
                    getsockname(listener, at, &len) == 0 && connect(sv[0], at, len) == 0;
        sv[1] = done ? accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        close(listener);
        return sv[1] >= 0 && fcntl(sv[0], F_SETFL, O_NONBLOCK) == 0;
    }
    explicit Ends(const Bytes &connector = secret(1), const Bytes &acceptor = secret(1),
                  bool tcp = false)
    {
        pvn_err e = PVN_ERR_INIT;
        EXPECT_NE(nullptr, pvn_ssl_load("libssl.so.3", &e)) << e.reason[0];
        for (int i = 0; i < 2; i++) {
            int sv[2];
            if (tcp)
                EXPECT_TRUE(tcp_pair(sv)) << strerror(errno);
            else
                EXPECT_EQ(0,
                          socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv));
            near[i] = sv[0];
            far[i] = sv[1];
        }
        s[0] = pvn_seal_new(near[0], false, connector.data(), &e);
        EXPECT_NE(nullptr, s[0]) << e.reason[0];
        s[1] = pvn_seal_new(near[1], true, acceptor.data(), &e);
        EXPECT_NE(nullptr, s[1]) << e.reason[0];
    }
    Ends(const Ends &) = delete;
    ~Ends()
    {
        for (int i = 0; i < 2; i++) {
            pvn_seal_free(s[i]);
            hang_up(i);
            close(near[i]);
        }
    }
    // Closes the relay's side: the end receives no more bytes and sees the end of the connection.
    void hang_up(int end)
    {
        if (far[end] >= 0)
            close(far[end]);
        far[end] = -1;
    }
    // Takes the bytes that an end has sent, without delivering them.
    Bytes take(int from)
    {
        Bytes b(1 << 20);
        ssize_t n = far[from] < 0 ? 0 : recv(far[from], b.data(), b.size(), 0);
        b.resize(n > 0 ? static_cast<size_t>(n) : 0);
        sent[from].insert(sent[from].end(), b.begin(), b.end());
        return b;
    }
    void give(int to, const Bytes &b)
    {
        if (far[to] >= 0 && !b.empty())
            send(far[to], b.data(), b.size(), MSG_NOSIGNAL);
    }
    bool pass()
    {
        bool moved = false;
        for (int from = 0; from < 2; from++) {
            Bytes b = take(from);
            moved |= !b.empty();
            if (!b.empty())
                give(!from, filter(from, b));
        }
        return moved;
    }
    void step()
    {
        for (int i = 0; i < 2; i++)
            if (rc[i] == -EAGAIN)
                rc[i] = pvn_seal_handshake(s[i], &err[i]);
    }
    // Relays until no more bytes move. Then closes both connections, unless both ends are up and
    // are to stay open. True if both ends have completed the handshake.
    bool shake(bool leave_open = true)
    {
        do
            step();
        while (pass());
        if (rc[0] == 0 && rc[1] == 0 && leave_open)
            return true;
        hang_up(0);
        hang_up(1);
        step();
        return rc[0] == 0 && rc[1] == 0;
    }
    // Sends `what` from one end and returns the bytes that reach the other end. *code: result of
    // its last receive.
    Bytes carry(int from, const Bytes &what, ssize_t *code = nullptr)
    {
        Bytes got, piece(100000);
        size_t done = 0;
        ssize_t n = -EAGAIN;
        for (bool moved = true; moved && (n > 0 || n == -EAGAIN);) {
            moved = false;
            if (done < what.size()) {
                ssize_t w = pvn_seal_send(s[from], what.data() + done, what.size() - done);
                if (w > 0)
                    done += static_cast<size_t>(w);
                moved |= w > 0;
            }
            moved |= pass();
            n = pvn_seal_recv(s[!from], piece.data(), piece.size());
            if (n > 0)
                got.insert(got.end(), piece.begin(), piece.begin() + n);
            moved |= n > 0;
        }
        if (code)
            *code = n;
        return got;
    }
};

inline Bytes text(const char *s)
{
    return Bytes(s, s + strlen(s));
}

inline Bytes many(size_t n)
{
    Bytes b(n);
    for (size_t i = 0; i < n; i++)
        b[i] = static_cast<uint8_t>(i * 7 + i / 251);
    return b;
}

#endif
