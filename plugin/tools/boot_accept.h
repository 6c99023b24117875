/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The accepting end of a rendezvous: it listens, and accepts connections whose first message has a
 * known form. Anybody may connect, but a connection that is silent or sends something else delays
 * nobody. One thread. Errors are negative errnos, times are monotonic seconds as from
 * pvn_now_s(). */
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

/* A connection whose first message is not complete. */
struct pvn_boot_newcomer {
    int fd;     /* -1: free */
    size_t got; /* bytes in text */
    double deadline;
    char *text;            /* data received; freed with the connection */
    struct pvn_seal *seal; /* NULL: plain; freed with the connection */
    bool sealed;           /* its handshake is complete, and text arrived encrypted */
    bool stays;            /* enter has called pvn_boot_accept_seal */
};

struct pvn_boot_accept {
    int lfd;
    /* limit of newcomers, at most PVN_BOOT_MAX_NEWCOMERS; beyond it the oldest is closed */
    int max;
    /* Returns the length of a message, as far as the received bytes show it. The message is
     * complete when so many bytes have arrived. -1 if it is not one of ours. */
    long (*length)(void *arg, const struct pvn_boot_newcomer *n);
    /* Called for a complete message. To keep the connection, set n->fd to -1 and n->seal to NULL;
     * otherwise it is closed. */
    void (*enter)(void *arg, struct pvn_boot_newcomer *n);
    /* Called when a handshake has failed; the connection is then closed. NULL if nothing is
     * sealed. */
    void (*unproved)(void *arg, const struct pvn_boot_newcomer *n, const struct pvn_err *err);
    void *arg;
    int dropped; /* connections that sent no valid message */
    struct pvn_boot_newcomer n[PVN_BOOT_MAX_NEWCOMERS];
};

/* Return a non-blocking listening or connected socket, or a negative errno. dial takes at most 5
 * s. */
int pvn_boot_listen(const struct addrinfo *ai);
int pvn_boot_dial(const struct addrinfo *ai, double deadline);

/* Writes the address of the other end, with its port if `port`. */
void pvn_boot_peer(int fd, bool port, char *out, size_t len);

/* Initialises *a. lfd and the fields above `dropped` must be set before. */
void pvn_boot_accept_init(struct pvn_boot_accept *a);
/* Waits at most `seconds` for events and handles them. 0 or a negative errno: -EMFILE if
 * there is no descriptor for a connection, and no newcomer to close for it. */
int pvn_boot_accept_pass(struct pvn_boot_accept *a, double seconds);
/* Writes the reason for such an error, and what to do. Returns out. */
const char *pvn_boot_accept_why(int rc, char *out, size_t len);
/* Called by enter: the connection continues with this stream's handshake, and then a message
 * through the stream, within `seconds`. The newcomer takes ownership of the stream. */
void pvn_boot_accept_seal(struct pvn_boot_newcomer *n, struct pvn_seal *seal, double seconds);
/* Closes listener and newcomers. */
void pvn_boot_accept_close(struct pvn_boot_accept *a);

#ifdef __cplusplus
}
#endif

#endif
