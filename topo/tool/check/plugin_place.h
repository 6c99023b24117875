/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: finds a plugin that the loader does not find. */
#ifndef PVN_TOPO_TOOL_PLUGIN_PLACE_H
#define PVN_TOPO_TOOL_PLUGIN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

/* Looks where pip, an archive and `make install` put a file of that name: beside this program, in
 * Python's packages, below /usr/local. False if it is in none of these. */
bool tool_plugin_place(const char *file, char *dir, size_t cap);

#endif
