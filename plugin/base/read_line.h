/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Files of one line, as those below /sys and /proc. */
#ifndef PVN_BASE_READ_LINE_H
#define PVN_BASE_READ_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* The first line of a file without its end, cut to cap - 1 bytes. false: there is none, and buf is "". */
bool pvn_read_line(const char *path, char *buf, size_t cap);

#endif
