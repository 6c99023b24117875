/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/param.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/nccl_vars.h"
#include "base/param_value.h"
#include "base/suggest.h"

extern char **environ;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t defaults_once = PTHREAD_ONCE_INIT;
static struct pvn_params defaults;
static struct pvn_params loaded;
static const struct pvn_params *current;  /* atomic; NULL: not loaded */
static const struct pvn_params *override; /* atomic; tests only */

static void set_default(const struct pvn_param_def *def, struct pvn_params *out)
{
    char why[64];

    /* A test checks that every default parses. */
    (void)pvn_param_parse(def, def->def, out, why, sizeof(why));
}

static void make_defaults(void)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);

    for (i = 0; i < count; i++)
        set_default(&table[i], &defaults);
}

/* The value of PREFIX+NAME in the environment, or NULL. As with getenv the first entry counts. */
static const char *env_find(char *const *envp, const char *prefix, const char *name)
{
    size_t plen = strlen(prefix), nlen = strlen(name);

    for (; envp && *envp; envp++)
        if (strncmp(*envp, prefix, plen) == 0 && strncmp(*envp + plen, name, nlen) == 0 &&
            (*envp)[plen + nlen] == '=')
            return *envp + plen + nlen + 1;
    return NULL;
}

const char *pvn_param_suggest(const char *name)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);
    struct pvn_suggest s;

    pvn_suggest_start(&s, name);
    for (i = 0; i < count; i++)
        pvn_suggest_offer(&s, table[i].name);
    return s.best;
}

/* The index of the row with this name; -1 if there is none. */
static int row_of(const char *name)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);

    for (i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0)
            return (int)i;
    return -1;
}

enum pvn_param_source pvn_param_source(const struct pvn_params *params, const char *name)
{
    int row = row_of(name);

    return row < 0 ? PVN_PARAM_FROM_DEFAULT : (enum pvn_param_source)params->source[row];
}

const char *pvn_param_setting(const struct pvn_params *params, const char *name, char *buf,
                              size_t size)
{
    char value[PVN_PARAM_STR_LEN];
    size_t count;
    int row = row_of(name);
    enum pvn_param_source source = pvn_param_source(params, name);

    if (size > 0)
        buf[0] = '\0';
    if (row < 0 || source == PVN_PARAM_FROM_DEFAULT)
        return buf;
    const struct pvn_param_def *def = &pvn_param_table(&count)[row];
    bool alias = source == PVN_PARAM_FROM_ALIAS;
    pvn_str_append(buf, size, "%s%s=%s", alias ? "" : PVN_PARAM_PREFIX,
                   alias ? def->alias : def->name,
                   pvn_param_format(def, params, value, sizeof(value)));
    return buf;
}

static void warn_unknown(char *const *envp)
{
    const size_t plen = strlen(PVN_PARAM_PREFIX);

    for (; envp && *envp; envp++) {
        const char *eq = strchr(*envp, '=');
        const char *near_name;
        char name[80];

        if (strncmp(*envp, PVN_PARAM_PREFIX, plen) != 0 || !eq || eq < *envp + plen)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(eq - *envp - (ptrdiff_t)plen), *envp + plen);
        if (row_of(name) >= 0)
            continue;
        near_name = pvn_param_suggest(name);
        if (near_name)
            pvn_warn(PVN_PARAM_PREFIX "%s is not a parameter; did you mean " PVN_PARAM_PREFIX "%s?",
                     name, near_name);
        else
            pvn_warn(PVN_PARAM_PREFIX "%s is not a parameter; `pvn-topo params` lists them", name);
    }
}

static int read_own(const struct pvn_param_def *def, const char *text, struct pvn_params *out,
                    struct pvn_err *err)
{
    char why[96], range[256];
    int rc = pvn_param_parse(def, text, out, why, sizeof(why));

    if (rc == 0)
        return 0;
    pvn_err_set(err, -EINVAL,
                PVN_PARAM_PREFIX "%s=%.64s %s; it takes %s; unset it for the default, %s",
                def->name, text, why, pvn_param_range(def, range, sizeof(range)),
                *def->def ? def->def : "empty");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return -EINVAL;
}

/* True if the alias has set the value. */
static bool read_alias(const struct pvn_param_def *def, const char *text, struct pvn_params *out)
{
    char why[96], range[256];

    if (pvn_param_is_nccl_unset(def, text))
        return false;
    if (def->alias_on || def->alias_off) { /* NCCL reads its switches like this */
        text = strtoll(text, NULL, 0) != 0 ? def->alias_on : def->alias_off;
        if (!text)
            return false;
    }
    if (pvn_param_parse(def, text, out, why, sizeof(why)) == 0)
        return true;
    pvn_warn("%s=%.64s %s; this plugin takes %s there and uses its default, %s; " PVN_PARAM_PREFIX
             "%s overrides it",
             def->alias, text, why, pvn_param_range(def, range, sizeof(range)),
             *def->def ? def->def : "empty", def->name);
    return false;
}

/* Logs the variables of NCCL that have no effect in this plugin. At INFO, because they may be meant for NCCL's own
 * transports, which another job uses. */
static void say_missed(char *const *envp)
{
    const struct pvn_nccl_var *var;
    char name[PVN_NCCL_VAR_LEN];
    const char *value;

    for (; envp && *envp; envp++) {
        var = pvn_nccl_var_of_entry(*envp, name, &value);
        if (var && pvn_nccl_var_is_missed(var, value))
            pvn_info(PVN_INIT | PVN_NET | PVN_ENV, "%s=%.64s has no effect on this plugin. %s",
                     name, value, var->text);
    }
}

int pvn_params_read(struct pvn_params *out, char *const *envp, struct pvn_err *err)
{
    size_t count, i;
    const struct pvn_param_def *table = pvn_param_table(&count);

    pthread_once(&defaults_once, make_defaults);
    *out = defaults;
    warn_unknown(envp);
    for (i = 0; i < count; i++) {
        const struct pvn_param_def *def = &table[i];
        const char *own = env_find(envp, PVN_PARAM_PREFIX, def->name);
        const char *alias = def->alias ? env_find(envp, "", def->alias) : NULL;

        if (own && *own) {
            int rc = read_own(def, own, out, err);

            if (rc)
                return rc;
            out->source[i] = PVN_PARAM_FROM_ENV;
        } else if (alias && *alias && read_alias(def, alias, out)) {
            out->source[i] = PVN_PARAM_FROM_ALIAS;
        }
    }
    say_missed(envp);
    if (out->strict && out->failover == 1)
        pvn_warn("NCCL_PVRDMA_STRICT=1 excludes failover, so NCCL_PVRDMA_FAILOVER=1 has no effect: "
                 "a lost connection ends the job; unset one of the two");
    return 0;
}

int pvn_params_load(struct pvn_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&load_lock);
    if (!__atomic_load_n(&current, __ATOMIC_ACQUIRE)) {
        rc = pvn_params_read(&loaded, environ, err);
        if (rc == 0)
            __atomic_store_n(&current, &loaded, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&load_lock);
    return rc;
}

void pvn_params_unload(void)
{
    pthread_mutex_lock(&load_lock);
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&load_lock);
}

void pvn_params_after_fork(void)
{
    pthread_mutex_init(&load_lock, NULL);
    __atomic_store_n(&current, NULL, __ATOMIC_RELEASE);
}

const struct pvn_params *pvn_params_get(void)
{
    const struct pvn_params *p = __atomic_load_n(&override, __ATOMIC_ACQUIRE);

    if (!p)
        p = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    if (p)
        return p;
    pthread_once(&defaults_once, make_defaults);
    return &defaults;
}

void pvn_params_override(const struct pvn_params *params)
{
    __atomic_store_n(&override, params, __ATOMIC_RELEASE);
}
