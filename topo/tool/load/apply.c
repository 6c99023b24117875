/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads the tool's input files, and corrects a guest's tree by its host's tree or by hints. */
#include <sys/stat.h>

#include "topo/tool/load/load.h"

int tool_read(const struct tool *t, const char *path, struct pvn_topo_input *in)
{
    struct pvn_topo_err err;
    if (pvn_topo_input_read(path, t->wait_s, in, &err) == 0)
        return TOOL_OK;
    tool_error("%s", err.text);
    return TOOL_INPUT;
}

/* Loads the host's tree from any form. */
static int load_host(const struct tool *t, struct pvn_topo **host)
{
    struct pvn_topo_err err;
    struct pvn_topo_input in;
    struct stat st;
    int status = TOOL_OK, code;
    if (stat(t->host, &st) == 0 && S_ISDIR(st.st_mode)) {
        code = pvn_topo_load(t->host, NULL, host, &err);
    } else {
        if ((status = tool_read(t, t->host, &in)) != TOOL_OK)
            return status;
        code = pvn_topo_input_machine(&in, t->host, host, &err);
        pvn_topo_input_free(&in);
    }
    if (code == 0)
        tool_report_notes(t->host, *host);
    else
        tool_error("%s", err.text);
    return code == 0 ? TOOL_OK : TOOL_INPUT;
}

int tool_apply_merge(struct tool *t)
{
    struct pvn_topo_err err;
    struct pvn_topo *host = NULL;
    struct pvn_topo_input hints = {.kind = PVN_TOPO_INPUT_TAR};
    int code = 0, status = t->hints ? tool_read(t, t->hints, &hints) : TOOL_OK;

    if (status == TOOL_OK && t->host)
        status = load_host(t, &host);
    if (status == TOOL_OK && host)
        code = pvn_topo_merge_host(t->topo, host, hints.data, hints.len, t->hints, &err);
    else if (status == TOOL_OK && hints.data)
        code = pvn_topo_apply_hints(t->topo, hints.data, hints.len, t->hints, &err);
    pvn_topo_free(host);
    pvn_topo_input_free(&hints);
    if (code < 0)
        tool_error("%s", err.text);
    return code < 0 ? TOOL_INPUT : status;
}
