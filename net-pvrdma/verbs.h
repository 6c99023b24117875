/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libibverbs, found at run time: one table of functions.
 *
 * Nothing here is linked, so the plugin loads on machines without RDMA. Only functions that every
 * rdma-core since 12 exports are required; what came later (dma-buf registration, 2020; GID table
 * queries, 2020) is optional and NULL where the library lacks it. post_send, post_recv, poll_cq and
 * req_notify_cq are inline functions of <infiniband/verbs.h> that go through the context's own
 * table. Calls that are commands of a device go through verbs_cmd.h.
 */
#ifndef PVN_NET_PVRDMA_VERBS_H
#define PVN_NET_PVRDMA_VERBS_H

#include <infiniband/verbs.h>

#include "base/err.h"

struct pvn_verbs {
    struct ibv_device **(*get_device_list)(int *num);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *dev);
    struct ibv_context *(*open_device)(struct ibv_device *dev);
    int (*close_device)(struct ibv_context *ctx);
    int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);
    void (*ack_async_event)(struct ibv_async_event *ev);
    int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
    /* The exported function, not the header's macro: it fills the fields up to flags' predecessor
     * only, so the structure is zeroed by pvn_verbs_query_port. */
    int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
    int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *arg,
                                struct ibv_comp_channel *ch, int vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*fork_init)(void);
    const char *(*wc_status_str)(enum ibv_wc_status status);
    const char *(*event_type_str)(enum ibv_event_type event);
    /* optional */
    struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned int access); /* needed for relaxed ordering */
    struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access);
    enum ibv_fork_status (*is_fork_initialized)(void);
    /* All rows in use of all ports; how many, or a negative errno. */
    ssize_t (*query_gid_table)(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t max,
                               uint32_t flags, size_t entry_size);
};

#define PVN_VERBS_USUAL "libibverbs.so.1"

/* The access rights of memory that a peer writes and reads. */
enum {
    PVN_RDMA_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* Loads the library (a name or a path; NCCL_PVRDMA_VERBS_LIB's value) once per process and counts
 * its users; later calls get the same table whatever lib says. NULL with *err: which library, what
 * the loader said or which symbol is missing, and of the usual library what to install. Any thread. */
const struct pvn_verbs *pvn_verbs_get(const char *lib, struct pvn_err *err);
/* The last put forgets the table. The library itself stays loaded: its providers cannot be unloaded
 * safely. */
void pvn_verbs_put(void);
/* In a forked child, where another thread of the parent may have held a lock. */
void pvn_verbs_after_fork(void);

/* Whole structure defined, whatever the library is. 0 or a negative errno. */
int pvn_verbs_query_port(const struct pvn_verbs *v, struct ibv_context *ctx, uint8_t port,
                         struct ibv_port_attr *attr);

#endif
