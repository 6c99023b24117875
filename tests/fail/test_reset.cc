// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A control connection is reset just when the plugin's own thread polls it. A socket reports
// ECONNRESET to one call only, and that has to be a call of the comm. Otherwise the comm would see
// an end of the stream, which means that the peer's process has ended, and would not wait for it as
// long.
#include "fail/failover_peer.h"
#include "support/next_symbol.h"

#include <poll.h>

using namespace nccl;

namespace
{

std::atomic<raw::Sock *> to_be_reset{nullptr};
std::atomic<uint16_t> port; // of the peer
const std::thread::id caller = std::this_thread::get_id();

bool leads_to_the_peer(int fd)
{
    sockaddr_in in = {};
    socklen_t len = sizeof(in);
    return getpeername(fd, reinterpret_cast<sockaddr *>(&in), &len) == 0 &&
           in.sin_family == AF_INET && ntohs(in.sin_port) == port;
}

} // namespace

// The plugin's calls arrive here: the program comes before the C library.
extern "C" int poll(pollfd *p, nfds_t n, int timeout)
{
    static auto real = next_symbol<decltype(&poll)>("poll");
    int rc = real(p, n, timeout);
    bool looks = n == 1 && p->events == 0 && timeout == 0 && std::this_thread::get_id() != caller &&
                 to_be_reset != nullptr && leads_to_the_peer(p->fd);
    raw::Sock *s = looks ? to_be_reset.exchange(nullptr) : nullptr;
    if (s) {
        s->reset();
        pollfd mine = {p->fd, 0, 0};
        real(&mine, 1, 1000);
    }
    return rc;
}

namespace
{

TEST(Reset, BehindALookOfThePluginsThread)
{
    features |= PVN_FEATURE_KEEPS;
    Sending s;
    port = s.l.port;
    to_be_reset = &s.ctrl;
    ASSERT_TRUE(eventually([] { return to_be_reset == nullptr; })) << "the thread does not look";
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // to its next look
    s.goes_on(
        [&] {
            s.accept_again();
            s.next.ctrl.send(report_frame(nothing_yet()));
        },
        1);
    EXPECT_TRUE(said("control connection failed: Connection reset by peer")) << Log::get().text();
}

} // namespace
