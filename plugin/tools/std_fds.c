/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "tools/std_fds.h"

#include <fcntl.h>
#include <unistd.h>

void pvn_std_fds(void)
{
    int fd;

    /* Open /dev/null only for reading, so that writing still fails with EBADF. Children inherit
     * it. */
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}
