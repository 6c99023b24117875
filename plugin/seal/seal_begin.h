/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The process's key. */
#ifndef PVN_SEAL_SEAL_BEGIN_H
#define PVN_SEAL_SEAL_BEGIN_H

#include <stdbool.h>

#include "base/err.h"

struct pvn_key;
struct pvn_params;

/* The key that NCCL_PVRDMA_KEY_FILE and _ENCRYPT request, for a caller of its own (pvn_key_free), with OpenSSL loaded and
 * tried: 0 and *out, NULL without a key, or a negative errno with *err, which has the remedy. */
int pvn_seal_take_key(const struct pvn_params *params, struct pvn_key **out, struct pvn_err *err);

/* Reads the key that NCCL_PVRDMA_KEY_FILE and _ENCRYPT request, and loads OpenSSL. 0, also without a key, or a negative
 * errno with *err. end: forgets the key, and the refusal; no connection is left. */
int pvn_seal_begin(const struct pvn_params *params, struct pvn_err *err);
void pvn_seal_end(void);
/* Why begin has failed, which is why no connection may be made; NULL: it has not. From begin to end. Any thread.
 * An init that failed for it would have NCCL use another transport, without a key. */
const struct pvn_err *pvn_seal_refusal(void);
/* Warns of it, unless it has within PVN_LOG_FOLD_NS: init and the calls that are refused have the same reason. */
void pvn_seal_warn_refusal(void);
/* Why the kernel does not seal this process's data over TCP, so that OpenSSL does; NULL: the kernel does. From begin to end,
 * with a key; a text at other times. Any thread. */
const char *pvn_seal_kernel_refusal(void);
/* The process's key; NULL: it has none. From begin to end. Any thread. */
const struct pvn_key *pvn_seal_key(void);
/* Reads the key file again, before a connection is made in place of another: 0, or -EKEYREVOKED with *err: it has another
 * key than begin found, which is a warning once. 0 also where it cannot be used any more, for a job may remove its file once
 * it runs. From begin to end. Any thread. */
int pvn_seal_check_replaced(struct pvn_err *err);
/* False: pvn_seal_check_replaced does not read it, since a part of its path is on a file system that may block while the
 * network is away, or there is no key. From begin to end. Any thread. */
bool pvn_seal_is_file_watched(void);

#endif
