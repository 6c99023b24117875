/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libpmix.so.2. Its launcher put rank 0 on FAKEPMIX_HOST. plugin/tools/pmix.c has
 * the interface. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct value {
    uint16_t type;
    union {
        char *string;
        char largest[64];
    } data;
};

__attribute__((visibility("default"))) int PMIx_Init(void *proc, void *info, size_t ninfo);
__attribute__((visibility("default"))) int
PMIx_Get(const void *proc, const char *key, const void *info, size_t ninfo, struct value **value);
__attribute__((visibility("default"))) int PMIx_Finalize(const void *info, size_t ninfo);

int PMIx_Init(void *proc, void *info, size_t ninfo)
{
    return 0;
}

int PMIx_Get(const void *proc, const char *key, const void *info, size_t ninfo,
             struct value **value)
{
    const char *host = getenv("FAKEPMIX_HOST");

    if (!host || strcmp(key, "pmix.hname") != 0)
        return -1;
    *value = calloc(1, sizeof(**value));
    (*value)->type = 3;
    (*value)->data.string = strdup(host);
    return 0;
}

int PMIx_Finalize(const void *info, size_t ninfo)
{
    return 0;
}
