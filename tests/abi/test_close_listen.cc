// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// closeListen while something else closes the listeners, as a finalize does and the end of the
// process. The test finalizes wherever closeListen has given back a lock. AddressSanitizer sees a
// listener that is used or freed after that.
#include "abi/nccl_side.h"
#include "support/next_symbol.h"

#include <pthread.h>

using namespace nccl;

namespace
{

thread_local int unlocks_left = 0; // until `then` is called
std::function<void()> then;

} // namespace

// The plugin's calls arrive here, because the program comes before the C library in symbol lookup.
extern "C" __attribute__((visibility("default"))) int
pthread_mutex_unlock(pthread_mutex_t *mutex) __THROW
{
    static auto real = next_symbol<decltype(&pthread_mutex_unlock)>("pthread_mutex_unlock");
    int rc = real(mutex);
    if (unlocks_left > 0 && --unlocks_left == 0)
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

} // namespace
