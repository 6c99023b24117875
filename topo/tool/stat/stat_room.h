/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat: directories in which a process that uses the plugin cannot create its statistics
 * file, so that the process is not visible. A document lists them among the "unreadable", with
 * their "problem" and its "remedy". */
#ifndef PVN_TOPO_TOOL_STAT_ROOM_H
#define PVN_TOPO_TOOL_STAT_ROOM_H

struct json_t;

/* Adds the directory of this environment if no file can be created in it. */
void stat_room_look(struct json_t *unreadable);
/* The first such directory among them, or NULL. */
const struct json_t *stat_room_in(const struct json_t *unreadable);

#endif
