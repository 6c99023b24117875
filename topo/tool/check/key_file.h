/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: length and label of the job's key (NCCL_PVRDMA_KEY_FILE) on this host. */
#ifndef PVN_TOPO_TOOL_KEY_FILE_H
#define PVN_TOPO_TOOL_KEY_FILE_H

#include <stddef.h>
#include <sys/types.h>

struct pvn_topo_checks;
struct tool;

/* Adds a row for the key that this environment names, if any. 0 or -ENOMEM. */
int tool_check_key(const struct tool *t, struct pvn_topo_checks *checks);
/* Fills buf with the length and label of the key in a file, or with the reason why that user's
 * processes cannot use it. ssl_lib: as NCCL_PVRDMA_SSL_LIB, NULL: the default. Returns buf. */
const char *tool_key_text(const char *path, const char *ssl_lib, uid_t user, char *buf, size_t len);

#endif
