/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin in this process: one set of parameters, one device table, one poller, shared by all
 * communicators and all versions of NCCL's interface that are in use at the same time.
 *
 * Life: the first init loads parameters and devices, which then stay while the library is mapped,
 * see device.h. The last finalize ends the statistics. A finalize closes its context's listeners
 * and unfinished connections, which NCCL leaves open when it aborts while connecting. Interfaces
 * before v11 have neither contexts nor finalize: nobody says which communicator a listener was for,
 * or that one has ended. So there all this happens when the library is unmapped or the process
 * exits. Comms that are open at the last finalize work until they are closed. If comms are open
 * when the library is unmapped or the process exits, everything is left alone, because other
 * threads may be using it.
 *
 * fork: the child of an initialised process gets clear errors for objects that it inherited, and
 * may init for itself. The parent's objects are forgotten there, never destroyed, and no copy of
 * its connections stays open (base/fork_fds.h). The plugin changes nothing else in the host
 * process: it registers no exit handler and no signal handler; the library has a destructor.
 *
 * Threads: any, at any time.
 */
#ifndef PVN_COMM_PLUGIN_H
#define PVN_COMM_PLUGIN_H

#include "base/err.h"
#include "base/log.h"

/* A context, made by one init: that of a communicator (v11 on) or of an interface version. */
struct pvn_ctx;

struct pvn_init_args {
    int abi;           /* version of the interface */
    int traffic_class; /* of the communicator, -1: none */
    pvn_logger_fn logger;
};

/* ctx: NULL for an interface that has neither contexts nor finalize. */
int pvn_plugin_init(const struct pvn_init_args *args, struct pvn_ctx **ctx, struct pvn_err *err);
/* An error if ctx is no context, or was finalized before. NULL succeeds, because NCCL has it after
 * an init that failed. In a forked child of the process that made it, any ctx succeeds. */
int pvn_plugin_finalize(struct pvn_ctx *ctx, struct pvn_err *err);

/* Keeps the library mapped when NCCL closes it. NCCL 2.24 and 2.25 (interfaces v9 and v10)
 * remember how many devices they have joined, and request these from a plugin that they have
 * loaded again. */
void pvn_plugin_stay_mapped(void);

/* 0; -EBADFD before init or after the last finalize; -ECHILD in a forked child; the latter two with
 * *err. */
int pvn_plugin_ready(struct pvn_err *err);

/* -1: none; also for ctx NULL, in versions without contexts. */
int pvn_ctx_traffic_class(const struct pvn_ctx *ctx);

/* hold: a comm, a connection that is being made, or a listener exists; 0 or a negative errno with *err, as
 * pvn_plugin_ready. release: it has ended. While any exists, the process keeps its epoll descriptor, its key and its
 * statistics, also after the last finalize. */
int pvn_plugin_hold(struct pvn_err *err);
void pvn_plugin_release(void);

#endif
