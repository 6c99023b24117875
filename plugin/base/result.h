/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The one place where an error of ours becomes a ncclResult_t. */
#ifndef PVN_BASE_RESULT_H
#define PVN_BASE_RESULT_H

#include "base/err.h"

/* The values of ncclResult_t (NCCL 2.30.7, src/nccl.h.in). They have names of their own here
 * because base includes no header of NCCL; plugin/abi casts. */
enum pvn_result {
    PVN_RESULT_SUCCESS = 0,
    PVN_RESULT_CUDA_ERROR = 1,
    PVN_RESULT_SYSTEM_ERROR = 2,
    PVN_RESULT_INTERNAL_ERROR = 3,
    PVN_RESULT_INVALID_ARGUMENT = 4,
    PVN_RESULT_INVALID_USAGE = 5,
    PVN_RESULT_REMOTE_ERROR = 6,
    PVN_RESULT_IN_PROGRESS = 7
};

/* `code` is 0 or a negative errno. `err` may be NULL; its fault, where set, decides over the errno.
 * A code of 0 is success whatever `err` holds. */
enum pvn_result pvn_result_of(int code, const struct pvn_err *err);

/* "ncclRemoteError" and so on, for messages. */
const char *pvn_result_name(enum pvn_result result);

#endif
