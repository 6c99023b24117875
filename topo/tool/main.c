/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo reads the PCIe layout of a machine, pairs its NICs with its GPUs, and explains and
 * checks the result. */
#include "config.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plugin/tools/nccl_conf.h"
#include "plugin/tools/std_fds.h"
#include "topo/tool/base/output.h"
#include "topo/tool/check/check.h"
#include "topo/tool/load/load.h"
#include "topo/tool/options.h"
#include "topo/tool/overview.h"
#include "topo/tool/show/show.h"
#include "topo/tool/stat/stat_look.h"

typedef int run_command(struct tool *t, int argc, char **argv);

static run_command *const run[] = {
    [TOOL_DUMP] = cmd_dump,     [TOOL_MATRIX] = cmd_matrix, [TOOL_PAIRS] = cmd_pairs,
    [TOOL_WHY] = cmd_why,       [TOOL_CHECK] = cmd_check,   [TOOL_LINT] = cmd_lint,
    [TOOL_MERGE] = cmd_merge,   [TOOL_DIFF] = cmd_diff,     [TOOL_GATHER] = cmd_gather,
    [TOOL_PARAMS] = cmd_params, [TOOL_STAT] = cmd_stat,     [TOOL_OVERVIEW] = cmd_overview};

static void set_look(struct tool *t)
{
    struct winsize size;
    bool terminal = isatty(STDOUT_FILENO) && !t->output;
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool on = t->color == TOOL_COLOR_ALWAYS ||
              (t->color == TOOL_COLOR_AUTO && terminal && !(no_color && no_color[0]) && term &&
               term[0] && strcmp(term, "dumb") != 0);
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

/* Finds the command by its name (none: the overview) if it takes the given options; -1 after a
 * message. */
static int find_command(const struct tool *t, uint64_t given, const char *name)
{
    const struct pvn_options *all = &pvn_topo_options;
    int command = name ? pvn_options_mode(all, name) : TOOL_OVERVIEW;
    if (command < 0 ||
        pvn_options_fit(all, given, command, name ? name : "a call without a command"))
        return -1;
    if (t->json && t->format != TOOL_TEXT)
        pvn_options_bad(all, "two formats: give one of --json, --xml, --xml-full, --dot, --svg");
    else if (t->json && command == TOOL_OVERVIEW)
        pvn_options_bad(all, "--json needs a command, as in pvn-topo --json dump");
    else if (t->json && command == TOOL_GATHER)
        pvn_options_bad(all, "--json is not for gather, which writes a tar");
    else if ((t->ssh || t->remote) && !t->hosts)
        pvn_options_bad(all, "--ssh and --remote have no effect without --hosts");
    else if (command == TOOL_STAT &&
             pvn_options_given(all, given, offsetof(struct tool, interval_s)) &&
             (t->watch_s > 0 || !(t->hosts || stat_meets())))
        pvn_options_bad(all,
                        "--interval is for check and for one look of stat --hosts, or of stat by "
                        "srun or mpirun, not for stat%s",
                        t->watch_s > 0 ? " --watch" : "");
    else
        return command;
    return -1;
}

static int cannot_write(const char *name, int code)
{
    tool_error("%s: cannot be written: %s", name, strerror(code));
    return TOOL_INPUT;
}

/* Runs a command with its output in a file. If the command fails before it prints, the file is
 * unchanged. */
static int run_to_file(struct tool *t, int command, int argc, char **argv)
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
    int status = run[command](t, argc, argv);
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
    struct tool t = {.root = "/", .names = true, .out = stdout};
    uint64_t given;
    int command, status;
    pvn_std_fds();
    setlocale(LC_CTYPE, "");
    status = pvn_options_parse(&pvn_topo_options, argc, argv, &t, NULL, &given);
    if (status == PVN_OPTIONS_DONE)
        return fflush(stdout) == 0 ? TOOL_OK : cannot_write("standard output", errno);
    if (status != PVN_OPTIONS_OK || (command = find_command(&t, given, argv[optind])) < 0)
        return TOOL_USAGE;
    optind += optind < argc;
    set_look(&t);
    /* gather writes its own file. The output of --watch goes to the file directly, because it has
     * no end. */
    if (!t.ignore_env)
        pvn_nccl_conf_take();
    if (!t.ignore_env && command == TOOL_PARAMS)
        pvn_nccl_conf_say("pvn-topo");
    if (t.output && t.watch_s == 0 && command != TOOL_GATHER)
        return run_to_file(&t, command, argc - optind, argv + optind);
    bool redirect = t.output && t.watch_s > 0;
    if (redirect && !(t.out = fopen(t.output, "we")))
        return cannot_write(t.output, errno);
    status = run[command](&t, argc - optind, argv + optind);
    tool_unload(&t);
    bool failed = ferror(t.out);
    if ((redirect ? fclose(t.out) : fflush(stdout)) != 0 || failed)
        return cannot_write(redirect ? t.output : "standard output",
                            t.write_errno ? t.write_errno : errno);
    return status;
}
