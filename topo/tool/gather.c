/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo gather: a capture for a bug report. */
#include "topo/tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int cmd_gather(struct tool *t, int argc, char **argv)
{
    struct pvn_topo_err err;
    const char *path = argc == 1 ? argv[0] : t->output ? t->output : "pvn-topo.tar";
    if (argc > 1) {
        tool_error("gather writes one file: pvn-topo gather [FILE.tar]");
        return TOOL_USAGE;
    }
    bool to_stdout = strcmp(path, "-") == 0;
    if (to_stdout && isatty(STDOUT_FILENO)) {
        tool_error("a tar is not for a terminal: name a file");
        return TOOL_USAGE;
    }
    int fd = to_stdout ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        tool_error("%s: cannot be written: %s", path, strerror(errno));
        return TOOL_INPUT;
    }
    int code =
        pvn_topo_gather(t->root, fd, t->keep_addresses ? PVN_TOPO_GATHER_KEEP_ADDRESSES : 0, &err);
    if (!to_stdout && close(fd) < 0 && code == 0) {
        code = -errno;
        snprintf(err.text, sizeof(err.text), "%s: cannot be written: %s", path, strerror(errno));
    }
    if (code < 0) {
        tool_error("%s", err.text);
        if (!to_stdout)
            unlink(path);
        return TOOL_INPUT;
    }
    if (!to_stdout)
        fprintf(t->out,
                "%s written: host names and serial numbers left out%s.\n"
                "Look at it with: pvn-topo --root %s dump\n",
                path, t->keep_addresses ? "" : ", MAC addresses, GIDs and GUIDs replaced", path);
    return TOOL_OK;
}
