/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: bytes from a peer on the control connection. They go to a listening end (first
 * byte even), or to a connecting end (odd) that has sent its own part; bits 1 and 2 of the first
 * byte say whether both ends request failover and may be shared. For any input, the end waits,
 * fails with a reason or comes up, and it releases everything. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect/conn_priv.h"
#include "connect/handshake.h"
#include "fuzz/fuzz.h"
#include "fuzz/hex.h"
#include "support/memlane.h"

#define SESSION UINT64_C(0x4242424242424242)

static struct pvn_conn *begin(struct pvn_device *dev, uint8_t how, int fd)
{
    struct pvn_conn_cfg cfg = {.sender = how & 1,
                               .dev = dev,
                               .nports = 1,
                               .port = {dev},
                               .session = SESSION,
                               .nonce = 7,
                               .failover = how & 2,
                               .shared = how & 4,
                               .traffic_class = -1};
    struct pvn_conn *c;

    cfg.peer.ss_family = AF_INET;
    cfg.peer_features = pvn_conn_features(false, cfg.failover, cfg.shared, false);
    if (!cfg.sender)
        return pvn_conn_accepted(&cfg, fd);
    c = pvn_conn_new(&cfg);
    conn_goto(c, PVN_CONN_DIAL);
    pvn_ctrl_init(&c->ctrl, fd);
    conn_goto(c, PVN_CONN_HELLO);
    c->redials = 100; /* nobody can be dialled again */
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pvn_device dev = {.name = "mem0", .nvia = 1, .via = {{&pvn_mem_transport, 0}}};
    struct pvn_conn *c;
    size_t n, done = 1, i;
    uint8_t *bytes = fuzz_bytes(data, size, &n);
    int sv[2], rc = -EAGAIN;

    if (n < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv) != 0) {
        free(bytes);
        return 0;
    }
    c = begin(&dev, bytes[0], sv[0]);
    /* Sends the input in two parts, so that frames are split. */
    for (i = 0; i < 2 && rc == -EAGAIN; i++) {
        size_t part = i ? n - done : (n - done) / 2;

        if (part && send(sv[1], bytes + done, part, MSG_NOSIGNAL) != (ssize_t)part)
            break;
        done += part;
        rc = pvn_conn_step(c);
        if (rc == -EAGAIN)
            rc = pvn_conn_step(c);
    }
    shutdown(sv[1], SHUT_WR);
    if (rc == -EAGAIN)
        rc = pvn_conn_step(c);
    if (rc == 0)
        fuzz_require(c->state == PVN_CONN_UP && c->nlanes >= 1 && c->hello_seen && c->ready_seen,
                     "up with lanes, after a whole handshake");
    else
        fuzz_require(c->state == PVN_CONN_FAILED && c->err.code == rc && c->err.reason[0][0],
                     "the end of the stream fails what is not up, with a reason");
    pvn_conn_close(c, "over");
    fuzz_require(pvn_memlane_open == 0, "no lane is left");
    fuzz_require(fcntl(sv[0], F_GETFD) == -1 && errno == EBADF, "the socket is closed");
    close(sv[1]);
    free(bytes);
    return 0;
}
