/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h" /* dlvsym is a GNU extension */

#include "net-pvrdma/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "net-pvrdma/verbs_cmd.h"

struct symbol {
    const char *name;
    const char *version; /* symbol version, if the library has several; NULL: the default one */
    size_t offset;       /* in struct pvn_verbs */
    int optional;
};

#define AT(field) offsetof(struct pvn_verbs, field)

/* The symbol versions match the structures of <infiniband/verbs.h> (rdma-core 44, libibverbs.map.in). Functions with
 * the same name and another version take other structures. */
static const struct symbol symbols[] = {
    {"ibv_get_device_list", "IBVERBS_1.1", AT(get_device_list), 0},
    {"ibv_free_device_list", "IBVERBS_1.1", AT(free_device_list), 0},
    {"ibv_get_device_name", "IBVERBS_1.1", AT(get_device_name), 0},
    {"ibv_open_device", "IBVERBS_1.1", AT(open_device), 0},
    {"ibv_close_device", "IBVERBS_1.1", AT(close_device), 0},
    {"ibv_get_async_event", "IBVERBS_1.1", AT(get_async_event), 0},
    {"ibv_ack_async_event", "IBVERBS_1.1", AT(ack_async_event), 0},
    {"ibv_query_device", "IBVERBS_1.1", AT(query_device), 0},
    {"ibv_query_port", "IBVERBS_1.1", AT(query_port), 0},
    {"ibv_query_gid", "IBVERBS_1.1", AT(query_gid), 0},
    {"ibv_alloc_pd", "IBVERBS_1.1", AT(alloc_pd), 0},
    {"ibv_dealloc_pd", "IBVERBS_1.1", AT(dealloc_pd), 0},
    {"ibv_reg_mr", "IBVERBS_1.1", AT(reg_mr), 0},
    {"ibv_dereg_mr", "IBVERBS_1.1", AT(dereg_mr), 0},
    {"ibv_create_cq", "IBVERBS_1.1", AT(create_cq), 0},
    {"ibv_destroy_cq", "IBVERBS_1.1", AT(destroy_cq), 0},
    {"ibv_create_qp", "IBVERBS_1.1", AT(create_qp), 0},
    {"ibv_modify_qp", "IBVERBS_1.1", AT(modify_qp), 0},
    {"ibv_query_qp", "IBVERBS_1.1", AT(query_qp), 0},
    {"ibv_destroy_qp", "IBVERBS_1.1", AT(destroy_qp), 0},
    {"ibv_fork_init", NULL, AT(fork_init), 0},
    {"ibv_wc_status_str", NULL, AT(wc_status_str), 0},
    {"ibv_event_type_str", NULL, AT(event_type_str), 0},
    {"ibv_reg_mr_iova2", NULL, AT(reg_mr_iova2), 1},
    {"ibv_reg_dmabuf_mr", NULL, AT(reg_dmabuf_mr), 1},
    {"ibv_is_fork_initialized", NULL, AT(is_fork_initialized), 1},
    {"_ibv_query_gid_table", NULL, AT(query_gid_table), 1},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pvn_verbs table;
static int users;

/* The advice to install a package is given only for the usual library, not for one that the user has named. */
static bool is_usual(const char *name)
{
    return strcmp(name, PVN_VERBS_USUAL) == 0;
}

static int resolve(void *lib, const char *name, struct pvn_err *err)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
        const struct symbol *s = &symbols[i];
        void *f = s->version ? dlvsym(lib, s->name, s->version) : dlsym(lib, s->name);
        if (!f && !s->optional)
            return pvn_err_set(
                err, -ENOSYS, "%s has no function %s%s%s: it is too old or not libibverbs%s", name,
                s->name, s->version ? " of version " : "", s->version ? s->version : "",
                is_usual(name) ? "; install rdma-core 12 or newer" : "");
        memcpy((char *)&table + s->offset, &f, sizeof(f));
    }
    return 0;
}

static int load(const char *name, struct pvn_err *err)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        const char *why = dlerror();
        if (!is_usual(name))
            return pvn_err_set(err, -ELIBACC, "%s", why ? why : "it cannot be loaded");
        return pvn_err_set(
            err, -ELIBACC,
            "RDMA is not available: %s (install libibverbs1 and ibverbs-providers, or rdma-core)",
            why ? why : "the library cannot be loaded");
    }
    int rc = resolve(lib, name, err);
    if (rc == 0) {
        pvn_verbs_cmd_wrap(&table);
    } else {
        memset(&table, 0, sizeof(table));
        dlclose(lib);
    }
    return rc;
}

const struct pvn_verbs *pvn_verbs_get(const char *lib, struct pvn_err *err)
{
    pthread_mutex_lock(&lock);
    int rc = users > 0 ? 0 : load(lib && *lib ? lib : PVN_VERBS_USUAL, err);
    if (rc == 0)
        users++;
    pthread_mutex_unlock(&lock);
    return rc == 0 ? &table : NULL;
}

void pvn_verbs_put(void)
{
    pthread_mutex_lock(&lock);
    if (users > 0)
        users--;
    pthread_mutex_unlock(&lock);
}

void pvn_verbs_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pvn_verbs_cmd_after_fork();
}

int pvn_verbs_query_port(const struct pvn_verbs *v, struct ibv_context *ctx, uint8_t port,
                         struct ibv_port_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    int rc = v->query_port(ctx, port, attr);
    return rc ? -(rc > 0 ? rc : errno) : 0;
}
