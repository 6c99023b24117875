/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Reads files of one line, such as those below /sys and /proc. */
#ifndef PVN_BASE_READ_LINE_H
#define PVN_BASE_READ_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the first line of a file, without the line end, cut to cap - 1 bytes. If there is none, returns false and sets buf
 * to "". */
bool pvn_read_line(const char *path, char *buf, size_t cap);

#endif
