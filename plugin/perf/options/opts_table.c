/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/workload/model.h"
#include "perf/options/opts_table.h"

const struct option pvn_opts_long[] = {
    {"plugin", required_argument, NULL, O_PLUGIN},
    {"abi", required_argument, NULL, O_ABI},
    {"env", required_argument, NULL, O_ENV},
    {"dev", required_argument, NULL, O_DEV},
    {"sizes", required_argument, NULL, O_SIZES},
    {"preset", required_argument, NULL, O_PRESET},
    {"layers", required_argument, NULL, O_LAYERS},
    {"tokens", required_argument, NULL, O_TOKENS},
    {"micro-batches", required_argument, NULL, O_MICRO_BATCHES},
    {"per-peer", required_argument, NULL, O_PER_PEER},
    {"collective", required_argument, NULL, O_COLLECTIVE},
    {"type", required_argument, NULL, O_TYPE},
    {"channels", required_argument, NULL, O_CHANNELS},
    {"comms", required_argument, NULL, O_CHANNELS},
    {"memory", required_argument, NULL, O_MEMORY},
    {"gpu", required_argument, NULL, O_GPU},
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
    {"bidirectional", no_argument, NULL, O_BIDIRECTIONAL},
    {"duration", required_argument, NULL, O_DURATION},
    {"interval", required_argument, NULL, O_INTERVAL},
    {"json-lines", required_argument, NULL, O_JSON_LINES},
    {"once", no_argument, NULL, O_ONCE},
    {"max-memory", required_argument, NULL, O_MAX_MEMORY},
    {"max-time", required_argument, NULL, O_MAX_TIME},
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
    {"help", optional_argument, NULL, O_HELP},
    {"version", no_argument, NULL, O_VERSION},
    {0},
};

const struct pvn_opts_mode pvn_opts_modes[] = {{"p2p", PVN_PERF_P2P},     {"ring", PVN_PERF_RING},
                                               {"scale", PVN_PERF_SCALE}, {"mesh", PVN_PERF_MESH},
                                               {"serve", PVN_PERF_SERVE}, {NULL, PVN_PERF_P2P}};

const char *pvn_opts_name(int option)
{
    for (int i = 0; pvn_opts_long[i].name; i++)
        if (pvn_opts_long[i].val == option)
            return pvn_opts_long[i].name;
    return "?";
}

bool pvn_opts_given(const struct pvn_perf_opts *o, int option)
{
    return (o->given & UINT64_C(1) << (option - O_PLUGIN)) != 0;
}

int pvn_opts_of_pairs(const struct pvn_perf_opts *o)
{
    if (o->mode != PVN_PERF_RING && o->mode != PVN_PERF_SCALE)
        return 0;
    return o->collective == PVN_ALLTOALL || o->collective == PVN_ALLTOALLV ||
           o->collective == PVN_PIPELINE || pvn_model_is(o->preset, PVN_MOE);
}
