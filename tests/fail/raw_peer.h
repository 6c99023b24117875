/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// A peer made by hand: it speaks the wire format byte by byte, so it can stop, die or break the
// rules at any byte.
#ifndef TESTS_FAIL_RAW_PEER_H
#define TESTS_FAIL_RAW_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
#include "connect/wire.h"
}

namespace raw
{

using Bytes = std::vector<uint8_t>;

inline Bytes frame(pvn_frame_type type, const Bytes &body)
{
    pvn_frame_header h = {static_cast<uint8_t>(type), static_cast<uint32_t>(body.size())};
    Bytes b(PVN_FRAME_HEADER_BYTES);
    pvn_frame_header_encode(b.data(), &h);
    b.insert(b.end(), body.begin(), body.end());
    return b;
}

inline Bytes preamble(int kind, uint64_t session, uint64_t nonce, int lane = 0, int stream = 0)
{
    pvn_preamble p = {PVN_WIRE_VERSION,
                      static_cast<uint8_t>(kind),
                      static_cast<uint8_t>(lane),
                      static_cast<uint16_t>(stream),
                      session,
                      nonce,
                      {}};
    Bytes b(PVN_PREAMBLE_MOST);
    b.resize(static_cast<size_t>(pvn_preamble_encode(b.data(), &p)));
    return b;
}

inline pvn_hello plain_hello(uint64_t session)
{
    pvn_hello h = {};
    h.version_min = PVN_WIRE_VERSION_MIN;
    h.version_max = PVN_WIRE_VERSION;
    h.pid = 4711;
    h.session = session;
    h.traffic_class = -1;
    strcpy(h.plugin_version, "9.9.9");
    strcpy(h.host, "rawhost");
    strcpy(h.device, "raw0");
    return h;
}

inline Bytes hello(const pvn_hello &h)
{
    Bytes b(512);
    b.resize(pvn_hello_encode(b.data(), b.size(), &h));
    return frame(PVN_FRAME_HELLO, b);
}

inline Bytes hello(uint64_t session, int min = PVN_WIRE_VERSION_MIN, int max = PVN_WIRE_VERSION)
{
    pvn_hello h = plain_hello(session);
    h.version_min = static_cast<uint16_t>(min);
    h.version_max = static_cast<uint16_t>(max);
    return hello(h);
}

// A frame whose body is a text: ERROR, LANE_DOWN, SWITCH.
inline Bytes text_frame(pvn_frame_type type, const char *text)
{
    Bytes b(PVN_REASON_MAX + 2);
    b.resize(pvn_reason_encode(b.data(), b.size(), text));
    return frame(type, b);
}

// One TCP lane of one stream; port 0: the connector's offer, which names no address.
// features: 1, it acknowledges zero-copy chunks.
inline Bytes tcp_blob(uint16_t port, uint8_t features = 0)
{
    Bytes b = {1, 1, static_cast<uint8_t>(port ? 19 : 0), features};
    if (port) {
        Bytes a(19, 0);
        a[0] = 4;
        a[1] = static_cast<uint8_t>(port);
        a[2] = static_cast<uint8_t>(port >> 8);
        a[3] = 127;
        a[6] = 1;
        b.insert(b.end(), a.begin(), a.end());
    }
    return b;
}

inline Bytes offer(const Bytes &blob, const char *kind = "tcp", int n = 1)
{
    pvn_offer o = {};
    o.n = n;
    for (int i = 0; i < n; i++) {
        o.lane[i].index = static_cast<uint8_t>(i);
        strcpy(o.lane[i].kind, kind);
        strcpy(o.lane[i].name, "raw0");
        o.lane[i].len = static_cast<uint16_t>(blob.size());
        o.lane[i].blob = blob.data();
    }
    Bytes b(PVN_FRAME_BODY_MAX);
    b.resize(pvn_offer_encode(b.data(), b.size(), &o));
    return frame(PVN_FRAME_OFFER, b);
}

inline Bytes ready(uint32_t lanes)
{
    Bytes b(8);
    b.resize(pvn_ready_encode(b.data(), b.size(), lanes));
    return frame(PVN_FRAME_READY, b);
}

// A blocking socket. Receives time out after 20 s, or after what timeout() has set.
class Sock
{
  public:
    int fd = -1;
    Sock() = default;
    explicit Sock(int f) : fd(f)
    {
        timeout(20);
    }
    Sock(Sock &&o) noexcept : fd(o.fd)
    {
        o.fd = -1;
    }
    Sock &operator=(Sock &&o) noexcept
    {
        std::swap(fd, o.fd);
        return *this;
    }
    ~Sock()
    {
        close();
    }
    void close()
    {
        if (fd >= 0)
            ::close(fd);
        fd = -1;
    }
    void reset()
    {
        linger l = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
        close();
    }
    void timeout(int seconds)
    {
        timeval tv = {seconds, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
    }
    bool send(const Bytes &b, size_t n = SIZE_MAX)
    {
        n = n < b.size() ? n : b.size();
        return n == 0 || ::send(fd, b.data(), n, MSG_NOSIGNAL) == static_cast<ssize_t>(n);
    }
    // recv(), repeated after EINTR. If a socket has a time limit, recv and accept fail with EINTR
    // when the process is stopped and continued (signal(7)).
    ssize_t take(void *to, size_t n)
    {
        ssize_t r;
        do {
            r = ::recv(fd, to, n, 0);
        } while (r < 0 && errno == EINTR);
        return r;
    }
    // Exactly n bytes, or fewer at the end of the stream.
    Bytes recv(size_t n)
    {
        Bytes b(n);
        size_t got = 0;
        while (got < n) {
            ssize_t r = take(b.data() + got, n - got);
            if (r <= 0)
                break;
            got += static_cast<size_t>(r);
        }
        b.resize(got);
        return b;
    }
    // A frame's body. *type is 0 at the end of the stream.
    Bytes recv_frame(int *type)
    {
        pvn_frame_header h = {};
        Bytes b = recv(PVN_FRAME_HEADER_BYTES);
        *type = 0;
        if (b.size() < PVN_FRAME_HEADER_BYTES || pvn_frame_header_decode(b.data(), &h, nullptr))
            return {};
        b = recv(h.len);
        *type = b.size() == h.len ? h.type : 0;
        return b;
    }
    // Reads to the end of the stream and returns the texts of the ERROR frames in it. *closed: true
    // if the end was reached.
    std::string last_words(bool *closed)
    {
        std::string text;
        int type;
        for (;;) {
            Bytes b = recv_frame(&type);
            if (type == 0)
                break;
            char t[PVN_REASON_MAX];
            if (type == PVN_FRAME_ERROR && pvn_reason_decode(b.data(), b.size(), t, nullptr) == 0)
                text += t;
        }
        char c;
        ssize_t n = take(&c, 1);
        *closed = n == 0 || (n < 0 && errno == ECONNRESET);
        return text;
    }
};

inline Sock dial(uint16_t port)
{
    Sock s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(s.fd, reinterpret_cast<sockaddr *>(&in), sizeof(in)) != 0)
        s.close();
    return s;
}

struct Listener {
    Sock s;
    uint16_t port = 0;
    // at: the port; 0: the kernel chooses one
    explicit Listener(uint16_t at = 0) : s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    {
        sockaddr_in in = {};
        int one = 1;
        setsockopt(s.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        in.sin_port = htons(at);
        socklen_t len = sizeof(in);
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(s.fd, reinterpret_cast<sockaddr *>(&in), len) != 0 || listen(s.fd, 16) != 0 ||
            getsockname(s.fd, reinterpret_cast<sockaddr *>(&in), &len) != 0)
            s.close();
        port = ntohs(in.sin_port);
    }
    Sock accept()
    {
        int fd;
        do {
            fd = accept4(s.fd, nullptr, nullptr, SOCK_CLOEXEC);
        } while (fd < 0 && errno == EINTR);
        return Sock(fd);
    }
    // Accepts the next control connection and reads the connector's preamble and HELLO.
    Sock accept_ctrl()
    {
        int type;
        Sock peer = accept();
        peer.recv(PVN_PREAMBLE_BYTES);
        peer.recv_frame(&type);
        return peer;
    }
    // The next stream of a lane, answered as an acceptor does (tcp_setup.c).
    Sock accept_stream()
    {
        Sock peer = accept();
        peer.recv(PVN_PREAMBLE_BYTES);
        peer.send({0x70});
        return peer;
    }
};

// A handle that leads to `port` on this machine. features: of the peer, as in its HELLO.
inline void make_handle(void *out, uint16_t port, uint64_t session, uint64_t features = 0)
{
    pvn_handle h = {};
    h.version = PVN_WIRE_VERSION;
    h.session = session;
    h.addr.family = 4;
    h.addr.port = port;
    h.addr.bytes[0] = 127;
    h.addr.bytes[3] = 1;
    h.features = features;
    pvn_handle_encode(static_cast<uint8_t *>(out), &h);
}

} // namespace raw

#endif
