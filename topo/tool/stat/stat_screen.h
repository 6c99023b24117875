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

/* The current size of the window, which may change at any time. */
struct stat_screen stat_screen_size(void);
int stat_screen_lines(const char *text, size_t len);
/* Clears the window and draws the text that fits: long lines are cut, and surplus lines are only
 * counted. */
void stat_screen_put(FILE *out, const char *text, size_t len, struct stat_screen s);

#endif
