/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/version.h"

/* A marked string in the binary, so that pvn-topo check finds the version without loading the plugin. */
#define MARK "@(#)nccl-net-pvrdma "

const char *pvn_version(void)
{
    static const char text[] = MARK PACKAGE_VERSION;
    return text + sizeof(MARK) - 1;
}
