/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts_values.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/net_v12.h"
#include "perf/options/opts_table.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

int pvn_perf_parse_size(const char *s, uint64_t *bytes)
{
    char *end;
    double v;
    int shift = 0;

    if (*s < '0' || *s > '9')
        return -EINVAL;
    errno = 0;
    v = strtod(s, &end);
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    }
    v *= (double)(1ull << shift);
    if (errno || end == s || end[shift ? 1 : 0] || v > (double)NCCL_MAX_NET_SIZE_BYTES ||
        v != (double)(uint64_t)v)
        return -EINVAL;
    *bytes = (uint64_t)v;
    return 0;
}

/* Parses an item of a list of sizes: "8", "64K-4M" or "1M-64M*4". */
static int parse_range(char *item, uint64_t *out, int max, int *n)
{
    char *dash = strchr(item, '-'), *star = strchr(item, '*');
    uint64_t from, to, factor = 2;

    if (star)
        *star++ = '\0';
    if (dash)
        *dash++ = '\0';
    if (pvn_perf_parse_size(item, &from) || (dash && pvn_perf_parse_size(dash, &to)))
        return -EINVAL;
    if (star && (!dash || pvn_perf_parse_size(star, &factor) || factor < 2 || factor > 1024))
        return -EINVAL;
    if (!dash)
        to = from;
    if (to < from || (dash && from == 0))
        return -EINVAL;
    for (uint64_t v = from; v <= to; v *= factor) {
        if (*n == max)
            return -ERANGE;
        out[(*n)++] = v;
        if (v == 0)
            break;
    }
    return 0;
}

/* Parses "8,1K,64K-4M,1M-64M*4": a range doubles, or multiplies by the number after '*'. 0 or
 * -EINVAL with why. */
static int parse_sizes(const char *s, uint64_t *out, int max, int *n, char *why, size_t why_len)
{
    char *copy = strdup(s), *save = NULL;
    int rc = copy ? 0 : -ENOMEM;

    *n = 0;
    for (char *it = copy ? strtok_r(copy, ",", &save) : NULL; it && !rc;
         it = strtok_r(NULL, ",", &save)) {
        char item[64];

        snprintf(item, sizeof(item), "%s", it);
        rc = parse_range(it, out, max, n);
        if (rc)
            snprintf(why, why_len,
                     rc == -ERANGE ? "%s gives more sizes than one run can measure: use a larger "
                                     "factor, as in 1K-64M*4"
                                   : "'%s' is not a size: expected for example 8, 64K, 1M-64M or "
                                     "1M-64M*4",
                     item);
    }
    if (!rc && *n == 0) {
        snprintf(why, why_len, "the list of sizes is empty");
        rc = -EINVAL;
    }
    free(copy);
    return rc;
}

/* Splits a comma list into fixed rows. */
int pvn_opts_list(const char *opt, const char *s, char (*out)[32], int max, int *n)
{
    const char *whole = s;

    for (*n = 0; *s;) {
        size_t len = strcspn(s, ",");

        if (*n == max)
            return pvn_opts_bad("--%s: more than %d items", opt, max);
        if (len == 0 || len >= sizeof(*out))
            return pvn_opts_bad("--%s: an item of '%s' is %s", opt, whole,
                                len ? "too long" : "empty");
        memcpy(out[*n], s, len);
        out[(*n)++][len] = '\0';
        s += len + (s[len] == ',');
    }
    return *n ? PVN_PERF_OK : pvn_opts_bad("--%s: the list is empty", opt);
}

/* Adds a plugin from NAME=PATH, or from PATH alone; the name then comes from
 * libnccl-net-NAME.so. */
int pvn_opts_add_plugin(struct pvn_perf_opts *o, const char *arg)
{
    struct pvn_perf_plugin *p = &o->plugin[o->nplugins];
    const char *eq = strchr(arg, '='), *slash = strchr(arg, '/');
    const char *path = arg;

    if (o->nplugins == PVN_PERF_MAX_PLUGINS)
        return pvn_opts_bad("more than %d plugins", PVN_PERF_MAX_PLUGINS);
    if (eq && (!slash || eq < slash)) {
        if (eq == arg || (size_t)(eq - arg) >= sizeof(p->name))
            return pvn_opts_bad("--plugin %s: the name before '=' is empty or too long", arg);
        snprintf(p->name, sizeof(p->name), "%.*s", (int)(eq - arg), arg);
        path = eq + 1;
    } else {
        const char *base = strrchr(arg, '/');
        size_t len;

        base = base ? base + 1 : arg;
        if (strncmp(base, "libnccl-net-", 12) == 0)
            base += 12;
        len = strcspn(base, ".");
        snprintf(p->name, sizeof(p->name), "%.*s", (int)len, base);
    }
    if (p->name[strspn(p->name, NAME_CHARS)])
        return pvn_opts_bad(
            "--plugin %s: a plugin's name is made of letters, digits, '_', '-' and '.'", arg);
    for (int i = 0; i < o->nplugins; i++) {
        if (strcmp(o->plugin[i].name, p->name) == 0)
            return pvn_opts_bad(
                "two plugins have the name %s: give each its own with --plugin NAME=PATH", p->name);
    }
    o->nplugins++;
    if (!*path || strlen(path) >= sizeof(p->what))
        return pvn_opts_bad("--plugin: '%s' is %s", path, *path ? "too long" : "empty");
    memcpy(p->what, path, strlen(path) + 1);
    return PVN_PERF_OK;
}

int pvn_opts_add_env(struct pvn_perf_opts *o, const char *arg)
{
    struct pvn_perf_env *e = &o->env[o->nenv];
    const char *eq = strchr(arg, '='), *colon = strchr(arg, ':');
    const char *key = arg;

    if (o->nenv == PVN_PERF_MAX_ENV)
        return pvn_opts_bad("more than %d --env", PVN_PERF_MAX_ENV);
    if (colon && eq && colon < eq) {
        if ((size_t)(colon - arg) >= sizeof(e->plugin))
            return pvn_opts_bad("--env %s: the plugin's name is too long", arg);
        snprintf(e->plugin, sizeof(e->plugin), "%.*s", (int)(colon - arg), arg);
        key = colon + 1;
    }
    if (!eq || eq == key || (size_t)(eq - key) >= sizeof(e->key) ||
        strlen(eq + 1) >= sizeof(e->value))
        return pvn_opts_bad("--env %s: expected KEY=VALUE or NAME:KEY=VALUE", arg);
    snprintf(e->key, sizeof(e->key), "%.*s", (int)(eq - key), key);
    snprintf(e->value, sizeof(e->value), "%s", eq + 1);
    o->nenv++;
    return PVN_PERF_OK;
}

/* Parses HOST, HOST:PORT, or [ADDRESS]:PORT; opt is the option's name for messages. */
static int host_port(const char *opt, const char *arg, bool needs_host, char *host, size_t cap,
                     int *port)
{
    const char *given = arg, *colon = strrchr(arg, ':');
    size_t len = strlen(arg);

    /* An IPv6 address contains colons, so with a port it is written [::1]:23000. */
    if (arg[0] == '[') {
        const char *close = strchr(arg, ']');

        if (!close || (close[1] && close[1] != ':'))
            return pvn_opts_bad("%s %s: expected [ADDRESS]:PORT", opt, arg);
        colon = close[1] ? close + 1 : NULL;
        len = (size_t)(close - arg) - 1;
        arg++;
    } else if (colon && strchr(arg, ':') != colon) {
        colon = NULL;
    } else if (colon) {
        len = (size_t)(colon - arg);
    }
    if ((len == 0 && needs_host) || len >= cap)
        return pvn_opts_bad("%s %s: the host is empty or too long", opt, given);
    if (colon) {
        char *end;
        long v = strtol(colon + 1, &end, 10);

        if (end == colon + 1 || *end || v < 1 || v > 65535)
            return pvn_opts_bad("%s %s: expected a port from 1 to 65535", opt, given);
        *port = (int)v;
    }
    snprintf(host, cap, "%.*s", (int)len, arg);
    return PVN_PERF_OK;
}

int pvn_opts_master(struct pvn_perf_opts *o, const char *arg)
{
    return host_port("--master", arg, true, o->master, sizeof(o->master), &o->port);
}

int pvn_opts_peer(struct pvn_perf_opts *o, const char *mode, const char *arg)
{
    return host_port(mode, arg, strcmp(mode, "p2p") == 0, o->peer, sizeof(o->peer), &o->peer_port);
}

int pvn_opts_sizes(struct pvn_perf_opts *o, const char *arg)
{
    char why[160];

    if (parse_sizes(arg, o->size, PVN_PERF_MAX_SIZES, &o->nsizes, why, sizeof(why)))
        return pvn_opts_bad("--sizes: %s", why);
    return PVN_PERF_OK;
}
