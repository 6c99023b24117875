/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "net-tcp/nl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_nl nl;
static bool loaded;

struct symbol {
    const char *name;
    size_t offset;
    bool required;
};

#define REQUIRED(f) {#f, offsetof(struct pvn_nl, f), true},
#define NEWER(f)    {#f, offsetof(struct pvn_nl, f), false},

static const struct symbol symbols[] = {PVN_NL_FUNCTIONS(REQUIRED) PVN_NL_NEWER_FUNCTIONS(NEWER)};

/* The caller holds the lock. */
static bool resolve(const char *library, char *why, size_t size)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    size_t i;

    if (!handle) {
        snprintf(why, size, "%s", dlerror());
        return false;
    }
    for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(handle, symbols[i].name);

        if (!address && symbols[i].required) {
            snprintf(why, size, "%s has no function %s", library, symbols[i].name);
            return false;
        }
        memcpy((char *)&nl + symbols[i].offset, &address, sizeof(address));
    }
    return true;
}

void pvn_nl_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

const struct pvn_nl *pvn_nl_load(const char *library, char *why, size_t size)
{
    const struct pvn_nl *result;

    pthread_mutex_lock(&lock);
    if (!loaded)
        loaded = resolve(library, why, size);
    result = loaded ? &nl : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}
