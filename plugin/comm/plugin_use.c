/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The users of the plugin: contexts, comms, connections that are being made, and listeners. When the last has gone,
 * the statistics and the key end. */
#include "config.h"
#include "comm/plugin_priv.h"

#include <errno.h>

#include "base/fork.h"
#include "base/hints.h"
#include "base/poller.h"
#include "seal/seal.h"
#include "seal/seal_begin.h"
#include "stats/stats.h"

struct plugin_state plugin_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void plugin_unload_if_idle(void)
{
    if (!atomic_load(&plugin_state.loaded) || plugin_state.contexts || plugin_state.no_finalize ||
        plugin_state.held)
        return;
    pvn_stats_close();
    pvn_seal_end();
    pvn_seal_forget();
    pvn_log_flush(1);
    atomic_store(&plugin_state.loaded, false);
}

int pvn_plugin_ready(struct pvn_err *err)
{
    if (pvn_forked()) {
        pvn_err_set(err, -ECHILD,
                    "the network plugin was initialised by process %d, of which this is a forked "
                    "child; it has to call init for itself",
                    pvn_fork_parent());
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
        return -ECHILD;
    }
    if (!atomic_load_explicit(&plugin_state.loaded, memory_order_acquire)) {
        pvn_err_set(err, -EBADFD, "the network plugin is not initialised (or was finalized)");
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
        return -EBADFD;
    }
    return 0;
}

int pvn_ctx_traffic_class(const struct pvn_ctx *ctx)
{
    return ctx ? ctx->args.traffic_class : -1;
}

static int get_poller(struct pvn_err *err)
{
    int rc = pvn_poller_get();

    if (rc) {
        pvn_err_set(err, rc, "creating an epoll descriptor");
        pvn_err_set_hint(err, pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_LISTEN, PVN_PAST_ANY));
    }
    return rc;
}

int pvn_plugin_hold(struct pvn_err *err)
{
    int rc;

    pthread_mutex_lock(&plugin_state.lock);
    rc = pvn_plugin_ready(err); /* again: a finalize may have come in between */
    if (rc == 0)
        rc = get_poller(err);
    if (rc == 0)
        plugin_state.held++;
    pthread_mutex_unlock(&plugin_state.lock);
    return rc;
}

void pvn_plugin_release(void)
{
    pthread_mutex_lock(&plugin_state.lock);
    pvn_poller_put();
    plugin_state.held--;
    plugin_unload_if_idle();
    pthread_mutex_unlock(&plugin_state.lock);
}
