/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/memcache.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Regions of one kind may overlap, so a lookup is for any interval that begins at or before a and ends at or
 * after b. Each kind has a treap, ordered by begin. Every node has the largest end of its subtree, which shows
 * before the descent if the subtree has an answer. So a search follows a single path.
 */
struct node {
    struct pvn_mem mem; /* first member: callers have a pointer to it */
    uintptr_t end, max_end;
    struct node *left, *right;
    uint32_t priority;
    uint32_t devs;
    uint64_t refs;
    uint64_t whole;         /* references that cover all pages of the region */
    struct kind_tree *tree; /* NULL: retired; left and right then link the list (previous, next) */
};

/* The regions of one kind. */
struct kind_tree {
    struct pvn_mem_kind kind;
    struct kind_tree *next; /* in the hash bucket */
    struct node *root;
};

enum { FIRST_BUCKETS = 64 };

struct pvn_memcache {
    pthread_mutex_t lock;
    const struct pvn_memcache_ops *ops;
    void *arg;
    size_t page;
    struct kind_tree **bucket;
    size_t buckets, trees;
    struct node *retired; /* regions that serve no new requests */
    uint32_t rng;
    struct pvn_memcache_stats stats;
};

/* ---- kinds ---- */

static size_t hash(const struct pvn_mem_kind *s)
{
    uint64_t h = s->buffer_id * UINT64_C(0x9e3779b97f4a7c15);
    h ^=
        ((uint64_t)s->access << 8 ^ (uint64_t)(unsigned)s->ptr_type) * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (size_t)(h ^ h >> 32);
}

static int same_kind(const struct pvn_mem_kind *a, const struct pvn_mem_kind *b)
{
    return a->ptr_type == b->ptr_type && a->access == b->access && a->buffer_id == b->buffer_id;
}

static struct kind_tree **tree_place(struct pvn_memcache *c, const struct pvn_mem_kind *kind)
{
    struct kind_tree **at = &c->bucket[hash(kind) & (c->buckets - 1)];
    while (*at && !same_kind(&(*at)->kind, kind))
        at = &(*at)->next;
    return at;
}

/* Doubles the hash table. Device memory has a kind per allocation, so there can be many. If memory is short the
 * buckets just get longer. */
static void grow(struct pvn_memcache *c)
{
    size_t n = c->buckets * 2;
    struct kind_tree **bigger = calloc(n, sizeof(*bigger));
    if (!bigger)
        return;
    for (size_t i = 0; i < c->buckets; i++) {
        while (c->bucket[i]) {
            struct kind_tree *t = c->bucket[i];
            struct kind_tree **to = &bigger[hash(&t->kind) & (n - 1)];
            c->bucket[i] = t->next;
            t->next = *to;
            *to = t;
        }
    }
    free(c->bucket);
    c->bucket = bigger;
    c->buckets = n;
}

static struct kind_tree *tree_of(struct pvn_memcache *c, const struct pvn_mem_kind *kind)
{
    struct kind_tree **at = tree_place(c, kind);
    if (*at)
        return *at;
    if (c->trees >= 2 * c->buckets) {
        grow(c);
        at = tree_place(c, kind);
    }
    struct kind_tree *t = calloc(1, sizeof(*t));
    if (t) {
        t->kind = *kind;
        *at = t;
        c->trees++;
    }
    return t;
}

static void drop_empty_tree(struct pvn_memcache *c, struct kind_tree *t)
{
    if (t->root)
        return;
    *tree_place(c, &t->kind) = t->next;
    c->trees--;
    free(t);
}

/* ---- the treap ---- */

static void update(struct node *n)
{
    n->max_end = n->end;
    if (n->left && n->left->max_end > n->max_end)
        n->max_end = n->left->max_end;
    if (n->right && n->right->max_end > n->max_end)
        n->max_end = n->right->max_end;
}

/* Orders regions by begin. The node's address decides if the begins are equal. */
static int before(const struct node *a, const struct node *b)
{
    return a->mem.addr != b->mem.addr ? a->mem.addr < b->mem.addr : (uintptr_t)a < (uintptr_t)b;
}

static struct node *rotate_right(struct node *n)
{
    struct node *l = n->left;
    n->left = l->right;
    l->right = n;
    update(n);
    update(l);
    return l;
}

static struct node *rotate_left(struct node *n)
{
    struct node *r = n->right;
    n->right = r->left;
    r->left = n;
    update(n);
    update(r);
    return r;
}

static struct node *insert(struct node *root, struct node *n)
{
    if (!root)
        return n;
    if (before(n, root)) {
        root->left = insert(root->left, n);
        if (root->left->priority > root->priority)
            return rotate_right(root);
    } else {
        root->right = insert(root->right, n);
        if (root->right->priority > root->priority)
            return rotate_left(root);
    }
    update(root);
    return root;
}

/* Joins two trees. All nodes of a must be before those of b. */
static struct node *join(struct node *a, struct node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (a->priority > b->priority) {
        a->right = join(a->right, b);
        update(a);
        return a;
    }
    b->left = join(a, b->left);
    update(b);
    return b;
}

static struct node *take_out(struct node *root, struct node *n)
{
    if (root == n)
        return join(n->left, n->right);
    if (before(n, root))
        root->left = take_out(root->left, n);
    else
        root->right = take_out(root->right, n);
    update(root);
    return root;
}

static struct node *find_covering(struct pvn_memcache *c, struct node *n, uintptr_t addr,
                                  uintptr_t end)
{
    while (n) {
        c->stats.steps++;
        if (n->mem.addr > addr)
            n = n->left;
        else if (n->left && n->left->max_end >= end)
            n = n->left; /* all of its nodes begin early enough, and one ends late enough */
        else if (n->end >= end)
            return n;
        else
            n = n->right;
    }
    return NULL;
}

/* ---- regions ---- */

static void detach(struct pvn_memcache *c, struct node *n, uint32_t devs)
{
    for (int i = 0; i < PVN_MEMCACHE_DEVS; i++)
        if (devs & n->devs & UINT32_C(1) << i) {
            c->ops->dereg(c->arg, i, n->mem.handle[i]);
            n->mem.handle[i] = NULL;
        }
    n->devs &= ~devs;
}

/* Registers the region with the devices that it lacks, with all of them or with none. */
static int attach(struct pvn_memcache *c, struct node *n, uint32_t devs, const void *extra,
                  struct pvn_err *err)
{
    uint32_t added = 0;
    for (int i = 0; i < PVN_MEMCACHE_DEVS; i++) {
        uint32_t bit = UINT32_C(1) << i;
        if (!(devs & bit) || (n->devs & bit))
            continue;
        int rc = c->ops->reg(c->arg, i, n->mem.addr, n->mem.len, &n->mem.kind, extra,
                             &n->mem.handle[i], err);
        if (rc) {
            n->mem.handle[i] = NULL;
            detach(c, n, added);
            return rc;
        }
        n->devs |= bit;
        added |= bit;
    }
    return 0;
}

static int make(struct pvn_memcache *c, uintptr_t addr, uintptr_t end,
                const struct pvn_mem_kind *kind, uint32_t devs, const void *extra,
                struct node **out, struct pvn_err *err)
{
    struct kind_tree *t = tree_of(c, kind);
    struct node *n = t ? calloc(1, sizeof(*n)) : NULL;
    int rc;
    if (!n) {
        if (t)
            drop_empty_tree(c, t);
        return pvn_err_set(err, -ENOMEM, "no memory to note a registration of %zu bytes",
                           (size_t)(end - addr));
    }
    n->mem.addr = addr;
    n->mem.len = end - addr;
    n->mem.kind = *kind;
    n->end = n->max_end = end;
    n->tree = t;
    c->rng = c->rng * 1664525 + 1013904223;
    n->priority = c->rng ^ c->rng >> 16;
    rc = attach(c, n, devs, extra, err);
    if (rc) {
        free(n);
        drop_empty_tree(c, t);
        return rc;
    }
    t->root = insert(t->root, n);
    c->stats.regions++;
    c->stats.bytes += n->mem.len;
    *out = n;
    return 0;
}

static void take_from_tree(struct pvn_memcache *c, struct node *n)
{
    struct kind_tree *t = n->tree;
    t->root = take_out(t->root, n);
    drop_empty_tree(c, t);
    n->tree = NULL;
}

static void retire(struct pvn_memcache *c, struct node *n)
{
    take_from_tree(c, n);
    n->left = NULL;
    n->right = c->retired;
    if (n->right)
        n->right->left = n;
    c->retired = n;
}

static void take_from_retired(struct pvn_memcache *c, struct node *n)
{
    if (n->left)
        n->left->right = n->right;
    else
        c->retired = n->right;
    if (n->right)
        n->right->left = n->left;
}

static void destroy(struct pvn_memcache *c, struct node *n)
{
    if (n->tree)
        take_from_tree(c, n);
    else
        take_from_retired(c, n);
    detach(c, n, n->devs);
    c->stats.regions--;
    c->stats.bytes -= n->mem.len;
    free(n);
}

/* ---- the interface ---- */

struct pvn_memcache *pvn_memcache_new(const struct pvn_memcache_ops *ops, void *arg, size_t page)
{
    struct pvn_memcache *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->bucket = calloc(FIRST_BUCKETS, sizeof(*c->bucket));
    if (!c->bucket) {
        free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    c->buckets = FIRST_BUCKETS;
    c->ops = ops;
    c->arg = arg;
    c->page = page;
    c->rng = 1;
    return c;
}

size_t pvn_memcache_free(struct pvn_memcache *c)
{
    size_t left = 0;
    if (!c)
        return 0;
    for (size_t i = 0; i < c->buckets; i++)
        while (c->bucket[i]) {
            left++;
            destroy(c, c->bucket[i]->root);
        }
    for (; c->retired; left++)
        destroy(c, c->retired);
    pthread_mutex_destroy(&c->lock);
    free(c->bucket);
    free(c);
    return left;
}

/* True if the range covers all pages of the region. */
static int is_whole(const struct pvn_memcache *c, const struct node *n, uintptr_t addr, size_t len)
{
    uintptr_t mask = c->page - 1;
    return (addr & ~mask) == n->mem.addr && ((addr + len + mask) & ~mask) == n->end;
}

int pvn_memcache_get(struct pvn_memcache *c, uintptr_t addr, size_t len,
                     const struct pvn_mem_kind *kind, uint32_t devs, const void *extra,
                     struct pvn_mem **out, struct pvn_err *err)
{
    uintptr_t mask = c->page - 1, from = addr & ~mask, end = addr + len;
    struct node *n;
    int rc = 0;
    *out = NULL;
    if (len == 0 || end < addr || end > UINTPTR_MAX - mask || devs == 0)
        return pvn_err_set(err, -EINVAL, "cannot register %zu bytes at 0x%llx with devices 0x%x",
                           len, (unsigned long long)addr, (unsigned)devs);
    end = (end + mask) & ~mask;
    pthread_mutex_lock(&c->lock);
    struct kind_tree *t = *tree_place(c, kind);
    n = t ? find_covering(c, t->root, from, end) : NULL;
    if (n) {
        rc = attach(c, n, devs, extra, err);
        c->stats.hits += rc == 0;
    } else
        rc = make(c, from, end, kind, devs, extra, &n, err);
    if (rc == 0) {
        n->refs++;
        n->whole += (uint64_t)is_whole(c, n, addr, len);
        c->stats.refs++;
        *out = &n->mem;
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void pvn_memcache_put(struct pvn_memcache *c, struct pvn_mem *mem, uintptr_t addr, size_t len)
{
    struct node *n = (struct node *)mem;
    pthread_mutex_lock(&c->lock);
    c->stats.refs--;
    n->whole -= (uint64_t)is_whole(c, n, addr, len);
    if (--n->refs == 0)
        destroy(c, n);
    else if (n->whole == 0 && n->tree)
        retire(c, n);
    pthread_mutex_unlock(&c->lock);
}

void pvn_memcache_get_stats(struct pvn_memcache *c, struct pvn_memcache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    pthread_mutex_unlock(&c->lock);
}
