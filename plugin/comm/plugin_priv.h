/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by plugin.c (init, finalize, fork) and plugin_use.c (what uses the plugin). */
#ifndef PVN_COMM_PLUGIN_PRIV_H
#define PVN_COMM_PLUGIN_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "comm/plugin.h"

struct pvn_ctx {
    struct pvn_ctx *next;
    struct pvn_init_args args;
};

struct plugin_state {
    pthread_mutex_t lock; /* all below; `loaded` is read without it, too */
    struct pvn_ctx *contexts;
    bool no_finalize; /* a version without finalize has called init */
    int held;         /* comms, connections that are being made, listeners, worker threads */
    atomic_bool loaded;
};

extern struct plugin_state plugin_state;

/* Ends the statistics and the key if nobody uses the plugin. The caller holds the lock. */
void plugin_unload_if_idle(void);

#endif
