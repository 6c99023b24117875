/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Prints the frequency of this machine's time stamp counter in kHz, for the guests' kernel.
 * QEMU without KVM passes the host's counter to its guests, whose kernel measures its frequency for some
 * milliseconds. If the guest does not run for part of these the result is wrong by a factor, and so is
 * every timeout in the guest. On processors other than x86-64 the program prints nothing and exits with
 * status 1. */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#ifdef __x86_64__
#include <x86intrin.h>

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Reads the counter and the clock at the same moment: reads several pairs and returns the one that was read fastest. */
static void moment(uint64_t *ticks, int64_t *ns)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < 100; i++) {
        int64_t before = now();
        uint64_t t = __rdtsc();
        int64_t after = now();

        if (after - before < best) {
            best = after - before;
            *ticks = t;
            *ns = before + best / 2;
        }
    }
}

int main(void)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    uint64_t first_ticks, ticks;
    int64_t first, ns;

    moment(&first_ticks, &first);
    nanosleep(&pause, NULL);
    moment(&ticks, &ns);
    printf("%.0f\n", (double)(ticks - first_ticks) * 1e6 / (double)(ns - first));
    return 0;
}
#else
int main(void)
{
    return 1;
}
#endif
