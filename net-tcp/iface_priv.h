/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Shared by the sources of interfaces. */
#ifndef PVN_NET_TCP_IFACE_PRIV_H
#define PVN_NET_TCP_IFACE_PRIV_H

#include "net-tcp/iface.h"

/* Appends a zeroed entry; NULL if memory is short. Pointers to other entries become invalid. */
struct pvn_iface *pvn_iface_append(struct pvn_iface_table *table);

/* Adds an address and returns its entry, so that the caller can set the label. NULL if the address
 * is there already, or if there are too many. */
struct pvn_iface_addr *pvn_iface_add_addr(struct pvn_iface *iface, const struct sockaddr *sa,
                                          unsigned prefixlen, bool tentative, bool deprecated);

/* Finds the kind by the kernel's word for it (rtnl "kind" or ethtool driver). False if the word is
 * unknown. */
bool pvn_iface_kind_from_name(const char *word, enum pvn_iface_kind *kind);

/* Adds speed, driver and PCI path to every entry, and has_uplink to bridges. Needs names, indices,
 * kinds and masters. Never fails: facts that cannot be found stay unknown. */
void pvn_iface_add_details(struct pvn_iface_table *table);

/* The source with libnl, or NULL with the reason in `why`. */
const struct pvn_iface_source *pvn_iface_source_netlink(const char *nl_lib, char *why, size_t size);

#endif
