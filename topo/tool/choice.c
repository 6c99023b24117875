/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "topo/tool/choice.h"

#include "net-pvrdma/hca.h"
#include "net-tcp/iface.h"

bool tool_ib_hca_takes(const char *value, const char *device, int port)
{
    return pvn_hca_matches(value, device, port);
}

bool tool_socket_ifname_takes(const char *value, const char *name)
{
    return pvn_iface_name_matches(value, name);
}
