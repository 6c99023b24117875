/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The only conversion of the plugin's errors to ncclResult_t. */
#ifndef PVN_BASE_RESULT_H
#define PVN_BASE_RESULT_H

#include "base/err.h"

/* The values of ncclResult_t (NCCL 2.30.7, src/nccl.h.in). They have names of their own because base includes no
 * declarations of NCCL's interface; plugin/abi casts them. */
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

/* `code` is 0 or a negative errno. `err` may be NULL; if its fault is set, the fault decides, not the errno. A code of
 * 0 is success, even if `err` has an error. */
enum pvn_result pvn_result_of(int code, const struct pvn_err *err);

#endif
