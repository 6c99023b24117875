/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/boot_line.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "seal/sockio.h"

static const struct pvn_sockio *io(const struct pvn_boot_line *l)
{
    return l->seal ? &pvn_sockio_sealed : &pvn_sockio_plain;
}

/* Waits until the deadline for events on the line. 0, also after a wait without events, or a
 * negative errno. */
static int await(const struct pvn_boot_line *l, short events, double deadline)
{
    struct pollfd p = {.fd = l->fd, .events = events};
    double left = deadline - pvn_now_s();

    if (left <= 0)
        return -ETIMEDOUT;
    if (poll(&p, 1, left > 0.1 ? 100 : (int)(left * 1000) + 1) < 0 && errno != EINTR)
        return -errno;
    return 0;
}

int pvn_boot_line_send(const struct pvn_boot_line *l, const void *data, size_t len, double deadline)
{
    const char *p = data;

    while (len) {
        ssize_t n = pvn_sockio_send(io(l), l->fd, l->seal, p, len);

        if (n == -EAGAIN)
            n = await(l, POLLOUT, deadline);
        if (n < 0)
            return n == -EPIPE ? -ECONNRESET : (int)n;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

int pvn_boot_line_recv(const struct pvn_boot_line *l, void *data, size_t len, double deadline)
{
    char *p = data;

    while (len) {
        ssize_t n = pvn_sockio_recv(io(l), l->fd, l->seal, p, len);
        int rc = n == -EAGAIN ? await(l, POLLIN, deadline) : n == 0 ? -ECONNRESET : (int)n;

        if (rc < 0)
            return rc;
        if (n > 0) {
            p += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

int pvn_boot_line_shake(const struct pvn_boot_line *l, double deadline, struct pvn_err *err)
{
    for (;;) {
        int rc = pvn_seal_handshake(l->seal, err);

        if (rc == -EAGAIN)
            rc = await(l, POLLIN, deadline);
        else
            return rc;
        if (rc)
            return pvn_err_set(err, rc, "the peer did not prove the key");
    }
}

void pvn_boot_line_close(struct pvn_boot_line *l)
{
    pvn_seal_free(l->seal);
    l->seal = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
