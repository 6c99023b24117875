/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "comm/comm_priv.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/hints.h"
#include "base/log.h"
#include "memory/gpucopy.h"
#include "nccl/types.h"

static const char *kind_name(int ptr_type)
{
    return ptr_type == NCCL_PTR_HOST ? "host" : ptr_type == NCCL_PTR_CUDA ? "GPU" : "dma-buf";
}

static void say_copied(struct pvn_comm_mr *m)
{
    struct pvn_comm *c = m->comm;

    if (c->mem.said_copied)
        return;
    c->mem.said_copied = true;
    pvn_warn(
        "%s %s %s: this connection uses TCP, which cannot reach GPU memory by itself: it is copied "
        "through host memory, which is slower",
        c->link.conn->where, c->link.sender ? "to" : "from", c->link.conn->who);
}

enum { GPU_REACH = PVN_LANE_GPU_PEER | PVN_LANE_GPU_DMABUF };

/* True if GPU memory of this comm may have to go through host memory, now or after a failover. */
static bool may_be_copied(const struct pvn_comm *c)
{
    return !c->engine || pvn_conn_failover(c->link.conn) ||
           !(c->link.conn->lane[0]->caps & GPU_REACH);
}

/* NCCL's descriptor of GPU memory, which NCCL closes when regMrDmaBuf returns; fd -1: none. Lanes
 * that come later, by a failover, export one by themselves, because one kept for each buffer would
 * use up those that a process may have. Theirs is of the mapping that the trial at the start has
 * proved, even if NCCL's was forced through PCIe. */
struct dmabuf {
    int fd;
    uint64_t offset;
};

/* Registers memory with one lane. A comm that fell back to TCP may have no access to memory that
 * its device has promised to reach. */
static int register_with(struct pvn_comm_mr *m, struct pvn_lane *l, struct dmabuf from,
                         struct pvn_err *err)
{
    m->mr.copy = NULL;
    if (m->mr.ptr_type != NCCL_PTR_HOST && !(l->caps & GPU_REACH)) {
        if (l->caps & PVN_LANE_GPU_COPIED)
            m->mr.copy = pvn_gpucopy_of(m->mr.addr, err);
        if (!m->mr.copy) {
            pvn_err_add(err,
                        "this connection fell back to %s, which cannot reach GPU memory by itself; "
                        "NCCL_PVRDMA_GPU_MEM=off lets NCCL stage in host memory everywhere",
                        l->ops->name);
            pvn_err_set_fault(err, PVN_FAULT_USAGE);
            return err->code ? err->code : -EOPNOTSUPP;
        }
        say_copied(m);
    }
    return l->ops->mem_reg(l, &m->mr, from.fd, from.offset, err);
}

/* Registers memory with every lane of the connection, or with none. */
static int attach(struct pvn_conn *conn, struct pvn_comm_mr *m, struct dmabuf from,
                  struct pvn_err *err)
{
    int i;

    for (i = 0; i < conn->nlanes; i++) {
        struct pvn_lane *l = conn->lane[i];
        int rc = register_with(m, l, from, err);

        /* -EOPNOTSUPP for host memory: a lane that needs no registration */
        if (rc == 0 || (rc == -EOPNOTSUPP && m->mr.ptr_type == NCCL_PTR_HOST)) {
            pvn_err_clear(err);
            continue;
        }
        comm_mr_detach_some(m, conn, i);
        if (err->code == 0)
            pvn_err_set(err, rc, "lane %d (%s) refused the memory", i, l->ops->name);
        pvn_err_add(err, "registering %zu bytes of %s memory at %p", m->mr.len,
                    kind_name(m->mr.ptr_type), m->mr.addr);
        if (err->hint == 0)
            pvn_err_set_hint(err,
                             pvn_hint_id_find(PVN_HINT_ERRNO, rc, PVN_PHASE_REG, PVN_PAST_ANY));
        return rc;
    }
    m->on = conn;
    return 0;
}

int comm_mr_attach_all(struct pvn_comm *c, struct pvn_conn *conn, struct pvn_err *err)
{
    const struct dmabuf none = {.fd = -1};
    struct pvn_comm_mr *m;
    int rc = 0;

    for (m = c->mem.mrs; m && rc == 0; m = m->next) {
        if (m->on == conn)
            continue;
        comm_mr_detach(m);
        rc = attach(conn, m, none, err);
    }
    if (rc == 0)
        c->mem.taker = conn;
    return rc;
}

static void link_mr(struct pvn_comm *c, struct pvn_comm_mr *m)
{
    m->next = c->mem.mrs;
    if (m->next)
        m->next->prev = m;
    c->mem.mrs = m;
}

/* Checks that this comm can take such memory. 0 or the error of the call. */
static int check_memory(const struct pvn_comm *c, const void *data, size_t size, int ptr_type,
                        int fd, struct pvn_err *err)
{
    if (ptr_type != NCCL_PTR_HOST && ptr_type != NCCL_PTR_CUDA && ptr_type != NCCL_PTR_DMABUF)
        return comm_refuse_elsewhere(c, err, -EINVAL, PVN_FAULT_ARGUMENT,
                                     "regMr: memory of unknown kind %d", ptr_type);
    if (ptr_type != NCCL_PTR_HOST &&
        !(c->dev->ptr_support & (fd >= 0 ? NCCL_PTR_DMABUF : NCCL_PTR_CUDA)))
        return comm_refuse_elsewhere(
            c, err, -EOPNOTSUPP, PVN_FAULT_USAGE,
            "regMr: device %s cannot reach %s memory (it says so in ptrSupport): NCCL stages "
            "such buffers in host memory by itself",
            c->dev->name, fd >= 0 ? "dma-buf" : "GPU");
    if (!data && size)
        return comm_refuse_elsewhere(c, err, -EINVAL, PVN_FAULT_ARGUMENT,
                                     "regMr: %zu bytes at address 0", size);
    return 0;
}

/* Registers memory that is new. In a failover, until the next lanes take it, the lost ones are tried:
 * the next ones are most likely of the same adapter. If that has no room, this registration fails
 * alone, and NCCL goes on without it; the next lanes could refuse only all of the comm's memory. Any
 * other refusal may mean that the device has failed, which says nothing about the next lanes. A device
 * that is known to have failed is not tried: the call could block for a minute, under mem.lock. */
static int attach_new(struct pvn_comm *c, struct pvn_comm_mr *m, struct dmabuf from,
                      struct pvn_err *err)
{
    int rc;

    if (c->mem.taker)
        return attach(c->mem.taker, m, from, err);
    if (!c->engine || c->mem.device_failed)
        return 0;
    rc = attach(c->link.conn, m, from, err);
    if (rc == 0 || rc == -ENOMEM)
        return rc;
    pvn_err_clear(err);
    return 0;
}

/* Registers memory. The caller holds mem.lock, under which a failover replaces the comm's
 * connection and lanes. */
static int reg(struct pvn_comm *c, void *data, size_t size, int ptr_type, int fd, uint64_t offset,
               struct pvn_comm_mr **out, struct pvn_err *err)
{
    struct pvn_comm_mr *m;
    int rc = check_memory(c, data, size, ptr_type, fd, err);

    if (rc)
        return rc;
    m = calloc(1, sizeof(*m));
    if (!m)
        return comm_refuse_elsewhere(c, err, -ENOMEM, PVN_FAULT_SYSTEM,
                                     "regMr: no memory for a registration");
    m->comm = c;
    m->mr.addr = data;
    m->mr.len = size;
    m->mr.ptr_type = ptr_type;
    if (ptr_type != NCCL_PTR_HOST && may_be_copied(c))
        pvn_gpucopy_prepare(data);
    rc = attach_new(c, m, (struct dmabuf){.fd = fd, .offset = offset}, err);
    if (rc) {
        pvn_warn_err(err);
        free(m);
        return rc;
    }
    link_mr(c, m);
    *out = m;
    return 0;
}

int pvn_comm_reg(struct pvn_comm *c, void *data, size_t size, int ptr_type, int fd, uint64_t offset,
                 struct pvn_comm_mr **out, struct pvn_err *err)
{
    int rc = comm_usable_elsewhere(c, "regMr", err);

    *out = NULL;
    if (rc)
        return rc;
    pthread_mutex_lock(&c->mem.lock);
    rc = reg(c, data, size, ptr_type, fd, offset, out, err);
    pthread_mutex_unlock(&c->mem.lock);
    return rc;
}

static void unlink_mr(struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    if (m->prev)
        m->prev->next = m->next;
    else
        c->mem.mrs = m->next;
    if (m->next)
        m->next->prev = m->prev;
}

static void free_mr(struct pvn_comm_mr *m)
{
    comm_mr_detach(m);
    m->comm = NULL;
    free(m);
}

/* How long deregMr waits for sends that still read the memory. */
#define READ_NS (100 * PVN_NS_PER_MS)

/* Waits until no send reads this memory: if an adapter reads memory after its registration is gone,
 * the queue pair ends. Only the comm's own thread can advance its requests. Other threads give back
 * memory that no request uses. */
static void finish_reads(struct pvn_comm *c, const struct pvn_comm_mr *m)
{
    uint64_t until = pvn_now_ns() + READ_NS;

    if (!c->engine || !comm_thread_is_here(c))
        return;
    while (pvn_engine_reads(c->engine, &m->mr) && pvn_now_ns() < until)
        if (pvn_engine_progress(c->engine) != 0)
            break;
}

/* Takes a comm that has help for the caller. The wait is short, because the steps of others do not
 * block. NULL: it has no help, or is not up. */
static struct comm_help *take_turn(struct pvn_comm *c)
{
    struct comm_help *h;

    pthread_mutex_lock(&c->mem.lock);
    h = c->engine ? c->help : NULL;
    pthread_mutex_unlock(&c->mem.lock);
    while (h && !comm_help_take(h))
        sched_yield();
    return h;
}

/* Ends a failover in which the plugin's thread would send the message again. The comm has help, and
 * the caller has taken it. */
static void end_failover(struct pvn_comm *c)
{
    struct pvn_err err = PVN_ERR_INIT;

    pvn_err_set(&err, -ECANCELED,
                "deregMr has taken back the memory of a message that was not complete");
    pvn_err_set_fault(&err, PVN_FAULT_USAGE);
    comm_fail(c, &err);
}

int pvn_comm_dereg(struct pvn_comm *c, struct pvn_comm_mr *mr, struct pvn_err *err)
{
    struct pvn_comm_mr *m;
    struct comm_help *help;
    bool sends_again = false;
    int rc = 0;

    if (c->magic != COMM_MAGIC || pvn_fork_in_child(c->epoch))
        return comm_usable_elsewhere(c, "deregMr", err);
    if (!mr)
        return 0;
    /* A failed comm's registrations are given back as well. So the handle is searched for in the
     * list, and not trusted. */
    help = take_turn(c);
    pthread_mutex_lock(&c->mem.lock);
    for (m = c->mem.mrs; m && m != mr; m = m->next)
        ;
    if (m) {
        finish_reads(c, m);
        sends_again = help && c->link.failover && pvn_engine_sends(c->engine, &m->mr);
        unlink_mr(c, m);
        comm_mr_revoke(c, m);
        free_mr(m);
    } else {
        rc = comm_refuse_elsewhere(
            c, err, -EINVAL, PVN_FAULT_ARGUMENT,
            "deregMr: %p is no registration of this comm, or was given back before", (void *)mr);
    }
    pthread_mutex_unlock(&c->mem.lock);
    if (sends_again)
        end_failover(c);
    if (help)
        comm_help_give(help);
    return rc;
}

void comm_mr_free_all(struct pvn_comm *c)
{
    for (struct pvn_comm_mr *m; (m = c->mem.mrs) != NULL;) {
        unlink_mr(c, m);
        free_mr(m);
    }
}

int comm_mr_refuse(struct pvn_comm *c, const void *handle)
{
    return comm_refuse(c, -EINVAL, PVN_FAULT_ARGUMENT, "%p is no registration of this comm",
                       handle);
}
