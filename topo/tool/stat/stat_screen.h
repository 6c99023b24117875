/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --watch on a terminal. */
#ifndef PVN_TOPO_TOOL_STAT_SCREEN_H
#define PVN_TOPO_TOOL_STAT_SCREEN_H

#include <stddef.h>
#include <stdio.h>

struct stat_screen {
    int rows, columns;
};

/* The window as it is now; it may be resized between two looks. */
struct stat_screen stat_screen_size(void);
int stat_screen_lines(const char *text, size_t len);
/* Clears the window and draws what fits into it: lines are cut, and those that are too many are counted. */
void stat_screen_put(FILE *out, const char *text, size_t len, struct stat_screen s);

#endif
