/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the memory that the code of one shared library allocates by itself: calls of malloc, its
 * relatives and mmap whose return address is in that library. Memory that other libraries allocate
 * for it does not count. The test program links these functions, which replace those of the C
 * library. It cannot be used with sanitizers, which replace them, too.
 */
#ifndef PVN_TESTS_SUPPORT_COUNT_MEMORY_H
#define PVN_TESTS_SUPPORT_COUNT_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counts from now on, for the loaded library whose path has this ending. -1: no such library is
 * loaded. */
int count_memory_of(const char *ends_with);
/* The bytes that the library holds now, of those that were counted, rounded up as by the
 * allocator. */
size_t counted_memory(void);

#ifdef __cplusplus
}
#endif

#endif
