/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) of a file, so that a report identifies the plugin that it measured. */
#ifndef PVN_TOOLS_SHA256_H
#define PVN_TOOLS_SHA256_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PVN_SHA256_TEXT 65 /* 64 hexadecimal digits and the end */

void pvn_sha256(const void *data, size_t len, char out[PVN_SHA256_TEXT]);
/* The digest of a file as sha256sum prints it. 0, or a negative errno with an empty text. Any
 * thread. */
int pvn_sha256_file(const char *path, char out[PVN_SHA256_TEXT]);

#ifdef __cplusplus
}
#endif

#endif
