/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/param.h"
#include "base/version.h"
#include "perf/workload/model.h"
#include "perf/driver/netdrv.h"
#include "perf/options/opts_check.h"
#include "perf/options/opts_table.h"
#include "perf/options/opts_values.h"
#include "perf/workload/pairs_plan.h"
#include "tools/launch_env.h"

const char *pvn_collective_name(enum pvn_collective what)
{
    return pvn_collective_words[what].word;
}

/* Takes options whose values are not a single number, word or text. */
static int take_option(void *to, const struct pvn_option *row, const char *arg)
{
    struct pvn_perf_opts *o = to;

    switch (row->at) {
    case offsetof(struct pvn_perf_opts, plugin):
        return pvn_opts_add_plugin(o, arg);
    case offsetof(struct pvn_perf_opts, env):
        return pvn_opts_add_env(o, arg);
    case offsetof(struct pvn_perf_opts, dev):
        return pvn_opts_list("dev", arg, o->dev, PVN_PERF_MAX_DEVS, &o->ndevs);
    case offsetof(struct pvn_perf_opts, netns):
        return pvn_opts_list("netns", arg, o->netns, PVN_PERF_MAX_NETNS, &o->nnetns);
    case offsetof(struct pvn_perf_opts, size):
        return pvn_opts_sizes(o, arg);
    case offsetof(struct pvn_perf_opts, master):
        return pvn_opts_master(o, arg);
    case offsetof(struct pvn_perf_opts, slot):
        return pvn_perf_parse_size(arg, &o->slot) || o->slot < 16 || o->slot > (1u << 30) ||
                       o->slot % 16
                   ? pvn_opts_bad("--slot %s: expected a multiple of 16 from 16 to 1G", arg)
                   : PVN_PERF_OK;
    default:
        return pvn_perf_parse_size(arg, &o->max_memory) || o->max_memory < 4096
                   ? pvn_opts_bad("--max-memory %s: expected bytes from 4K on, as 512M or 4G", arg)
                   : PVN_PERF_OK;
    }
}

static int set_mode(struct pvn_perf_opts *o, int argc, char **argv, int at)
{
    char ranks[16];
    int mode;

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
        fputs(pvn_perf_options.help, stderr);
        return PVN_PERF_USAGE;
    }
    if (at + 1 < argc && strcmp(argv[at], "p2p") != 0 && strcmp(argv[at], "serve") != 0)
        return pvn_opts_bad("expected one mode, got '%s' and '%s'", argv[at], argv[at + 1]);
    if (at + 2 < argc)
        return pvn_opts_bad("expected one mode and one host, got '%s', '%s' and '%s'", argv[at],
                            argv[at + 1], argv[at + 2]);
    if (at + 1 < argc && pvn_opts_peer(o, argv[at], argv[at + 1]))
        return PVN_PERF_USAGE;
    if ((mode = pvn_options_mode(&pvn_perf_options, argv[at])) < 0)
        return PVN_PERF_USAGE;
    o->mode = (enum pvn_perf_mode)mode;
    return PVN_PERF_OK;
}

/* Checks options that only make sense together, and sets defaults that depend on the mode. */
static int settle_options(struct pvn_perf_opts *o)
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
        o->plugin[i].abi = o->abi;
    /* bfloat16, because training gathers its shards in this type. */
    if (pvn_model_is(o->preset, PVN_MOE) ||
        (pvn_model_is(o->preset, PVN_FSDP) && !pvn_opts_given(o, type)))
        o->type = PVN_BFLOAT16;
    if (p2p && o->ranks && o->ranks != 2)
        return pvn_opts_bad("--ranks %d: p2p runs between exactly 2 ranks; ring takes any number",
                            o->ranks);
    if (pvn_opts_check_mode(o) || pvn_opts_check_together(o))
        return PVN_PERF_USAGE;
    if (o->preset[0] && o->nsizes)
        return pvn_opts_bad("--sizes and --preset exclude each other");
    if (o->abi == 4 && p2p && o->group > 1)
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
    if (!pvn_opts_given(o, slot))
        o->slot = pvn_opts_of_pairs(o) ? PVN_PAIRS_SLOT : 512 * 1024;
    if (o->ndevs > o->channels)
        return pvn_opts_bad("--dev names %d devices but there are %d channels: give --channels %d",
                            o->ndevs, o->channels, o->ndevs);
    if (!o->ndevs)
        snprintf(o->dev[o->ndevs++], sizeof(o->dev[0]), "0");
    o->served = o->mode == PVN_PERF_P2P && o->peer[0];
    o->wait_server = o->served && pvn_opts_given(o, boot_timeout);
    if (o->duration > 0) {
        o->bandwidth = p2p;
        /* Over TCP a minute may pass before the plugin declares a link dead and fails over. */
        if (!pvn_opts_given(o, timeout))
            o->timeout = 300;
    }
    if ((p2p || mesh) && !o->latency && !o->bandwidth && !(o->idle > 0))
        o->latency = o->bandwidth = 1;
    o->check |= mesh; /* always verified */
    return pvn_opts_check_pairs(o) ? PVN_PERF_USAGE : pvn_opts_check_names(o);
}

int pvn_perf_opts_parse(struct pvn_perf_opts *o, int argc, char **argv)
{
    int rc;

    memset(o, 0, sizeof(*o));
    o->warmup = -1;
    o->gpu = -1;
    o->traffic_class = NCCL_NET_TRAFFIC_CLASS_UNDEF;
    rc = pvn_options_parse(&pvn_perf_options, argc, argv, o, take_option, &o->given);
    if (rc != PVN_OPTIONS_OK)
        return rc;
    if (o->mode == PVN_PERF_PARAMS && o->given & (o->given - 1))
        return pvn_opts_bad("--params only prints the parameters: remove the other options");
    if (o->make_key[0] && (o->given & (o->given - 1) || optind < argc))
        return pvn_opts_bad("--make-key only makes a key: remove everything else");
    if (o->make_key[0])
        return PVN_PERF_OK;
    rc = set_mode(o, argc, argv, optind);
    return rc == PVN_PERF_OK && o->mode != PVN_PERF_PARAMS ? settle_options(o) : rc;
}

/* The plugin's default of NCCL_PVRDMA_STALL_WARN; seconds. */
static double stall_warn_default(void)
{
    char *nothing_set[] = {NULL};
    struct pvn_params defaults;

    pvn_params_read(&defaults, nothing_set, NULL);
    return (double)defaults.stall_warn / PVN_NS_PER_S;
}

bool pvn_opts_stall_warn(const struct pvn_perf_opts *o, char *value, size_t len)
{
    const char *set = getenv(PVN_PERF_STALL_WARN);

    /* An empty value counts as unset, as in the plugin. */
    if ((set && *set) || o->timeout / 3 >= stall_warn_default())
        return false;
    snprintf(value, len, "%.0fus", o->timeout / 3 * 1e6);
    return true;
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
