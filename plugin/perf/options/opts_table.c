/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/options/opts_table.h"

#include "nccl/net_v12.h"
#include "perf/driver/netdrv.h"

#define PVN_OPTIONS_OF struct pvn_perf_opts

#define MAX_FORKED_RANKS 256
#define MAX_GROUP        8
#define MAX_GPU          255
#define MAX_COUNT        100000000
#define DAY              86400.0
#define SHORTEST         0.001

#define P2P    (1u << PVN_PERF_P2P)
#define MESH   (1u << PVN_PERF_MESH)
#define RING   (1u << PVN_PERF_RING | 1u << PVN_PERF_SCALE)
#define SERVE  (1u << PVN_PERF_SERVE)
#define TIMED  (P2P | RING | MESH)
#define CLIENT (TIMED | 1u << PVN_PERF_IDLE)

static const struct pvn_option_word memory_words[] = {{"gpu", PVN_PERF_GPU},
                                                      {"pinned", PVN_PERF_PINNED},
                                                      {"host", PVN_PERF_MOVABLE},
                                                      {"movable", PVN_PERF_MOVABLE},
                                                      {NULL, 0}};

static const struct pvn_option_word type_words[] = {
    {"float32", PVN_FLOAT32}, {"bfloat16", PVN_BFLOAT16}, {NULL, 0}};

const struct pvn_option_word pvn_collective_words[] = {{"allreduce", PVN_ALLREDUCE},
                                                       {"allgather", PVN_ALLGATHER},
                                                       {"reducescatter", PVN_REDUCESCATTER},
                                                       {"broadcast", PVN_BROADCAST},
                                                       {"sendrecv", PVN_SENDRECV},
                                                       {"alltoall", PVN_ALLTOALL},
                                                       {"alltoallv", PVN_ALLTOALLV},
                                                       {"pipeline", PVN_PIPELINE},
                                                       {NULL, 0}};

static const struct pvn_option rows[] = {
    {"plugin", "[NAME=]PATH",
     "net plugin to load, up to 8 times for a comparison (default: this build's or the "
     "installed libnccl-net-pvrdma.so)",
     0, PVN_OPT_OTHER(plugin), .complete = PVN_OPTION_FILE, .group = "What is measured"},
    {"abi", "N",
     "version of NCCL's plugin interface, 4 to 12 (default: the newest that the plugin "
     "exports)",
     0, PVN_OPT(INT, abi, PVN_NETDRV_ABI_MIN, PVN_NETDRV_ABI_MAX),
     .complete = "4 5 6 7 8 9 10 11 12"},
    {"env", "[NAME:]KEY=VALUE",
     "set a variable in the ranks, for all plugins or for the one called NAME", 0,
     PVN_OPT_OTHER(env)},
    {"dev", "LIST",
     "devices by number or by the plugin's name; channel c uses the c-th, in turn "
     "(default: 0)",
     0, PVN_OPT_OTHER(dev)},
    {"sizes", "LIST",
     "bytes as in 8,1K,64K-4M (doubles) or 1M-64M*4; mesh: for latency and for bandwidth", TIMED,
     PVN_OPT_OTHER(size)},
    {"collective", "NAME",
     "ring, scale: allreduce (default), allgather, reducescatter, broadcast or sendrecv; "
     "between pairs: alltoall, alltoallv (uneven) or pipeline",
     RING, PVN_OPT_WORD(collective, pvn_collective_words)},
    {"type", "NAME", "ring, scale: elements are float32 (default) or bfloat16", RING,
     PVN_OPT_WORD(type, type_words)},
    {"preset", "MODEL",
     "ring, scale: a training step of resnet50, bert-large or gpt2 (gradients in DDP's "
     "buckets), llama2-7b (FSDP) or mixtral-8x7b (mixture of experts)",
     RING, PVN_OPT_TEXT(preset), .complete = "resnet50 bert-large gpt2 llama2-7b mixtral-8x7b"},
    {"layers", "N", "llama2-7b, mixtral-8x7b: only the first N of the 32 layers", RING,
     PVN_OPT(INT, layers, 1, 1000)},
    {"tokens", "N", "mixtral-8x7b: tokens of each rank in a micro batch", RING,
     PVN_OPT(INT, tokens, 1, 1 << 20), .def = "4096"},
    {"micro-batches", "N", "pipeline: micro batches in an iteration", RING,
     PVN_OPT(INT, micro_batches, 1, 65535), .def = "8"},
    {"per-peer", "N",
     "between pairs: channels and comms of a pair (default: 2, or 1 in large jobs)", RING,
     PVN_OPT(INT, per_peer, 1, PVN_PERF_MAX_CHANNELS)},
    {"channels", "C",
     "ring, scale: rings (default: 2); p2p, mesh: pairs of comms for bandwidth (default: "
     "1)",
     CLIENT, PVN_OPT(INT, channels, 1, PVN_PERF_MAX_CHANNELS)},
    {"comms", "C", "another name of --channels", CLIENT,
     PVN_OPT(INT, channels, 1, PVN_PERF_MAX_CHANNELS)},
    {"memory", "KIND", "gpu; pinned, as NCCL's staging buffers are (default, where possible); host",
     CLIENT, PVN_OPT_WORD(memory, memory_words)},
    {"gpu", "N", "which GPU, as CUDA counts them (default: the nearest to the device)", 0,
     PVN_OPT(INT, gpu, 0, MAX_GPU)},
    {"depth", "D", "p2p, mesh: messages in flight per comm", P2P | MESH,
     PVN_OPT(INT, depth, 1, NCCL_NET_MAX_REQUESTS), .def = "8"},
    {"group", "N",
     "p2p: buffers per grouped receive; alltoall: ranks of a node, whose data PXN puts on "
     "one comm",
     P2P | RING, PVN_OPT(INT, group, 1, MAX_GROUP), .def = "1"},
    {"latency", NULL, "p2p, mesh: only this", P2P | MESH, PVN_OPT_FLAG(latency)},
    {"bandwidth", NULL, "p2p, mesh: only this", P2P | MESH, PVN_OPT_FLAG(bandwidth)},
    {"bidirectional", NULL, "p2p: bandwidth in both directions at once, the sum and each", P2P,
     PVN_OPT_FLAG(bidirectional)},
    {"duration", "TIME",
     "p2p, ring: as many messages, iterations or steps as fit so long per size (default size: 1M), as "
     "90, 10m or 8h",
     P2P | 1u << PVN_PERF_RING, PVN_OPT(SECONDS, duration, 0.1, 30 * DAY)},
    {"interval", "TIME", "p2p with --duration: a line after each", P2P,
     PVN_OPT(SECONDS, interval, 0.1, 30 * DAY), .def = "1"},
    {"idle", "SECONDS", "p2p: instead, receives posted on all channels and nothing sent",
     P2P | 1u << PVN_PERF_IDLE, PVN_OPT(SECONDS, idle, SHORTEST, DAY)},
    {"slot", "BYTES", "ring, scale: bytes per message (default: 512K, between pairs 128K)", RING,
     PVN_OPT_OTHER(slot)},
    {"steps", "N", "ring, scale: slots per comm", RING,
     PVN_OPT(INT, steps, 1, NCCL_NET_MAX_REQUESTS), .def = "8"},
    {"slices", "N", "ring, scale: messages per chunk of the ring", RING,
     PVN_OPT(INT, slices, 1, 16), .def = "1"},
    {"no-sums", NULL, "ring, scale: only move the messages, as the GPU does the rest with NCCL",
     RING, PVN_OPT_FLAG(no_sums)},
    {"traffic-class", "N", "passed to the plugin as NCCL's trafficClass (interface 10 and later)",
     CLIENT, PVN_OPT(INT, traffic_class, 0, 255)},

    {"check", NULL, "verify every byte or element (mesh always does)", TIMED, PVN_OPT_FLAG(check),
     .group = "How"},
    {"iters", "N", "iterations per size (default: as many as fit --time; for a preset 2)", TIMED,
     PVN_OPT(INT, iters, 1, MAX_COUNT)},
    {"warmup", "N", "iterations per size before those that are timed", TIMED,
     PVN_OPT(INT, warmup, 0, MAX_COUNT)},
    {"time", "SECONDS", "per size, without --iters", TIMED, PVN_OPT(SECONDS, time, SHORTEST, DAY),
     .def = "0.3"},
    {"repeat", "N", "the whole run N times, the plugins interleaved, and medians at the end",
     CLIENT, PVN_OPT(INT, repeat, 1, 1000), .def = "1"},
    {"timeout", "SECONDS", "a rank fails after so long without progress; 300 with --duration",
     CLIENT, PVN_OPT(SECONDS, timeout, SHORTEST, DAY), .def = "30"},
    {"spin", NULL, "never yield the processor while nothing moves; NCCL does yield", TIMED,
     PVN_OPT_FLAG(spin)},

    {"ranks", "N",
     "processes started here (default: 2); without it, this is one rank of torchrun, "
     "mpirun or srun if one of them started it",
     CLIENT, PVN_OPT(INT, ranks, 1, MAX_FORKED_RANKS), .group = "Where"},
    {"netns", "A,B,...", "rank i runs in the i-th network namespace, in turn (needs root)", CLIENT,
     PVN_OPT_OTHER(netns), .complete = "$(ip netns list 2>/dev/null | cut -d\" \" -f1)"},
    {"master", "HOST[:PORT]", "where rank 0 is, if the environment does not say", CLIENT,
     PVN_OPT_OTHER(master)},
    {"boot-timeout", "SECONDS",
     "for all ranks to appear; p2p HOST: for the server, which is tried once without it", CLIENT,
     PVN_OPT(SECONDS, boot_timeout, SHORTEST, DAY), .def = "60"},
    {"once", NULL, "serve: end after one client", SERVE, PVN_OPT_FLAG(once)},
    {"max-memory", "BYTES", "serve: refuse a client whose buffers need more here", SERVE,
     PVN_OPT_OTHER(max_memory), .def = "4G"},
    {"max-time", "TIME", "serve: end a client's run after so long", SERVE,
     PVN_OPT(SECONDS, max_time, 0.1, 30 * DAY), .def = "24h"},

    {"json", "FILE", "results as JSON, with the circumstances", CLIENT, PVN_OPT_TEXT(json),
     .complete = PVN_OPTION_FILE,
     .group = "Output (one of --json, --csv and --plot may be -, standard output)"},
    {"csv", "FILE", "results as CSV", CLIENT, PVN_OPT_TEXT(csv), .complete = PVN_OPTION_FILE},
    {"plot", "FILE", "results as an SVG chart; mesh: a heat map with a cell per path", TIMED,
     PVN_OPT_TEXT(plot), .complete = PVN_OPTION_FILE},
    {"json-lines", "FILE", "p2p with --duration: an object in a line for each interval; may be -",
     P2P, PVN_OPT_TEXT(json_lines), .complete = PVN_OPTION_FILE},
    {"baseline", "FILE", "compare with what --json wrote earlier: status 1 where a figure is worse",
     CLIENT, PVN_OPT_TEXT(baseline), .complete = PVN_OPTION_FILE},
    {"tolerance", "PERCENT", "by more than this a figure is worse", CLIENT,
     PVN_OPT(INT, tolerance, 1, 99), .def = "10"},
    {"quiet", NULL, "print no table", 0, PVN_OPT_FLAG(quiet)},
    {"verbose", NULL, "print the ranks' log lines, a preset's buckets and reported failures", 0,
     PVN_OPT_FLAG(verbose)},
    {"params", NULL, "alone: the plugin's parameters and their values here", 0,
     PVN_OPT(SET, mode, PVN_PERF_PARAMS, 0)},
    {"make-key", "FILE",
     "alone: makes a key for NCCL_PVRDMA_KEY_FILE, in a file that is not there yet", 0,
     PVN_OPT_TEXT(make_key), .complete = PVN_OPTION_FILE},
    PVN_OPTIONS_END};

/* In the order of enum pvn_perf_mode. */
static const struct pvn_option_mode modes[] = {
    {"p2p", "[HOST[:PORT]]",
     "latency and bandwidth between two ranks; HOST: with pvn-perf serve there", ""},
    {"ring", "", "all-reduce or another collective on a ring, as NCCL runs it", ""},
    {"scale", "", "the same with 1, 2, ... ranks", ""},
    {"mesh", "", "latency and bandwidth of every pair of ranks; names slow hosts", ""},
    {"serve", "[ADDRESS][:PORT]", "waits for clients, unauthenticated (default port: 19516)", ""},
    {NULL, NULL, NULL, NULL}};

const struct pvn_options pvn_perf_options = {
    .program = "pvn-perf",
    .mode = "mode",
    .modes = modes,
    .rows = rows,
    .usage = "usage: pvn-perf MODE [OPTION]...",
    .status =
        "Exit status: 0 all is well, 1 data was wrong or a figure worse than the baseline, 2 bad\n"
        "arguments, 3 plugin or environment failed, 128 and the signal's number (130 for Ctrl-C) when\n"
        "interrupted.\n",
    /* One screen of 24 lines and 80 columns, sorted by task, so that users find a command for their
     * question. */
    .help = "usage: pvn-perf MODE [OPTION]...\n"
            "\n"
            "Does the plugin work on this machine? Every sum of 4 ranks is verified:\n"
            "  pvn-perf ring --ranks 4 --preset bert-large --check\n"
            "How fast is it? Latency and bandwidth over sizes; as a picture:\n"
            "  pvn-perf p2p --plot p2p.svg\n"
            "Between two hosts: the first command on host1, the second on the other\n"
            "  pvn-perf serve\n"
            "  pvn-perf p2p host1 --check\n"
            "Which of many hosts, or which path, is slow?\n"
            "  srun -N 16 --ntasks-per-node 1 pvn-perf mesh\n"
            "What does RDMA gain here over TCP, with 2 to 4 ranks?\n"
            "  pvn-perf scale --ranks 4 --plugin tcp=pvrdma --plugin rdma=pvrdma \\\n"
            "      --env tcp:NCCL_PVRDMA_TRANSPORT=tcp\n"
            "Does a long run survive what the network does?\n"
            "  pvn-perf p2p host1 --check --duration 8h --interval 1m\n"
            "What is the plugin set to?\n"
            "  pvn-perf --params\n"
            "\n"
            "Modes: p2p, ring, scale, mesh, serve. srun, mpirun and torchrun may start the\n"
            "ranks; --ranks N starts them here. Often used: --sizes 1K-64M, --json FILE,\n"
            "--verbose. pvn-perf --help=all has every option, man pvn-perf the rest.\n"};
