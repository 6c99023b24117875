/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* One parameter's value between text and field: inside of param.c,
 * param_print.c and their tests. */
#ifndef PVN_BASE_PARAM_VALUE_H
#define PVN_BASE_PARAM_VALUE_H

#include "base/param.h"

/* Parses `text` and stores it into the row's field of *out. 0, or -EINVAL (not a value of this
 * type), -ERANGE (outside min..max), -ENAMETOOLONG; *out is unchanged then and `why` says what is
 * wrong, e.g. "is not a number". */
int pvn_param_parse(const struct pvn_param_def *def, const char *text, struct pvn_params *out,
                    char *why, size_t why_size);

/* True if `text` is how NCCL's own variable of this row says "choose yourself": -1 or -2, where that
 * is below the row's range. */
bool pvn_param_is_nccl_unset(const struct pvn_param_def *def, const char *text);

#endif
