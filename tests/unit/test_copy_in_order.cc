// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The copy to a buffer that a GPU reads meanwhile: the bytes appear in the order of their addresses.
#include "support/watched_copy.h"

#include <algorithm>
#include <cstdint>

extern "C" {
#include "base/copy_in_order.h"
}

namespace
{

constexpr size_t kMost = 2048, kEdge = 128, kWord = 8;

struct Stage {
    alignas(128) uint8_t from[kMost + kEdge], to[kEdge + kMost + 2 * kEdge];
};

// 0 in the buffer means that a byte has not been written.
void fill(Shared<Stage> &s)
{
    for (size_t i = 0; i < sizeof(s->from); i++)
        s->from[i] = static_cast<uint8_t>(1 + i % 251);
    std::fill_n(s->to, sizeof(s->to), 0);
}

// The number of bytes at the start of the copy that are there. EXPECTs that none behind them is.
size_t there(Shared<Stage> &s, size_t at, size_t n)
{
    const uint8_t *to = s->to + at, *end = to + n;
    const uint8_t *missing = std::find(to, end, 0);
    EXPECT_TRUE(std::equal(to, missing, s->from));
    EXPECT_EQ(end, std::find_if(missing, end, [](uint8_t b) { return b != 0; }))
        << "byte " << missing - to << " of " << n << " at " << at << " is missing";
    return static_cast<size_t>(missing - to);
}

TEST(CopyInOrder, CopiesAllBytesAndNoOthers)
{
    Shared<Stage> s;
    for (size_t at = 0; at < kEdge; at++)
        for (size_t n = 0; n <= 3 * kEdge; n++) {
            fill(s);
            pvn_copy_in_order(s->to + kEdge + at, s->from, n);
            EXPECT_EQ(n, there(s, kEdge + at, n));
            size_t written =
                sizeof(s->to) - static_cast<size_t>(std::count(s->to, s->to + sizeof(s->to), 0));
            ASSERT_EQ(n, written) << n << " bytes at " << at;
        }
}

// True if only some bytes of a word are there that the copy covers.
bool tears_a_word(size_t at, size_t seen, size_t n)
{
    size_t word = (at + seen) / kWord * kWord;
    return (at + seen) % kWord != 0 && word >= at && word + kWord <= at + n;
}

TEST(CopyInOrder, BytesAppearInTheOrderOfTheirAddresses)
{
    Shared<Stage> s;
    for (size_t at : {0, 4, 8, 12, 13, 64, 120, 124})
        for (size_t n : {4, 7, 16, 52, 120, 128, 136, 256, 292, 1004, 2048}) {
            size_t seen = 0, steps = 0;
            auto look = [&] {
                size_t now = there(s, at, n);
                EXPECT_FALSE(tears_a_word(at, now, n)) << now << " bytes of " << n << " at " << at;
                steps += now != seen;
                seen = now;
                return !HasFailure();
            };
            fill(s);
            if (!watch_copy([&] { pvn_copy_in_order(s->to + at, s->from, n); }, look))
                GTEST_SKIP() << "this process may not trace its children";
            EXPECT_EQ(n, seen);
            EXPECT_LT(n / 17, steps) << "the copy was watched";
            if (HasFailure())
                return;
        }
}

} // namespace
