/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-pvrdma/ordering.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/pages.h"

static bool is_set(const bool *refused)
{
    return __atomic_load_n(refused, __ATOMIC_RELAXED);
}

/* remedy NULL: the remedy is to unset the variable. */
static void switch_off(struct pvn_rdma_ordering *o, const char *why, const char *remedy)
{
    o->on = false;
    pvn_str_append(o->why, sizeof(o->why), "%s", why);
    if (o->cfg.mode == PVN_ORDERING_RELAXED)
        pvn_warn("%s: %s=1, but there is no relaxed ordering: %s; %s%s", o->name, o->cfg.from, why,
                 remedy ? remedy : "unset ", remedy ? "" : o->cfg.from);
}

/* Registers a page once, so that a refusal of the attribute is known before the first real registration. */
static void try_page(struct pvn_rdma_ordering *o, struct ibv_pd *pd)
{
    size_t len = 1;
    void *mem = pvn_pages_new(&len);
    if (!mem)
        return;
    struct ibv_mr *mr =
        pvn_rdma_reg_mr(o, o->v, pd, mem, len, PVN_RDMA_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
    if (mr)
        o->v->dereg_mr(mr);
    free(mem);
}

void pvn_rdma_ordering_init(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                            const char *name, const struct pvn_rdma_ordering_cfg *cfg,
                            struct ibv_pd *pd)
{
    memset(o, 0, sizeof(*o));
    o->v = v;
    o->name = name;
    o->cfg = *cfg;
    o->on = cfg->mode != PVN_ORDERING_STRICT;
    if (!o->on)
        pvn_str_append(o->why, sizeof(o->why), "%s=0", cfg->from);
    else if (cfg->not_here)
        switch_off(o, cfg->not_here, NULL);
    else if (!v->reg_mr_iova2)
        switch_off(o, "this libibverbs has no ibv_reg_mr_iova2", "install rdma-core 28 or newer");
    else
        try_page(o, pd);
}

int pvn_rdma_ordering_access(const struct pvn_rdma_ordering *o, bool relaxed)
{
    return PVN_RDMA_ACCESS |
           (relaxed && o && o->on && !is_set(&o->refused) ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

/* True for the errno of a registration with an access right that the driver or the kernel does not know. libibverbs
 * omits optional rights for a kernel that does not know them, but not for dma-bufs, and it does not know what the
 * driver supports. */
static bool may_be_the_attribute(int e)
{
    return e == EINVAL || e == EOPNOTSUPP || e == EPROTONOSUPPORT || e == ENOSYS;
}

/* Notes that a registration failed with this errno with the attribute and worked without it. Logs only the first
 * one. */
static void remember(struct pvn_rdma_ordering *o, bool *refused, const char *call, int e)
{
    char text[128];
    if (__atomic_exchange_n(refused, true, __ATOMIC_RELAXED))
        return;
    pvn_strerror(e, text, sizeof(text));
    if (o->cfg.mode == PVN_ORDERING_RELAXED)
        pvn_warn("%s: %s=1, but the device refuses relaxed ordering (%s: %s) and memory is "
                 "registered without it; a newer kernel or driver of the adapter may have it",
                 o->name, o->cfg.from, call, text);
    else
        pvn_info(
            PVN_INIT | PVN_NET,
            "%s: the device refuses relaxed ordering (%s: %s), memory is registered without it",
            o->name, call, text);
}

struct ibv_mr *pvn_rdma_reg_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                               struct ibv_pd *pd, void *addr, size_t len, int access)
{
    int strict = access & ~IBV_ACCESS_RELAXED_ORDERING;
    if (access == strict || !o || is_set(&o->refused))
        return v->reg_mr(pd, addr, len, strict);
    struct ibv_mr *mr = v->reg_mr_iova2(pd, addr, len, (uintptr_t)addr, (unsigned)access);
    int e = errno;
    if (mr || !may_be_the_attribute(e))
        return mr;
    mr = v->reg_mr(pd, addr, len, strict);
    if (mr)
        remember(o, &o->refused, "ibv_reg_mr_iova2", e);
    return mr;
}

struct ibv_mr *pvn_rdma_reg_dmabuf_mr(struct pvn_rdma_ordering *o, const struct pvn_verbs *v,
                                      struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
                                      int fd, int access)
{
    int strict = access & ~IBV_ACCESS_RELAXED_ORDERING;
    if (access == strict || !o || is_set(&o->refused) || is_set(&o->refused_dmabuf))
        return v->reg_dmabuf_mr(pd, offset, len, iova, fd, strict);
    struct ibv_mr *mr = v->reg_dmabuf_mr(pd, offset, len, iova, fd, access);
    int e = errno;
    if (mr || !may_be_the_attribute(e))
        return mr;
    mr = v->reg_dmabuf_mr(pd, offset, len, iova, fd, strict);
    if (mr)
        remember(o, &o->refused_dmabuf, "ibv_reg_dmabuf_mr", e);
    return mr;
}

const char *pvn_rdma_ordering_text(const struct pvn_rdma_ordering *o, char *buf, size_t size)
{
    bool refused = is_set(&o->refused), dmabuf = is_set(&o->refused_dmabuf);
    buf[0] = '\0';
    if (!o->on || refused)
        pvn_str_append(buf, size, "off (%s)", o->on ? "the device refuses it" : o->why);
    else
        pvn_str_append(buf, size, "on in imm mode%s",
                       dmabuf ? ", but for GPU memory by dma-buf" : "");
    return buf;
}
