// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The plugin's sockets, which a forked child closes, and all other descriptors, which it keeps.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

extern "C" {
#include "base/addr.h"
#include "base/fork.h"
#include "base/fork_fds.h"
#include "connect/sock.h"
}

namespace
{

sockaddr *sa(sockaddr_storage &ss)
{
    return reinterpret_cast<sockaddr *>(&ss);
}

bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

// Runs `body` in a forked child and returns its exit status.
int in_child(const std::function<int()> &body)
{
    const pid_t pid = fork();

    if (pid == 0)
        _exit(body());
    int status = 0;
    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// A listener and both ends of a connection.
struct Connection {
    sockaddr_storage addr = {};
    pvn_err err = PVN_ERR_INIT;
    int listener = -1, dialled = -1, accepted = -1;

    Connection()
    {
        sockaddr_storage peer;
        EXPECT_EQ(0, pvn_addr_parse("127.0.0.1", &addr, nullptr));
        const socklen_t len = pvn_addr_len(sa(addr));
        listener = pvn_sock_listen(&addr, len, &err);
        EXPECT_LE(0, listener);
        dialled = pvn_sock_dial(nullptr, 0, &addr, len, -1, &err);
        EXPECT_LE(0, dialled);
        pollfd p = {listener, POLLIN, 0};
        EXPECT_EQ(1, poll(&p, 1, 20000));
        accepted = pvn_sock_accept(listener, &peer, &err);
        EXPECT_LE(0, accepted);
    }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    ~Connection()
    {
        pvn_sock_close(dialled);
        pvn_sock_close(accepted);
        pvn_sock_close(listener);
    }
    bool works() const
    {
        char c = 'x';
        pollfd p = {accepted, POLLIN, 0};
        return send(dialled, &c, 1, 0) == 1 && poll(&p, 1, 20000) == 1 &&
               recv(accepted, &c, 1, 0) == 1;
    }
};

TEST(ForkFds, AChildHasNoCopiesAndTheParentKeepsItsOwn)
{
    Connection c;
    const int foreign = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    EXPECT_EQ(0, in_child([&] {
                  int kept = is_open(c.listener) + is_open(c.dialled) + is_open(c.accepted);
                  return is_open(foreign) ? kept : 10;
              }));
    EXPECT_TRUE(c.works());
    EXPECT_TRUE(is_open(c.listener));
    close(foreign);
}

TEST(ForkFds, AChildKeepsWhatHasTheNumberOfAClosedSocket)
{
    int numbers[3];
    std::vector<int> files;
    {
        Connection c;
        numbers[0] = c.listener;
        numbers[1] = c.dialled;
        numbers[2] = c.accepted;
    }
    for (int n : numbers)
        files.push_back(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, n));
    EXPECT_EQ(0, in_child([&] {
                  for (int fd : files)
                      if (!is_open(fd))
                          return 1;
                  return 0;
              }));
    EXPECT_EQ(std::vector<int>(numbers, numbers + 3), files) << "other numbers are no test";
    for (int fd : files)
        close(fd);
}

TEST(ForkFds, AChildMakesSocketsOfItsOwnAndItsChildHasNone)
{
    Connection c;

    EXPECT_EQ(0, in_child([] {
                  Connection own;
                  if (!own.works())
                      return 1;
                  const bool kept = in_child([&] { return is_open(own.dialled); }) != 0;
                  return kept ? 2 : testing::Test::HasFailure() * 3;
              }));
    EXPECT_TRUE(c.works());
}

// Meanwhile a descriptor number passes from one owner to another.
TEST(ForkFds, WhileThreadsOpenAndCloseExactlyTheOthersStay)
{
    enum { CHILDREN = 200, FDS = 4, LOOK_AT = 256 };
    std::atomic<bool> over{false};
    std::atomic<int> made{0};
    std::vector<std::thread> threads;

    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            for (; !over; made++) {
                Connection c;
            }
        });
    for (int i = 0; i < CHILDREN || made < 100; i++) {
        int own[FDS];
        for (int &fd : own)
            fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        EXPECT_EQ(0, in_child([&] {
                      struct stat st;
                      int sockets = 0;
                      for (int fd : own)
                          if (!is_open(fd))
                              return 1;
                      for (int fd = 0; fd < LOOK_AT; fd++)
                          sockets += fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
                      return sockets == FDS ? 0 : 2;
                  }))
            << "child " << i;
        for (int fd : own)
            close(fd);
    }
    over = true;
    for (auto &t : threads)
        t.join();
}

// Fork handlers of the process that uses NCCL. They are registered first, so they run between the
// library's own handlers.
bool handlers_open;
int opened;

void open_one()
{
    pvn_err err = PVN_ERR_INIT;
    sockaddr_storage addr = {};
    if (!handlers_open || pvn_addr_parse("127.0.0.1", &addr, nullptr) != 0)
        return;
    const int fd = pvn_sock_listen(&addr, pvn_addr_len(sa(addr)), &err);
    opened += fd >= 0;
    pvn_sock_close(fd);
}

const int registered = pthread_atfork(open_one, open_one, nullptr);

TEST(ForkFds, AForkHandlerOfTheProcessMayUseSockets)
{
    Connection c;

    ASSERT_EQ(0, registered);
    handlers_open = true;
    alarm(20); // the fork once deadlocked here
    EXPECT_EQ(0, in_child([&] { return is_open(c.dialled); }));
    alarm(0);
    handlers_open = false;
    EXPECT_EQ(2, opened);
    EXPECT_TRUE(c.works());
}

// A signal handler may fork while its thread opens a socket and holds the lock.
TEST(ForkFds, AForkWithinAnOpenGoesOnWithoutClosing)
{
    Connection c;

    pvn_fork_fds_lock();
    EXPECT_EQ(0, in_child([&] {
                  if (!is_open(c.dialled))
                      return 1;
                  Connection own; // takes the lock
                  return own.works() ? 0 : 2;
              }));
    pvn_fork_fds_unlock();
    EXPECT_EQ(0, in_child([&] { return is_open(c.dialled); }));
    EXPECT_TRUE(c.works());
}

// A child that clone made has its parent's list, and opens a file of its own under a number of the list.
TEST(ForkFds, AChildOfOneWithoutHandlersKeepsWhatHasTheNumbers)
{
    EXPECT_EQ(0, in_child([] {
                  EXPECT_EQ(0, pvn_fork_mark());
                  Connection c;
                  const pid_t pid = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
                  if (pid == 0) {
                      close(c.dialled);
                      if (fcntl(STDERR_FILENO, F_DUPFD, c.dialled) != c.dialled)
                          _exit(2);
                      _exit(in_child([&] { return !is_open(c.dialled); }));
                  }
                  int status = -1;
                  EXPECT_EQ(pid, waitpid(pid, &status, 0));
                  EXPECT_EQ(0, status) << "the number was closed, or is another one";
                  EXPECT_TRUE(c.works());
                  return static_cast<int>(testing::Test::HasFailure());
              }));
}

} // namespace
