// SPDX-FileCopyrightText: the nccl-net-pvrdma authors
// SPDX-License-Identifier: Apache-2.0
/* A player for test_cudart: "add_one" adds one to the integer that its argument points at; no other kernel exists. */
#include "nccl/player.h"

#include <string.h>

extern "C" int play_kernel(const char *name, unsigned, unsigned, const void *args, size_t bytes)
{
    if (strcmp(name, "add_one") != 0 || bytes != sizeof(int *))
        return 1;
    int *at;
    memcpy(&at, args, sizeof at);
    ++*at;
    return 0;
}
