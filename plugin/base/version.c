/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/version.h"

const char *pvn_version(void)
{
    return PACKAGE_VERSION;
}
