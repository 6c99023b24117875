/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Network namespaces for tests. Code inside sees only interfaces that it creates there. The kernel
// removes them when the namespace ends, however it ends.
#ifndef PVN_TESTS_SUPPORT_NETNS_H
#define PVN_TESTS_SUPPORT_NETNS_H

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "support/deadline.h"

namespace pvn_test
{

// Runs `body` in a new thread that has a network namespace of its own, in which loopback is down at
// first. Returns an empty string, or the reason why it could not run, with which the caller skips.
// Processes that `body` starts are in the namespace, too.
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

// Runs a shell command. True if it succeeded.
inline bool sh(const std::string &command)
{
    return system(command.c_str()) == 0;
}

// Waits until each of the interfaces has a carrier, or none has one if `want` is false. The kernel
// reports a change of carrier from a work queue, up to a second after the command that caused it
// has returned.
inline bool links_run(const std::string &names, bool want = true)
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const Deadline wait(10);
    std::istringstream list(names);
    bool good = fd >= 0;

    for (std::string name; good && list >> name;) {
        struct ifreq ifr = {};
        strncpy(ifr.ifr_name, name.c_str(), sizeof(ifr.ifr_name) - 1);
        for (;;) {
            good = ioctl(fd, SIOCGIFFLAGS, &ifr) == 0 && wait.left();
            if (!good || ((ifr.ifr_flags & IFF_RUNNING) != 0) == want)
                break;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    }
    if (fd >= 0)
        close(fd);
    return good;
}

} // namespace pvn_test

#endif
