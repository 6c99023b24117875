/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources of interfaces. */
#ifndef PVN_NET_TCP_IFACE_PRIV_H
#define PVN_NET_TCP_IFACE_PRIV_H

#include "net-tcp/iface.h"

/* A new zeroed entry at the end; NULL without memory. Pointers to others become invalid. */
struct pvn_iface *pvn_iface_append(struct pvn_iface_table *table);

/* Adds an address and returns its entry, for its label; NULL: it is there already, or there are too many
 * of them. */
struct pvn_iface_addr *pvn_iface_add_addr(struct pvn_iface *iface, const struct sockaddr *sa,
                                          unsigned prefixlen, bool tentative, bool deprecated);

/* The kind from the kernel's word for it (rtnl "kind" or ethtool driver); false when it is none
 * that is known. */
bool pvn_iface_kind_from_name(const char *word, enum pvn_iface_kind *kind);

/* Speed, driver and PCI path of every entry, bridges' uplinks; needs names, indices, kinds and masters.
 * Never fails: what cannot be found out stays unknown. */
void pvn_iface_add_details(struct pvn_iface_table *table);

/* The source with libnl, or NULL with the reason in `why`. */
const struct pvn_iface_source *pvn_iface_source_netlink(const char *nl_lib, char *why, size_t size);

#endif
