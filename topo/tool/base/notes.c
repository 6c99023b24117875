/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The reader's notes on input that it could not read as expected. Each command prints them beside
 * its answer. */
#include "topo/tool/base/tool.h"

#include <string.h>

/* The first of several equal notes; the others are counted. */
static bool next_note(const struct pvn_topo *topo, int i, char *text, size_t len)
{
    const struct pvn_topo_note *note = &topo->notes[i];
    char more[32] = "";
    int same = 0;
    for (int j = 0; j < topo->nnotes; j++) {
        bool alike = strcmp(topo->notes[j].text, note->text) == 0;
        if (alike && j < i)
            return false;
        same += alike;
    }
    if (same > 1)
        snprintf(more, sizeof(more), " and %d more", same - 1);
    snprintf(text, len, "%s%s: %s", note->where, more, note->text);
    return true;
}

void tool_print_notes(const struct tool *t)
{
    char text[600];
    if (!t->topo || t->topo->nnotes == 0)
        return;
    fprintf(t->out, "%sNot read as it should be, so what follows may lack something:%s\n",
            t->yellow, t->off);
    for (int i = 0; i < t->topo->nnotes; i++) {
        if (next_note(t->topo, i, text, sizeof(text))) {
            fputs("  ", t->out);
            tool_wrap(t, 2, 4, text);
        }
    }
    if (t->topo->notes_dropped > 0)
        fprintf(t->out, "  and %d more\n", t->topo->notes_dropped);
    fputc('\n', t->out);
}

void tool_report_notes(const char *root, const struct pvn_topo *topo)
{
    char text[600];
    bool named = strcmp(root, "/") != 0;
    for (int i = 0; topo && i < topo->nnotes; i++) {
        if (next_note(topo, i, text, sizeof(text)))
            tool_error("%s%snot read as it should be: %s", named ? root : "", named ? ": " : "",
                       text);
    }
    if (topo && topo->notes_dropped > 0)
        tool_error("and %d more", topo->notes_dropped);
}

int tool_devices_status(const struct tool *t)
{
    return t->topo && (t->topo->unread & PVN_TOPO_UNREAD_DEVICES) ? TOOL_INPUT : TOOL_OK;
}
