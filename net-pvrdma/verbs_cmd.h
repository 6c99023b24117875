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
 *
 * Queue pairs. The library keeps those of a context in a table by the device's handles, without a
 * lock: one is removed after the device has destroyed it, and added after the device has created it
 * (pvrdma_destroy_qp and pvrdma_create_qp in providers/vmw_pvrdma/qp.c, rdma-core 44 to 65). Where
 * the device has given a handle out again in between, the new one is removed, and its completions
 * are never found. So one thread at a time creates or destroys queue pairs of a context of PVRDMA.
 * That lengthens no wait: the driver makes one command of a device at a time (pvrdma_cmd_post), so
 * that one which hangs holds the others up in any case. Other adapters' libraries have locks.
 */
#ifndef PVN_NET_PVRDMA_VERBS_CMD_H
#define PVN_NET_PVRDMA_VERBS_CMD_H

#include "net-pvrdma/verbs.h"

/* Puts the functions of this file into a table that has the library's. */
void pvn_verbs_cmd_wrap(struct pvn_verbs *table);

/* Says of an open context that it is of PVRDMA, until it is closed. 0 or -ENOMEM. Any thread. */
int pvn_verbs_cmd_is_pvrdma(struct ibv_context *ctx);
/* In a forked child, where another thread of the parent may have held a lock. */
void pvn_verbs_cmd_after_fork(void);

#endif
