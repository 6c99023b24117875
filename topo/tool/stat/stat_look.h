/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: reads the statistics of this host or of many hosts once. */
#ifndef PVN_TOPO_TOOL_STAT_LOOK_H
#define PVN_TOPO_TOOL_STAT_LOOK_H

#include <glob.h>

#include "topo/tool/load/query.h"
#include "topo/tool/stat/stat.h"

/* The directory in which the plugin of this environment keeps its files or, for root, the
 * directories of all users. sysfs gets the directory where the plugin finds sysfs; NULL if it is
 * not needed. */
glob_t stat_directories(char *sysfs, size_t len);
/* Adds the files and processes that the arguments name; without any, all in the directories. */
void stat_read_from(struct stat_list *list, const glob_t *dirs, int argc, char **argv);
/* Adds all files in this environment's directories. */
void stat_read(struct stat_list *list);

/* Meets the other copies that srun or mpirun started: rank 0 shows the data of all hosts, the
 * others send it theirs. False if there is only one copy, or if they cannot meet: then only this
 * host is shown. */
bool stat_meet(struct tool *t, int *status);
/* True if the environment shows several copies. */
bool stat_meets(void);

/* Queries the hosts and adds their processes; the list refers to the answers. Returns an exit
 * status. */
int stat_look_hosts(const struct tool *t, struct tool_answers *a, struct stat_list *list);

#endif
