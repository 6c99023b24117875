/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvstand-ctl: sends one command to a PVRDMA stand-in and prints the answer.
 *   pvstand-ctl SOCKET COMMAND     commands: see control.c
 * Exit status 0 if the answer came within ten seconds. */
#define _GNU_SOURCE
#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX}, self = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = 10};
    static char answer[1 << 16];
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    ssize_t k;

    if (argc != 3)
        errx(2, "usage: pvstand-ctl SOCKET COMMAND");
    if (snprintf(to.sun_path, sizeof to.sun_path, "%s", argv[1]) >= (int)sizeof to.sun_path)
        errx(2, "%s: too long for a Unix socket", argv[1]);
    /* A bind with the family alone assigns an unused abstract name, to which the answer is sent. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof self.sun_family) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit))
        err(1, "socket");
    if (sendto(fd, argv[2], strlen(argv[2]), 0, (struct sockaddr *)&to, sizeof to) < 0)
        err(1, "%s", argv[1]);
    k = recv(fd, answer, sizeof answer - 1, 0);
    if (k < 0)
        err(1, "no answer");
    answer[k] = 0;
    puts(answer);
    return 0;
}
