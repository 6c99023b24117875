// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// A process forks while another thread of it holds a lock of OpenSSL. The child must be able to seal
// connections of its own.
#include "unit/seal_ends.h"

#include "support/next_symbol.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/wait.h>

#include <atomic>
#include <set>
#include <thread>

namespace
{

bool notes = false; // locks that are made now belong to the plugin's context of OpenSSL
std::set<pthread_rwlock_t *> of_context;
thread_local bool stops = false; // this thread stops with the first of these that it locks
std::atomic<bool> holds{false};  // it has stopped

} // namespace

// OpenSSL's calls arrive here, because the program comes before the C library.
extern "C" int pthread_rwlock_init(pthread_rwlock_t *l, const pthread_rwlockattr_t *attr)
{
    static auto real = next_symbol<decltype(&pthread_rwlock_init)>("pthread_rwlock_init");
    if (notes)
        of_context.insert(l);
    return real(l, attr);
}

extern "C" int pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
    static auto real = next_symbol<decltype(&pthread_rwlock_wrlock)>("pthread_rwlock_wrlock");
    const int rc = real(l);
    if (stops && of_context.count(l)) {
        stops = false;
        holds = true;
        while (holds)
            usleep(1000);
    }
    return rc;
}

namespace
{

// Makes the locks that OpenSSL has once in a process. It makes some of them at their first use.
void make_common_locks()
{
    ASSERT_EQ(1, OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr));
    OSSL_LIB_CTX *ctx = OSSL_LIB_CTX_new();
    SSL_CTX *c = SSL_CTX_new_ex(ctx, nullptr, TLS_method());
    ASSERT_NE(nullptr, c);
    SSL_CTX_free(c);
    OSSL_LIB_CTX_free(ctx);
}

TEST(Fork, AChildNeedsNoLockOfItsParent)
{
    pvn_err err = PVN_ERR_INIT;
    make_common_locks();
    notes = true;
    ASSERT_NE(nullptr, pvn_ssl_load("libssl.so.3", &err)) << err.reason[0];
    notes = false;
    int rc = -1;
    std::thread checks([&] {
        stops = true;
        pvn_err e = PVN_ERR_INIT;
        rc = pvn_seal_check(&e);
    });
    for (int ms = 0; !holds && ms < 20000; ms++)
        usleep(1000);
    ASSERT_TRUE(holds) << "the fault has not fired";
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        pvn_seal_after_fork();
        {
            Ends e;
            EXPECT_TRUE(e.shake()) << e.err[0].reason[0] << e.err[1].reason[0];
        }
        _exit(testing::Test::HasFailure());
    }
    int status = -1;
    EXPECT_EQ(pid, waitpid(pid, &status, 0));
    EXPECT_EQ(0, status);
    holds = false;
    checks.join();
    EXPECT_EQ(0, rc) << "the parent goes on";
}

} // namespace
