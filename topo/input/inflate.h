/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648) and zlib's format (RFC 1950, 1951) of a few KiB, as they stand inside a JSON text:
 * too little for a library that would be needed for nothing else. */
#ifndef PVN_TOPO_INPUT_INFLATE_H
#define PVN_TOPO_INPUT_INFLATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes of text in out, or -1: no Base64, or more than cap. */
ssize_t pvn_topo_base64(const char *text, uint8_t *out, size_t cap);
/* Bytes that in unpacks to, or -1: damaged, or more than cap. Its checksum is compared. */
ssize_t pvn_topo_inflate(const uint8_t *in, size_t len, uint8_t *out, size_t cap);

#endif
