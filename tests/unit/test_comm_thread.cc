// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// How a comm recognises the thread that makes its data calls.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

extern "C" {
/* comm_priv.h is C alone. */
struct pvn_comm;
void comm_thread_note(struct pvn_comm *c);
bool comm_thread_is_here(const struct pvn_comm *c);
}

namespace
{

// Memory that is large enough for a struct pvn_comm.
struct Comm {
    alignas(64) char room[1 << 16] = {};
    operator pvn_comm *()
    {
        return reinterpret_cast<pvn_comm *>(room);
    }
};

TEST(CommThread, IsTheOneThatCalledLast)
{
    Comm a, b;
    EXPECT_FALSE(comm_thread_is_here(a));
    comm_thread_note(a);
    EXPECT_TRUE(comm_thread_is_here(a));
    EXPECT_FALSE(comm_thread_is_here(b));
    std::thread([&] {
        EXPECT_FALSE(comm_thread_is_here(a));
        comm_thread_note(a);
        EXPECT_TRUE(comm_thread_is_here(a));
    }).join();
    EXPECT_FALSE(comm_thread_is_here(a));
}

// After a thread has ended, the C library may give its stack and thread-local storage to the next
// one.
TEST(CommThread, IsNotTheNextOneInItsPlace)
{
    Comm c;
    std::thread([&] { comm_thread_note(c); }).join();
    for (int i = 0; i < 8; i++)
        std::thread([&] { EXPECT_FALSE(comm_thread_is_here(c)) << i; }).join();
}

} // namespace
