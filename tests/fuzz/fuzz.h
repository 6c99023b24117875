/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fuzz targets. Each is one C file with LLVMFuzzerTestOneInput. `make check` links it with
 * replay.cc, which runs it on the corpus and on mutations of it. tests/fuzz/libfuzzer builds it
 * with libFuzzer for long runs. */
#ifndef PVN_TESTS_FUZZ_FUZZ_H
#define PVN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libFuzzer's entry point. Always returns 0; a broken condition aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif

/* A condition that must hold for every input. */
static inline void fuzz_require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "violated: %s\n", what);
    abort();
}

#endif
