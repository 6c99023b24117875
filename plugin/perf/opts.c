/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/opts.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/version.h"
#include "perf/model.h"
#include "perf/netdrv.h"
#include "tools/boot.h"
#include "tools/launch_env.h"

#define MAX_FORKED_RANKS 256
#define MAX_DEPTH        NCCL_NET_MAX_REQUESTS
#define MAX_GROUP        8
#define NOT_AN_OPTION    100 /* beside pvn_perf_exit */
#define NAME_CHARS       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

enum {
    O_PLUGIN = 256,
    O_ABI,
    O_ENV,
    O_DEV,
    O_SIZES,
    O_PRESET,
    O_CHANNELS,
    O_MEMORY,
    O_DEPTH,
    O_GROUP,
    O_LATENCY,
    O_IDLE,
    O_BANDWIDTH,
    O_SLOT,
    O_STEPS,
    O_SLICES,
    O_NO_SUMS,
    O_TC,
    O_CHECK,
    O_ITERS,
    O_WARMUP,
    O_TIME,
    O_REPEAT,
    O_TIMEOUT,
    O_SPIN,
    O_RANKS,
    O_NETNS,
    O_MASTER,
    O_BOOT_TIMEOUT,
    O_JSON,
    O_CSV,
    O_PLOT,
    O_BASELINE,
    O_TOLERANCE,
    O_QUIET,
    O_VERBOSE,
    O_PARAMS,
    O_HELP,
    O_VERSION
};

static const struct option longopts[] = {
    {"plugin", required_argument, NULL, O_PLUGIN},
    {"abi", required_argument, NULL, O_ABI},
    {"env", required_argument, NULL, O_ENV},
    {"dev", required_argument, NULL, O_DEV},
    {"sizes", required_argument, NULL, O_SIZES},
    {"preset", required_argument, NULL, O_PRESET},
    {"channels", required_argument, NULL, O_CHANNELS},
    {"comms", required_argument, NULL, O_CHANNELS},
    {"memory", required_argument, NULL, O_MEMORY},
    {"depth", required_argument, NULL, O_DEPTH},
    {"group", required_argument, NULL, O_GROUP},
    {"latency", no_argument, NULL, O_LATENCY},
    {"idle", required_argument, NULL, O_IDLE},
    {"bandwidth", no_argument, NULL, O_BANDWIDTH},
    {"slot", required_argument, NULL, O_SLOT},
    {"steps", required_argument, NULL, O_STEPS},
    {"slices", required_argument, NULL, O_SLICES},
    {"no-sums", no_argument, NULL, O_NO_SUMS},
    {"traffic-class", required_argument, NULL, O_TC},
    {"check", no_argument, NULL, O_CHECK},
    {"iters", required_argument, NULL, O_ITERS},
    {"warmup", required_argument, NULL, O_WARMUP},
    {"time", required_argument, NULL, O_TIME},
    {"repeat", required_argument, NULL, O_REPEAT},
    {"timeout", required_argument, NULL, O_TIMEOUT},
    {"spin", no_argument, NULL, O_SPIN},
    {"ranks", required_argument, NULL, O_RANKS},
    {"netns", required_argument, NULL, O_NETNS},
    {"master", required_argument, NULL, O_MASTER},
    {"boot-timeout", required_argument, NULL, O_BOOT_TIMEOUT},
    {"json", required_argument, NULL, O_JSON},
    {"csv", required_argument, NULL, O_CSV},
    {"plot", required_argument, NULL, O_PLOT},
    {"baseline", required_argument, NULL, O_BASELINE},
    {"tolerance", required_argument, NULL, O_TOLERANCE},
    {"quiet", no_argument, NULL, O_QUIET},
    {"verbose", no_argument, NULL, O_VERBOSE},
    {"params", no_argument, NULL, O_PARAMS},
    {"help", no_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    {0},
};

static const struct {
    const char *name;
    enum pvn_perf_mode mode;
} modes[] = {{"p2p", PVN_PERF_P2P}, {"ring", PVN_PERF_RING}, {"scale", PVN_PERF_SCALE}};

enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static int bad(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int bad(const char *fmt, ...)
{
    va_list ap;

    fputs("pvn-perf: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs(" (see pvn-perf --help)\n", stderr);
    return PVN_PERF_USAGE;
}

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

/* One item of a list of sizes: "8", "64K-4M" or "1M-64M*4". */
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

int pvn_perf_parse_sizes(const char *s, uint64_t *out, int max, int *n, char *why, size_t why_len)
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

static int want_int(const char *opt, const char *s, int min, int max, int *out)
{
    char *end;
    long v;

    errno = 0;
    v = strtol(s, &end, 10);
    if (errno || end == s || *end || v < min || v > max)
        return bad("--%s %s: expected a number from %d to %d", opt, s, min, max);
    *out = (int)v;
    return PVN_PERF_OK;
}

static int want_seconds(const char *opt, const char *s, double *out)
{
    char *end;
    double v = strtod(s, &end);

    if (end == s || *end || !(v > 0) || v > 86400)
        return bad("--%s %s: expected seconds > 0 and at most 86400", opt, s);
    *out = v;
    return PVN_PERF_OK;
}

static int want_text(const char *opt, const char *s, char *out, size_t len)
{
    if (!*s || strlen(s) >= len)
        return bad("--%s: '%s' is %s", opt, s, *s ? "too long" : "empty");
    memcpy(out, s, strlen(s) + 1);
    return PVN_PERF_OK;
}

/* Splits a comma list into fixed rows. */
static int want_list(const char *opt, const char *s, char (*out)[32], int max, int *n)
{
    const char *whole = s;

    for (*n = 0; *s;) {
        size_t len = strcspn(s, ",");

        if (*n == max)
            return bad("--%s: more than %d items", opt, max);
        if (len == 0 || len >= sizeof(*out))
            return bad("--%s: an item of '%s' is %s", opt, whole, len ? "too long" : "empty");
        memcpy(out[*n], s, len);
        out[(*n)++][len] = '\0';
        s += len + (s[len] == ',');
    }
    return *n ? PVN_PERF_OK : bad("--%s: the list is empty", opt);
}

/* NAME=PATH, or PATH alone, whose name is then taken from libnccl-net-NAME.so. */
static int add_plugin(struct pvn_perf_opts *o, const char *arg)
{
    struct pvn_perf_plugin *p = &o->plugin[o->nplugins];
    const char *eq = strchr(arg, '='), *slash = strchr(arg, '/');
    const char *path = arg;

    if (o->nplugins == PVN_PERF_MAX_PLUGINS)
        return bad("more than %d plugins", PVN_PERF_MAX_PLUGINS);
    if (eq && (!slash || eq < slash)) {
        if (eq == arg || (size_t)(eq - arg) >= sizeof(p->name))
            return bad("--plugin %s: the name before '=' is empty or too long", arg);
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
        return bad("--plugin %s: a plugin's name is made of letters, digits, '_', '-' and '.'",
                   arg);
    for (int i = 0; i < o->nplugins; i++) {
        if (strcmp(o->plugin[i].name, p->name) == 0)
            return bad("two plugins have the name %s: give each its own with --plugin NAME=PATH",
                       p->name);
    }
    o->nplugins++;
    return want_text("plugin", path, p->what, sizeof(p->what));
}

static int add_env(struct pvn_perf_opts *o, const char *arg)
{
    struct pvn_perf_env *e = &o->env[o->nenv];
    const char *eq = strchr(arg, '='), *colon = strchr(arg, ':');
    const char *key = arg;

    if (o->nenv == PVN_PERF_MAX_ENV)
        return bad("more than %d --env", PVN_PERF_MAX_ENV);
    if (colon && eq && colon < eq) {
        if ((size_t)(colon - arg) >= sizeof(e->plugin))
            return bad("--env %s: the plugin's name is too long", arg);
        snprintf(e->plugin, sizeof(e->plugin), "%.*s", (int)(colon - arg), arg);
        key = colon + 1;
    }
    if (!eq || eq == key || (size_t)(eq - key) >= sizeof(e->key) ||
        strlen(eq + 1) >= sizeof(e->value))
        return bad("--env %s: expected KEY=VALUE or NAME:KEY=VALUE", arg);
    snprintf(e->key, sizeof(e->key), "%.*s", (int)(eq - key), key);
    snprintf(e->value, sizeof(e->value), "%s", eq + 1);
    o->nenv++;
    return PVN_PERF_OK;
}

static int set_master(struct pvn_perf_opts *o, const char *arg)
{
    const char *colon = strrchr(arg, ':');
    size_t len = strlen(arg);

    /* An IPv6 address has colons of its own: with a port it is written [::1]:23000. */
    if (arg[0] == '[') {
        const char *close = strchr(arg, ']');

        if (!close || (close[1] && close[1] != ':'))
            return bad("--master %s: expected [ADDRESS]:PORT", arg);
        colon = close[1] ? close + 1 : NULL;
        len = (size_t)(close - arg) - 1;
        arg++;
    } else if (colon && strchr(arg, ':') != colon) {
        colon = NULL;
    } else if (colon) {
        len = (size_t)(colon - arg);
    }
    if (len == 0 || len >= sizeof(o->master))
        return bad("--master %s: the host is empty or too long", arg);
    if (colon && want_int("master", colon + 1, 1, 65535, &o->port))
        return PVN_PERF_USAGE;
    snprintf(o->master, sizeof(o->master), "%.*s", (int)len, arg);
    return PVN_PERF_OK;
}

static int set_sizes(struct pvn_perf_opts *o, const char *arg)
{
    char why[160];

    if (pvn_perf_parse_sizes(arg, o->size, PVN_PERF_MAX_SIZES, &o->nsizes, why, sizeof(why)))
        return bad("--sizes: %s", why);
    return PVN_PERF_OK;
}

static int set_memory(struct pvn_perf_opts *o, const char *arg)
{
    if (strcmp(arg, "pinned") == 0)
        o->memory = PVN_PERF_PINNED;
    else if (strcmp(arg, "movable") == 0)
        o->memory = PVN_PERF_MOVABLE;
    else
        return bad("--memory %s: expected pinned or movable", arg);
    return PVN_PERF_OK;
}

static int take_what(struct pvn_perf_opts *o, int c, const char *arg, int *abi)
{
    switch (c) {
    case O_PLUGIN:
        return add_plugin(o, arg);
    case O_ABI:
        return want_int("abi", arg, PVN_NETDRV_ABI_MIN, PVN_NETDRV_ABI_MAX, abi);
    case O_ENV:
        return add_env(o, arg);
    case O_DEV:
        return want_list("dev", arg, o->dev, PVN_PERF_MAX_DEVS, &o->ndevs);
    case O_SIZES:
        return set_sizes(o, arg);
    case O_PRESET:
        return want_text("preset", arg, o->preset, sizeof(o->preset));
    case O_CHANNELS:
        return want_int("channels", arg, 1, PVN_PERF_MAX_CHANNELS, &o->channels);
    case O_MEMORY:
        return set_memory(o, arg);
    case O_DEPTH:
        return want_int("depth", arg, 1, MAX_DEPTH, &o->depth);
    case O_GROUP:
        return want_int("group", arg, 1, MAX_GROUP, &o->group);
    case O_IDLE:
        return want_seconds("idle", arg, &o->idle);
    case O_LATENCY:
        o->latency = 1;
        return PVN_PERF_OK;
    case O_BANDWIDTH:
        o->bandwidth = 1;
        return PVN_PERF_OK;
    case O_SLOT:
        if (pvn_perf_parse_size(arg, &o->slot) || o->slot < 16 || o->slot > (1u << 30) ||
            o->slot % 16)
            return bad("--slot %s: expected a multiple of 16 from 16 to 1G", arg);
        return PVN_PERF_OK;
    case O_STEPS:
        return want_int("steps", arg, 1, MAX_DEPTH, &o->steps);
    case O_SLICES:
        return want_int("slices", arg, 1, 16, &o->slices);
    case O_NO_SUMS:
        o->no_sums = 1;
        return PVN_PERF_OK;
    default:
        return want_int("traffic-class", arg, 0, 255, &o->traffic_class);
    }
}

static int take_how(struct pvn_perf_opts *o, int c, const char *arg)
{
    switch (c) {
    case O_CHECK:
        o->check = 1;
        return PVN_PERF_OK;
    case O_ITERS:
        return want_int("iters", arg, 1, 100000000, &o->iters);
    case O_WARMUP:
        return want_int("warmup", arg, 0, 100000000, &o->warmup);
    case O_TIME:
        return want_seconds("time", arg, &o->time);
    case O_REPEAT:
        return want_int("repeat", arg, 1, 1000, &o->repeat);
    case O_TIMEOUT:
        return want_seconds("timeout", arg, &o->timeout);
    case O_SPIN:
        o->spin = 1;
        return PVN_PERF_OK;
    case O_RANKS:
        return want_int("ranks", arg, 1, MAX_FORKED_RANKS, &o->ranks);
    case O_NETNS:
        return want_list("netns", arg, o->netns, PVN_PERF_MAX_NETNS, &o->nnetns);
    case O_MASTER:
        return set_master(o, arg);
    case O_BOOT_TIMEOUT:
        return want_seconds("boot-timeout", arg, &o->boot_timeout);
    case O_JSON:
        return want_text("json", arg, o->json, sizeof(o->json));
    case O_CSV:
        return want_text("csv", arg, o->csv, sizeof(o->csv));
    case O_PLOT:
        return want_text("plot", arg, o->plot, sizeof(o->plot));
    case O_BASELINE:
        return want_text("baseline", arg, o->baseline, sizeof(o->baseline));
    case O_TOLERANCE:
        return want_int("tolerance", arg, 1, 99, &o->tolerance);
    case O_QUIET:
        o->quiet = 1;
        return PVN_PERF_OK;
    case O_VERBOSE:
        o->verbose = 1;
        return PVN_PERF_OK;
    case O_PARAMS:
        o->mode = PVN_PERF_PARAMS;
        return PVN_PERF_OK;
    case 'h':
    case O_HELP:
        fputs(pvn_perf_usage, stdout);
        return PVN_PERF_HELP;
    case 'V':
    case O_VERSION:
        printf("pvn-perf %s\n", pvn_version());
        return PVN_PERF_HELP;
    default:
        return NOT_AN_OPTION;
    }
}

/* What getopt_long did not take: an unknown option, or a known one with or without its value. */
static int bad_option(const char *arg)
{
    size_t len = strcspn(arg, "=");
    struct pvn_suggest near;
    char name[64];

    if (strncmp(arg, "--", 2) != 0)
        return bad("%s is not an option", arg);
    snprintf(name, sizeof(name), "%.*s", (int)len - 2, arg + 2);
    pvn_suggest_start(&near, name);
    for (int i = 0; longopts[i].name; i++) {
        if (strcmp(longopts[i].name, name) == 0)
            return bad("--%s %s", name, longopts[i].has_arg ? "needs a value" : "takes no value");
        pvn_suggest_offer(&near, longopts[i].name);
    }
    return near.best ? bad("--%s is not an option; did you mean --%s?", name, near.best)
                     : bad("--%s is not an option", name);
}

static int set_mode(struct pvn_perf_opts *o, int argc, char **argv, int at)
{
    struct pvn_suggest near;

    if (o->mode == PVN_PERF_PARAMS)
        return at == argc ? PVN_PERF_OK
                          : bad("--params only prints the parameters: remove '%s'", argv[at]);
    if (at == argc) {
        fputs(pvn_perf_usage, stderr);
        return PVN_PERF_USAGE;
    }
    if (at + 1 < argc)
        return bad("expected one mode, got '%s' and '%s'", argv[at], argv[at + 1]);
    pvn_suggest_start(&near, argv[at]);
    for (size_t i = 0; i < MODES; i++) {
        if (strcmp(argv[at], modes[i].name) == 0) {
            o->mode = modes[i].mode;
            return PVN_PERF_OK;
        }
        pvn_suggest_offer(&near, modes[i].name);
    }
    if (near.best)
        return bad("'%s' is not a mode; did you mean %s?", argv[at], near.best);
    return bad("'%s' is not a mode; the modes are p2p, ring and scale", argv[at]);
}

/* ---- options that would have no effect ---- */

enum { IN_P2P = 1, IN_RING = 2, IN_IDLE = 4, IN_ALL = IN_P2P | IN_RING | IN_IDLE };

/* Where an option has an effect, unless that is everywhere. ring and scale take the same ones. */
static const struct {
    int option;
    int modes;
} limited[] = {
    {O_SIZES, IN_P2P | IN_RING},
    {O_PRESET, IN_RING},
    {O_DEPTH, IN_P2P},
    {O_GROUP, IN_P2P},
    {O_LATENCY, IN_P2P},
    {O_BANDWIDTH, IN_P2P},
    {O_SLOT, IN_RING},
    {O_STEPS, IN_RING},
    {O_SLICES, IN_RING},
    {O_NO_SUMS, IN_RING},
    {O_CHECK, IN_P2P | IN_RING},
    {O_ITERS, IN_P2P | IN_RING},
    {O_WARMUP, IN_P2P | IN_RING},
    {O_TIME, IN_P2P | IN_RING},
    {O_SPIN, IN_P2P | IN_RING},
    {O_PLOT, IN_P2P | IN_RING},
};

static const char *option_name(int c)
{
    for (int i = 0; longopts[i].name; i++) {
        if (longopts[i].val == c)
            return longopts[i].name;
    }
    return "?";
}

static bool given(const struct pvn_perf_opts *o, int c)
{
    return (o->given & UINT64_C(1) << (c - O_PLUGIN)) != 0;
}

static int check_mode_takes(const struct pvn_perf_opts *o)
{
    int here = o->idle > 0 ? IN_IDLE : o->mode == PVN_PERF_P2P ? IN_P2P : IN_RING;

    for (size_t i = 0; i < sizeof(limited) / sizeof(limited[0]); i++) {
        int takes = limited[i].modes;

        if (!given(o, limited[i].option) || (takes & here))
            continue;
        if (here == IN_IDLE)
            return bad("--%s has no effect with --idle", option_name(limited[i].option));
        return bad("--%s has no effect in %s: it is for %s", option_name(limited[i].option),
                   modes[o->mode].name, takes & IN_RING ? "ring and scale" : "p2p");
    }
    if (o->idle > 0 && o->mode != PVN_PERF_P2P)
        return bad("--idle has no effect in %s: it is for p2p", modes[o->mode].name);
    return PVN_PERF_OK;
}

/* Pairs of which the first has no effect when the second is given. */
static const struct {
    int option, beside;
    const char *because;
} pointless[] = {
    {O_TIME, O_ITERS, "the number of iterations is given"},
    {O_TIME, O_PRESET, "a preset runs a number of steps: give --iters"},
    {O_MASTER, O_RANKS, "all ranks are started here"},
    {O_BOOT_TIMEOUT, O_RANKS, "all ranks are started here"},
    {O_VERBOSE, O_QUIET, "they contradict each other"},
};

static int check_together(const struct pvn_perf_opts *o, int abi)
{
    const char *const out[] = {o->json, o->csv, o->plot};

    for (size_t i = 0; i < sizeof(pointless) / sizeof(pointless[0]); i++) {
        if (given(o, pointless[i].option) && given(o, pointless[i].beside))
            return bad("--%s has no effect with --%s: %s", option_name(pointless[i].option),
                       option_name(pointless[i].beside), pointless[i].because);
    }
    if (given(o, O_TOLERANCE) && !o->baseline[0])
        return bad("--tolerance has no effect without --baseline");
    if (given(o, O_TC) && abi && abi < 10)
        return bad("--traffic-class has no effect with --abi %d: NCCL's interface has it from "
                   "version 10 on",
                   abi);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < i; k++) {
            if (!out[i][0] || strcmp(out[i], out[k]) != 0)
                continue;
            return strcmp(out[i], "-") == 0
                       ? bad("only one of --json, --csv and --plot can be '-', standard output: "
                             "name a file for the others")
                       : bad("%s is given for two kinds of output: give each a file of its own",
                             out[i]);
        }
    }
    return PVN_PERF_OK;
}

static int check_names(const struct pvn_perf_opts *o)
{
    struct pvn_model m;
    int rc;

    for (int i = 0; i < o->nenv; i++) {
        int known = !o->env[i].plugin[0];

        for (int k = 0; k < o->nplugins; k++)
            known |= strcmp(o->env[i].plugin, o->plugin[k].name) == 0;
        if (!known)
            return bad("--env %s:%s=...: no --plugin has the name %s", o->env[i].plugin,
                       o->env[i].key, o->env[i].plugin);
    }
    if (!o->preset[0])
        return PVN_PERF_OK;
    rc = pvn_model_load(o->preset, &m);
    if (rc == -ENOENT) {
        const char *near = pvn_model_suggest(o->preset);

        return near ? bad("--preset %s is not known; did you mean %s?", o->preset, near)
                    : bad("--preset %s is not known; there are %s", o->preset, pvn_model_names());
    }
    pvn_model_free(&m);
    return rc ? bad("out of memory for --preset %s", o->preset) : PVN_PERF_OK;
}

/* What only makes sense together, and defaults that depend on the mode. */
static int settle(struct pvn_perf_opts *o, int abi)
{
    int p2p = o->mode == PVN_PERF_P2P;
    const char *sizes = o->idle > 0                ? "8"
                        : p2p                      ? "8-4M"
                        : o->mode == PVN_PERF_RING ? "1M-64M*4"
                                                   : "32M";

    if (o->nplugins == 0) {
        snprintf(o->plugin[0].name, sizeof(o->plugin[0].name), "pvrdma");
        o->nplugins = 1;
    }
    for (int i = 0; i < o->nplugins; i++)
        o->plugin[i].abi = abi;
    if (p2p && o->ranks && o->ranks != 2)
        return bad("--ranks %d: p2p runs between exactly 2 ranks; ring takes any number", o->ranks);
    if (check_mode_takes(o) || check_together(o, abi))
        return PVN_PERF_USAGE;
    if (o->preset[0] && o->nsizes)
        return bad("--sizes and --preset exclude each other");
    if (abi == 4 && o->group > 1)
        return bad("--group %d: version 4 of the interface has no grouped receives", o->group);
    if (!o->nsizes && !o->preset[0] && set_sizes(o, sizes))
        return PVN_PERF_USAGE;
    for (int i = 0; !p2p && i < o->nsizes; i++) {
        if (o->size[i] % sizeof(float))
            return bad("--sizes: %llu is not a multiple of 4, the size of a float32",
                       (unsigned long long)o->size[i]);
    }
    if (!o->channels)
        o->channels = p2p ? 1 : 2;
    if (o->ndevs > o->channels)
        return bad("--dev names %d devices but there are %d channels: give --channels %d", o->ndevs,
                   o->channels, o->ndevs);
    if (!o->ndevs)
        snprintf(o->dev[o->ndevs++], sizeof(o->dev[0]), "0");
    if (p2p && !o->latency && !o->bandwidth && !(o->idle > 0))
        o->latency = o->bandwidth = 1;
    return check_names(o);
}

int pvn_perf_opts_parse(struct pvn_perf_opts *o, int argc, char **argv)
{
    int abi = 0, c;

    memset(o, 0, sizeof(*o));
    o->depth = 8;
    o->group = 1;
    o->slot = 512 * 1024;
    o->steps = 8;
    o->slices = 1;
    o->warmup = -1;
    o->time = 0.3;
    o->repeat = 1;
    o->tolerance = 10;
    o->timeout = 30;
    o->boot_timeout = 60;
    o->traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF;
    optind = 0; /* several command lines in one process: the tests */
    opterr = 0;
    while ((c = getopt_long(argc, argv, "hV", longopts, NULL)) != -1) {
        int rc =
            c >= O_PLUGIN && c <= O_TC ? take_what(o, c, optarg, &abi) : take_how(o, c, optarg);

        if (rc == NOT_AN_OPTION)
            return bad_option(argv[optind - 1]);
        if (rc != PVN_PERF_OK)
            return rc;
        o->given |= UINT64_C(1) << (c - O_PLUGIN);
    }
    if (o->mode == PVN_PERF_PARAMS && o->given != UINT64_C(1) << (O_PARAMS - O_PLUGIN))
        return bad("--params only prints the parameters: remove the other options");
    c = set_mode(o, argc, argv, optind);
    return c == PVN_PERF_OK && o->mode != PVN_PERF_PARAMS ? settle(o, abi) : c;
}

uint64_t pvn_perf_opts_token(const struct pvn_perf_opts *o)
{
    char text[256];
    uint64_t h;

    snprintf(text, sizeof(text), "%s %d %s %d %d %d %d %d %llu %d %d %d %d %f %d %d %d %d %f",
             pvn_version(), (int)o->mode, o->preset, o->depth, o->group, o->channels,
             (int)o->memory, o->no_sums, (unsigned long long)o->slot, o->steps, o->slices, o->iters,
             o->warmup, o->time, o->check, o->repeat, o->nplugins, o->latency + 2 * o->bandwidth,
             o->idle);
    h = pvn_launch_hash(0, text);
    for (int i = 0; i < o->nsizes; i++) {
        snprintf(text, sizeof(text), " %llu", (unsigned long long)o->size[i]);
        h = pvn_launch_hash(h, text);
    }
    for (int i = 0; i < o->nplugins; i++)
        h = pvn_launch_hash(h, o->plugin[i].name);
    return h;
}
