/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "net-pvrdma/verbs_cmd.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/fork_fds.h"
#include "base/thread.h"

/* An open context of PVRDMA. */
struct pvrdma {
    struct pvrdma *next;
    struct ibv_context *ctx;
    pthread_mutex_t qps; /* held while a queue pair is created or destroyed */
};

static struct pvn_verbs lib;                                  /* the library's own functions */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER; /* not held during a command */
static struct pvrdma *list;

/* Does not change errno, which the command has set. */
static void restore_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* The pointer to the context's entry, or to the NULL at the list's end. The caller holds list_lock. */
static struct pvrdma **find(const struct ibv_context *ctx)
{
    struct pvrdma **at = &list;

    while (*at && (*at)->ctx != ctx)
        at = &(*at)->next;
    return at;
}

/* Locks the queue pairs of a context of PVRDMA. Returns the lock for unlock_qps; NULL for other contexts. */
static pthread_mutex_t *lock_qps(const struct ibv_context *ctx)
{
    pthread_mutex_lock(&list_lock);
    struct pvrdma *p = *find(ctx);
    pthread_mutex_unlock(&list_lock);
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->qps);
    return &p->qps;
}

static void unlock_qps(pthread_mutex_t *qps)
{
    if (qps)
        pthread_mutex_unlock(qps);
}

/* Has forked children close the descriptors of the device. A child that kept them would keep the queue pairs and the
 * pinned memory of a parent that was killed. A child that is forked while the library opens or closes the descriptors
 * still keeps its copies. */
static void close_in_children(const struct ibv_context *ctx)
{
    pvn_fork_fds_lock();
    pvn_fork_fds_add(ctx->cmd_fd);
    pvn_fork_fds_add(ctx->async_fd);
    pvn_fork_fds_unlock();
}

static void leave_to_children(const struct ibv_context *ctx)
{
    pvn_fork_fds_lock();
    pvn_fork_fds_remove(ctx->cmd_fd);
    pvn_fork_fds_remove(ctx->async_fd);
    pvn_fork_fds_unlock();
}

static struct ibv_context *open_device(struct ibv_device *dev)
{
    sigset_t before = pvn_signals_block();
    struct ibv_context *ctx = lib.open_device(dev);
    if (ctx)
        close_in_children(ctx);
    restore_signals(&before);
    return ctx;
}

static int close_device(struct ibv_context *ctx)
{
    sigset_t before = pvn_signals_block();
    pthread_mutex_lock(&list_lock);
    struct pvrdma **at = find(ctx), *p = *at;
    if (p) {
        *at = p->next;
        pthread_mutex_destroy(&p->qps);
    }
    pthread_mutex_unlock(&list_lock);
    free(p);
    leave_to_children(ctx);
    int rc = lib.close_device(ctx);
    restore_signals(&before);
    return rc;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
    sigset_t before = pvn_signals_block();
    int rc = lib.query_port(ctx, port, attr);
    restore_signals(&before);
    return rc;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
    sigset_t before = pvn_signals_block();
    struct ibv_pd *pd = lib.alloc_pd(ctx);
    restore_signals(&before);
    return pd;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    sigset_t before = pvn_signals_block();
    struct ibv_mr *mr = lib.reg_mr(pd, addr, len, access);
    restore_signals(&before);
    return mr;
}

static struct ibv_mr *reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova,
                                   unsigned int access)
{
    sigset_t before = pvn_signals_block();
    struct ibv_mr *mr = lib.reg_mr_iova2(pd, addr, len, iova, access);
    restore_signals(&before);
    return mr;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                    int fd, int access)
{
    sigset_t before = pvn_signals_block();
    struct ibv_mr *mr = lib.reg_dmabuf_mr(pd, offset, len, iova, fd, access);
    restore_signals(&before);
    return mr;
}

static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *arg,
                                struct ibv_comp_channel *ch, int vector)
{
    sigset_t before = pvn_signals_block();
    struct ibv_cq *cq = lib.create_cq(ctx, cqe, arg, ch, vector);
    restore_signals(&before);
    return cq;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    sigset_t before = pvn_signals_block();
    pthread_mutex_t *qps = lock_qps(pd->context);
    struct ibv_qp *qp = lib.create_qp(pd, attr);
    unlock_qps(qps);
    restore_signals(&before);
    return qp;
}

/* As in close_device, signals are blocked while the lock is held: a handler may call exit, which closes everything and
 * needs the lock. */
static int destroy_qp(struct ibv_qp *qp)
{
    sigset_t before = pvn_signals_block();
    pthread_mutex_t *qps = lock_qps(qp->context);
    int rc = lib.destroy_qp(qp);
    unlock_qps(qps);
    restore_signals(&before);
    return rc;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    sigset_t before = pvn_signals_block();
    int rc = lib.modify_qp(qp, attr, mask);
    restore_signals(&before);
    return rc;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init)
{
    sigset_t before = pvn_signals_block();
    int rc = lib.query_qp(qp, attr, mask, init);
    restore_signals(&before);
    return rc;
}

/* The other functions wait for no answer of the device and are not wrapped: to destroy an object the driver only sends a
 * request, and it answers queries of the device and its GIDs itself. */
void pvn_verbs_cmd_wrap(struct pvn_verbs *table)
{
    lib = *table;
    table->open_device = open_device;
    table->close_device = close_device;
    table->query_port = query_port;
    table->alloc_pd = alloc_pd;
    table->reg_mr = reg_mr;
    table->create_cq = create_cq;
    table->create_qp = create_qp;
    table->destroy_qp = destroy_qp;
    table->modify_qp = modify_qp;
    table->query_qp = query_qp;
    if (lib.reg_mr_iova2)
        table->reg_mr_iova2 = reg_mr_iova2;
    if (lib.reg_dmabuf_mr)
        table->reg_dmabuf_mr = reg_dmabuf_mr;
}

int pvn_verbs_cmd_is_pvrdma(struct ibv_context *ctx)
{
    struct pvrdma *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->ctx = ctx;
    pthread_mutex_init(&p->qps, NULL);
    pthread_mutex_lock(&list_lock);
    p->next = list;
    list = p;
    pthread_mutex_unlock(&list_lock);
    return 0;
}

/* Leaves the entries to the parent and starts with an empty list. */
void pvn_verbs_cmd_after_fork(void)
{
    pthread_mutex_init(&list_lock, NULL);
    list = NULL;
}
