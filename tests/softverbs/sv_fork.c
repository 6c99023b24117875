/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Effects of a forked child on its parent's objects. Real objects are in the kernel and the
 * adapter, behind a descriptor that parent and child share. So the child's ibv_dereg_mr takes the
 * region away from the parent. The objects here are memory, of which the child has a copy. So the
 * child writes the objects that it takes into pages that both share, and the parent applies that at
 * its next call.
 */
#include "sv_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TAKEN_MAX = 1024 };

struct sv_shared {
    uint32_t uses;  /* calls by children that named an object of this process */
    uint32_t count; /* of those that change one: entries of taken, which may end before */
    struct {
        uint32_t kind; /* enum sv_take, stored last; 0: not yet */
        void *object;
    } taken[TAKEN_MAX];
};

static struct sv_shared *own; /* of the objects that this process makes */
static uint32_t done;         /* entries that have been obeyed */

struct sv_shared *sv_shared_own(void)
{
    if (own)
        return own;
    void *m = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        abort();
    own = m;
    return own;
}

void sv_shared_forked(void)
{
    own = NULL;
    done = 0;
}

uint32_t sv_shared_uses(void)
{
    return own ? __atomic_load_n(&own->uses, __ATOMIC_ACQUIRE) : 0;
}

bool sv_inherited(const struct sv_ctx *c)
{
    return c->shared != own;
}

void sv_take(const struct sv_ctx *c, enum sv_take kind, void *object)
{
    if (!sv_inherited(c))
        return;
    __atomic_add_fetch(&c->shared->uses, 1, __ATOMIC_ACQ_REL);
    if (kind == SV_TAKE_NOTHING)
        return;
    uint32_t i = __atomic_fetch_add(&c->shared->count, 1, __ATOMIC_ACQ_REL);
    if (i >= TAKEN_MAX)
        return;
    c->shared->taken[i].object = object;
    __atomic_store_n(&c->shared->taken[i].kind, kind, __ATOMIC_RELEASE);
}

/* Applies a child's call to the parent's object. If the object is gone, and another one is at its
 * address, that one is taken instead. This is as wrong as the child's call. */
static void obey(enum sv_take kind, const void *object)
{
    for (struct sv_pd *pd = sv.pds; kind == SV_TAKE_PD && pd; pd = pd->next)
        pd->taken |= pd == object;
    for (struct sv_cq *cq = sv.cqs; kind == SV_TAKE_CQ && cq; cq = cq->next)
        cq->taken |= cq == object;
    for (struct sv_ctx *c = sv.ctxs; kind == SV_TAKE_CTX && c; c = c->next)
        c->taken |= c == object;
    for (uint32_t i = 0; kind == SV_TAKE_MR && i < sv.mr_cap; i++)
        if (sv.mr[i] && sv.mr[i] == object)
            sv.mr[i]->taken = true;
    for (unsigned int i = 0; i < SV_QP_MAX; i++) {
        struct sv_qp *qp = sv.qp[i];
        if (!qp)
            continue;
        if (kind == SV_TAKE_QP_STATE && qp == object)
            sv_qp_error(qp);
        qp->taken |= kind == SV_TAKE_QP && qp == object;
        if (qp->taken || sv_ctx_of(qp->ibv.context)->taken)
            qp->dead = 1;
    }
}

void sv_obey_children(void)
{
    while (own && done < TAKEN_MAX && done < __atomic_load_n(&own->count, __ATOMIC_ACQUIRE)) {
        uint32_t kind = __atomic_load_n(&own->taken[done].kind, __ATOMIC_ACQUIRE);
        if (!kind)
            return; /* being written */
        obey((enum sv_take)kind, own->taken[done++].object);
    }
}
