/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy to a buffer of NCCL's, which a GPU may read meanwhile. With the protocols LL and LL128 the
 * GPU does not wait for the request: it polls the buffer for flags, and takes the data beside a new
 * flag. A word of LL is 4 bytes of data and 4 of a flag; a line of LL128 is 120 bytes of data and 8 of
 * a flag (src/device/prims_ll.h and prims_ll128.h of NCCL 2.30.7). So no flag may be visible before its
 * data. memcpy promises no order: glibc's stores the first or the last bytes of many lengths out of
 * turn.
 */
#ifndef PVN_BASE_COPY_IN_ORDER_H
#define PVN_BASE_COPY_IN_ORDER_H

#include <stddef.h>

/* Copies n bytes to dst, which is memory that the processor can access. The two do not overlap. The
 * bytes become visible in the order of their addresses, with two exceptions: those of an aligned word
 * of 8 bytes that is copied whole appear together, and the first 15 words of an aligned line of 128
 * bytes may appear in any order. All are visible before those of the thread's next copy. May be
 * called from any thread. */
void pvn_copy_in_order(void *dst, const void *src, size_t n);

#endif
