/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A transport whose lanes carry nothing: they come up, or do not, as a test requests. For tests
 * of connection set-up. */
#ifndef PVN_TESTS_SUPPORT_MEMLANE_H
#define PVN_TESTS_SUPPORT_MEMLANE_H

#include "connect/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PVN_MEMLANES = 4 };

/* One plan per end (0 acceptor, 1 sender) and lane of a device. Values are what the operation
 * returns: 0, -EAGAIN always, or an error. caps: of the lane. */
struct pvn_memlane_plan {
    int lane_new, bind, verify;
    int fence_again; /* calls of fence that return -EAGAIN first */
    int fence;       /* what the next one returns */
    int fences;      /* calls that were made */
    unsigned caps;
    int verify_blocks_ms; /* the next call of verify, once */
};
extern struct pvn_memlane_plan pvn_memlane_plan[2][PVN_MEMLANES];
extern int pvn_memlane_open; /* lanes that exist */

void pvn_memlane_reset(void);
/* Their lanes are called "mem"; two of them, so that a device can
 * have lanes that differ in kind. */
extern const struct pvn_transport_ops pvn_mem_transport;
extern const struct pvn_transport_ops pvn_mem2_transport; /* "mem2" */
/* Gives a device its name and loopback's address. */
void pvn_memlane_device(struct pvn_device *dev, const char *name);

#ifdef __cplusplus
}
#endif

#endif
