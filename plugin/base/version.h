/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The version of this build, which the banner, HELLO and the tools' --version contain. */
#ifndef PVN_BASE_VERSION_H
#define PVN_BASE_VERSION_H

/* Returns e.g. "0.1.0", a static string. May be called from any thread. */
const char *pvn_version(void);

#endif
