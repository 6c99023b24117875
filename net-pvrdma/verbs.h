/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libibverbs, loaded at run time: one table of functions.
 *
 * The plugin does not link libibverbs, so it loads on machines without RDMA. Required are only functions that
 * every rdma-core since version 12 exports. Later ones (dma-buf registration, 2020; GID table queries, 2020)
 * are optional, and NULL if the library lacks them. post_send, post_recv, poll_cq and req_notify_cq are
 * inline functions of <infiniband/verbs.h>, which use the context's own table. Functions that send a command
 * to the device are wrapped by verbs_cmd.h.
 */
#ifndef PVN_NET_PVRDMA_VERBS_H
#define PVN_NET_PVRDMA_VERBS_H

#include <infiniband/verbs.h>
#include <sys/types.h>

#include "base/err.h"

/* A row of query_gid_table: struct ibv_gid_entry, which headers before rdma-core 32 lack. */
struct pvn_verbs_gid_entry {
    union ibv_gid gid;
    uint32_t gid_index;
    uint32_t port_num;
    uint32_t gid_type;
    uint32_t ndev_ifindex;
};

/* A result of is_fork_initialized: IBV_FORK_DISABLED, which headers before rdma-core 35 lack. */
enum { PVN_VERBS_FORK_DISABLED = 0 };

struct pvn_verbs {
    struct ibv_device **(*get_device_list)(int *num);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *dev);
    struct ibv_context *(*open_device)(struct ibv_device *dev);
    int (*close_device)(struct ibv_context *ctx);
    int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *ev);
    void (*ack_async_event)(struct ibv_async_event *ev);
    int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
    /* The exported function, not the header's macro. It fills in only the fields before `flags`, so
     * pvn_verbs_query_port zeroes the structure first. */
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
    int (*is_fork_initialized)(void);
    /* Reads the rows in use of all ports. Returns their number or a negative errno. */
    ssize_t (*query_gid_table)(struct ibv_context *ctx, struct pvn_verbs_gid_entry *entries,
                               size_t max, uint32_t flags, size_t entry_size);
};

#define PVN_VERBS_USUAL "libibverbs.so.1"

/* Access rights of memory that a peer writes or reads. */
enum {
    PVN_RDMA_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* Takes a reference to the table. The first reference loads the library `lib`, a name or a path
 * (NCCL_PVRDMA_VERBS_LIB); later calls ignore `lib`. On failure returns NULL with *err: the library, the
 * loader's message or the missing symbol, and for the usual library what to install. May be called from any
 * thread. */
const struct pvn_verbs *pvn_verbs_get(const char *lib, struct pvn_err *err);
/* Drops a reference. After the last one the next get loads a library again. The old library stays loaded,
 * because its providers cannot be unloaded safely. */
void pvn_verbs_put(void);
/* Called in a forked child: resets the locks, which another thread of the parent may have held. */
void pvn_verbs_after_fork(void);

/* Like ibv_query_port, but sets the whole structure with every version of the library. 0 or a negative
 * errno. */
int pvn_verbs_query_port(const struct pvn_verbs *v, struct ibv_context *ctx, uint8_t port,
                         struct ibv_port_attr *attr);

#endif
