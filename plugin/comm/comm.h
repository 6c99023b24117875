/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * A comm as NCCL knows it: one direction to one peer. It joins the connection (handshake.h), the
 * message engine (engine.h) and the registrations, and decides what an error of one means for the
 * others.
 *
 * Threads: one at a time per comm; NCCL hands a comm from its proxy service thread to the progress
 * thread. There is one exception: reg and dereg of a comm that is up may come from the service
 * thread while the progress thread uses it, because users' buffers are registered so.
 *
 * Errors: every function returns 0 or a negative errno. The reason is in *err, or for a comm's data
 * calls in pvn_comm_err(). Each error was logged once, where it was understood. An error of the
 * comm is latched: every later call returns it. A wrong argument is not latched, because it
 * concerns that call only.
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
    /* The context whose finalize closes the listener, and gives up a connection that is not done.
     * NULL: no finalize closes the listener, and the last one gives up the connection. */
    const void *owner;
    int traffic_class; /* requested by the communicator, -1: none */
    bool lazy; /* connect and accept return early, and the data calls do the rest (NCCL v4) */
};

/* Writes PVN_HANDLE_BYTES to `handle`. */
int pvn_comm_listen(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_listen **out,
                    struct pvn_err *err);
/* 0 with *out NULL: call again with the same handle. Between the calls the cookie in the handle
 * belongs to the plugin. */
int pvn_comm_connect(const struct pvn_comm_cfg *cfg, uint8_t *handle, struct pvn_comm **out,
                     struct pvn_err *err);
int pvn_comm_accept(struct pvn_listen *l, struct pvn_comm **out, struct pvn_err *err);
int pvn_comm_close_listen(struct pvn_listen *l);

/* ptr_type: NCCL_PTR_*. fd: a dma-buf, with the offset in it, or -1. mr may be given to isend,
 * irecv and iflush of this comm only; dereg or close frees it. *err concerns this call only. */
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

/* Frees everything, in whatever state the comm is. Messages whose isend has completed still reach
 * the peer. */
int pvn_comm_close(struct pvn_comm *c);

/* The reason why the last data call failed. Never NULL. */
const struct pvn_err *pvn_comm_err(const struct pvn_comm *c);

/* Closes the listeners of this owner (NULL: all), except those that a call is using. NCCL does not
 * close them if it aborts while connecting. */
void pvn_comm_drop_listeners(const void *owner);
/* In a forked child that initializes the plugin for itself. */
void pvn_comm_after_fork(void);
/* Waits, for 1.5 s at most, until the plugin's threads have freed the connections and listeners of
 * closed comms, and have ended if there are no other comms. unmapping: called while the library is
 * being unmapped. */
void pvn_comm_finish(bool unmapping);

#endif
