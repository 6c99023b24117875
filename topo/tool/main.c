/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo: reads the PCIe layout of a machine, pairs its NICs with
 * its GPUs, explains and checks. */
#include "topo/tool/load/counters.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plugin/base/version.h"
#include "plugin/tools/std_fds.h"
#include "topo/tool/base/output.h"
#include "topo/tool/check/check.h"
#include "topo/tool/check/facts.h"
#include "topo/tool/load/load.h"
#include "topo/tool/overview.h"
#include "topo/tool/show/show.h"
#include "topo/tool/stat/stat_look.h"

static const struct command {
    const char *name;
    int (*run)(struct tool *t, int argc, char **argv);
    const char *arguments, *help;
} commands[] = {
    {"dump", cmd_dump, "", "the machine as a tree (--json, --xml, --dot, --svg)"},
    {"matrix", cmd_matrix, "", "all distances, in NCCL's words and in nvidia-smi's"},
    {"pairs", cmd_pairs, "", "the NIC that NCCL takes for each GPU, the one we advise, and why"},
    {"why", cmd_why, "GPU NIC", "one pair: path, choice, GPUDirect, with the reason of each"},
    {"check", cmd_check, "[FILE]", "what is wrong with this machine, or differs between hosts"},
    {"lint", cmd_lint, "FILE...", "what is wrong with a file for NCCL_TOPO_FILE"},
    {"merge", cmd_merge, "", "a guest's NCCL_TOPO_FILE from --host or --hints"},
    {"diff", cmd_diff, "A [B]", "two machines or NCCL files compared; without B with this machine"},
    {"gather", cmd_gather, "[FILE.tar]", "a small tar of what is read here, for a bug report"},
    {"params", cmd_params, "", "the plugin's parameters as this environment sets them"},
    {"stat", cmd_stat, "[PID|FILE]", "what the plugin's processes do, and which one all wait for"},
};

static void usage(FILE *out)
{
    fputs("usage: pvn-topo [OPTION]... COMMAND [ARGUMENT]...\n\n", out);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(out, "  %-7s%-11s %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    fputs("\n"
          "What to look at:\n"
          "  --root PATH        another machine: a directory, a tar of `gather` (compressed or\n"
          "                     not), an NCCL XML file, what hwloc, lspci -vv or rdma_topo wrote;\n"
          "                     - is standard input\n"
          "  --topo-file FILE   as if NCCL_TOPO_FILE were FILE\n"
          "  --host PATH        the tree of the host that this guest runs on, in any of these\n"
          "                     forms, or `esxcli hardware pci list`\n"
          "  --hints FILE       what the hypervisor hides, in a small language (see the manual)\n"
          "  --nics KIND        auto, rdma, tcp or all\n"
          "  --rails LIST       NAME=NUMBER,...\n"
          "  --timeout SECONDS  how long a pipe may be silent, default 30\n"
          "  --hosts FILE|LIST  stat, check: these hosts, over ssh: node[01-16],login or a file\n"
          "  --ssh CMD          instead of ssh; the host and a command are added\n"
          "  --remote PATH      pvn-topo on those hosts, default pvn-topo\n"
          "  --parallel N       hosts at a time, default 32; --timeout holds for each\n"
          "  --interval SECONDS check, stat --hosts: time between the two looks at the adapters'\n"
          "                     counters, default 1; 0: one look, which shows no growth\n"
          "  --no-env           ignore the NCCL_ variables of this shell\n"
          "How to show it:\n"
          "  --json --xml --xml-full --dot --svg   instead of text\n"
          "  --nccl             dump: NCCL's reduced tree\n"
          "  --all              dump: every PCI function, not only those near GPUs and NICs;\n"
          "                     check: every row; stat: comms that are closed, and lanes\n"
          "  --prom             stat: as metrics for Prometheus\n"
          "  --per-comm         stat --prom: series for each connection, too\n"
          "  --watch[=SECONDS]  stat: rates, again and again, default every 2 s\n"
          "  --count N          stat --watch: end after N looks\n"
          "  --clean            stat: remove the files of dead processes\n"
          "  -o, --output FILE  write there\n"
          "  --color WHEN       auto, always, never\n"
          "  --no-names         numbers instead of names from pci.ids\n"
          "  --keep-addresses   gather: do not replace MAC addresses, GIDs and GUIDs\n"
          "  -h, --help, --help=all   -V, --version\n\n"
          "Exit status: 0 fine, 1 something was found (check, lint, diff, stat), 2 wrong usage,\n"
          "3 something cannot be read or written.\n",
          out);
}

enum {
    OPT_ROOT = 256,
    OPT_TOPO_FILE,
    OPT_HOST,
    OPT_HINTS,
    OPT_NICS,
    OPT_RAILS,
    OPT_TIMEOUT,
    OPT_NO_ENV,
    OPT_JSON,
    OPT_XML,
    OPT_XML_FULL,
    OPT_DOT,
    OPT_SVG,
    OPT_NCCL,
    OPT_ALL,
    OPT_COLOR,
    OPT_NO_NAMES,
    OPT_KEEP,
    OPT_PROM,
    OPT_PER_COMM,
    OPT_CLEAN,
    OPT_INTERVAL,
    OPT_HOSTS,
    OPT_SSH,
    OPT_REMOTE,
    OPT_PARALLEL,
    OPT_WATCH,
    OPT_COUNT,
};

static const struct option options[] = {
    {"root", required_argument, NULL, OPT_ROOT},
    {"topo-file", required_argument, NULL, OPT_TOPO_FILE},
    {"host", required_argument, NULL, OPT_HOST},
    {"hints", required_argument, NULL, OPT_HINTS},
    {"nics", required_argument, NULL, OPT_NICS},
    {"rails", required_argument, NULL, OPT_RAILS},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"no-env", no_argument, NULL, OPT_NO_ENV},
    {"json", no_argument, NULL, OPT_JSON},
    {"xml", no_argument, NULL, OPT_XML},
    {"xml-full", no_argument, NULL, OPT_XML_FULL},
    {"dot", no_argument, NULL, OPT_DOT},
    {"svg", no_argument, NULL, OPT_SVG},
    {"nccl", no_argument, NULL, OPT_NCCL},
    {"all", no_argument, NULL, OPT_ALL},
    {"output", required_argument, NULL, 'o'},
    {"color", required_argument, NULL, OPT_COLOR},
    {"no-names", no_argument, NULL, OPT_NO_NAMES},
    {"keep-addresses", no_argument, NULL, OPT_KEEP},
    {"prom", no_argument, NULL, OPT_PROM},
    {"per-comm", no_argument, NULL, OPT_PER_COMM},
    {"clean", no_argument, NULL, OPT_CLEAN},
    {"hosts", required_argument, NULL, OPT_HOSTS},
    {"ssh", required_argument, NULL, OPT_SSH},
    {"remote", required_argument, NULL, OPT_REMOTE},
    {"parallel", required_argument, NULL, OPT_PARALLEL},
    {"watch", optional_argument, NULL, OPT_WATCH},
    {"count", required_argument, NULL, OPT_COUNT},
    {"interval", required_argument, NULL, OPT_INTERVAL},
    {"help", optional_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* One form of output: of two the last would win without a word. */
static int set_format(struct tool *t, int format)
{
    if (t->format != TOOL_TEXT && (int)t->format != format) {
        tool_error("two formats: give one of --json, --xml, --xml-full, --dot, --svg");
        return TOOL_USAGE;
    }
    t->format = format;
    return -1;
}

static int choose(const char *option, const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(text, words[i]) == 0)
            return i;
    tool_error("--%s=%s: expected one of %s, %s, %s%s%s", option, text, words[0], words[1],
               words[2], words[3] ? ", " : "", words[3] ? words[3] : "");
    return -1;
}

/* A number in a range, or what is wrong is said. */
static bool number(const char *option, const char *text, double low, double high, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end != text && !*end && v >= low && v <= high) {
        *out = v;
        return true;
    }
    tool_error("--%s=%s: expected a number, %g to %g", option, text, low, high);
    return false;
}

/* Options of many hosts and of looking again. -1: go on; else an exit status. */
static int set_hosts_option(struct tool *t, int option)
{
    double v;
    switch (option) {
    case OPT_HOSTS:
        t->hosts = optarg;
        return -1;
    case OPT_SSH:
        t->ssh = optarg;
        return -1;
    case OPT_REMOTE:
        t->remote = optarg;
        return -1;
    case OPT_PARALLEL:
        if (!number("parallel", optarg, 1, 512, &v))
            return TOOL_USAGE;
        t->parallel = (int)v;
        return -1;
    case OPT_WATCH:
        return number("watch", optarg ? optarg : "2", 0.1, 3600, &t->watch_s) ? -1 : TOOL_USAGE;
    default:
        if (!number("count", optarg, 1, 1e6, &v))
            return TOOL_USAGE;
        t->count = (int)v;
        return -1;
    }
}

/* -1: go on; else an exit status. */
static int set_option(struct tool *t, int option, int *color)
{
    static const char *const kinds[] = {"auto", "rdma", "tcp", "all", NULL};
    static const char *const when[] = {"auto", "always", "never", NULL};
    char *end;
    long seconds;
    int choice;
    switch (option) {
    case OPT_ROOT:
        t->root = optarg;
        break;
    case OPT_TOPO_FILE:
        t->topo_file = optarg;
        break;
    case OPT_HOST:
        t->host = optarg;
        break;
    case OPT_HINTS:
        t->hints = optarg;
        break;
    case OPT_RAILS:
        t->rails = optarg;
        break;
    case OPT_TIMEOUT:
        seconds = strtol(optarg, &end, 10);
        if (end == optarg || *end || seconds < 1 || seconds > 86400) {
            tool_error("--timeout=%s: expected seconds, 1 to 86400", optarg);
            return TOOL_USAGE;
        }
        t->wait_s = (int)seconds;
        break;
    case OPT_NO_ENV:
        t->ignore_env = true;
        break;
    case OPT_JSON:
        t->json = true;
        break;
    case OPT_XML:
        return set_format(t, TOOL_XML);
    case OPT_XML_FULL:
        return set_format(t, TOOL_XML_FULL);
    case OPT_DOT:
        return set_format(t, TOOL_DOT);
    case OPT_SVG:
        return set_format(t, TOOL_SVG);
    case OPT_NCCL:
        t->nccl_tree = true;
        break;
    case OPT_ALL:
        t->all = true;
        break;
    case OPT_NO_NAMES:
        t->names = false;
        break;
    case OPT_KEEP:
        t->keep_addresses = true;
        break;
    case OPT_PROM:
        t->prom = true;
        break;
    case OPT_PER_COMM:
        t->per_comm = true;
        break;
    case OPT_CLEAN:
        t->clean = true;
        break;
    case OPT_INTERVAL:
        t->interval_s = strtod(optarg, &end);
        /* Written so that what strtod reads as nan is refused, too. */
        if (end == optarg || *end ||
            !(t->interval_s >= 0 && t->interval_s <= TOOL_INTERVAL_MAX_S)) {
            tool_error("--interval=%s: expected seconds, 0 to %.0f", optarg, TOOL_INTERVAL_MAX_S);
            return TOOL_USAGE;
        }
        break;
    case OPT_HOSTS:
    case OPT_SSH:
    case OPT_REMOTE:
    case OPT_PARALLEL:
    case OPT_WATCH:
    case OPT_COUNT:
        return set_hosts_option(t, option);
    case 'o':
        t->output = optarg;
        break;
    case OPT_NICS:
        if ((choice = choose("nics", optarg, kinds)) < 0)
            return TOOL_USAGE;
        t->nics_choice = (enum pvn_topo_nic_choice)choice;
        break;
    case OPT_COLOR:
        if ((*color = choose("color", optarg, when)) < 0)
            return TOOL_USAGE;
        break;
    case 'h':
        if (optarg && strcmp(optarg, "all") != 0) {
            tool_error("--help=%s: expected --help or --help=all", optarg);
            return TOOL_USAGE;
        }
        if (optarg)
            usage(stdout);
        else
            tool_help(stdout);
        return TOOL_OK;
    case 'V':
        printf("pvn-topo %s\n", pvn_version());
        return TOOL_OK;
    default:
        fputs("Try pvn-topo --help.\n", stderr);
        return TOOL_USAGE;
    }
    return -1;
}

static void set_look(struct tool *t, int color)
{
    struct winsize size;
    bool terminal = isatty(STDOUT_FILENO) && !t->output;
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool on = color == 1 || (color == 0 && terminal && !(no_color && no_color[0]) &&
                             !(term && strcmp(term, "dumb") == 0));
    t->bold = on ? "\033[1m" : "";
    t->dim = on ? "\033[2m" : "";
    t->red = on ? "\033[31m" : "";
    t->green = on ? "\033[32m" : "";
    t->yellow = on ? "\033[33m" : "";
    t->blue = on ? "\033[34m" : "";
    t->off = on ? "\033[0m" : "";
    t->terminal = terminal;
    t->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    t->width = 96;
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
        t->width = size.ws_col < 120 ? size.ws_col : 120;
}

/* True if every option has an effect on the command; says which has none. */
static bool fits(const struct tool *t, int (*run)(struct tool *t, int argc, char **argv),
                 const char *name)
{
    bool shows = run == cmd_dump || run == cmd_merge;
    if (t->format != TOOL_TEXT && !shows)
        tool_error("--xml, --xml-full, --dot and --svg are for dump (and merge), not for %s", name);
    else if ((t->format == TOOL_DOT || t->format == TOOL_SVG) && run == cmd_merge)
        tool_error("--dot and --svg are for dump, not for merge, which writes NCCL's XML");
    else if (t->json && run == cmd_gather)
        tool_error("--json is not for gather, which writes a tar");
    else if (t->nccl_tree && run != cmd_dump)
        tool_error("--nccl is for dump, not for %s", name);
    else if (t->all && run != cmd_dump && run != cmd_check && run != cmd_stat)
        tool_error("--all is for dump, check and stat, not for %s", name);
    else if (t->keep_addresses && run != cmd_gather)
        tool_error("--keep-addresses is for gather, not for %s", name);
    else if ((t->prom || t->per_comm || t->clean) && run != cmd_stat)
        tool_error("--prom, --per-comm and --clean are for stat, not for %s", name);
    else if (t->hosts && run != cmd_stat && run != cmd_check)
        tool_error("--hosts is for stat and check, not for %s", name);
    else if ((t->ssh || t->remote) && !t->hosts)
        tool_error("--ssh and --remote have no effect without --hosts");
    else if ((t->watch_s > 0 || t->count) && run != cmd_stat)
        tool_error("--watch and --count are for stat, not for %s", name);
    else if (t->interval_s >= 0 && run != cmd_check &&
             !(run == cmd_stat && t->watch_s == 0 && (t->hosts || stat_meets())))
        tool_error("--interval is for check and for one look of stat --hosts, or of stat by "
                   "srun or mpirun, not for %s%s",
                   name, t->watch_s > 0 ? " --watch" : "");
    else
        return true;
    return false;
}

static int run_overview(struct tool *t, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cmd_overview(t);
}

/* The command of that name, or of a call without one, which takes the options; NULL: it says why there is none. */
static const struct command *find_command(const struct tool *t, const char *name)
{
    static const struct command overview = {.name = "", .run = run_overview};
    if (!name && !t->json)
        return fits(t, run_overview, "a call without a command") ? &overview : NULL;
    if (!name) {
        tool_error("--json needs a command, as in pvn-topo --json dump");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(name, commands[i].name) == 0)
            return fits(t, commands[i].run, name) ? &commands[i] : NULL;
    tool_error("\"%s\" is not a command; pvn-topo --help lists them", name);
    return NULL;
}

static int cannot_write(const char *name, int code)
{
    tool_error("%s: cannot be written: %s", name, strerror(code));
    return TOOL_INPUT;
}

/* A command that fails before it prints leaves the file as it was. */
static int run_to_file(struct tool *t, const struct command *c, int argc, char **argv)
{
    struct tool_file file;
    int code = tool_file_open(&file, t->output);
    if (code < 0)
        return cannot_write(t->output, -code);
    if (!(t->out = fdopen(file.text, "w"))) {
        code = errno;
        tool_file_close(&file);
        return cannot_write(t->output, code);
    }
    int status = c->run(t, argc, argv);
    tool_unload(t);
    if (fflush(t->out) != 0)
        code = -errno;
    else if ((status <= TOOL_FOUND && !t->elsewhere) || lseek(file.text, 0, SEEK_CUR) > 0)
        code = tool_file_save(&file);
    file.text = -1; /* the stream's */
    fclose(t->out);
    tool_file_close(&file);
    return code < 0 ? cannot_write(t->output, -code) : status;
}

int main(int argc, char **argv)
{
    struct tool t = {.root = "/",
                     .names = true,
                     .out = stdout,
                     .wait_s = PVN_TOPO_INPUT_WAIT_S,
                     .interval_s = -1,
                     .parallel = 32};
    int option, color = 0, status;
    pvn_std_fds();
    setlocale(LC_CTYPE, "");
    while ((option = getopt_long(argc, argv, "o:hV", options, NULL)) != -1)
        if ((status = set_option(&t, option, &color)) >= 0)
            return fflush(stdout) == 0 ? status : cannot_write("standard output", errno);
    if (t.json && t.format != TOOL_TEXT) {
        tool_error(
            "--json and another format: give one of --json, --xml, --xml-full, --dot, --svg");
        return TOOL_USAGE;
    }
    const struct command *command = find_command(&t, argv[optind]);
    if (!command)
        return TOOL_USAGE;
    optind += optind < argc;
    if (t.interval_s < 0)
        t.interval_s = TOOL_INTERVAL_S;
    set_look(&t, color);
    /* gather writes its own file; the others print, --watch as long as it runs. */
    if (!t.ignore_env)
        tool_take_nccl_conf();
    if (t.output && t.watch_s == 0 && command->run != cmd_gather)
        return run_to_file(&t, command, argc - optind, argv + optind);
    bool redirect = t.output && t.watch_s > 0;
    if (redirect && !(t.out = fopen(t.output, "we")))
        return cannot_write(t.output, errno);
    status = command->run(&t, argc - optind, argv + optind);
    tool_unload(&t);
    bool failed = ferror(t.out);
    if ((redirect ? fclose(t.out) : fflush(stdout)) != 0 || failed)
        return cannot_write(redirect ? t.output : "standard output",
                            t.write_errno ? t.write_errno : errno);
    return status;
}
