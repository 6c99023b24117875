/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Decoders of Base64 (RFC 4648) and zlib's format (RFC 1950, 1951) for a few KiB inside a JSON
 * text. That is too little to depend on a library that nothing else needs. */
#ifndef PVN_TOPO_INPUT_INFLATE_H
#define PVN_TOPO_INPUT_INFLATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Decodes text into out. Returns the number of bytes, or -1 if this is no Base64 or more than
 * cap. */
ssize_t pvn_topo_base64(const char *text, uint8_t *out, size_t cap);
/* Unpacks in and compares its checksum. Returns the number of bytes, or -1 if it is damaged or more
 * than cap. */
ssize_t pvn_topo_inflate(const uint8_t *in, size_t len, uint8_t *out, size_t cap);

#endif
