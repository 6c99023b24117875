/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The version of this build: printed in the banner, sent in HELLO, shown by the tools' --version. */
#ifndef PVN_BASE_VERSION_H
#define PVN_BASE_VERSION_H

/* "0.1.0"; static storage, any thread. */
const char *pvn_version(void);

#endif
