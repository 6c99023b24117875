/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the memory that the code of one shared library allocates for itself: calls of malloc and its relatives and of
 * mmap that come from its addresses. What other libraries allocate on its behalf is theirs. Linked into a test
 * program, whose functions then take the place of the C library's. Not under sanitizers, which do the same.
 */
#ifndef PVN_TESTS_SUPPORT_COUNT_MEMORY_H
#define PVN_TESTS_SUPPORT_COUNT_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, the loaded library whose path ends so. 0, or -1: there is none. */
int count_memory_of(const char *ends_with);
/* Bytes that it holds now, as the allocator rounds them up, of those that were counted. */
size_t counted_memory(void);

#ifdef __cplusplus
}
#endif

#endif
