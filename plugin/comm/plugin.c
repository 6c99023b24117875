/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/plugin_priv.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/comm_pending.h"
#include "comm/device.h"
#include "base/addr.h"
#include "base/fork.h"
#include "base/fork_fds.h"
#include "comm/placement.h"
#include "base/param.h"
#include "base/poller.h"
#include "seal/key.h"
#include "seal/seal.h"
#include "seal/seal_begin.h"
#include "stats/stats.h"
#include "base/version.h"

/* Runs at dlclose or at the end of the process. The logger may be gone already. For versions
 * without finalize it also closes the listeners and connections that NCCL left open when it aborted
 * while connecting. */
__attribute__((destructor)) static void unmap(void)
{
    if (pvn_forked())
        return;
    pvn_log_set_logger(NULL);
    pvn_comm_drop_listeners(NULL);
    comm_pending_drop(NULL);
    pvn_comm_finish(true);
    /* If another thread holds the lock, it uses the plugin. */
    if (pthread_mutex_trylock(&plugin_state.lock) != 0)
        return;
    if (plugin_state.held == 0) {
        pvn_stats_close();
        pvn_devices_unload();
        pvn_seal_end(); /* OpenSSL's own exit handler may have run */
        pvn_params_unload();
    }
    pthread_mutex_unlock(&plugin_state.lock);
}

/* A child begins with nothing of its parent's: no device, no descriptor, no context. */
static void start_afresh(void)
{
    /* Another thread of the parent may have held the lock. */
    pthread_mutex_init(&plugin_state.lock, NULL);
    plugin_state.contexts = NULL;
    plugin_state.no_finalize = false;
    plugin_state.held = 0;
    atomic_store(&plugin_state.loaded, false);
    pvn_fork_fds_after_fork();
    pvn_comm_after_fork();
    pvn_poller_after_fork();
    pvn_stats_after_fork();
    pvn_devices_after_fork();
    pvn_seal_end();
    pvn_seal_after_fork();
    pvn_params_after_fork();
}

static void print_key(void)
{
    bool control = pvn_params_get()->encrypt == PVN_ENCRYPT_CONTROL;
    const char *why = pvn_seal_kernel_refusal();
    char text[PVN_KEY_TEXT];

    pvn_info(
        PVN_INIT | PVN_NET,
        "key: both ends of each connection prove NCCL_PVRDMA_KEY_FILE (%s, %s); control connections "
        "are sealed, %s",
        pvn_key_describe(pvn_seal_key(), text),
        pvn_seal_is_file_watched() ? "read again when a connection is lost"
                                   : "read once, for its file system may block",
        control ? "data are not" : "and so are data over TCP; data over RDMA are not");
    if (!control && pvn_params_get()->kernel_tls)
        pvn_info(PVN_INIT | PVN_NET, "data over TCP are sealed by %s%s",
                 why ? "OpenSSL, not by the kernel: " : "the kernel", why ? why : "");
}

static void banner(int abi)
{
    int i, n = pvn_devices_count();
    char text[512];
    Dl_info info;

    pvn_info(PVN_INIT | PVN_NET, "nccl-net-pvrdma %s (interface v%d) from %s: %d device%s",
             pvn_version(), abi,
             dladdr(&plugin_state.loaded, &info) && info.dli_fname ? info.dli_fname : "?", n,
             n == 1 ? "" : "s");
    for (i = 0; i < n; i++)
        pvn_info(PVN_INIT | PVN_NET, "device %d: %s", i,
                 pvn_device_describe(pvn_device_get(i), text, sizeof(text)));
    if (pvn_seal_key())
        print_key();
    if (pvn_devices_left_out()[0])
        pvn_info(PVN_INIT | PVN_NET, "not used: %s", pvn_devices_left_out());
    pvn_placement_log();
    if (pvn_stats_path()[0])
        pvn_info(PVN_INIT | PVN_NET, "statistics for pvn-topo stat: %s", pvn_stats_path());
    if (n == 0)
        pvn_warn("found no usable network device: %s; NCCL will use another transport%s",
                 pvn_devices_left_out()[0] ? pvn_devices_left_out() : "there is none",
                 pvn_params_get()->key_file[0] ? ", without a key" : "");
}

/* Writes the addresses of all devices to the statistics, or none if there are too many. */
static void publish_addresses(void)
{
    char list[sizeof(((struct pvn_stat_head *)NULL)->addrs)] = "", addr[PVN_ADDR_TEXT_LEN];
    size_t len = 0;

    for (int i = 0; i < pvn_devices_count(); i++) {
        const struct pvn_device *d = pvn_device_get(i);

        for (int k = -1; k < d->nmore; k++) {
            pvn_addr_format_host((const struct sockaddr *)(k < 0 ? &d->addr : &d->more[k].addr),
                                 addr, sizeof(addr));
            len = pvn_str_append(list, sizeof(list), " %s", addr);
        }
    }
    pvn_stats_addresses(len < sizeof(list) - 1 ? list : "");
}

static int load(int abi, struct pvn_err *err)
{
    struct pvn_err refused = PVN_ERR_INIT;
    int rc = pvn_fork_mark();

    if (rc)
        return pvn_err_set(err, rc, "a page of memory for the fork mark");
    rc = pvn_params_load(err);
    if (rc)
        return rc;
    if (pvn_seal_begin(pvn_params_get(), &refused) != 0)
        pvn_seal_warn_refusal(); /* and comms are refused, see seal_begin.h */
    rc = pvn_devices_load(err);
    if (rc) {
        pvn_seal_end();
        pvn_seal_forget();
        pvn_params_unload();
        return rc;
    }
    atomic_store(&plugin_state.loaded, true);
    pvn_stats_open(abi);
    publish_addresses();
    banner(abi);
    return 0;
}

void pvn_plugin_stay_mapped(void)
{
    Dl_info info;

    if (!dladdr(&plugin_state, &info) || !info.dli_fname ||
        !dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
        pvn_info(PVN_INIT | PVN_NET, "the library may be unmapped with joined devices: %s",
                 dlerror());
}

int pvn_plugin_init(const struct pvn_init_args *args, struct pvn_ctx **out, struct pvn_err *err)
{
    struct pvn_ctx *ctx = NULL;
    int rc = 0;

    if (out)
        *out = NULL;
    if (pvn_forked())
        start_afresh();
    pvn_log_set_logger(args->logger);
    if (out) {
        ctx = calloc(1, sizeof(*ctx));
        if (!ctx)
            return pvn_err_set(err, -ENOMEM, "no memory for a context");
        ctx->args = *args;
    }
    pthread_mutex_lock(&plugin_state.lock);
    if (!atomic_load(&plugin_state.loaded))
        rc = load(args->abi, err);
    if (rc == 0) {
        if (ctx) {
            ctx->next = plugin_state.contexts;
            plugin_state.contexts = ctx;
            *out = ctx;
        } else {
            plugin_state.no_finalize = true;
        }
    }
    pthread_mutex_unlock(&plugin_state.lock);
    if (rc)
        free(ctx);
    return rc;
}

int pvn_plugin_finalize(struct pvn_ctx *ctx, struct pvn_err *err)
{
    struct pvn_ctx **at;

    if (!ctx || pvn_forked())
        return 0;
    pthread_mutex_lock(&plugin_state.lock);
    for (at = &plugin_state.contexts; *at && *at != ctx; at = &(*at)->next)
        ;
    if (!*at) {
        pthread_mutex_unlock(&plugin_state.lock);
        pvn_err_set(err, -EINVAL,
                    "finalize: %p is no context of this plugin, or was finalized before",
                    (void *)ctx);
        pvn_err_set_fault(err, PVN_FAULT_ARGUMENT);
        return err->code;
    }
    *at = ctx->next;
    plugin_state.held++; /* this call itself, so that nothing is unloaded meanwhile */
    pthread_mutex_unlock(&plugin_state.lock);
    pvn_comm_drop_listeners(ctx); /* each releases its hold of the plugin */
    comm_pending_drop(ctx);       /* likewise */
    pvn_comm_finish(false);       /* waits for threads that those no longer need */
    pthread_mutex_lock(&plugin_state.lock);
    plugin_state.held--;
    free(ctx);
    if (!plugin_state.contexts)
        pvn_devices_hide_virtual();
    if (!plugin_state.contexts && plugin_state.held)
        pvn_info(
            PVN_NET,
            "finalize with %d comms, listeners or connects of others still open: they work until they are closed",
            plugin_state.held);
    plugin_unload_if_idle();
    pthread_mutex_unlock(&plugin_state.lock);
    return 0;
}
