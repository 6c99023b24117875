/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of a device: the functions of libibverbs that the kernel passes on to the device.
 *
 * The table of verbs.h calls them through this file, which works around two weaknesses of PVRDMA's driver
 * and library.
 *
 * Signals. A signal that arrives while the driver waits for a command's answer makes the command fail with
 * ETIMEDOUT, as if there were no answer (pvrdma_cmd_recv in drivers/infiniband/hw/vmw_pvrdma/pvrdma_cmd.c,
 * Linux 6.1). The end of a child or a profiler's timer is enough. So signals are blocked during the command
 * and their handlers run after it. If the device hangs, the driver ends the command after 10 s. SIGKILL and
 * SIGSTOP cannot be blocked. Signals are blocked for every device, because opening a device is already a
 * command, and because two system calls cost little beside a command. No data call is a command.
 *
 * Queue pairs. The library keeps the queue pairs of a context in a table, indexed by the device's handles,
 * without a lock. It removes a queue pair after the device has destroyed it, and adds one after the device
 * has created it (pvrdma_destroy_qp and pvrdma_create_qp in providers/vmw_pvrdma/qp.c, rdma-core 44 to 65).
 * If the device reuses a handle in between, the library removes the new queue pair, whose completions are
 * then never found. So only one thread at a time creates or destroys queue pairs of a PVRDMA context. This
 * lock adds no delay: the driver runs one command of a device at a time (pvrdma_cmd_post), so a command that
 * hangs delays the others in any case. The libraries of other adapters have locks.
 */
#ifndef PVN_NET_PVRDMA_VERBS_CMD_H
#define PVN_NET_PVRDMA_VERBS_CMD_H

#include "net-pvrdma/verbs.h"

/* Replaces functions of the library's table by the wrappers of this file. */
void pvn_verbs_cmd_wrap(struct pvn_verbs *table);

/* Marks an open context as one of PVRDMA until it is closed. 0 or -ENOMEM. May be called from any thread. */
int pvn_verbs_cmd_is_pvrdma(struct ibv_context *ctx);
/* Called in a forked child: resets the locks, which another thread of the parent may have held. */
void pvn_verbs_cmd_after_fork(void);

#endif
