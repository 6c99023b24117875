/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Connections of processes that meet: one end listens, and takes whoever has sent a first message of a form that it
 * knows. Anybody may connect: one that is silent, or sends something else, holds nobody up. One thread; errors
 * are negative errnos, times monotonic seconds as of pvn_now_s(). */
#ifndef PVN_TOOLS_BOOT_ACCEPT_H
#define PVN_TOOLS_BOOT_ACCEPT_H

#include <netdb.h>
#include <stdbool.h>

#include "seal/seal.h"
#include "tools/boot.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_BOOT_MAX_NEWCOMERS 256

/* A connection whose first message has not come as a whole. */
struct pvn_boot_newcomer {
    int fd;     /* -1: free */
    size_t got; /* bytes of text */
    double deadline;
    char *text;            /* what has come; freed with the connection */
    struct pvn_seal *seal; /* NULL: plain; freed with the connection */
    bool sealed;           /* its handshake is over, and text has come through it */
    bool stays;            /* pvn_boot_accept_seal has been called by enter */
};

struct pvn_boot_accept {
    int lfd;
    int max; /* newcomers at a time, PVN_BOOT_MAX_NEWCOMERS at most; of more the oldest is closed */
    /* The length of a message, as far as what has come of it shows; it is whole when as much has come. -1: it is not
     * one of ours. */
    long (*length)(void *arg, const struct pvn_boot_newcomer *n);
    /* It is whole. Who keeps the connection sets n->fd to -1, and n->seal to NULL; it is closed otherwise. */
    void (*enter)(void *arg, struct pvn_boot_newcomer *n);
    /* Its handshake has failed, and it is closed. NULL where nothing is sealed. */
    void (*unproved)(void *arg, const struct pvn_boot_newcomer *n, const struct pvn_err *err);
    void *arg;
    int dropped; /* connections that sent no such message */
    struct pvn_boot_newcomer n[PVN_BOOT_MAX_NEWCOMERS];
};

/* A listening or connected socket, which does not block, or a negative errno. dial takes 5 s at most. */
int pvn_boot_listen(const struct addrinfo *ai);
int pvn_boot_dial(const struct addrinfo *ai, double deadline);

/* The address at the other end, with `port` its port as well. */
void pvn_boot_peer(int fd, bool port, char *out, size_t len);

/* The fields above `dropped` and lfd are set already. */
void pvn_boot_accept_init(struct pvn_boot_accept *a);
/* Waits that many seconds at most for something to happen, and sees to it. 0 or a negative errno. */
int pvn_boot_accept_pass(struct pvn_boot_accept *a, double seconds);
/* Called by enter: the connection goes on with the handshake of this stream, which is the newcomer's from now on, and a
 * message through it, for which it has that many seconds. */
void pvn_boot_accept_seal(struct pvn_boot_newcomer *n, struct pvn_seal *seal, double seconds);
/* Closes listener and newcomers. */
void pvn_boot_accept_close(struct pvn_boot_accept *a);

#ifdef __cplusplus
}
#endif

#endif
