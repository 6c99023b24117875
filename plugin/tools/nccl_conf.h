/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's configuration files by the rules of its own reader (src/misc/param.cc): the file that
 * NCCL_CONF_FILE names, else .nccl.conf in the home directory, then /etc/nccl.conf. NCCL puts each
 * line into the environment unless the name is there already, so the first one counts. From NCCL
 * 2.30 on HOME names the home directory, and a CR at the end of a line is dropped; before that the
 * password database names it. These functions follow NCCL 2.30. */
#ifndef PVN_TOOLS_NCCL_CONF_H
#define PVN_TOOLS_NCCL_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PVN_NCCL_CONF_KEPT = 1023 }; /* bytes of a name, and of a value, that NCCL keeps */

/* Takes a line of the file `path`. The value still has its CR. */
typedef void pvn_nccl_conf_use(void *arg, const char *path, const char *name, const char *value);

/* Calls `use` for the lines of the files of a process, in NCCL's order. file, home: its values of
 * NCCL_CONF_FILE and HOME, or NULL. */
void pvn_nccl_conf_read(const char *file, const char *home, pvn_nccl_conf_use *use, void *arg);

/* Adds NCCL's variables of this process's files to its environment. */
void pvn_nccl_conf_take(void);

/* True if an entry NAME=VALUE of the environment was added by pvn_nccl_conf_take. */
bool pvn_nccl_conf_has(const char *entry);

/* Writes what pvn_nccl_conf_take has added: "FILE sets NAME, NAME", for each file; "" for nothing.
 * Returns out. */
const char *pvn_nccl_conf_taken(char *out, size_t cap);

/* Writes a sentence if NCCL before 2.30 reads another home directory's file than later ones; else
 * "". Arguments as in pvn_nccl_conf_read; user: whose process it is. Returns out. */
const char *pvn_nccl_conf_homes(const char *file, const char *home, uid_t user, char *out,
                                size_t cap);

/* Prints on stderr what pvn_nccl_conf_taken and pvn_nccl_conf_homes say of this process. */
void pvn_nccl_conf_say(const char *tool);

#endif
