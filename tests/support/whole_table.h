/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// The tables of lane operations, which name their members one by one.
#ifndef PVN_TESTS_SUPPORT_WHOLE_TABLE_H
#define PVN_TESTS_SUPPORT_WHOLE_TABLE_H

#include <gtest/gtest.h>

#include <cstring>

extern "C" {
#include "engine/lane.h"
}

// Nobody who calls an operation looks for it first.
inline void expect_no_holes(const pvn_lane_ops *ops)
{
    void *member[sizeof(*ops) / sizeof(void *)];
    memcpy(member, ops, sizeof(*ops));
    for (size_t i = 0; i < sizeof(member) / sizeof(*member); i++)
        EXPECT_TRUE(member[i] || i == offsetof(pvn_lane_ops, is_fallback) / sizeof(void *))
            << "member " << i << " of " << sizeof(member) / sizeof(*member);
}

#endif
