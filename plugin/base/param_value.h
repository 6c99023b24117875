/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Conversion of a parameter's value between text and field. Only param.c, param_print.c and tests include this. */
#ifndef PVN_BASE_PARAM_VALUE_H
#define PVN_BASE_PARAM_VALUE_H

#include "base/param.h"

/* Parses `text` and stores the value in the row's field of *out. Returns 0, or -EINVAL (not a value of this type),
 * -ERANGE (outside of min..max), -ENAMETOOLONG. After an error *out is unchanged and `why` has the reason, e.g. "is not
 * a number". */
int pvn_param_parse(const struct pvn_param_def *def, const char *text, struct pvn_params *out,
                    char *why, size_t why_size);

/* True if `text` means "unset" in NCCL's own variable of this row: -1 or -2, if that is below the row's range. */
bool pvn_param_is_nccl_unset(const struct pvn_param_def *def, const char *text);

#endif
