// Network namespaces for tests: what runs inside sees only what it makes there, and everything is
// gone when it ends, however it ends.
#ifndef PVN_TESTS_SUPPORT_NETNS_H
#define PVN_TESTS_SUPPORT_NETNS_H

#include <sched.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace pvn_test
{

// Runs `body` in a new thread that has a network namespace of its own (loopback is down there at
// first). Returns an empty string, or why it could not run: the caller then skips. Processes that
// body starts are in the namespace too.
inline std::string in_netns(const std::function<void()> &body)
{
    std::string why;

    std::thread([&] {
        if (unshare(CLONE_NEWNET) != 0) {
            why = std::string("no network namespace of its own: ") + strerror(errno) +
                  " (run as root)";
            return;
        }
        if (system("command -v ip >/dev/null") != 0) {
            why = "the ip command is not installed (iproute2)";
            return;
        }
        body();
    }).join();
    return why;
}

// A shell command; true when it succeeded.
inline bool sh(const std::string &command)
{
    return system(command.c_str()) == 0;
}

} // namespace pvn_test

#endif
