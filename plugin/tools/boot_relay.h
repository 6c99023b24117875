/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed connections for processes that fork: what a stream of TLS has counted would go on twice. So a process of its own
 * has the streams, and passes what comes on each to and from a socket pair, whose end the ranks use like the connection of
 * a meeting without a key. It ends when all of them have ended, and outlives signals meanwhile.
 */
#ifndef PVN_TOOLS_BOOT_RELAY_H
#define PVN_TOOLS_BOOT_RELAY_H

#include "seal/seal.h"
#include "tools/boot.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts the relay of the streams seal[i] over b->fd[i], where the latter is at least 0, and puts ends of socket pairs in the
 * place of the connections, which are closed here. The streams stay the caller's, to be freed and not used any more.
 * program: for the relay's messages. 0, or a negative errno with why and nothing changed.
 */
int pvn_boot_relay(struct pvn_boot *b, struct pvn_seal *const *seal, const char *program, char *why,
                   size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
