/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts_check.h"

#include <errno.h>
#include <string.h>

#include "perf/workload/model.h"
#include "perf/options/opts_table.h"
#include "perf/options/opts_values.h"

int pvn_opts_of_pairs(const struct pvn_perf_opts *o)
{
    if (o->mode != PVN_PERF_RING && o->mode != PVN_PERF_SCALE)
        return 0;
    return o->collective == PVN_ALLTOALL || o->collective == PVN_ALLTOALLV ||
           o->collective == PVN_PIPELINE || pvn_model_is(o->preset, PVN_MOE);
}

int pvn_opts_check_mode(const struct pvn_perf_opts *o)
{
    const struct pvn_options *all = &pvn_perf_options;
    const struct pvn_option *row;

    if (o->mode == PVN_PERF_SERVE && (row = pvn_options_misfit(all, o->given, PVN_PERF_SERVE)))
        return pvn_opts_bad("--%s has no effect in serve: the client decides it", row->name);
    if (o->mode == PVN_PERF_SERVE)
        return o->nplugins > 1
                   ? pvn_opts_bad(
                         "serve takes one --plugin: start one for each, on ports of their own")
                   : PVN_PERF_OK;
    if (o->peer[0] &&
        (pvn_opts_given(o, ranks) || pvn_opts_given(o, netns) || pvn_opts_given(o, master)))
        return pvn_opts_bad("--%s has no effect with the host %s: the other rank is there",
                            pvn_opts_given(o, ranks)   ? "ranks"
                            : pvn_opts_given(o, netns) ? "netns"
                                                       : "master",
                            o->peer);
    if (pvn_options_fit(all, o->given, o->mode, all->modes[o->mode].name))
        return PVN_PERF_USAGE;
    if (o->idle > 0 && (row = pvn_options_misfit(all, o->given, PVN_PERF_IDLE)))
        return pvn_opts_bad("--%s has no effect with --idle", row->name);
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

/* Pairs of options: the first has no effect if the second is given. */
#define AT(field) offsetof(struct pvn_perf_opts, field)
static const struct {
    size_t option, beside;
    const char *because;
} pointless[] = {
    {AT(time), AT(duration), "messages move for that long"},
    {AT(iters), AT(duration), "messages move for that long"},
    {AT(warmup), AT(duration), "all messages count"},
    {AT(latency), AT(duration), "it is about bandwidth and bytes"},
    {AT(time), AT(iters), "the number of iterations is given"},
    {AT(time), AT(preset), "a preset runs a number of steps: give --iters"},
    {AT(collective), AT(preset), "the model has its own"},
    {AT(master), AT(ranks), "all ranks are started here"},
    {AT(boot_timeout), AT(ranks), "all ranks are started here"},
    {AT(verbose), AT(quiet), "they contradict each other"},
};

static int check_group(const struct pvn_perf_opts *o)
{
    if (!pvn_opts_given(o, group) || o->mode == PVN_PERF_P2P)
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
    if (o->duration > 0 && pvn_model_is(o->preset, PVN_MOE))
        return pvn_opts_bad(
            "--duration has no effect with --preset mixtral-8x7b, whose layers are measured one "
            "after the other: give --iters");
    if (pvn_opts_given(o, tokens) && !pvn_model_is(o->preset, PVN_MOE))
        return pvn_opts_bad("--tokens %d has no effect without --preset mixtral-8x7b", o->tokens);
    if (pvn_opts_given(o, micro_batches) && o->collective != PVN_PIPELINE)
        return pvn_opts_bad("--micro-batches %d has no effect without --collective pipeline",
                            o->micro_batches);
    if (pvn_opts_given(o, per_peer) && !pairs)
        return pvn_opts_bad("--per-peer %d has no effect here: it is for traffic between pairs",
                            o->per_peer);
    if (o->per_peer & (o->per_peer - 1) || (pairs && o->per_peer > o->channels))
        return pvn_opts_bad("--per-peer %d: expected a power of two up to --channels %d",
                            o->per_peer, o->channels);
    if (pairs && pvn_opts_given(o, type))
        return pvn_opts_bad(
            "--type has no effect where nothing is added: bytes are moved as they are");
    if (pairs && pvn_opts_given(o, slices))
        return pvn_opts_bad("--slices has no effect between pairs: a message has a slot");
    if (pairs && o->channels & (o->channels - 1))
        return pvn_opts_bad(
            "--channels %d: NCCL has 1, 2, 4, 8 or more powers of two between pairs", o->channels);
    return PVN_PERF_OK;
}

int pvn_opts_check_together(const struct pvn_perf_opts *o)
{
    const struct pvn_options *all = &pvn_perf_options;
    const char *const out[] = {o->json, o->csv, o->plot, o->json_lines};

    for (size_t i = 0; i < sizeof(pointless) / sizeof(pointless[0]); i++) {
        if (pvn_options_given(all, o->given, pointless[i].option) &&
            pvn_options_given(all, o->given, pointless[i].beside))
            return pvn_opts_bad(
                "--%s has no effect with --%s: %s", pvn_options_row(all, pointless[i].option)->name,
                pvn_options_row(all, pointless[i].beside)->name, pointless[i].because);
    }
    if (o->gpu >= 0 && o->memory == PVN_PERF_MOVABLE)
        return pvn_opts_bad("--gpu %d has no effect with --memory host: no GPU has a part in it",
                            o->gpu);
    if (pvn_opts_given(o, tolerance) && !o->baseline[0])
        return pvn_opts_bad("--tolerance has no effect without --baseline");
    if ((pvn_opts_given(o, interval) || o->json_lines[0]) && !(o->duration > 0))
        return pvn_opts_bad("--%s has no effect without --duration",
                            o->json_lines[0] ? "json-lines" : "interval");
    if (pvn_opts_given(o, traffic_class) && o->abi && o->abi < 10)
        return pvn_opts_bad(
            "--traffic-class has no effect with --abi %d: NCCL's interface has it from "
            "version 10 on",
            o->abi);
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
    if (pvn_opts_given(o, layers) && !pvn_model_is(o->preset, PVN_FSDP) &&
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
