/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/ssl_dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#define REMEDY                                                                                     \
    "NCCL_PVRDMA_KEY_FILE needs OpenSSL 3: install libssl3 (Debian, Ubuntu) or openssl-libs"

#define USUAL "libssl.so.3"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_ssl table;
static const struct pvn_ssl *_Atomic loaded;

static const struct symbol {
    const char *name;
    size_t offset;
} symbols[] = {
#define SYMBOL(f) {#f, offsetof(struct pvn_ssl, f)},
    PVN_SSL_FUNCTIONS(SYMBOL)};

/* True for the usual library. If another one is named, installing the usual one is no help. */
static bool is_usual(const char *library)
{
    return strcmp(library, USUAL) == 0;
}

/* The handle also finds libcrypto's functions, because libssl depends on it. */
static int resolve(void *handle, const char *library, struct pvn_err *err)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(handle, symbols[i].name);

        if (!address && is_usual(library))
            return pvn_err_set(err, -ELIBACC, "%s has no function %s, so it is too old; " REMEDY,
                               library, symbols[i].name);
        if (!address)
            return pvn_err_set(
                err, -ELIBACC,
                "NCCL_PVRDMA_SSL_LIB=%s has no function %s, so it is too old or not OpenSSL; correct it or unset it",
                library, symbols[i].name);
        memcpy((char *)&table + symbols[i].offset, &address, sizeof(address));
    }
    /* No handler at exit, because threads of the host process may use a connection until it
     * ends. */
    if (table.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return pvn_err_set(err, -ELIBACC, "%s cannot be initialised; " REMEDY, library);
    table.ctx = table.OSSL_LIB_CTX_new();
    return table.ctx ? 0 : pvn_err_set(err, -ENOMEM, "no memory for a context of %s", library);
}

/* Returns the loader's message without the name with which it begins. */
static const char *without_name(const char *why, const char *library)
{
    size_t len = strlen(library);

    return strncmp(why, library, len) == 0 && why[len] == ':' ? why + len + 2 : why;
}

/* The caller holds the lock. */
static int load(const char *library, struct pvn_err *err)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *why = handle ? NULL : dlerror();
    int rc;

    if (!handle && is_usual(library))
        return pvn_err_set(err, -ELIBACC, "%s; " REMEDY, why ? why : "a library cannot be loaded");
    if (!handle)
        return pvn_err_set(err, -ELIBACC, "NCCL_PVRDMA_SSL_LIB=%s: %s; correct it or unset it",
                           library, why ? without_name(why, library) : "it cannot be loaded");
    rc = resolve(handle, library, err);
    if (rc)
        dlclose(handle);
    else
        atomic_store(&loaded, &table);
    return rc;
}

const struct pvn_ssl *pvn_ssl_load(const char *library, struct pvn_err *err)
{
    pthread_mutex_lock(&lock);
    if (!atomic_load(&loaded) && load(library, err) != 0)
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
    pthread_mutex_unlock(&lock);
    return atomic_load(&loaded);
}

void pvn_ssl_forget(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(&loaded)) {
        atomic_store(&loaded, NULL);
        table.OSSL_LIB_CTX_free(table.ctx);
        table.ctx = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void pvn_ssl_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    /* Another thread of the parent may have held a lock of the context. */
    atomic_store(&loaded, NULL);
}

const struct pvn_ssl *pvn_ssl_get(void)
{
    return atomic_load(&loaded);
}
