/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

uint64_t pvn_random64(void)
{
    static _Atomic uint64_t counter;
    uint64_t v = 0;

    while (v == 0) {
        ssize_t n = getrandom(&v, sizeof(v), GRND_NONBLOCK);

        if (n == (ssize_t)sizeof(v))
            continue;
        if (n < 0 && errno == EINTR)
            continue;
        /* The call fails early in boot, or under a filter that forbids it. The number is then only unique on this
         * host, and not secure. */
        v = pvn_now_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 40 ^
            atomic_fetch_add(&counter, 1);
    }
    return v;
}
