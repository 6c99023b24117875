/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole pages for memory that is registered with an adapter. Before Linux 5.12 the kernel does not copy pinned pages at
 * fork, so libibverbs removes the pages of each registration from children (MADV_DONTFORK). Other data in such a page
 * would be missing in a child, which would crash. A page has 64 KiB on some arm64 machines.
 */
#ifndef PVN_BASE_PAGES_H
#define PVN_BASE_PAGES_H

#include <stddef.h>

/* Allocates at least *len zero bytes in whole pages and sets *len to their number. The caller frees them with free().
 * Returns NULL if memory is short. */
void *pvn_pages_new(size_t *len);

#endif
