/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* mux.c: QEMU's rdmacm-mux protocol. QEMU registers the GIDs of its guest with the mux. A registered GID becomes a
 * symbolic link in the fabric's folder, from the GID to this QEMU's socket. Messages of the connection manager are
 * acknowledged and dropped.
 *
 * Source: QEMU 7.2, contrib/rdmacm-mux/rdmacm-mux.h. */
#define _GNU_SOURCE
#include "pvstand.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MUX_REGISTER, MUX_UNREGISTER, MUX_MAD };
enum { MUX_RESPONSE = 1 };

struct mux_message {
    uint32_t type, op;
    union ibv_gid gid;
    uint32_t error, pad0;
    int32_t len;
    uint32_t pad1;
    uint8_t umad[64 + 256];
};
_Static_assert(sizeof(struct mux_message) == 360, "QEMU's message is 360 bytes");

void stand_gid_link(const union ibv_gid *gid, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/gid-", stand_dir);

    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, size - n, "%02x", gid->raw[i]);
}

static void register_gid(const union ibv_gid *gid, bool add)
{
    static const union ibv_gid zero;
    int slot = -1, have = -1;
    char link[160];

    stand_gid_link(gid, link, sizeof link);
    pthread_mutex_lock(&stand_lock);
    for (int i = 0; i < NGID; i++) {
        if (!memcmp(&stand_gids[i], gid, sizeof *gid))
            have = i;
        else if (slot < 0 && !memcmp(&stand_gids[i], &zero, sizeof zero))
            slot = i;
    }
    unlink(link);
    if (add && have < 0 && slot >= 0)
        stand_gids[slot] = *gid;
    if (add && symlink(stand_self, link))
        perror(link);
    if (!add && have >= 0)
        stand_gids[have] = zero;
    pthread_mutex_unlock(&stand_lock);
    stand_say("%s %s", add ? "registered" : "unregistered", link);
}

static void serve(int fd)
{
    struct mux_message m;
    size_t got = 0;
    ssize_t k;

    while ((k = read(fd, (char *)&m + got, sizeof m - got)) > 0) {
        got += k;
        if (got < sizeof m)
            continue;
        got = 0;
        if (m.op == MUX_REGISTER || m.op == MUX_UNREGISTER)
            register_gid(&m.gid, m.op == MUX_REGISTER);
        m.type = MUX_RESPONSE;
        m.error = 0;
        if (write(fd, &m, sizeof m) != sizeof m)
            return;
    }
}

void *stand_mux_thread(void *listener)
{
    for (;;) {
        int fd = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            continue;
        serve(fd);
        close(fd);
    }
    return NULL;
}
