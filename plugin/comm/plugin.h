/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin in this process: one set of parameters, one device table, one poller, shared by all
 * communicators and all versions of NCCL's interface that are in use at the same time.
 *
 * Life: the first init loads parameters and devices, which then stay as long as the library is
 * mapped, see device.h. The last finalize ends the statistics. A finalize closes its context's
 * listeners and unfinished connections, which NCCL leaves open when it aborts while connecting.
 * Interfaces before v11 have neither contexts nor finalize: nobody says which communicator a
 * listener was for, or that one has ended, so there all this happens when the library is unmapped
 * or the process exits. Comms that are open at the last finalize keep working until they are
 * closed. With comms open, what is there when the library is unmapped or the process exits is left
 * alone, since other threads may be using it.
 *
 * fork: the child of an initialised process gets clear errors for what it inherited, and may init
 * for itself; the parent's objects are forgotten there, never destroyed, and of its connections no copy stays open
 * there (base/fork_fds.h). Of the host process nothing is changed but that: no exit handler and no signal handler
 * is registered; the library has a destructor.
 *
 * Threads: any, at any time.
 */
#ifndef PVN_COMM_PLUGIN_H
#define PVN_COMM_PLUGIN_H

#include <stdint.h>

#include "base/err.h"
#include "base/log.h"

/* A context, made by one init: a communicator's (v11 on) or a version's. */
struct pvn_ctx;

struct pvn_init_args {
    int abi; /* version of the interface */
    uint64_t comm_id;
    int traffic_class; /* of the communicator, -1: none */
    pvn_logger_fn logger;
};

/* ctx: NULL for an interface that has neither contexts nor finalize. */
int pvn_plugin_init(const struct pvn_init_args *args, struct pvn_ctx **ctx, struct pvn_err *err);
/* Twice for the same ctx, or for one that is none, is an error. Success: NULL, which is what NCCL has after
 * an init that failed, and in a child of the process that made it. */
int pvn_plugin_finalize(struct pvn_ctx *ctx, struct pvn_err *err);

/* The library stays mapped when NCCL closes it. NCCL 2.24 and 2.25 (interfaces v9 and v10) remember how many
 * devices they have joined, and ask for these of a plugin that they have loaded again. */
void pvn_plugin_stay_mapped(void);

/* 0, or -EBADFD before init or after the last finalize, -ECHILD in a forked child, with *err. */
int pvn_plugin_ready(struct pvn_err *err);

/* -1: none; also for NULL, the context of versions that have none. */
int pvn_ctx_traffic_class(const struct pvn_ctx *ctx);

/* A comm or a listener exists. The process has its one epoll descriptor while any does.
 * 0 or a negative errno with *err. */
int pvn_plugin_hold(struct pvn_err *err);
void pvn_plugin_release(void);

#endif
