/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts_check.h"

#include <errno.h>
#include <string.h>

#include "perf/workload/model.h"
#include "perf/options/opts_table.h"
#include "perf/options/opts_values.h"

enum { IN_P2P = 1, IN_RING = 2, IN_IDLE = 4, IN_MESH = 8, IN_TIMED = IN_P2P | IN_RING | IN_MESH };

/* The modes in which an option has an effect, unless these are all. ring and scale take the same ones. */
static const struct {
    int option;
    int modes;
} limited[] = {
    {O_SIZES, IN_TIMED},
    {O_PRESET, IN_RING},
    {O_LAYERS, IN_RING},
    {O_COLLECTIVE, IN_RING},
    {O_TOKENS, IN_RING},
    {O_MICRO_BATCHES, IN_RING},
    {O_PER_PEER, IN_RING},
    {O_TYPE, IN_RING},
    {O_DEPTH, IN_P2P | IN_MESH},
    {O_GROUP, IN_P2P | IN_RING},
    {O_LATENCY, IN_P2P | IN_MESH},
    {O_BANDWIDTH, IN_P2P | IN_MESH},
    {O_SLOT, IN_RING},
    {O_STEPS, IN_RING},
    {O_SLICES, IN_RING},
    {O_NO_SUMS, IN_RING},
    {O_CHECK, IN_TIMED},
    {O_ITERS, IN_TIMED},
    {O_WARMUP, IN_TIMED},
    {O_TIME, IN_TIMED},
    {O_SPIN, IN_TIMED},
    {O_PLOT, IN_TIMED},
    {O_BIDIRECTIONAL, IN_P2P},
    {O_DURATION, IN_P2P},
    {O_INTERVAL, IN_P2P},
    {O_JSON_LINES, IN_P2P},
};

/* All others are the client's. */
static const int in_serve[] = {O_PLUGIN, O_ABI,        O_ENV,      O_DEV,   O_GPU,
                               O_ONCE,   O_MAX_MEMORY, O_MAX_TIME, O_QUIET, O_VERBOSE};
static const int only_serve[] = {O_ONCE, O_MAX_MEMORY, O_MAX_TIME};

static int check_serve(const struct pvn_perf_opts *o)
{
    for (int c = O_PLUGIN; c <= O_VERSION; c++) {
        bool takes = false;

        for (size_t i = 0; i < sizeof(in_serve) / sizeof(in_serve[0]); i++)
            takes |= in_serve[i] == c;
        if (pvn_opts_given(o, c) && !takes)
            return pvn_opts_bad("--%s has no effect in serve: the client decides it",
                                pvn_opts_name(c));
    }
    return o->nplugins > 1 ? pvn_opts_bad("serve takes one --plugin: start one for each, on ports "
                                          "of their own")
                           : PVN_PERF_OK;
}

int pvn_opts_check_mode(const struct pvn_perf_opts *o)
{
    static const int apart[] = {O_RANKS, O_NETNS, O_MASTER};
    int here = o->idle > 0                ? IN_IDLE
               : o->mode == PVN_PERF_P2P  ? IN_P2P
               : o->mode == PVN_PERF_MESH ? IN_MESH
                                          : IN_RING;

    if (o->mode == PVN_PERF_SERVE)
        return check_serve(o);
    for (size_t i = 0; i < sizeof(only_serve) / sizeof(only_serve[0]); i++) {
        if (pvn_opts_given(o, only_serve[i]))
            return pvn_opts_bad("--%s has no effect in %s: it is for serve",
                                pvn_opts_name(only_serve[i]), pvn_opts_modes[o->mode].name);
    }
    for (size_t i = 0; o->peer[0] && i < sizeof(apart) / sizeof(apart[0]); i++) {
        if (pvn_opts_given(o, apart[i]))
            return pvn_opts_bad("--%s has no effect with the host %s: the other rank is there",
                                pvn_opts_name(apart[i]), o->peer);
    }
    for (size_t i = 0; i < sizeof(limited) / sizeof(limited[0]); i++) {
        int takes = limited[i].modes;

        if (!pvn_opts_given(o, limited[i].option) || (takes & here))
            continue;
        if (here == IN_IDLE)
            return pvn_opts_bad("--%s has no effect with --idle", pvn_opts_name(limited[i].option));
        return pvn_opts_bad("--%s has no effect in %s: it is for %s",
                            pvn_opts_name(limited[i].option), pvn_opts_modes[o->mode].name,
                            takes & IN_RING   ? "ring and scale"
                            : takes & IN_MESH ? "p2p and mesh"
                                              : "p2p");
    }
    if (o->idle > 0 && o->mode != PVN_PERF_P2P)
        return pvn_opts_bad("--idle has no effect in %s: it is for p2p",
                            pvn_opts_modes[o->mode].name);
    return PVN_PERF_OK;
}

int pvn_opts_check_mesh(const struct pvn_perf_opts *o)
{
    if (o->ranks == 1)
        return pvn_opts_bad("--ranks 1: mesh is between at least 2 ranks");
    if (o->nsizes > 2)
        return pvn_opts_bad("--sizes: mesh takes the size for latency and that for bandwidth, as "
                            "8,1M, or one for both, but here are %d",
                            o->nsizes);
    return PVN_PERF_OK;
}

/* Pairs of which the first has no effect when the second is given. */
static const struct {
    int option, beside;
    const char *because;
} pointless[] = {
    {O_TIME, O_DURATION, "messages move for that long"},
    {O_ITERS, O_DURATION, "messages move for that long"},
    {O_WARMUP, O_DURATION, "all messages count"},
    {O_LATENCY, O_DURATION, "it is about bandwidth and bytes"},
    {O_TIME, O_ITERS, "the number of iterations is given"},
    {O_TIME, O_PRESET, "a preset runs a number of steps: give --iters"},
    {O_COLLECTIVE, O_PRESET, "the model has its own"},
    {O_MASTER, O_RANKS, "all ranks are started here"},
    {O_BOOT_TIMEOUT, O_RANKS, "all ranks are started here"},
    {O_VERBOSE, O_QUIET, "they contradict each other"},
};

static int check_group(const struct pvn_perf_opts *o)
{
    if (!pvn_opts_given(o, O_GROUP) || o->mode == PVN_PERF_P2P)
        return PVN_PERF_OK;
    if (!pvn_opts_of_pairs(o) || o->collective == PVN_PIPELINE)
        return pvn_opts_bad(
            "--group %d has no effect here: it is for alltoall, alltoallv, mixtral-8x7b and p2p",
            o->group);
    if (o->group & (o->group - 1))
        return pvn_opts_bad("--group %d: expected 1, 2, 4 or 8 ranks of a node", o->group);
    return o->mode == PVN_PERF_SCALE
               ? pvn_opts_bad(
                     "--group %d: scale has all numbers of ranks, which are no whole number of such "
                     "nodes; use ring",
                     o->group)
               : PVN_PERF_OK;
}

int pvn_opts_check_pairs(const struct pvn_perf_opts *o)
{
    bool pairs = pvn_opts_of_pairs(o);

    if (check_group(o))
        return PVN_PERF_USAGE;
    if (pvn_opts_given(o, O_TOKENS) && !pvn_model_is(o->preset, PVN_MOE))
        return pvn_opts_bad("--tokens %d has no effect without --preset mixtral-8x7b", o->tokens);
    if (pvn_opts_given(o, O_MICRO_BATCHES) && o->collective != PVN_PIPELINE)
        return pvn_opts_bad("--micro-batches %d has no effect without --collective pipeline",
                            o->micro_batches);
    if (pvn_opts_given(o, O_PER_PEER) && !pairs)
        return pvn_opts_bad("--per-peer %d has no effect here: it is for traffic between pairs",
                            o->per_peer);
    if (o->per_peer & (o->per_peer - 1) || (pairs && o->per_peer > o->channels))
        return pvn_opts_bad("--per-peer %d: expected a power of two up to --channels %d",
                            o->per_peer, o->channels);
    if (pairs && pvn_opts_given(o, O_TYPE))
        return pvn_opts_bad(
            "--type has no effect where nothing is added: bytes are moved as they are");
    if (pairs && pvn_opts_given(o, O_SLICES))
        return pvn_opts_bad("--slices has no effect between pairs: a message has a slot");
    if (pairs && o->channels & (o->channels - 1))
        return pvn_opts_bad(
            "--channels %d: NCCL has 1, 2, 4, 8 or more powers of two between pairs", o->channels);
    return PVN_PERF_OK;
}

int pvn_opts_check_together(const struct pvn_perf_opts *o, int abi)
{
    const char *const out[] = {o->json, o->csv, o->plot, o->json_lines};

    for (size_t i = 0; i < sizeof(pointless) / sizeof(pointless[0]); i++) {
        if (pvn_opts_given(o, pointless[i].option) && pvn_opts_given(o, pointless[i].beside))
            return pvn_opts_bad("--%s has no effect with --%s: %s",
                                pvn_opts_name(pointless[i].option),
                                pvn_opts_name(pointless[i].beside), pointless[i].because);
    }
    if (o->gpu >= 0 && o->memory == PVN_PERF_MOVABLE)
        return pvn_opts_bad("--gpu %d has no effect with --memory host: no GPU has a part in it",
                            o->gpu);
    if (pvn_opts_given(o, O_TOLERANCE) && !o->baseline[0])
        return pvn_opts_bad("--tolerance has no effect without --baseline");
    if ((pvn_opts_given(o, O_INTERVAL) || o->json_lines[0]) && !(o->duration > 0))
        return pvn_opts_bad("--%s has no effect without --duration",
                            o->json_lines[0] ? "json-lines" : "interval");
    if (pvn_opts_given(o, O_TC) && abi && abi < 10)
        return pvn_opts_bad(
            "--traffic-class has no effect with --abi %d: NCCL's interface has it from "
            "version 10 on",
            abi);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < i; k++) {
            if (!out[i][0] || strcmp(out[i], out[k]) != 0)
                continue;
            return strcmp(out[i], "-") == 0
                       ? pvn_opts_bad(
                             "only one of --json, --csv and --plot can be '-', standard output: "
                             "name a file for the others")
                       : pvn_opts_bad(
                             "%s is given for two kinds of output: give each a file of its own",
                             out[i]);
        }
    }
    return PVN_PERF_OK;
}

int pvn_opts_check_names(const struct pvn_perf_opts *o)
{
    struct pvn_model m;
    int rc;

    for (int i = 0; i < o->nenv; i++) {
        int known = !o->env[i].plugin[0];

        for (int k = 0; k < o->nplugins; k++)
            known |= strcmp(o->env[i].plugin, o->plugin[k].name) == 0;
        if (!known)
            return pvn_opts_bad("--env %s:%s=...: no --plugin has the name %s", o->env[i].plugin,
                                o->env[i].key, o->env[i].plugin);
    }
    if (pvn_opts_given(o, O_LAYERS) && !pvn_model_is(o->preset, PVN_FSDP) &&
        !pvn_model_is(o->preset, PVN_MOE))
        return pvn_opts_bad("--layers %d has no effect without --preset llama2-7b or mixtral-8x7b",
                            o->layers);
    if (!o->preset[0])
        return PVN_PERF_OK;
    rc = pvn_model_load(o->preset, &m);
    if (rc == -ENOENT) {
        const char *near = pvn_model_suggest(o->preset);

        return near ? pvn_opts_bad("--preset %s is not known; did you mean %s?", o->preset, near)
                    : pvn_opts_bad("--preset %s is not known; there are %s", o->preset,
                                   pvn_model_names());
    }
    pvn_model_free(&m);
    return rc ? pvn_opts_bad("out of memory for --preset %s", o->preset) : PVN_PERF_OK;
}
