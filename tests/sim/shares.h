/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Runs many seeds of a simulation in several processes. Trial is a class with a constructor from a
// seed, go(), which returns the broken promise or "", and add(Totals &).
#ifndef TESTS_SIM_SHARES_H
#define TESTS_SIM_SHARES_H

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "sim/totals.h"

namespace sim
{

inline uint64_t from_env(const char *name, uint64_t def)
{
    const char *s = getenv(name);
    return s && *s ? strtoull(s, nullptr, 0) : def;
}

// One process's share of the seeds.
struct Share {
    Totals t;
    uint64_t bad_seed;
    char bad[2000]; // empty: no promise was broken
};

template <class Trial> void run_share(uint64_t first, uint64_t end, uint64_t step, Share *s)
{
    for (uint64_t seed = first; seed < end; seed += step) {
        Trial run(seed);
        std::string bad = run.go();
        run.add(s->t);
        if (bad.empty())
            continue;
        s->bad_seed = seed;
        snprintf(s->bad, sizeof(s->bad), "%s", bad.c_str());
        return;
    }
}

// Seeds are independent, so each processor gets a share of them. This process runs the first share.
template <class Trial> std::vector<Share> run_seeds(uint64_t first, uint64_t n)
{
    unsigned workers = std::max(1u, std::thread::hardware_concurrency());
    if (workers > n)
        workers = static_cast<unsigned>(n);
    void *mem = mmap(nullptr, workers * sizeof(Share), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(MAP_FAILED, mem);
    Share *shares = new (mem) Share[workers]();
    std::vector<pid_t> pids;
    for (unsigned w = 1; w < workers; w++) {
        pid_t pid = fork();
        EXPECT_GE(pid, 0);
        if (pid == 0) {
            run_share<Trial>(first + w, first + n, workers, &shares[w]);
            _exit(0);
        }
        pids.push_back(pid);
    }
    run_share<Trial>(first, first + n, workers, &shares[0]);
    for (pid_t pid : pids) {
        int status = -1;
        EXPECT_EQ(pid, waitpid(pid, &status, 0));
        EXPECT_EQ(0, status) << "a process with a share of the seeds ended early";
    }
    std::vector<Share> all(shares, shares + workers);
    munmap(mem, workers * sizeof(Share));
    return all;
}

} // namespace sim

#endif
