/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A file that a command writes: its text is kept in memory until the command has ended. So it may
 * be one of the files that are read, and keeps what it had when nothing comes. */
#ifndef PVN_TOPO_OUTPUT_H
#define PVN_TOPO_OUTPUT_H

#include <stdbool.h>

struct tool_file {
    const char *path;
    int fd, text; /* the file, -1 while there is none; what it shall contain */
    bool part;    /* a new file that lacks some of the text */
};

/* The text in f->text is written to `path` by tool_file_save, which makes a new file: until then it
 * may be missing as an input, too. 0 or negative errno. */
int tool_file_open(struct tool_file *f, const char *path);
/* 0 or negative errno. */
int tool_file_save(struct tool_file *f);
/* Removes a new file of which a part was saved. Not what was there: that may be a device. */
void tool_file_close(struct tool_file *f);

#endif
