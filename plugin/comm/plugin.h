/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin in this process: one set of parameters, one device table, one poller, shared by all
 * communicators and all versions of NCCL's interface that are in use at the same time.
 *
 * Life: the first init loads, the last finalize unloads. Interfaces before v11 have no finalize, so
 * what they began stays until the process ends (no descriptor, and no memory but the library's
 * own). Comms and listeners count as well: what NCCL has left open at the last finalize keeps
 * working, and goes with the last close. init after that begins anew and reads the environment
 * again.
 *
 * fork: the child of an initialised process gets clear errors for what it inherited, and may init
 * for itself. Nothing is registered with the host process: no exit handler, no fork handler, no
 * signal handler.
 *
 * Threads: any, at any time.
 */
#ifndef PVN_COMM_PLUGIN_H
#define PVN_COMM_PLUGIN_H

#include <stdint.h>

#include "base/err.h"
#include "base/log.h"

/* What one init made: a communicator's (v11 on) or a version's. */
struct pvn_ctx;

struct pvn_init_args {
    int abi; /* version of the interface */
    uint64_t comm_id;
    int traffic_class; /* of the communicator, -1: none */
    pvn_logger_fn logger;
};

/* ctx: NULL for an interface that has neither contexts nor finalize. */
int pvn_plugin_init(const struct pvn_init_args *args, struct pvn_ctx **ctx, struct pvn_err *err);
/* Twice for the same ctx, or for one that is none, is an error; in a child of the process that made
 * it: success. */
int pvn_plugin_finalize(struct pvn_ctx *ctx, struct pvn_err *err);

/* 0, or -EBADFD before init or after the last finalize, -ECHILD in a forked child, with *err. */
int pvn_plugin_ready(struct pvn_err *err);

/* -1: none; also for NULL, the context of versions that have none. */
int pvn_ctx_traffic_class(const struct pvn_ctx *ctx);

/* A comm or a listener exists. The process has its one epoll descriptor while any does.
 * 0 or a negative errno with *err. */
int pvn_plugin_hold(struct pvn_err *err);
void pvn_plugin_release(void);

#endif
