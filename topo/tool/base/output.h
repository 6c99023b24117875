/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A file that a command writes. The text is kept in memory until the command has ended. So the file
 * may also be an input, and it keeps its old content if nothing is written. */
#ifndef PVN_TOPO_OUTPUT_H
#define PVN_TOPO_OUTPUT_H

#include <stdbool.h>

struct tool_file {
    const char *path;
    int fd, text; /* the file, -1 while there is none; the text that it will contain */
    bool part;    /* a new file to which only a part of the text was written */
};

/* Creates f->text, a file in memory for the text, and checks that `path` can be written.
 * tool_file_save creates a missing file, so until then `path` may be missing as an input, too. 0 or
 * negative errno. */
int tool_file_open(struct tool_file *f, const char *path);
/* Writes the text to the file. 0 or negative errno. */
int tool_file_save(struct tool_file *f);
/* Removes a new file that was written only in part. An existing file is not removed, because it may
 * be a device. */
void tool_file_close(struct tool_file *f);

#endif
