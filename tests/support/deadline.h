/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The time limit of loops that wait. A number of iterations is no limit, because its duration
// depends on the machine.
#ifndef PVN_TESTS_SUPPORT_DEADLINE_H
#define PVN_TESTS_SUPPORT_DEADLINE_H

extern "C" {
#include "base/clock.h"
}

// for (Deadline wait; wait.left() && !done;) ends by itself, but that happens only if something
// hangs.
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
