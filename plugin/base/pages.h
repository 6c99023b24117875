/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole pages for memory that an adapter writes into. Where the kernel does not copy pinned pages at fork (before
 * Linux 5.12), libibverbs takes the pages of each registration away from children (MADV_DONTFORK): what else lies in
 * such a page would be missing there, and the child would crash. A page has 64 KiB on some arm64 machines.
 */
#ifndef PVN_BASE_PAGES_H
#define PVN_BASE_PAGES_H

#include <stddef.h>

/* At least *len bytes, all zero, to be given back by free; *len becomes their number. NULL: there is no memory. */
void *pvn_pages_new(size_t *len);

#endif
