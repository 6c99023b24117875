/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: one look, at this host or at many. */
#ifndef PVN_TOPO_TOOL_STAT_LOOK_H
#define PVN_TOPO_TOOL_STAT_LOOK_H

#include <glob.h>

#include "topo/tool/load/query.h"
#include "topo/tool/stat/stat.h"

/* The directory in which the plugin of this environment keeps its files; for root, the directories of all users. Also
 * where it finds sysfs; NULL: nobody needs it. */
glob_t stat_directories(char *sysfs, size_t len);
/* Adds the files and processes that the arguments name; without any, all in the directories. */
void stat_read_from(struct stat_list *list, const glob_t *dirs, int argc, char **argv);
/* stat_read_from with this environment's directories. */
void stat_read(struct stat_list *list, int argc, char **argv);

/* Meets the other copies that srun or mpirun started: rank 0 shows what all hosts have, the others send it
 * theirs. False: there is one copy, or they cannot meet, and this host alone is to be shown. */
bool stat_meet(struct tool *t, int *status);
/* True if there are several, as far as the environment says. */
bool stat_meets(void);

/* Queries the hosts and adds what they have; the list refers to the answers. An exit status. */
int stat_look_hosts(const struct tool *t, struct tool_answers *a, struct stat_list *list);

#endif
