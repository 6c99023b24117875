// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <regex>
extern "C" {
#include "base/version.h"
}

TEST(Version, HasThreeNumbers)
{
    EXPECT_TRUE(std::regex_match(pvn_version(), std::regex("[0-9]+\\.[0-9]+\\.[0-9]+")));
}
