/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm as NCCL knows it: one direction to one peer. It joins the connection (handshake.h), the
 * message engine (engine.h) and the registrations, and decides what an error of one means for the
 * others.
 *
 * Threads: one at a time per comm; NCCL hands it from its proxy service thread to the progress
 * thread. Only reg and dereg of a comm that is up may come from the one while the other uses it:
 * users' buffers are registered so.
 *
 * Errors: every function returns 0 or a negative errno and leaves the reason in *err, or for a
 * comm's data calls in pvn_comm_err(). Each was printed once, where it was understood. An error of
 * the comm is latched: every later call returns it. A wrong argument is not: it concerns that call
 * only.
 *
 * In a forked child a comm of the parent answers every call with an error, except close, which
 * leaves the parent's sockets and memory alone and succeeds.
 */
#ifndef PVN_COMM_COMM_H
#define PVN_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct pvn_listen;
struct pvn_comm;
struct pvn_comm_mr;

struct pvn_comm_cfg {
    int dev; /* index in the device table */
    /* Whose finalize closes the listener, and gives up a connection that is not done; NULL: nobody's
     * closes the listener, the last one gives up the connection. */
    const void *owner;
    int traffic_class; /* that the communicator asks for, -1: none */
    bool lazy;         /* connect and accept return early, the transfers do the rest (NCCL v4) */
};

/* handle: PVN_HANDLE_BYTES are written. */
int pvn_comm_listen(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_listen **out,
                    struct pvn_err *err);
/* *out NULL and 0: call again with the same handle. The cookie in the handle is ours between the
 * calls. */
int pvn_comm_connect(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_comm **out,
                     struct pvn_err *err);
int pvn_comm_accept(struct pvn_listen *l, struct pvn_comm **out, struct pvn_err *err);
int pvn_comm_close_listen(struct pvn_listen *l);

/* ptr_type: NCCL_PTR_*. fd: a dma-buf and its offset, or -1. mr may be given to isend, irecv and
 * iflush of this comm only, and is freed by dereg or by close. *err: of this call. */
int pvn_comm_reg(struct pvn_comm *c, void *data, size_t size, int ptr_type, int fd, uint64_t offset,
                 struct pvn_comm_mr **mr, struct pvn_err *err);
int pvn_comm_dereg(struct pvn_comm *c, struct pvn_comm_mr *mr, struct pvn_err *err);

/*
 * The data calls. isend, irecv and test return an enum pvn_result, iflush 0 or a negative errno.
 *
 * n        at most PVN_MAX_RECVS
 * handle   NCCL's, for its profiler; handles: NULL, or as many as buffers
 * *request NULL with success: call again; after iflush: there is nothing to wait for
 * *done    0, or 1 with one size per buffer of the request in sizes, which may be NULL
 */
int pvn_comm_isend(struct pvn_comm *c, const void *data, size_t size, int tag,
                   const struct pvn_comm_mr *mr, void *handle, void **request);
int pvn_comm_irecv(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                   const int *tags, void *const *mrs, void *const *handles, void **request);
int pvn_comm_test(void *request, int *done, int *sizes);
int pvn_comm_iflush(struct pvn_comm *c, int n, void *const *data, const size_t *sizes,
                    void *const *mrs, void **request);

/* Frees everything, in whatever state the comm is. What isend has
 * completed still reaches the peer. */
int pvn_comm_close(struct pvn_comm *c);

/* Why the last data call failed. Never NULL. */
const struct pvn_err *pvn_comm_err(const struct pvn_comm *c);

/* Closes the listeners of this owner, NULL: all, except those that a call is using. NCCL, when it
 * aborts while connecting, does not. */
void pvn_comm_drop_listeners(const void *owner);
/* In a child that starts afresh. */
void pvn_comm_after_fork(void);
/* Waits, for 1 s at most, until the plugin's thread has given up what belonged to closed comms, and
 * ends if there are no others. unmapping: called while the library is being unmapped. */
void pvn_comm_finish(bool unmapping);

#endif
