/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Sends signals whose handler returns, like those of a profiler's timer or of a child that ends.
#ifndef PVN_TESTS_SUPPORT_SIGNALS_H
#define PVN_TESTS_SUPPORT_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

// Interrupts the thread that creates it about once per millisecond, until it is destroyed.
class Signals
{
    static inline std::atomic<unsigned long> count{0};
    std::atomic<bool> over{false};
    std::thread sender;

  public:
    Signals()
    {
        struct sigaction act = {};
        act.sa_handler = [](int) { count++; };
        act.sa_flags = SA_RESTART;
        // stays installed, because the last signal may arrive later
        sigaction(SIGUSR1, &act, nullptr);
        count = 0;
        sender = std::thread([this, to = pthread_self()] {
            while (!over) {
                usleep(1000);
                pthread_kill(to, SIGUSR1);
            }
        });
    }
    Signals(const Signals &) = delete;
    Signals &operator=(const Signals &) = delete;
    ~Signals()
    {
        over = true;
        sender.join();
    }
    // The number of signals that the thread has handled.
    unsigned long handled() const
    {
        return count;
    }
};

#endif
