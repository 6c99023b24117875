/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of a device: the calls of libibverbs that the kernel passes on to it.
 *
 * The table of verbs.h makes them through here, so that no caller has to know what the driver and
 * the library of PVRDMA do not bear.
 *
 * Signals. A signal that comes while the driver waits for a command's answer makes the command fail
 * with ETIMEDOUT, as if no answer had come (pvrdma_cmd_recv in
 * drivers/infiniband/hw/vmw_pvrdma/pvrdma_cmd.c, Linux 6.1): a child that ends or a profiler's timer
 * is enough. So signals are blocked meanwhile, and their handlers run behind the command, which a
 * device that hangs ends after 10 s. SIGKILL and SIGSTOP cannot be blocked. This is done for every
 * device: to open one is a command already, and two system calls are little beside it. Nothing that
 * is called for data is a command.
 */
#ifndef PVN_NET_PVRDMA_VERBS_CMD_H
#define PVN_NET_PVRDMA_VERBS_CMD_H

#include "net-pvrdma/verbs.h"

/* Puts the functions of this file into a table that has the library's. */
void pvn_verbs_cmd_wrap(struct pvn_verbs *table);

#endif
