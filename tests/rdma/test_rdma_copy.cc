// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The copy of a short message to its buffer, while a GPU reads the buffer. NCCL's protocol LL
// writes words of 8 bytes, 4 of data and 4 of a flag, and the GPU reads a word as soon as its flag
// is new. So each word has to appear as a whole: arm64 does not keep the order of two stores.
#include "support/watched_copy.h"

#include <algorithm>
#include <cstring>

extern "C" {
#include "engine/lane.h"
#include "net-pvrdma/rdma_wire.h"

/* Its header, net-pvrdma/rdma_rx.h, is not C++. */
void rdma_copy_out(const struct pvn_event *ev, void *dst);
}

namespace
{

constexpr uint32_t kLine = 16; // two words of LL; every message of LL is a multiple of it

struct Half {
    uint32_t data, flag;
};

// Two processes share it: one copies, the other one watches it after every instruction.
struct Stage {
    alignas(64) short_head lines[SHORT_MAX_LINES];
    alignas(64) Half buffer[SHORT_MAX / sizeof(Half) + 1];
};

uint32_t new_data(size_t i)
{
    return 0x11110000U + static_cast<uint32_t>(i);
}

// The lines of a message of n bytes, as post_line and post_several_lines leave them.
void lay_out(Shared<Stage> &s, uint32_t n)
{
    Half words[SHORT_MAX / sizeof(Half) + 1];
    for (size_t i = 0; i < n / sizeof(Half); i++)
        words[i] = {new_data(i), 0x77777777U};
    const auto *from = reinterpret_cast<const uint8_t *>(words);
    if (n <= SHORT_HEAD_BYTES) {
        memcpy(s->lines[0].data + short_skip(n), from, n);
        return;
    }
    memcpy(s->lines[0].data, from, SHORT_HEAD_BYTES);
    auto *more = reinterpret_cast<short_more *>(&s->lines[1]);
    for (uint32_t at = SHORT_HEAD_BYTES; at < n; at += SHORT_MORE_BYTES, more++)
        memcpy(more->data, from + at, std::min<uint32_t>(SHORT_MORE_BYTES, n - at));
}

// The number of words of the message that are there; EXPECTs that none is there in part.
size_t new_words(Shared<Stage> &s, uint32_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n / sizeof(Half); i++) {
        bool data = s->buffer[i].data == new_data(i), flag = s->buffer[i].flag != 0;
        EXPECT_EQ(data, flag) << "word " << i << " of a message of " << n
                              << " bytes is there in part";
        count += flag;
    }
    return count;
}

TEST(ShortMessage, EveryWordAppearsAsAWhole)
{
    Shared<Stage> s;
    bool may = true;
    for (uint32_t n = kLine; n <= SHORT_MAX && may && !HasFailure(); n += kLine) {
        pvn_event ev = {};
        ev.bytes = n;
        ev.total = n;
        ev.data = s->lines;
        size_t seen = 0, steps = 0;
        lay_out(s, n);
        rdma_copy_out(&ev, s->buffer); // binds memcpy
        memset(static_cast<void *>(s->buffer), 0, sizeof(s->buffer));
        may = watch_copy([&] { rdma_copy_out(&ev, s->buffer); },
                         [&] {
                             size_t now = new_words(s, n);
                             steps += now != seen;
                             seen = now;
                             return !HasFailure();
                         });
        if (!may)
            GTEST_SKIP() << "this process may not trace its children";
        EXPECT_EQ(n / sizeof(Half), seen) << "all of it was copied";
        EXPECT_LT(0U, steps) << "the copy was watched";
    }
}

} // namespace
