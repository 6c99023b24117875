/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tools/pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of the PMIx standard's client interface that is used here (version 4, chapters 3 and 5;
 * unchanged since version 2, whose shared object is also named libpmix.so.2). */
#define PMIX_SUCCESS  0
#define PMIX_STRING   3
#define PMIX_HOSTNAME "pmix.hname"

struct pmix_proc {
    char nspace[256];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        char *string;
        char largest[64];
    } data;
};

struct pmix {
    int (*init)(struct pmix_proc *proc, void *info, size_t ninfo);
    int (*get)(const struct pmix_proc *proc, const char *key, const void *info, size_t ninfo,
               struct pmix_value **value);
    int (*finalize)(const void *info, size_t ninfo);
};

/* ISO C has no conversion from dlsym's pointer to one of a function. */
static bool symbol(void *dl, const char *name, void *fn)
{
    void *at = dlsym(dl, name);

    memcpy(fn, &at, sizeof(at));
    return at != NULL;
}

static int query(const struct pmix *p, char *host, size_t len)
{
    struct pmix_value *value = NULL;
    struct pmix_proc self, first;
    int rc = -ENOENT;

    if (p->init(&self, NULL, 0) != PMIX_SUCCESS)
        return rc;
    first = self;
    first.rank = 0;
    if (p->get(&first, PMIX_HOSTNAME, NULL, 0, &value) == PMIX_SUCCESS && value &&
        value->type == PMIX_STRING && value->data.string && value->data.string[0] &&
        strlen(value->data.string) < len) {
        snprintf(host, len, "%s", value->data.string);
        rc = 0;
    }
    if (value && value->type == PMIX_STRING)
        free(value->data.string);
    free(value);
    p->finalize(NULL, 0);
    return rc;
}

/* The host on which the launcher placed rank 0 of this job. 0 and host, or -ENOENT: no PMIx
 * launcher (PMIX_NAMESPACE is not set), no libpmix.so.2, or the launcher does not report it. */
static int rank0_host(char *host, size_t len)
{
    struct pmix p;
    void *dl;

    if (!getenv("PMIX_NAMESPACE"))
        return -ENOENT;
    dl = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!dl)
        return -ENOENT;
    /* The library stays loaded, because a thread that it started may still be running. */
    if (!symbol(dl, "PMIx_Init", &p.init) || !symbol(dl, "PMIx_Get", &p.get) ||
        !symbol(dl, "PMIx_Finalize", &p.finalize))
        return -ENOENT;
    return query(&p, host, len);
}

int pvn_pmix_find_master(struct pvn_launch_env *le)
{
    char host[sizeof(le->master)];

    if ((!le->master[0] || le->guessed) && le->nranks > 1 && rank0_host(host, sizeof(host)) == 0) {
        memcpy(le->master, host, sizeof(host));
        le->guessed = 0;
    }
    return le->master[0] ? 0 : -ENOENT;
}
