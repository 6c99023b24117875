/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Which source of interfaces is used: the kernel's netlink, or what works without libnl. */
#include "config.h"
#include "net-tcp/iface.h"

#include "base/log.h"
#include "net-tcp/iface_priv.h"

const struct pvn_iface_source *pvn_iface_source_default(const char *nl_lib)
{
    char why[256] = "";
    const struct pvn_iface_source *source = pvn_iface_source_netlink(nl_lib, why, sizeof(why));

    if (source) {
        pvn_info(PVN_INIT | PVN_NET, "interfaces and routes by netlink (%s)", nl_lib);
        return source;
    }
    pvn_info(PVN_INIT | PVN_NET,
             "interfaces by getifaddrs and /sys, routes by trial, for libnl is not usable: %s",
             why);
    return &pvn_iface_source_plain;
}
