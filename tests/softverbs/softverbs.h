/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Control and statistics of softverbs, the libibverbs.so.1 stand-in of the tests. A test finds
 * these functions by dlsym (version SOFTVERBS_1) in the very library that the code under test has
 * loaded. Any thread may call them. README.md describes fault rules and commands.
 */
#ifndef PVN_SOFTVERBS_H
#define PVN_SOFTVERBS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_qp;
struct ibv_cq;
struct ibv_context;

/* Calls and entries since the object was created; for totals, since sv_configure. */
struct sv_stats {
    uint64_t post_send; /* ibv_post_send calls that queued at least one request */
    uint64_t post_recv; /* ibv_post_recv calls that queued at least one request */
    uint64_t poll;      /* ibv_poll_cq calls */
    uint64_t
        poll_empty;   /* those that met an empty ring: they returned fewer entries than requested */
    uint64_t notify;  /* ibv_req_notify_cq calls */
    uint64_t send_wr; /* requests queued by ibv_post_send */
    uint64_t recv_wr; /* requests queued by ibv_post_recv */
    uint64_t cqe;     /* completions put into completion queues */
    uint64_t doorbells; /* device register writes of all this, by the profile's rule */
};

/* softverbs accesses memory given to ibv_reg_mr by these functions. The defaults are for host
 * memory. A test with device memory sets its own before it registers anything. */
struct sv_hooks {
    /* Copies into registered memory. Must make bytes visible in the order of calls. */
    void (*put)(void *dst, const void *src, size_t len);
    /* Copies out of registered memory. */
    void (*get)(void *dst, const void *src, size_t len);
    /* Returns 0, or an errno if [addr, addr + len) cannot be registered (write: also for local
     * writes). */
    int (*pin)(void *addr, size_t len, int write);
    /* Returns monotonic time in ns; any thread may call it. NULL: CLOCK_MONOTONIC. A test with a
     * clock of its own sets it before it opens a device, and runs due timers by the command
     * `timers`. */
    uint64_t (*now)(void);
};
extern struct sv_hooks sv_hooks;

/* Starts again with this configuration: the text of a configuration file, or NULL for the one
 * that the environment names. Devices, rules and totals are reset. EBUSY if a device is open. */
int sv_configure(const char *text);

/* Runs one command. Returns 0 or an errno. reply (may be NULL) gets the answer or the reason, cut
 * to size. */
int sv_command(const char *line, char *reply, size_t size);

/* Runs a command in another process of the fabric directory, by its slot. */
int sv_peer_command(unsigned int slot, const char *line, char *reply, size_t size);

/* Returns this process's number in the fabric: 1 without a directory, 0 before the first device
 * is opened. */
unsigned int sv_slot(void);

/* The number of times that the rule of this name met a candidate, and that it acted. -1: no such
 * rule. */
int64_t sv_rule_seen(const char *name);
int64_t sv_rule_fired(const char *name);

void sv_qp_stats(struct ibv_qp *qp, struct sv_stats *out);
void sv_cq_stats(struct ibv_cq *cq, struct sv_stats *out);
void sv_ctx_stats(struct ibv_context *ctx, struct sv_stats *out);
void sv_total_stats(struct sv_stats *out);

/* Writes a sysfs tree of the devices (class/infiniband, class/infiniband_verbs, class/net,
 * bus/pci/devices) below an existing directory. From then on it keeps the tree's GIDs and port
 * states up to date. Returns 0 or an errno. */
int sv_write_sysfs(const char *root);

#ifdef __cplusplus
}
#endif
#endif
