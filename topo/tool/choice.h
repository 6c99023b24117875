/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* NCCL's variables that choose devices, as the plugin reads them. Without the model's headers,
 * whose names the plugin's own use as well. */
#ifndef PVN_TOPO_TOOL_CHOICE_H
#define PVN_TOPO_TOOL_CHOICE_H

#include <stdbool.h>

/* NCCL_IB_HCA and NCCL_SOCKET_IFNAME, value not NULL. */
bool tool_ib_hca_takes(const char *value, const char *device, int port);
bool tool_socket_ifname_takes(const char *value, const char *name);

#endif
