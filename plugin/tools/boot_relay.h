/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed connections for processes that fork. After a fork two processes would continue the
 * counters of one TLS stream. So a relay process has the streams and forwards data between each and
 * a socket pair, whose end the ranks use like a connection without a key. The relay ends when all
 * connections have ended, and ignores signals until then.
 */
#ifndef PVN_TOOLS_BOOT_RELAY_H
#define PVN_TOOLS_BOOT_RELAY_H

#include "seal/seal.h"
#include "tools/boot.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts the relay of the streams seal[i] over each b->fd[i] that is at least 0. Replaces these
 * connections, which it closes, by ends of socket pairs. The caller keeps the streams: it must free
 * them and not use them any more. program: the name in the relay's messages. 0, or a negative errno
 * with why and nothing changed.
 */
int pvn_boot_relay(struct pvn_boot *b, struct pvn_seal *const *seal, const char *program, char *why,
                   size_t why_len);

#ifdef __cplusplus
}
#endif

#endif
