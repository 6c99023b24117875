/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Functions of hca_sys.c that hca.c calls; hca_sys.c calls nothing of hca.c. */
#ifndef PVN_NET_PVRDMA_HCA_PRIV_H
#define PVN_NET_PVRDMA_HCA_PRIV_H

#include <stdarg.h>

#include "net-pvrdma/hca.h"

/* Adds "name (reason)" to the table's list of unused devices and ports. */
void pvn_hca_left_out(struct pvn_hca_table *t, const char *name, const char *fmt, ...)
    PVN_PRINTF(3, 4);

/* Adds the kernel's adapters that are missing in libibverbs' list to left_out. */
void pvn_hca_name_missing(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                          struct ibv_device **list, int n, struct pvn_hca_table *t);

/* Fills in driver and pci_path. *vendor and *device are unchanged if sysfs does not have them. */
void pvn_hca_read_pci(const struct pvn_hca_options *o, struct pvn_hca *h, unsigned int *vendor,
                      unsigned int *device);

/* The port's rate in Mb/s from sysfs; 0 if it is not there. Rates above NDR are only in sysfs, because the kernel truncates
 * the speed code of ibv_query_port (copy_port_attr_to_resp in Linux, drivers/infiniband/core/uverbs_std_types_device.c). */
int pvn_hca_read_rate(const struct pvn_hca_options *o, const struct pvn_hca *h,
                      const struct pvn_hca_port *p);

/* Fills in ifname: the interface in the attributes of the GID table, else the interface of the PCI function. For PVRDMA
 * that is function 0 of its slot. */
void pvn_hca_find_netdev(const struct pvn_hca_options *o, const struct pvn_hca *h,
                         struct pvn_hca_port *p);

/* Reads the rows in use with type and prefix, and returns their number. *whole (may be NULL): false if a call failed, so
 * that rows or prefixes may be missing. */
int pvn_hca_read_gids(const struct pvn_verbs *v, const struct pvn_hca_options *o,
                      const struct pvn_hca *h, const struct pvn_hca_port *p, int tbl_len,
                      struct pvn_gid_row *rows, int max, bool *whole);

#endif
