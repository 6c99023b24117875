/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The corpus of a binary format, in a form that people can read and review. An input that begins
 * with "hex:" stands for the bytes whose hexadecimal digits follow. Other characters are
 * skipped. An input without "hex:" is used unchanged. */
#ifndef PVN_TESTS_FUZZ_HEX_H
#define PVN_TESTS_FUZZ_HEX_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Returns the bytes that the input stands for, in memory of exactly that size. The caller frees
 * it. */
static inline uint8_t *fuzz_bytes(const uint8_t *data, size_t size, size_t *n)
{
    uint8_t *out, high = 0;
    size_t i, digits = 0;

    if (size < 4 || memcmp(data, "hex:", 4) != 0) {
        *n = size;
        out = malloc(size ? size : 1);
        if (size)
            memcpy(out, data, size);
        return out;
    }
    out = malloc(size);
    for (i = 4; i < size; i++) {
        uint8_t c = data[i], v;

        if (c >= '0' && c <= '9')
            v = c - '0';
        else if (c >= 'a' && c <= 'f')
            v = c - 'a' + 10;
        else
            continue;
        if (digits++ % 2)
            out[digits / 2 - 1] = (uint8_t)(high << 4 | v);
        else
            high = v;
    }
    *n = digits / 2;
    return realloc(out, *n ? *n : 1);
}

#endif
