/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: where a plugin lies that the loader does not find. */
#ifndef PVN_TOPO_TOOL_PLUGIN_PLACE_H
#define PVN_TOPO_TOOL_PLUGIN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* Looks where pip, an archive and `make install` put the file of that name: beside this program, in the packages of
 * Python, below /usr/local. False: it is in none of these. */
bool tool_plugin_place(const char *file, char *dir, size_t cap);

#endif
