/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/result.h"

#include <errno.h>

static enum pvn_result from_errno(int e)
{
    switch (e) {
    case EINPROGRESS:
        return PVN_RESULT_IN_PROGRESS;
    case EINVAL:
    case ERANGE:
    case EMSGSIZE:
        return PVN_RESULT_INVALID_ARGUMENT;
    case EOPNOTSUPP:
    case ENOSYS:
        return PVN_RESULT_INVALID_USAGE;
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENOTCONN:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETRESET:
    case EPROTO:
    case EBADMSG:
    case EREMOTEIO:
        return PVN_RESULT_REMOTE_ERROR;
    /* EAGAIN must be handled before a result reaches the ABI, so it is a bug here. */
    case EAGAIN:
    case EBADFD:
    case ENOTRECOVERABLE:
        return PVN_RESULT_INTERNAL_ERROR;
    default:
        return PVN_RESULT_SYSTEM_ERROR;
    }
}

enum pvn_result pvn_result_of(int code, const struct pvn_err *err)
{
    if (code == 0)
        return PVN_RESULT_SUCCESS;
    switch (err ? err->fault : PVN_FAULT_UNSET) {
    case PVN_FAULT_SYSTEM:
        return PVN_RESULT_SYSTEM_ERROR;
    case PVN_FAULT_USAGE:
        return PVN_RESULT_INVALID_USAGE;
    case PVN_FAULT_ARGUMENT:
        return PVN_RESULT_INVALID_ARGUMENT;
    case PVN_FAULT_REMOTE:
        return PVN_RESULT_REMOTE_ERROR;
    case PVN_FAULT_CUDA:
        return PVN_RESULT_CUDA_ERROR;
    case PVN_FAULT_INTERNAL:
        return PVN_RESULT_INTERNAL_ERROR;
    case PVN_FAULT_UNSET:
        break;
    }
    /* A positive code is a bug, because all errors are negative. */
    return code < 0 ? from_errno(-code) : PVN_RESULT_INTERNAL_ERROR;
}
