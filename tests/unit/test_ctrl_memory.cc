// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
// The control connection without memory: a frame is queued whole or not at all.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

extern "C" {
#include "connect/ctrl.h"

// The C library's own function, which remains reachable by this name.
void *__libc_realloc(void *p, size_t size);
}

namespace
{
int refused_from = -1; // how many calls of realloc still succeed; -1: all do
}

extern "C" void *realloc(void *p, size_t size)
{
    if (refused_from == 0) {
        errno = ENOMEM;
        return nullptr;
    }
    refused_from -= refused_from > 0;
    return __libc_realloc(p, size);
}

namespace
{

TEST(Ctrl, AFrameIsQueuedWholeOrNotAtAll)
{
    int fd[2];
    pvn_ctrl a, b;
    pvn_frame_type type;
    const uint8_t *body;
    size_t len = 0;
    pvn_err err = PVN_ERR_INIT;
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd));
    pvn_ctrl_init(&a, fd[0]);
    pvn_ctrl_init(&b, fd[1]);
    for (int succeed : {0, 1}) {
        refused_from = succeed;
        EXPECT_EQ(-ENOMEM, pvn_ctrl_put_frame(&a, PVN_FRAME_HELLO, "lost", 4, &err));
        refused_from = -1;
        EXPECT_NE(nullptr, strstr(err.reason[0], "no memory for")) << err.reason[0];
    }
    ASSERT_EQ(0, pvn_ctrl_put_frame(&a, PVN_FRAME_ERROR, "reason", 6, &err));
    ASSERT_EQ(0, pvn_ctrl_flush(&a, &err));
    ASSERT_EQ(1, pvn_ctrl_get(&b, &type, &body, &len, &err));
    EXPECT_EQ(PVN_FRAME_ERROR, type);
    EXPECT_EQ("reason", std::string(reinterpret_cast<const char *>(body), len));
    pvn_ctrl_close(&a);
    pvn_ctrl_close(&b);
}

} // namespace
