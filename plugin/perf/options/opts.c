/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts.h"

#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "base/version.h"
#include "perf/workload/model.h"
#include "perf/driver/netdrv.h"
#include "perf/options/opts_check.h"
#include "perf/options/opts_table.h"
#include "perf/options/opts_values.h"
#include "perf/workload/pairs_plan.h"
#include "tools/launch_env.h"

#define MAX_FORKED_RANKS 256
#define MAX_DEPTH        NCCL_NET_MAX_REQUESTS
#define MAX_GROUP        8
#define MAX_GPU          255
#define NOT_AN_OPTION    100 /* beside pvn_perf_exit */

static int set_memory(struct pvn_perf_opts *o, const char *arg)
{
    if (strcmp(arg, "pinned") == 0)
        o->memory = PVN_PERF_PINNED;
    else if (strcmp(arg, "host") == 0 || strcmp(arg, "movable") == 0)
        o->memory = PVN_PERF_MOVABLE;
    else if (strcmp(arg, "gpu") == 0)
        o->memory = PVN_PERF_GPU;
    else
        return pvn_opts_bad("--memory %s: expected gpu, pinned or host", arg);
    return PVN_PERF_OK;
}

static int set_type(struct pvn_perf_opts *o, const char *arg)
{
    if (strcmp(arg, "float32") == 0)
        o->type = PVN_FLOAT32;
    else if (strcmp(arg, "bfloat16") == 0)
        o->type = PVN_BFLOAT16;
    else
        return pvn_opts_bad("--type %s: expected float32 or bfloat16", arg);
    return PVN_PERF_OK;
}

const char *pvn_collective_name(enum pvn_collective what)
{
    static const char *const name[] = {"allreduce", "allgather", "reducescatter", "broadcast",
                                       "sendrecv",  "alltoall",  "alltoallv",     "pipeline"};

    return name[what];
}

/* nccl-tests writes all_gather, others all-gather: the name counts. */
static int set_collective(struct pvn_perf_opts *o, const char *arg)
{
    char name[32];
    size_t n = 0;

    for (const char *p = arg; *p && n + 1 < sizeof(name); p++)
        if (*p != '-' && *p != '_')
            name[n++] = *p;
    name[n] = '\0';
    for (int i = 0; i < PVN_COLLECTIVES; i++) {
        if (strcmp(name, pvn_collective_name((enum pvn_collective)i)) != 0)
            continue;
        o->collective = (enum pvn_collective)i;
        return PVN_PERF_OK;
    }
    return pvn_opts_bad(
        "--collective %s: expected allreduce, allgather, reducescatter, broadcast, sendrecv, "
        "alltoall, alltoallv or pipeline",
        arg);
}

static int take_what(struct pvn_perf_opts *o, int c, const char *arg, int *abi)
{
    switch (c) {
    case O_PLUGIN:
        return pvn_opts_add_plugin(o, arg);
    case O_ABI:
        return pvn_opts_int("abi", arg, PVN_NETDRV_ABI_MIN, PVN_NETDRV_ABI_MAX, abi);
    case O_ENV:
        return pvn_opts_add_env(o, arg);
    case O_DEV:
        return pvn_opts_list("dev", arg, o->dev, PVN_PERF_MAX_DEVS, &o->ndevs);
    case O_SIZES:
        return pvn_opts_sizes(o, arg);
    case O_PRESET:
        return pvn_opts_text("preset", arg, o->preset, sizeof(o->preset));
    case O_LAYERS:
        return pvn_opts_int("layers", arg, 1, 1000, &o->layers);
    case O_TOKENS:
        return pvn_opts_int("tokens", arg, 1, 1 << 20, &o->tokens);
    case O_PER_PEER:
        return pvn_opts_int("per-peer", arg, 1, PVN_PERF_MAX_CHANNELS, &o->per_peer);
    case O_MICRO_BATCHES:
        return pvn_opts_int("micro-batches", arg, 1, 65535, &o->micro_batches);
    case O_COLLECTIVE:
        return set_collective(o, arg);
    case O_TYPE:
        return set_type(o, arg);
    case O_CHANNELS:
        return pvn_opts_int("channels", arg, 1, PVN_PERF_MAX_CHANNELS, &o->channels);
    case O_MEMORY:
        return set_memory(o, arg);
    case O_GPU:
        return pvn_opts_int("gpu", arg, 0, MAX_GPU, &o->gpu);
    case O_DEPTH:
        return pvn_opts_int("depth", arg, 1, MAX_DEPTH, &o->depth);
    case O_GROUP:
        return pvn_opts_int("group", arg, 1, MAX_GROUP, &o->group);
    case O_IDLE:
        return pvn_opts_seconds("idle", arg, &o->idle);
    case O_LATENCY:
        o->latency = 1;
        return PVN_PERF_OK;
    case O_BANDWIDTH:
        o->bandwidth = 1;
        return PVN_PERF_OK;
    case O_SLOT:
        if (pvn_perf_parse_size(arg, &o->slot) || o->slot < 16 || o->slot > (1u << 30) ||
            o->slot % 16)
            return pvn_opts_bad("--slot %s: expected a multiple of 16 from 16 to 1G", arg);
        return PVN_PERF_OK;
    case O_STEPS:
        return pvn_opts_int("steps", arg, 1, MAX_DEPTH, &o->steps);
    case O_SLICES:
        return pvn_opts_int("slices", arg, 1, 16, &o->slices);
    case O_NO_SUMS:
        o->no_sums = 1;
        return PVN_PERF_OK;
    case O_BIDIRECTIONAL:
        o->bidirectional = 1;
        return PVN_PERF_OK;
    case O_DURATION:
        return pvn_opts_duration("duration", arg, &o->duration);
    case O_INTERVAL:
        return pvn_opts_duration("interval", arg, &o->interval);
    case O_JSON_LINES:
        return pvn_opts_text("json-lines", arg, o->json_lines, sizeof(o->json_lines));
    case O_ONCE:
        o->once = 1;
        return PVN_PERF_OK;
    case O_MAX_MEMORY:
        return pvn_perf_parse_size(arg, &o->max_memory) || o->max_memory < 4096
                   ? pvn_opts_bad("--max-memory %s: expected bytes from 4K on, as 512M or 4G", arg)
                   : PVN_PERF_OK;
    case O_MAX_TIME:
        return pvn_opts_duration("max-time", arg, &o->max_time);
    default:
        return pvn_opts_int("traffic-class", arg, 0, 255, &o->traffic_class);
    }
}

static int take_how(struct pvn_perf_opts *o, int c, const char *arg)
{
    switch (c) {
    case O_CHECK:
        o->check = 1;
        return PVN_PERF_OK;
    case O_ITERS:
        return pvn_opts_int("iters", arg, 1, 100000000, &o->iters);
    case O_WARMUP:
        return pvn_opts_int("warmup", arg, 0, 100000000, &o->warmup);
    case O_TIME:
        return pvn_opts_seconds("time", arg, &o->time);
    case O_REPEAT:
        return pvn_opts_int("repeat", arg, 1, 1000, &o->repeat);
    case O_TIMEOUT:
        return pvn_opts_seconds("timeout", arg, &o->timeout);
    case O_SPIN:
        o->spin = 1;
        return PVN_PERF_OK;
    case O_RANKS:
        return pvn_opts_int("ranks", arg, 1, MAX_FORKED_RANKS, &o->ranks);
    case O_NETNS:
        return pvn_opts_list("netns", arg, o->netns, PVN_PERF_MAX_NETNS, &o->nnetns);
    case O_MASTER:
        return pvn_opts_master(o, arg);
    case O_BOOT_TIMEOUT:
        return pvn_opts_seconds("boot-timeout", arg, &o->boot_timeout);
    case O_JSON:
        return pvn_opts_text("json", arg, o->json, sizeof(o->json));
    case O_CSV:
        return pvn_opts_text("csv", arg, o->csv, sizeof(o->csv));
    case O_PLOT:
        return pvn_opts_text("plot", arg, o->plot, sizeof(o->plot));
    case O_BASELINE:
        return pvn_opts_text("baseline", arg, o->baseline, sizeof(o->baseline));
    case O_TOLERANCE:
        return pvn_opts_int("tolerance", arg, 1, 99, &o->tolerance);
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
        if (arg && strcmp(arg, "all") != 0)
            return pvn_opts_bad("--help=%s: expected --help or --help=all", arg);
        fputs(arg ? pvn_perf_usage : pvn_perf_help, stdout);
        return PVN_PERF_HELP;
    case 'V':
    case O_VERSION:
        printf("pvn-perf %s\n", pvn_version());
        return PVN_PERF_HELP;
    default:
        return NOT_AN_OPTION;
    }
}

/* Says what getopt_long did not take: an unknown option, or a known one with or without its value. */
static int bad_option(const char *arg)
{
    size_t len = strcspn(arg, "=");
    struct pvn_suggest near;
    char name[64];

    if (strncmp(arg, "--", 2) != 0)
        return pvn_opts_bad("%s is not an option", arg);
    snprintf(name, sizeof(name), "%.*s", (int)len - 2, arg + 2);
    pvn_suggest_start(&near, name);
    for (int i = 0; pvn_opts_long[i].name; i++) {
        if (strcmp(pvn_opts_long[i].name, name) == 0)
            return pvn_opts_bad("--%s %s", name,
                                pvn_opts_long[i].has_arg ? "needs a value" : "takes no value");
        pvn_suggest_offer(&near, pvn_opts_long[i].name);
    }
    return near.best ? pvn_opts_bad("--%s is not an option; did you mean --%s?", name, near.best)
                     : pvn_opts_bad("--%s is not an option", name);
}

static int set_mode(struct pvn_perf_opts *o, int argc, char **argv, int at)
{
    struct pvn_suggest near;
    char ranks[16];

    snprintf(ranks, sizeof(ranks), "%d", o->ranks);

    if (o->mode == PVN_PERF_PARAMS)
        return at == argc
                   ? PVN_PERF_OK
                   : pvn_opts_bad("--params only prints the parameters: remove '%s'", argv[at]);
    if (at == argc && argc > 1)
        return pvn_opts_bad("the options name no mode, which says what is measured: one of p2p, "
                            "ring, scale, mesh and serve, as in pvn-perf ring%s%s",
                            o->ranks ? " --ranks " : "", o->ranks ? ranks : "");
    if (at == argc) {
        fputs(pvn_perf_help, stderr);
        return PVN_PERF_USAGE;
    }
    if (at + 1 < argc && strcmp(argv[at], "p2p") != 0 && strcmp(argv[at], "serve") != 0)
        return pvn_opts_bad("expected one mode, got '%s' and '%s'", argv[at], argv[at + 1]);
    if (at + 2 < argc)
        return pvn_opts_bad("expected one mode and one host, got '%s', '%s' and '%s'", argv[at],
                            argv[at + 1], argv[at + 2]);
    if (at + 1 < argc && pvn_opts_peer(o, argv[at], argv[at + 1]))
        return PVN_PERF_USAGE;
    pvn_suggest_start(&near, argv[at]);
    for (int i = 0; pvn_opts_modes[i].name; i++) {
        if (strcmp(argv[at], pvn_opts_modes[i].name) == 0) {
            o->mode = pvn_opts_modes[i].mode;
            return PVN_PERF_OK;
        }
        pvn_suggest_offer(&near, pvn_opts_modes[i].name);
    }
    if (near.best)
        return pvn_opts_bad("'%s' is not a mode; did you mean %s?", argv[at], near.best);
    return pvn_opts_bad("'%s' is not a mode; the modes are p2p, ring, scale, mesh and serve",
                        argv[at]);
}

/* Checks options that only make sense together, and sets defaults that depend on the mode. */
static int settle(struct pvn_perf_opts *o, int abi)
{
    int p2p = o->mode == PVN_PERF_P2P || o->mode == PVN_PERF_SERVE;
    int mesh = o->mode == PVN_PERF_MESH;
    const char *sizes = o->duration > 0            ? "1M"
                        : o->idle > 0              ? "8"
                        : p2p                      ? "8-4M"
                        : mesh                     ? "8,1M"
                        : o->mode == PVN_PERF_RING ? "1M-64M*4"
                                                   : "32M";

    if (o->nplugins == 0) {
        snprintf(o->plugin[0].name, sizeof(o->plugin[0].name), "pvrdma");
        o->nplugins = 1;
    }
    for (int i = 0; i < o->nplugins; i++)
        o->plugin[i].abi = abi;
    /* As its shards are gathered in training. */
    if (pvn_model_is(o->preset, PVN_MOE) ||
        (pvn_model_is(o->preset, PVN_FSDP) && !pvn_opts_given(o, O_TYPE)))
        o->type = PVN_BFLOAT16;
    if (p2p && o->ranks && o->ranks != 2)
        return pvn_opts_bad("--ranks %d: p2p runs between exactly 2 ranks; ring takes any number",
                            o->ranks);
    if (pvn_opts_check_mode(o) || pvn_opts_check_together(o, abi))
        return PVN_PERF_USAGE;
    if (o->preset[0] && o->nsizes)
        return pvn_opts_bad("--sizes and --preset exclude each other");
    if (abi == 4 && p2p && o->group > 1)
        return pvn_opts_bad("--group %d: version 4 of the interface has no grouped receives",
                            o->group);
    if (!o->nsizes && !o->preset[0] && pvn_opts_sizes(o, sizes))
        return PVN_PERF_USAGE;
    if (mesh && pvn_opts_check_mesh(o))
        return PVN_PERF_USAGE;
    for (int i = 0; !p2p && !mesh && !pvn_opts_of_pairs(o) && i < o->nsizes; i++) {
        if (o->size[i] % pvn_type_size(o->type))
            return pvn_opts_bad("--sizes: %llu is not a multiple of %zu, the size of a %s",
                                (unsigned long long)o->size[i], pvn_type_size(o->type),
                                pvn_type_name(o->type));
    }
    if (!o->channels)
        o->channels = p2p || mesh ? 1 : 2;
    if (pvn_opts_of_pairs(o) && !pvn_opts_given(o, O_SLOT))
        o->slot = PVN_PAIRS_SLOT;
    if (o->ndevs > o->channels)
        return pvn_opts_bad("--dev names %d devices but there are %d channels: give --channels %d",
                            o->ndevs, o->channels, o->ndevs);
    if (!o->ndevs)
        snprintf(o->dev[o->ndevs++], sizeof(o->dev[0]), "0");
    o->served = o->mode == PVN_PERF_P2P && o->peer[0];
    o->wait_server = o->served && pvn_opts_given(o, O_BOOT_TIMEOUT);
    if (o->duration > 0) {
        o->bandwidth = 1;
        /* Over TCP a minute may pass before the plugin gives a dead link up and fails over. */
        if (!pvn_opts_given(o, O_TIMEOUT))
            o->timeout = 300;
    }
    if ((p2p || mesh) && !o->latency && !o->bandwidth && !(o->idle > 0))
        o->latency = o->bandwidth = 1;
    o->check |= mesh; /* always verified */
    return pvn_opts_check_pairs(o) ? PVN_PERF_USAGE : pvn_opts_check_names(o);
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
    o->tokens = 4096;
    o->micro_batches = 8;
    o->warmup = -1;
    o->gpu = -1;
    o->time = 0.3;
    o->repeat = 1;
    o->tolerance = 10;
    o->timeout = 30;
    o->boot_timeout = 60;
    o->max_memory = UINT64_C(4) << 30;
    o->max_time = 86400;
    o->interval = 1;
    o->traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF;
    optind = 0; /* several command lines in one process: the tests */
    opterr = 0;
    while ((c = getopt_long(argc, argv, "hV", pvn_opts_long, NULL)) != -1) {
        int rc = c >= O_PLUGIN && c <= O_MAX_TIME ? take_what(o, c, optarg, &abi)
                                                  : take_how(o, c, optarg);

        if (rc == NOT_AN_OPTION)
            return bad_option(argv[optind - 1]);
        if (rc != PVN_PERF_OK)
            return rc;
        o->given |= UINT64_C(1) << (c - O_PLUGIN);
    }
    if (o->mode == PVN_PERF_PARAMS && o->given != UINT64_C(1) << (O_PARAMS - O_PLUGIN))
        return pvn_opts_bad("--params only prints the parameters: remove the other options");
    c = set_mode(o, argc, argv, optind);
    return c == PVN_PERF_OK && o->mode != PVN_PERF_PARAMS ? settle(o, abi) : c;
}

uint64_t pvn_perf_opts_token(const struct pvn_perf_opts *o)
{
    char text[256];
    uint64_t h;

    snprintf(
        text, sizeof(text),
        "%s %d %s %d %d %d %d %d %d %d %d %d %d %d %llu %d %d %d %d %f %d %d %d %d %f %d %f %f",
        pvn_version(), (int)o->mode, o->preset, o->layers, o->tokens, o->micro_batches, o->per_peer,
        (int)o->collective, (int)o->type, o->depth, o->group, o->channels, (int)o->memory,
        o->no_sums, (unsigned long long)o->slot, o->steps, o->slices, o->iters, o->warmup, o->time,
        o->check, o->repeat, o->nplugins, o->latency + 2 * o->bandwidth, o->idle, o->bidirectional,
        o->duration, o->interval);
    h = pvn_launch_hash(0, text);
    for (int i = 0; i < o->nsizes; i++) {
        snprintf(text, sizeof(text), " %llu", (unsigned long long)o->size[i]);
        h = pvn_launch_hash(h, text);
    }
    for (int i = 0; i < o->nplugins; i++)
        h = pvn_launch_hash(h, o->plugin[i].name);
    return h;
}
