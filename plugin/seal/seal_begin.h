/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The process's key. */
#ifndef PVN_SEAL_SEAL_BEGIN_H
#define PVN_SEAL_SEAL_BEGIN_H

#include <stdbool.h>

#include "base/err.h"

struct pvn_key;
struct pvn_params;

/* Reads the key that NCCL_PVRDMA_KEY_FILE and _ENCRYPT request, for the caller alone
 * (pvn_key_free). Loads OpenSSL, and tries it. 0 with *out, NULL if no key is requested; or a
 * negative errno with *err, which has the remedy. */
int pvn_seal_take_key(const struct pvn_params *params, struct pvn_key **out, struct pvn_err *err);

/* begin reads the process's key, which NCCL_PVRDMA_KEY_FILE and _ENCRYPT request, and loads
 * OpenSSL. 0, even if no key is requested, or a negative errno with *err. end forgets the key and
 * the refusal; all connections have been closed. */
int pvn_seal_begin(const struct pvn_params *params, struct pvn_err *err);
void pvn_seal_end(void);
/* The reason why begin failed, and no connection may be made; NULL: it did not fail. From begin to
 * end. Any thread. It does not end init, because NCCL would then use another transport, without a
 * key. */
const struct pvn_err *pvn_seal_refusal(void);
/* Warns of the refusal, unless it has within PVN_LOG_FOLD_NS: init and the calls that are refused
 * have the same reason. */
void pvn_seal_warn_refusal(void);
/* The reason why OpenSSL seals this process's data over TCP, and not the kernel; NULL: the kernel
 * does. From begin to end, with a key; some text at other times. Any thread. */
const char *pvn_seal_kernel_refusal(void);
/* The process's key; NULL: it has none. From begin to end. Any thread. */
const struct pvn_key *pvn_seal_key(void);
/* Reads the key file again, before a connection replaces another one. 0, or -EKEYREVOKED with *err:
 * the file has another key than begin found, of which the log warns once. 0 also if the file cannot
 * be used any more, because a job may remove it once it runs. From begin to end. Any thread. */
int pvn_seal_check_replaced(struct pvn_err *err);
/* False: pvn_seal_check_replaced does not read the file, because there is no key, or a part of
 * its path is on a file system that may block while the network is away. From begin to end. Any
 * thread. */
bool pvn_seal_is_file_watched(void);

#endif
