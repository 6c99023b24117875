// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A finalize while another thread is in a call, as when a job is aborted. The test finalizes wherever the call has
// given back a lock. AddressSanitizer sees a listener, a connection or a key that is used or freed after that.
#include "config.h"

#include "abi/nccl_side.h"
#include "support/key_file.h"
#include "support/next_symbol.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nccl;

namespace
{

thread_local int locks = 0;        // that this thread has
thread_local int unlocks_left = 0; // of its last lock, until `then` is called
std::function<void()> then;

} // namespace

// The plugin's calls arrive here, because the program comes before the C library in symbol lookup.
extern "C" __attribute__((visibility("default"))) int
pthread_mutex_lock(pthread_mutex_t *mutex) __THROW
{
    static auto real = next_symbol<decltype(&pthread_mutex_lock)>("pthread_mutex_lock");
    locks++;
    return real(mutex);
}

extern "C" __attribute__((visibility("default"))) int
pthread_mutex_trylock(pthread_mutex_t *mutex) __THROW
{
    static auto real = next_symbol<decltype(&pthread_mutex_trylock)>("pthread_mutex_trylock");
    int rc = real(mutex);
    locks += rc == 0;
    return rc;
}

extern "C" __attribute__((visibility("default"))) int
pthread_mutex_unlock(pthread_mutex_t *mutex) __THROW
{
    static auto real = next_symbol<decltype(&pthread_mutex_unlock)>("pthread_mutex_unlock");
    int rc = real(mutex);
    if (--locks == 0 && unlocks_left > 0 && --unlocks_left == 0)
        then();
    return rc;
}

namespace
{

TEST(CloseListen, MeetsAFinalizeWhereverItHasNoLock)
{
    int met = 0;
    for (int unlock = 1; unlock <= 4; unlock++) {
        SCOPED_TRACE(unlock);
        Net n(12);
        alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};
        void *l = nullptr;
        ASSERT_EQ(ncclSuccess, pvn_netdrv_listen(n.d, n.ctx, 0, handle, &l));
        then = [&] {
            met++;
            EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
            n.rc = ncclInternalError; // it is finalized
        };
        unlocks_left = unlock;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_listen(n.d, l));
        unlocks_left = 0;
        EXPECT_NE(ncclSuccess, pvn_netdrv_close_listen(n.d, l)) << "it is closed";
    }
    EXPECT_LE(2, met) << "closeListen takes locks";
}

// A listener in another process, since a finalize in this one would close it.
class Elsewhere
{
  public:
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE] = {};

    Elsewhere()
    {
        int ends[2];
        EXPECT_EQ(0, pipe2(ends, O_CLOEXEC));
        pid = fork();
        if (pid == 0) {
            Net n(12);
            void *l = nullptr;
            ncclResult_t rc = pvn_netdrv_listen(n.d, n.ctx, 0, handle, &l);
            if (rc == ncclSuccess && write(ends[1], handle, sizeof(handle)) > 0)
                pause();
            _exit(1);
        }
        close(ends[1]);
        EXPECT_EQ(ssize_t{sizeof(handle)}, read(ends[0], handle, sizeof(handle)));
        close(ends[0]);
    }
    Elsewhere(const Elsewhere &) = delete;
    Elsewhere &operator=(const Elsewhere &) = delete;
    ~Elsewhere()
    {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }

  private:
    pid_t pid;
};

// Calls connect until it ends, with a finalize after so many locks; true if there were as many.
bool connect_meets_finalize(const Elsewhere &listener, int unlocks)
{
    Net n(12);
    alignas(8) char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *sc = nullptr;
    bool met = false;
    memcpy(handle, listener.handle, sizeof(handle));
    then = [&] {
        met = true;
        EXPECT_EQ(ncclSuccess, pvn_netdrv_finalize(n.d, n.ctx));
        n.rc = ncclInternalError; // it is finalized
    };
    unlocks_left = unlocks;
    EXPECT_TRUE(eventually([&] {
        return pvn_netdrv_connect(n.d, n.ctx, 0, handle, &sc) != ncclSuccess || sc || !unlocks_left;
    }));
    unlocks_left = 0;
    if (sc) {
        EXPECT_EQ(ncclSuccess, pvn_netdrv_close_send(n.d, sc));
    }
    return met;
}

void meet_at_all_locks_of_connect()
{
    enum { SOME_CALLS = 20 }; // the first of which dial and derive keys
    Elsewhere listener;
    const std::set<int> before = descriptors();
    for (int unlocks = 1; unlocks <= SOME_CALLS; unlocks++)
        EXPECT_TRUE(connect_meets_finalize(listener, unlocks)) << unlocks;
    EXPECT_EQ(before, descriptors()) << "the connections that met a finalize are closed";
}

TEST(Connect, MeetsAFinalizeWhereverItHasNoLock)
{
    meet_at_all_locks_of_connect();
}

#ifdef HAVE_OPENSSL
TEST(Connect, KeepsTheKeyThatAFinalizeWouldForget)
{
    Folder folder;
    const std::string key = write_file(folder / "key", "0123456789abcdef0123456789abcdef");
    setenv("NCCL_PVRDMA_KEY_FILE", key.c_str(), 1);
    meet_at_all_locks_of_connect();
    unsetenv("NCCL_PVRDMA_KEY_FILE");
}
#endif

} // namespace
