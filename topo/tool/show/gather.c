/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo gather: a capture for a bug report. */
#include "topo/tool/show/show.h"

#include <string.h>
#include <unistd.h>

#include "topo/tool/base/output.h"

int cmd_gather(struct tool *t, int argc, char **argv)
{
    struct pvn_topo_err err;
    const char *path = argc == 1 ? argv[0] : t->output ? t->output : "pvn-topo.tar";
    if (argc + (t->output != NULL) > 1) {
        tool_error("gather writes one file: pvn-topo gather [FILE.tar]");
        return TOOL_USAGE;
    }
    bool to_stdout = strcmp(path, "-") == 0;
    if (to_stdout && isatty(STDOUT_FILENO)) {
        tool_error("a tar is not for a terminal: name a file");
        return TOOL_USAGE;
    }
    struct tool_file file = {.fd = -1, .text = STDOUT_FILENO};
    int code = to_stdout ? 0 : tool_file_open(&file, path);
    if (code < 0) {
        tool_error("%s: cannot be written: %s", path, strerror(-code));
        return TOOL_INPUT;
    }
    code = pvn_topo_gather(t->root, file.text,
                           t->keep_addresses ? PVN_TOPO_GATHER_KEEP_ADDRESSES : 0, &err);
    if (!to_stdout && code == 0 && (code = tool_file_save(&file)) < 0)
        snprintf(err.text, sizeof(err.text), "%.300s: cannot be written: %s", path,
                 strerror(-code));
    if (!to_stdout)
        tool_file_close(&file);
    if (code < 0) {
        tool_error("%s", err.text);
        return TOOL_INPUT;
    }
    /* Report above all missing directories. */
    const struct pvn_topo_options lists = {.flags = PVN_TOPO_NO_CONFIG | PVN_TOPO_NO_GIDS};
    if (pvn_topo_load(t->root, &lists, &t->topo, &err) == 0)
        tool_report_notes(t->root, t->topo);
    if (!to_stdout)
        fprintf(t->out,
                "%s written: host names and serial numbers left out%s.\n"
                "Look at it with: pvn-topo --root %s dump\n",
                path, t->keep_addresses ? "" : ", MAC addresses, GIDs and GUIDs replaced", path);
    return TOOL_OK;
}
