/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo lint: checks a user's NCCL_TOPO_FILE. */
#include "topo/tool/check/check.h"

#include <string.h>

#include "topo/tool/base/json.h"
#include "topo/tool/load/load.h"

static int lint_file(const struct tool *t, const char *path)
{
    struct pvn_topo_lint lint;
    struct pvn_topo_input in;
    char shown[sizeof(lint.findings->what) + 64];
    int count[3] = {0}, status = tool_read(t, path, &in);
    if (status != TOOL_OK)
        return status;
    if (pvn_topo_nccl_lint(in.data, in.len, &lint) < 0) {
        tool_error("out of memory");
        pvn_topo_input_free(&in);
        return TOOL_INPUT;
    }
    for (int i = 0; i < lint.n; i++) {
        const struct pvn_topo_lint_finding *f = &lint.findings[i];
        count[f->level]++;
        if (f->level == PVN_TOPO_LINT_ERROR)
            status = TOOL_FOUND;
        if (t->json)
            continue;
        const char *level_shade = f->level == PVN_TOPO_LINT_ERROR  ? t->red
                                  : f->level == PVN_TOPO_LINT_WARN ? t->yellow
                                                                   : t->dim;
        fprintf(t->out, "%s:%d: %s%s%s [%s]\n    ", tool_escape(path, shown, sizeof(shown)),
                f->line, level_shade, pvn_topo_lint_level_name(f->level), t->off, f->rule);
        tool_wrap(t, 4, 4, tool_escape(f->what, shown, sizeof(shown)));
        fprintf(t->out, "    -> ");
        tool_wrap(t, 7, 7, f->remedy);
    }
    if (t->json)
        status = json_lint(t, path, &lint) == TOOL_OK ? status : TOOL_INPUT;
    else
        fprintf(t->out, "%s: %d error%s, %d warning%s, %d note%s%s%s%s\n", path,
                count[PVN_TOPO_LINT_ERROR], count[PVN_TOPO_LINT_ERROR] == 1 ? "" : "s",
                count[PVN_TOPO_LINT_WARN], count[PVN_TOPO_LINT_WARN] == 1 ? "" : "s",
                count[PVN_TOPO_LINT_NOTE], count[PVN_TOPO_LINT_NOTE] == 1 ? "" : "s",
                lint.n == 0 ? ": " : "", lint.n == 0 ? lint.reader->name : "",
                lint.n == 0 ? " will read it as it stands" : "");
    if (!t->json) {
        snprintf(shown, sizeof(shown), "judged by the rules of %s", lint.reader->judged);
        fputs("    ", t->out);
        tool_wrap(t, 4, 4, shown);
    }
    pvn_topo_lint_free(&lint);
    pvn_topo_input_free(&in);
    return status;
}

int cmd_lint(struct tool *t, int argc, char **argv)
{
    int worst = TOOL_OK;
    if (argc == 0) {
        tool_error("lint needs a file, for example: pvn-topo lint topo.xml (- is standard input)");
        return TOOL_USAGE;
    }
    for (int i = 0; i < argc; i++) {
        int status = lint_file(t, argv[i]);
        worst = status > worst ? status : worst;
    }
    return worst;
}
