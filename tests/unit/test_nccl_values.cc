// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* Constants that came late to NCCL's interface; values.h compares them, and the others, with NCCL's
 * headers where those are installed. */
#include "nccl/values.h"

#include <gtest/gtest.h>

TEST(NcclValues, AddedInTwoThirty)
{
    EXPECT_EQ(4, ours::NCCL_NET_DEVICE_GIN_GPI);
    EXPECT_EQ(2, ours::multi_request);
#ifndef PVN_NCCL_GIN_GPI
    GTEST_SKIP()
        << "no headers of NCCL 2.30 or later are installed to compare them with (tests/nccl/run does it, too)";
#endif
}
