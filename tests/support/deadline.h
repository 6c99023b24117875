/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The limit of loops that wait. A count of turns is none: how long it lasts depends on the machine.
#ifndef PVN_TESTS_SUPPORT_DEADLINE_H
#define PVN_TESTS_SUPPORT_DEADLINE_H

extern "C" {
#include "base/clock.h"
}

// for (Deadline wait; wait.left() && !done;) ends by itself, but only where something hangs.
class Deadline
{
    double until;

  public:
    explicit Deadline(double seconds = 60) : until(pvn_now_s() + seconds)
    {
    }
    bool left() const
    {
        return pvn_now_s() < until;
    }
};

#endif
