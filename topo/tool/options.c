/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topo/tool/base/tool.h"
#include "topo/tool/load/counters.h"
#include "topo/tool/options.h"

#define PVN_OPTIONS_OF struct tool

#define DUMP   (1u << TOOL_DUMP)
#define CHECK  (1u << TOOL_CHECK)
#define MERGE  (1u << TOOL_MERGE)
#define GATHER (1u << TOOL_GATHER)
#define STAT   (1u << TOOL_STAT)

static const struct pvn_option_word nics_words[] = {{"auto", PVN_TOPO_NICS_AUTO},
                                                    {"rdma", PVN_TOPO_NICS_RDMA},
                                                    {"tcp", PVN_TOPO_NICS_TCP},
                                                    {"all", PVN_TOPO_NICS_ALL},
                                                    {NULL, 0}};
static const struct pvn_option_word color_words[] = {{"auto", TOOL_COLOR_AUTO},
                                                     {"always", TOOL_COLOR_ALWAYS},
                                                     {"never", TOOL_COLOR_NEVER},
                                                     {NULL, 0}};

static const struct pvn_option rows[] = {
    {"root", "PATH",
     "another machine: a directory, a tar of gather (compressed or not), an NCCL XML file, what "
     "hwloc, lspci -vv or rdma_topo wrote; - is standard input",
     0, PVN_OPT_STRING(root), .complete = PVN_OPTION_FILE, .group = "What to look at"},
    {"topo-file", "FILE", "as if NCCL_TOPO_FILE were FILE", 0, PVN_OPT_STRING(topo_file),
     .complete = PVN_OPTION_FILE},
    {"host", "PATH", "the tree of the host that this guest runs on, in any form that --root takes",
     0, PVN_OPT_STRING(host), .complete = PVN_OPTION_FILE},
    {"hints", "FILE", "what the hypervisor hides, in a small language (HINTS in the man page)", 0,
     PVN_OPT_STRING(hints), .complete = PVN_OPTION_FILE},
    {"nics", "KIND",
     "which ones count: auto (RDMA ports where one is active, else network interfaces), rdma, tcp "
     "or all (those that are down as well)",
     0, PVN_OPT_WORD(nics_choice, nics_words)},
    {"rails", "NAME=NUMBER,...", "rail numbers of NICs; every host must number alike", 0,
     PVN_OPT_STRING(rails)},
    {"timeout", "SECONDS", "how long a pipe may be silent, and a host of --hosts take", 0,
     PVN_OPT(INT, wait_s, 1, 86400), .def = "30"},
    {"hosts", "FILE|LIST", "stat, check: these hosts, over ssh: node[01-16],login or a file",
     STAT | CHECK, PVN_OPT_STRING(hosts), .complete = PVN_OPTION_FILE},
    {"ssh", "CMD", "instead of ssh; the host and a command are added", 0, PVN_OPT_STRING(ssh)},
    {"remote", "CMD", "the command on those hosts (default: pvn-topo)", 0, PVN_OPT_STRING(remote)},
    {"parallel", "N", "hosts at a time", 0, PVN_OPT(INT, parallel, 1, 512), .def = "32"},
    {"interval", "SECONDS",
     "check, stat of several hosts: time between the two looks at the adapters' counters; 0: one "
     "look, which shows no growth",
     CHECK | STAT, PVN_OPT(SECONDS, interval_s, 0, TOOL_INTERVAL_MAX_S), .def = "1"},
    {"no-env", NULL, "ignore the NCCL_ variables of this shell", 0, PVN_OPT_FLAG(ignore_env)},

    {"json", NULL, "JSON instead of text", 0, PVN_OPT_FLAG(json), .group = "How to show it"},
    {"xml", NULL, "dump, merge: a file for NCCL_TOPO_FILE", DUMP | MERGE,
     PVN_OPT(SET, format, TOOL_XML, 0)},
    {"xml-full", NULL, "dump, merge: what NCCL_TOPO_DUMP_FILE would hold", DUMP | MERGE,
     PVN_OPT(SET, format, TOOL_XML_FULL, 0)},
    {"dot", NULL, "dump: a picture with the pairs in it, for dot", DUMP,
     PVN_OPT(SET, format, TOOL_DOT, 0)},
    {"svg", NULL, "dump: the same picture, drawn by dot of Graphviz", DUMP,
     PVN_OPT(SET, format, TOOL_SVG, 0)},
    {"nccl", NULL, "dump: NCCL's reduced tree", DUMP, PVN_OPT_FLAG(nccl_tree)},
    {"all", NULL,
     "dump: every PCI function, not only those near GPUs and NICs; check: every row; stat: comms "
     "that are closed, and lanes",
     DUMP | CHECK | STAT, PVN_OPT_FLAG(all)},
    {"prom", NULL, "stat: metrics for Prometheus, in its text exposition format", STAT,
     PVN_OPT_FLAG(prom)},
    {"per-comm", NULL, "with --prom: a series for each connection, too", STAT,
     PVN_OPT_FLAG(per_comm)},
    {"watch", "[SECONDS]", "stat: again and again, with the rates of each process", STAT,
     PVN_OPT(SECONDS, watch_s, 0.1, 3600), .def = "2"},
    {"count", "N", "end --watch after N looks", STAT, PVN_OPT(INT, count, 1, 1000000)},
    {"clean", NULL, "stat: remove the files of all dead processes", STAT, PVN_OPT_FLAG(clean)},
    {"output", "FILE", "write there", 0, PVN_OPT_STRING(output), .complete = PVN_OPTION_FILE,
     .letter = 'o'},
    {"color", "WHEN",
     "escape sequences: auto (on a terminal, unless NO_COLOR is set or TERM is not), always or never",
     0, PVN_OPT_WORD(color, color_words)},
    {"no-names", NULL, "numbers instead of names from pci.ids", 0, PVN_OPT(SET, names, false, 0)},
    {"keep-addresses", NULL, "gather: leave MAC addresses, GIDs and GUIDs as they are", GATHER,
     PVN_OPT_FLAG(keep_addresses)},
    PVN_OPTIONS_END};

static const struct pvn_option_mode commands[] = {
    [TOOL_DUMP] = {"dump", "", "the machine as a tree", ""},
    [TOOL_MATRIX] = {"matrix", "", "all distances, in NCCL's words and in nvidia-smi's", ""},
    [TOOL_PAIRS] = {"pairs", "", "the NIC that NCCL takes for each GPU, the one we advise, and why",
                    ""},
    /* Completion offers the names of this machine's devices; a pair of another machine must be
     * typed. */
    [TOOL_WHY] = {"why", "GPU NIC", "one pair: path, choice, GPUDirect, with the reason of each",
                  "$(pvn-topo --json matrix 2>/dev/null | sed -n "
                  "'s/^ *\"\\(name\\|device\\)\": \"\\([^\"]*\\)\",*$/\\2/p')"},
    [TOOL_CHECK] = {"check", "[FILE]", "what is wrong with this machine, or differs between hosts",
                    PVN_OPTION_FILE},
    [TOOL_LINT] = {"lint", "FILE...", "what is wrong with a file for NCCL_TOPO_FILE",
                   PVN_OPTION_FILE},
    [TOOL_MERGE] = {"merge", "", "a guest's NCCL_TOPO_FILE from --host or --hints", ""},
    [TOOL_DIFF] = {"diff", "A [B]",
                   "two machines or NCCL files compared; without B with this machine",
                   PVN_OPTION_FILE},
    [TOOL_GATHER] = {"gather", "[FILE.tar]", "a small tar of what is read here, for a bug report",
                     PVN_OPTION_FILE},
    [TOOL_PARAMS] = {"params", "", "the plugin's parameters as this environment sets them", ""},
    [TOOL_STAT] = {"stat", "[PID|FILE]",
                   "what the plugin's processes do, and which one all wait for", PVN_OPTION_FILE},
    [TOOL_OVERVIEW] = {NULL, NULL, NULL, NULL}};

const struct pvn_options pvn_topo_options = {
    .program = "pvn-topo",
    .mode = "command",
    .modes = commands,
    .rows = rows,
    .usage = "usage: pvn-topo [OPTION]... COMMAND [ARGUMENT]...",
    .status =
        "Exit status: 0 fine, 1 something was found (check, lint, diff, stat), 2 wrong usage,\n"
        "3 something cannot be read or written.\n",
    .help = "usage: pvn-topo [OPTION]... COMMAND [ARGUMENT]...\n"
            "\n"
            "What is wrong with this machine? What is odd about one of several?\n"
            "  pvn-topo check\n"
            "  pvn-topo check --hosts 'node[01-16]'\n"
            "Which NIC does each GPU use, and why? What lies between the two?\n"
            "  pvn-topo pairs\n"
            "  pvn-topo why GPU0 mlx5_0\n"
            "What does a running job do, and for which rank do the others wait?\n"
            "  pvn-topo stat\n"
            "  pvn-topo stat --watch --hosts 'node[01-16]'\n"
            "How is the machine built? As a picture (or --json, --xml, --dot)?\n"
            "  pvn-topo dump\n"
            "  pvn-topo --svg -o machine.svg dump\n"
            "A machine elsewhere: capture it there, look at it here\n"
            "  pvn-topo gather node.tar\n"
            "  pvn-topo --root node.tar pairs\n"
            "NCCL's topology file: is this one right? One for this guest of a host?\n"
            "  pvn-topo lint topo.xml\n"
            "  pvn-topo --host host.tar merge\n"
            "\n"
            "Others: matrix, diff, params. pvn-topo --help=all has every option, man\n"
            "pvn-topo the rest; pvn-topo alone says what it sees of this machine.\n"};
