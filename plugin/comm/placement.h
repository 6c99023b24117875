/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Places the devices in the machine, by the topology library (topo/nccl/report.h): their order,
 * facts that the scan did not find, and log lines on which NIC NCCL will take for each GPU.
 *
 * Called by the thread that loads the plugin, under its lock. */
#ifndef PVN_COMM_PLACEMENT_H
#define PVN_COMM_PLACEMENT_H

#include "connect/transport.h"

/*
 * Puts the n devices of a scan in PCI order, which is the same in every process of the machine.
 * Sets pci_path, guid, port, rail, and the speed if the scan found none. If the machine cannot be
 * read, the devices stay as they are. 0, or a negative errno with *err (NCCL_PVRDMA_RAILS, no
 * memory) and nothing changed.
 */
int pvn_placement_arrange(struct pvn_device *d, int n, struct pvn_err *err);

/* Logs at INFO what arranging cost, which devices NCCL cannot place, and one line per GPU. Then
 * forgets the machine. */
void pvn_placement_log(void);
void pvn_placement_forget(void);

#endif
