/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
// Checks the tables of lane operations, whose initialisers name each member.
#ifndef PVN_TESTS_SUPPORT_WHOLE_TABLE_H
#define PVN_TESTS_SUPPORT_WHOLE_TABLE_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

extern "C" {
#include "engine/lane.h"
}

// Expects that no member is NULL. Member `but` is no operation and is not checked.
template <typename Table> void expect_no_holes(const Table *table, size_t but)
{
    void *member[sizeof(*table) / sizeof(void *)];
    memcpy(member, table, sizeof(*table));
    for (size_t i = 0; i < sizeof(member) / sizeof(*member); i++)
        EXPECT_TRUE(member[i] || i == but)
            << "member " << i << " of " << sizeof(member) / sizeof(*member);
}

// Callers of a bound lane's operation do not check if it exists.
inline void expect_no_holes(const pvn_lane *l)
{
    expect_no_holes(l->ops, offsetof(pvn_lane_ops, is_fallback) / sizeof(void *));
    ASSERT_NE(nullptr, l->data);
    expect_no_holes(l->data, SIZE_MAX);
}

#endif
